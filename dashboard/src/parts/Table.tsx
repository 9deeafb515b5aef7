/** A table of figures; on a phone its rows are cards, by the classes of the cells. */

import type { ComponentChildren } from "preact";

export interface Column {
  name: ComponentChildren;
  /** Figures stand on the right. */
  isNumber?: boolean;
  class?: string;
}

interface Given {
  label: string;
  columns: Column[];
  children: ComponentChildren;
  class?: string;
}

export function Table({ label, columns, children, class: more = "" }: Given) {
  return (
    <div class="scroll" role="region" aria-label={label} tabIndex={0}>
      <table class={`rows ${more}`}>
        <thead>
          <tr>
            {columns.map((column, nth) => (
              <th key={nth} scope="col" class={`${column.isNumber ? "num" : ""} ${column.class ?? ""}`.trim()}>
                {column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
