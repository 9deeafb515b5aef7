/** The dashboard: shows the page of the address. */

import { render } from "preact";

import "./style.css";
import "./settings.ts";
import { App } from "./App.tsx";
import { begin } from "./parts/live.ts";

begin();
render(<App />, document.getElementById("app") as HTMLElement);
