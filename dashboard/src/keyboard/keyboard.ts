/**
 * The keys of every page: one opens the palette, single ones move between rows.
 *
 * Single keys do nothing in a field, with Ctrl, Alt or Cmd, under a dialog, or if the settings turn them off.
 */

import { effect, signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";

import { place } from "../router.ts";
import { singleKeys } from "../settings.ts";

/** What is open over the page. */
export const over = signal<"palette" | "sheet" | null>(null);

export const PALETTE_KEYS = /Mac|iP/.test(navigator.platform) ? ["⌘", "K"] : ["Ctrl", "K"];

const ROWS = "main table.rows tbody tr:not(.more)";
const OPENER = "td:not(.choose) :is(a[href], button)"; // the first one of a row
const FIELD = "textarea, select, [contenteditable], input:not([type=checkbox], [type=radio])";

const SINGLE: Record<string, (event: KeyboardEvent) => void> = {
  j: () => move(1),
  k: () => move(-1),
  x: ({ shiftKey }) => choose(shiftKey),
  "/": search,
  "?": () => (over.value = "sheet"),
};

// Another address is another page, under whatever was open.
effect(() => {
  void place.value;
  over.value = null;
});

/** Listen, as long as the component is shown. */
export function useKeyboard(): void {
  // Not after the first paint: a key that is pressed as soon as the page is seen would be lost.
  useLayoutEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
}

function onKey(event: KeyboardEvent): void {
  const { ctrlKey, metaKey, altKey, shiftKey, target } = event;
  const key = event.key.toLowerCase();
  const isUnder = document.querySelector("dialog[open]") !== null;
  if (key === "k" && ctrlKey !== metaKey && !altKey && !shiftKey) {
    event.preventDefault(); // browsers have a use of their own for it
    if (over.value !== null || !isUnder) over.value = over.value === "palette" ? null : "palette";
    return;
  }
  const run = SINGLE[key];
  if (!run || ctrlKey || metaKey || altKey || isUnder || event.defaultPrevented || singleKeys.value === "off") return;
  if (target instanceof Element && target.closest(`${FIELD}, [role=menu]`)) return;
  event.preventDefault();
  run(event);
}

/** Focus the next row, or the one before; its link opens it. */
function move(by: number): void {
  const rows = [...document.querySelectorAll(ROWS)].filter((row) => row.querySelector(OPENER));
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  rows[at < 0 ? 0 : at + by]?.querySelector<HTMLElement>(OPENER)?.focus();
}

/** Click the box of the row that has the focus. */
function choose(isRange: boolean): void {
  const box = document.activeElement?.closest(ROWS)?.querySelector(".choose input");
  box?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, shiftKey: isRange }));
}

/** Go to the search field; a page without one has the palette. */
function search(): void {
  const field = document.querySelector<HTMLInputElement>("main input[type=search]");
  field?.focus();
  field?.select();
  if (!field) over.value = "palette";
}
