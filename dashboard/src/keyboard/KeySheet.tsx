/** The sheet that lists the keys. */

import { Dialog } from "../parts/Dialog.tsx";
import { href } from "../router.ts";
import { singleKeys } from "../settings.ts";
import { PALETTE_KEYS, over } from "./keyboard.ts";

const KEYS: [keys: string[], effect: string][] = [
  [PALETTE_KEYS, "find a page, a topic or a job"],
  [["j"], "the next row"],
  [["k"], "the row before"],
  [["Enter"], "open the row"],
  [["x"], "choose the row, or leave it out"],
  [["Shift", "x"], "the same for all rows since the last x"],
  [["/"], "the search field of the page"],
  [["?"], "this sheet"],
  [["Esc"], "close what is open"],
];

export function KeySheet() {
  return (
    <Dialog title="Keys" onClose={() => (over.value = null)}>
      <div class="stack">
        <dl class="key-sheet">
          {KEYS.map(([keys, effect]) => (
            <div key={effect}>
              <dt>
                <Keys of={keys} />
              </dt>
              <dd>{effect}</dd>
            </div>
          ))}
        </dl>
        <p class="note">
          Single keys are {singleKeys.value}: <a href={href("/settings/browser")}>change this in the settings</a>. They do nothing while you
          type.
        </p>
      </div>
    </Dialog>
  );
}

export function Keys({ of }: { of: readonly string[] }) {
  return (
    <span class="keys-pressed">
      {of.map((key) => (
        <kbd key={key}>{key}</kbd>
      ))}
    </span>
  );
}
