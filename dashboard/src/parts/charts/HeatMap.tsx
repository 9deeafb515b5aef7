/** How long jobs took, by time: the more jobs, the darker the cell. */

import type { Signal } from "@preact/signals";

import { counted, duration } from "../../words.ts";
import { Frame, moment } from "./Frame.tsx";
import { type Lasted, type Range, binned, quantile, scale } from "./scale.ts";

const PALEST = 0.15;

export function HeatMap({ items, range, step, at }: { items: Lasted[]; range: Range; step: number; at: Signal<number | null> }) {
  const [from, to] = range;
  const columns = Math.max(1, Math.round((to - from) / step));
  const { cells, edges, most } = binned(items, range, columns);
  const low = edges[0] ?? 1;
  const high = edges.at(-1) ?? 1000;
  const decades = edges.filter((edge) => Math.abs(Math.log10(edge) - Math.round(Math.log10(edge))) < 1e-6);
  const lengths = Array.from({ length: columns }, (): number[] => []);
  for (const { at: time, ms } of items) {
    if (time >= from && time <= to) lengths[Math.min(columns - 1, Math.floor((time - from) / step))]?.push(ms);
  }
  const summary = (nth: number) => {
    const found = lengths[nth] ?? [];
    return found.length
      ? `${counted(found.length, "job")}, half within ${duration(quantile(found, 0.5) ?? 0)}, the longest ${duration(Math.max(...found))}`
      : "no job";
  };
  const shade = scale([1, Math.max(2, most)], [PALEST, 1]);
  return (
    <Frame
      label="How long jobs take"
      range={range}
      step={step}
      values={[Math.log10(low), Math.log10(high)]}
      lines={(decades.length ? decades : [low]).map((edge) => ({ value: Math.log10(edge), label: short(edge) }))}
      unit="run time"
      at={at}
      say={summary}
      table={{
        columns: ["Time", "Jobs and run times"],
        rows: lengths.flatMap((found, nth) => (found.length ? [[moment(from + nth * step, range), summary(nth)]] : [])),
      }}
    >
      {({ x, y, wide }) =>
        cells.map(({ column, row, count }) => {
          const top = y(Math.log10(edges[row + 1] ?? high));
          const bottom = y(Math.log10(edges[row] ?? low));
          return (
            <rect
              key={`${column} ${row}`}
              class="heat"
              x={x(from + column * step)}
              y={top + 0.5}
              width={Math.max(1, wide - (wide > 4 ? 1 : 0))}
              height={Math.max(1, bottom - top - 1)}
              fill-opacity={shade(count).toFixed(2)}
            />
          );
        })
      }
    </Frame>
  );
}

/** The milliseconds of an axis: "10 ms", "1 s", "100 s". */
function short(ms: number): string {
  const round = Number(ms.toPrecision(2));
  return round < 1000 ? `${round} ms` : `${Number((round / 1000).toPrecision(2))} s`;
}
