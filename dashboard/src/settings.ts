/** What this browser remembers: never a token, never a payload. */

import { type Signal, effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

export const theme = remembered<Theme>("theme", "system", ["system", "light", "dark"]);
export const dense = remembered<"yes" | "no">("dense", "no", ["yes", "no"]);
export const pageSize = remembered<"25" | "50" | "100">("page-size", "50", ["25", "50", "100"]);
export const singleKeys = remembered<"on" | "off">("single-keys", "on", ["on", "off"]);

effect(() => {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset["theme"];
  else root.dataset["theme"] = theme.value;
  root.dataset["dense"] = dense.value;
});

function remembered<T extends string>(name: string, otherwise: T, known: readonly T[]): Signal<T> {
  const key = `towpath.${name}`;
  const held = signal(known.find((each) => each === stored(key)) ?? otherwise);
  effect(() => {
    try {
      localStorage.setItem(key, held.value);
    } catch {
      // A browser may refuse to store anything; the choice then lasts as long as the page.
    }
  });
  return held;
}

function stored(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}
