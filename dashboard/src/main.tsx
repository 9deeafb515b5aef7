/** The dashboard: shows the page of the address. */

import { render } from "preact";

import "./style.css";
import "./settings.ts";
import { App } from "./App.tsx";
import { begin } from "./parts/live.ts";
import { ask } from "./session.ts";

begin();
void ask(); // on every page: the answer is on its way (index.html), and must not be taken for that of a later question
render(<App />, document.getElementById("app") as HTMLElement);
