/** Goes from page to page. "Page 3 of 976" is computed; only the neighbours and the ends are linked. */

import type { ComponentChildren } from "preact";

import { Button } from "./Button.tsx";

interface Given {
  prev?: (() => void) | undefined;
  next?: (() => void) | undefined;
  where: string;
  note?: ComponentChildren;
}

export function Pager({ prev, next, where, note }: Given) {
  return (
    <nav class="bar pager" aria-label="Pages of the list">
      <Button onClick={prev} disabled={!prev}>
        ‹ Prev
      </Button>
      <span aria-live="polite">{where}</span>
      <Button onClick={next} disabled={!next}>
        Next ›
      </Button>
      {note !== undefined && <span class="note push">{note}</span>}
    </nav>
  );
}
