/** How the dashboard looks and listens in this browser, which remembers it. */

import type { Signal } from "@preact/signals";

import { Card } from "../../parts/notes.tsx";
import { dense, pageSize, singleKeys, theme } from "../../settings.ts";

export function Browser() {
  return (
    <Card title="This browser" note="kept here, and not on the server">
      <div class="stack">
        <Choice label="Theme" of={theme} among={{ system: "as the system", light: "light", dark: "dark" }} />
        <Choice label="Rows" of={dense} among={{ no: "comfortable", yes: "dense" }} />
        <Choice label="Jobs on a page" of={pageSize} among={{ "25": "25", "50": "50", "100": "100" }} />
        <Choice label="Keys without Ctrl, such as j, k and /" of={singleKeys} among={{ on: "on", off: "off" }} />
      </div>
    </Card>
  );
}

function Choice<T extends string>({ label, of, among }: { label: string; of: Signal<T>; among: Record<T, string> }) {
  return (
    <fieldset class="choice">
      <legend>{label}</legend>
      {(Object.entries(among) as [T, string][]).map(([value, words]) => (
        <label key={value} class="tick">
          <input type="radio" name={label} checked={of.value === value} onChange={() => (of.value = value)} />
          {words}
        </label>
      ))}
    </fieldset>
  );
}
