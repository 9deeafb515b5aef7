/** Where things stand in a chart: pure functions, which know nothing of pixels and colours. */

export type Range = readonly [number, number];

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const TIME_STEPS = [1, 2, 5, 10, 15, 30].map((each) => each * MINUTE).concat(
  [1, 2, 3, 6, 12].map((each) => each * HOUR),
  [1, 2, 7, 14, 30, 91].map((each) => each * DAY),
);
const ROWS_PER_DECADE = 3;

/** A function from values to places; a range without length is in the middle. */
export function scale([from, to]: Range, [low, high]: Range): (value: number) => number {
  if (from === to) return () => (low + high) / 2;
  return (value) => low + ((value - from) / (to - from)) * (high - low);
}

/** Round numbers from 0 to at least `most`: the last one is the top of the axis. */
export function ticks(most: number, about = 3, isWhole = true): number[] {
  const rough = Math.max(most, Number.MIN_VALUE) / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const found = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999) ?? 10 * power;
  const step = isWhole ? Math.max(1, found) : found;
  const count = Math.max(1, Math.ceil((most / step) * 0.999));
  return Array.from({ length: count + 1 }, (_, nth) => Number((nth * step).toPrecision(12)));
}

/** Instants of round local times in a range, at most `about` of them. */
export function timeTicks([from, to]: Range, about = 6): number[] {
  const step = TIME_STEPS.find((each) => (to - from) / each <= about) ?? (to - from) / about;
  const found: number[] = [];
  // Each tick is rounded for itself: the offset of the zone may change within the range.
  for (let at = rounded(from, step); at <= to && found.length <= about; at = rounded(at + step * 1.5, step)) {
    if (at >= from) found.push(at);
  }
  return found;
}

/** The last round local time that is not after an instant. */
function rounded(at: number, step: number): number {
  const offset = new Date(at).getTimezoneOffset() * MINUTE;
  const local = Math.floor((at - offset) / step) * step;
  return local + new Date(local + offset).getTimezoneOffset() * MINUTE;
}

export interface Lasted {
  at: number;
  ms: number;
}

export interface Cell {
  column: number;
  row: number;
  count: number;
}

export interface Heat {
  cells: Cell[];
  /** The milliseconds at which each row begins, and at which the last one ends. */
  edges: number[];
  most: number;
}

/** Counts by time and by length; the rows grow by the third root of ten. */
export function binned(items: readonly Lasted[], [from, to]: Range, columns: number): Heat {
  const inside = items.filter(({ at }) => at >= from && at <= to);
  if (!inside.length) return { cells: [], edges: [], most: 0 };
  const rows = inside.map(({ ms }) => Math.floor(Math.log10(Math.max(1, ms)) * ROWS_PER_DECADE + 1e-9));
  const lowest = Math.min(...rows);
  const highest = Math.max(...rows);
  const counts = new Map<string, Cell>();
  for (const [nth, { at }] of inside.entries()) {
    const column = Math.min(columns - 1, Math.floor(((at - from) / (to - from)) * columns));
    const row = (rows[nth] ?? lowest) - lowest;
    const cell = counts.get(`${column} ${row}`) ?? { column, row, count: 0 };
    cell.count += 1;
    counts.set(`${column} ${row}`, cell);
  }
  const cells = [...counts.values()];
  const edges = Array.from({ length: highest - lowest + 2 }, (_, nth) => 10 ** ((lowest + nth) / ROWS_PER_DECADE));
  return { cells, edges, most: Math.max(...cells.map(({ count }) => count)) };
}

/** The value that a share of the others does not exceed. */
export function quantile(values: readonly number[], share: number): number | null {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? null;
}

/** The step in which an instant lies, by its number. */
export function stepAt(at: number, from: number, step: number, count: number): number {
  return Math.max(0, Math.min(count - 1, Math.floor((at - from) / step)));
}
