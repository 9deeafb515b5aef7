/** Jobs ended in each step: completed ones, and on top of them failed ones, hatched. */

import type { Signal } from "@preact/signals";
import { useId } from "preact/hooks";

import { number } from "../../words.ts";
import { Frame, moment } from "./Frame.tsx";
import { type Range, ticks } from "./scale.ts";

export interface Ended {
  at: number;
  completed: number;
  failed: number;
}

export function Bars({ items, range, step, unit, at }: { items: Ended[]; range: Range; step: number; unit: string; at: Signal<number | null> }) {
  const hatch = useId().replace(/[^\w-]/g, "");
  const marks = ticks(Math.max(0, ...items.map(({ completed, failed }) => completed + failed)));
  const say = (nth: number) => {
    const item = items.find((each) => each.at === range[0] + nth * step);
    return `${number(item?.completed ?? 0)} completed, ${number(item?.failed ?? 0)} failed`;
  };
  return (
    <Frame
      label="Jobs ended"
      range={range}
      step={step}
      values={[0, marks.at(-1) ?? 1]}
      lines={marks.map((value) => ({ value, label: number(value) }))}
      unit={unit}
      at={at}
      say={say}
      table={{
        columns: ["Time", "Completed", "Failed"],
        rows: items.map((each) => [moment(each.at, range), number(each.completed), number(each.failed)]),
      }}
    >
      {({ x, y, wide }) => {
        const gap = wide > 4 ? 1 : 0;
        const bar = (item: Ended, from: number, to: number) => {
          const height = y(from) - y(to);
          if (height <= 0) return "";
          return `M${(x(item.at) + gap / 2).toFixed(1)} ${y(from).toFixed(1)}v${(-height).toFixed(1)}h${(wide - gap).toFixed(1)}v${height.toFixed(1)}z`;
        };
        return (
          <>
            <pattern id={hatch} width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
              <path d="M0 0V4" class="failed" stroke="currentColor" stroke-width="3" />
            </pattern>
            <path class="bars completed" d={items.map((item) => bar(item, 0, item.completed)).join("")} />
            <path
              class="bars failed hatched"
              fill={`url(#${hatch})`}
              d={items.map((item) => bar(item, item.completed, item.completed + item.failed)).join("")}
            />
          </>
        );
      }}
    </Frame>
  );
}
