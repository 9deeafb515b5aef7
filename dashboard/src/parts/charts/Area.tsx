/** A figure over time, such as the backlog, as a line with its area. */

import type { Signal } from "@preact/signals";

import { number } from "../../words.ts";
import { Frame, moment } from "./Frame.tsx";
import { type Range, ticks } from "./scale.ts";

export interface Point {
  at: number;
  /** Null: it was not noted. */
  value: number | null;
}

export function Area({ label, items, range, step, unit, at }: { label: string; items: Point[]; range: Range; step: number; unit: string; at: Signal<number | null> }) {
  const marks = ticks(Math.max(0, ...items.map(({ value }) => value ?? 0)));
  const said = (value: number | null | undefined) => (value === null || value === undefined ? "not noted" : number(value));
  return (
    <Frame
      label={label}
      range={range}
      step={step}
      values={[0, marks.at(-1) ?? 1]}
      lines={marks.map((value) => ({ value, label: number(value) }))}
      unit={unit}
      at={at}
      say={(nth) => said(items.find((each) => each.at === range[0] + nth * step)?.value)}
      table={{ columns: ["Time", label], rows: items.map((each) => [moment(each.at, range), said(each.value)]) }}
    >
      {({ x, y, wide, bottom }) => {
        const spot = ({ at: time, value }: Point) => `${(x(time) + wide / 2).toFixed(1)} ${y(value ?? 0).toFixed(1)}`;
        return runs(items).map((run) => {
          const line = run.map(spot).join("L");
          const first = x(run[0]?.at ?? 0) + wide / 2;
          const last = x(run.at(-1)?.at ?? 0) + wide / 2;
          return (
            <g key={first}>
              <path class="area" d={`M${first.toFixed(1)} ${bottom}L${line}L${last.toFixed(1)} ${bottom}z`} />
              <path class="line" d={`M${line}h0`} />
            </g>
          );
        });
      }}
    </Frame>
  );
}

/** The points in a row that have a value. */
function runs(items: Point[]): Point[][] {
  const found: Point[][] = [[]];
  for (const item of items) {
    if (item.value !== null) found.at(-1)?.push(item);
    else if (found.at(-1)?.length) found.push([]);
  }
  return found.filter((run) => run.length);
}
