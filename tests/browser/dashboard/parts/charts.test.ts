/** Charts: round axes, times of the local zone, and counts by time and length. */

import assert from "node:assert/strict";
import { test } from "node:test";

process.env["TZ"] = "Europe/Zurich";

const { binned, quantile, scale, stepAt, ticks, timeTicks } = await import("../../../../dashboard/src/parts/charts/scale.ts");

test("a scale places values between two ends, also upside down", () => {
  const y = scale([0, 10], [100, 0]);
  assert.deepEqual([y(0), y(5), y(10)], [100, 50, 0]);
  assert.equal(scale([3, 3], [0, 8])(3), 4);
});

test("an axis has few round numbers and reaches its highest value", () => {
  for (const most of [0, 1, 2, 3, 7, 10, 33, 99, 101, 1_204, 48_210, 999_999]) {
    const found = ticks(most);
    assert.equal(found[0], 0);
    assert.ok((found.at(-1) ?? 0) >= most, `${most}: ${found}`);
    assert.ok(found.length >= 2 && found.length <= 5, `${most}: ${found}`);
    assert.ok(found.every(Number.isInteger), `${most}: ${found}`);
  }
  assert.deepEqual(ticks(33), [0, 20, 40]);
  assert.deepEqual(ticks(0.3, 3, false), [0, 0.1, 0.2, 0.3]);
});

test("the times of an axis are round where the reader lives", () => {
  const from = Date.parse("2026-11-18T09:07:30Z");
  const hour = timeTicks([from, from + 3_600_000]);
  assert.deepEqual(
    hour.map((at) => new Date(at).toISOString().slice(11, 16)),
    ["09:10", "09:20", "09:30", "09:40", "09:50", "10:00"],
  );
  const week = timeTicks([from, from + 7 * 86_400_000]);
  assert.ok(week.every((at) => new Date(at).getHours() === 0));
  const spring = Date.parse("2026-03-27T12:00:00Z"); // the clock goes forward on the 29th
  const days = timeTicks([spring, spring + 4 * 86_400_000]);
  assert.deepEqual(
    days.map((at) => new Date(at).getHours()),
    [0, 0, 0, 0],
  );
  assert.deepEqual(timeTicks([5, 5]).length <= 1, true);
});

test("a heat map counts every item of its range once", () => {
  const items = Array.from({ length: 1000 }, (_, nth) => ({ at: nth, ms: (nth % 7) ** 5 }));
  const { cells, edges, most } = binned([...items, { at: 5_000, ms: 1 }], [0, 1000], 10);
  assert.equal(cells.reduce((sum, { count }) => sum + count, 0), 1000);
  assert.ok(cells.every(({ column, row }) => column < 10 && row < edges.length - 1));
  assert.equal(most, Math.max(...cells.map(({ count }) => count)));
  assert.deepEqual(binned([], [0, 1], 10), { cells: [], edges: [], most: 0 });
});

test("an item of a second stands at the edge of its decade", () => {
  const { edges } = binned([{ at: 0, ms: 1000 }], [0, 1], 1);
  assert.ok(Math.abs((edges[0] ?? 0) - 1000) < 0.001, String(edges));
});

test("quantiles and steps stay within what there is", () => {
  const values = Array.from({ length: 100 }, (_, nth) => 100 - nth);
  assert.deepEqual([quantile(values, 0.5), quantile(values, 0.95), quantile([], 0.5)], [51, 96, null]);
  assert.deepEqual([stepAt(-5, 0, 10, 6), stepAt(25, 0, 10, 6), stepAt(999, 0, 10, 6)], [0, 2, 5]);
});
