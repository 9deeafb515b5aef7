/** How long jobs took, by time: the more jobs, the darker the cell. */

import type { Signal } from "@preact/signals";

import { counted, duration } from "../../words.ts";
import { Frame, moment } from "./Frame.tsx";
import { type Lasted, type Range, binned, quantile, scale } from "./scale.ts";

const PALEST = 0.3;

export function HeatMap({ items, range, step, at }: { items: Lasted[]; range: Range; step: number; at: Signal<number | null> }) {
  const [from, to] = range;
  const columns = Math.max(1, Math.round((to - from) / step));
  const { cells, edges, most } = binned(items, range, columns);
  // Whole powers of ten, at least two of them, so that equal run times do not fill the chart.
  const low = Math.floor(Math.log10(edges[0] ?? 1) + 1e-6);
  const high = Math.max(low + 2, Math.ceil(Math.log10(edges.at(-1) ?? 100) - 1e-6));
  const powers = Array.from({ length: high - low + 1 }, (_, nth) => low + nth);
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
      values={[low, high]}
      lines={powers.map((value) => ({ value, label: short(10 ** value) }))}
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
          const top = y(Math.log10(edges[row + 1] ?? 1));
          const bottom = y(Math.log10(edges[row] ?? 1));
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
