import { render } from "preact";
import "./style.css";
render(<p>Towpath</p>, document.getElementById("app")!);
