/** Graphs in layers, and what stopped a flow, without a page. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { culprits, unfinished } from "../../../../dashboard/src/pages/flows/remedies.ts";
import { type Edge, layout } from "../../../../dashboard/src/parts/graph.ts";

const SIZES = { width: 100, height: 20, across: 30, down: 10 };
const edges = (...pairs: string[]): Edge[] =>
  pairs.map((pair) => ({ parent: pair[0] ?? "", child: pair[1] ?? "" }));

/** How many pairs of edges between two neighbouring layers cross. */
function crossings(ids: string[], all: Edge[]): number {
  const { spots } = layout(ids, all, SIZES);
  const y = (id: string) => spots.get(id)?.y ?? 0;
  let found = 0;
  for (const one of all) {
    for (const other of all) if (y(one.parent) < y(other.parent) && y(one.child) > y(other.child)) found += 1;
  }
  return found;
}

test("a job is right of all jobs before it, by the longest path", () => {
  const { spots, width, height } = layout([..."dcba"], edges("ab", "bc", "ad", "cd"), SIZES);
  assert.deepEqual([..."abcd"].map((id) => spots.get(id)?.layer), [0, 1, 2, 3]);
  assert.equal(width, 4 * 100 + 3 * 30);
  assert.equal(height, 20);
});

test("no two jobs have the same place, and all lie within the graph", () => {
  const parts = Array.from({ length: 28 }, (_, nth) => `p${nth}`);
  const all = parts.flatMap((part) => [
    { parent: "first", child: part },
    { parent: part, child: "last" },
  ]);
  const { spots, width, height } = layout(["last", ...parts, "first"], all, SIZES);
  assert.equal(new Set([...spots.values()].map(({ x, y }) => `${x} ${y}`)).size, 30);
  for (const { x, y } of spots.values()) assert.ok(x >= 0 && x + 100 <= width && y >= 0 && y + 20 <= height);
  assert.equal(spots.get("first")?.y, (height - 20) / 2);
});

test("the order in a layer avoids crossings", () => {
  assert.equal(crossings([..."abcxyz"], edges("az", "by", "cx")), 0);
  assert.equal(crossings([..."abxypq"], edges("ay", "bx", "yp", "xq")), 0);
});

test("edges to jobs that are gone, a job alone and a cycle do no harm", () => {
  assert.equal(layout(["a"], edges("ab", "ca"), SIZES).edges.length, 0);
  assert.equal(layout([], [], SIZES).width, 0);
  assert.equal(layout([..."ab"], edges("ab", "ba"), SIZES).spots.size, 2);
});

test("500 jobs are placed", () => {
  const ids = Array.from({ length: 500 }, (_, nth) => String(nth));
  const all = ids.slice(1).map((id, nth) => ({ parent: String(Math.floor(nth / 2)), child: id }));
  assert.equal(layout(ids, all, SIZES).spots.size, 500);
});

test("a flow stopped at the first job that failed, not at those behind it", () => {
  const nodes = [..."abcd"].map((id) => ({ id, state: id === "a" ? "completed" : "buried" })) as never[];
  assert.deepEqual(culprits({ nodes, edges: edges("ab", "bc", "cd") }).map(({ id }) => id), ["b"]);
});

test("what is left is cancelled from its end", () => {
  const nodes = [..."abc"].map((id) => ({ id, state: id === "a" ? "reserved" : "blocked" })) as never[];
  assert.deepEqual(unfinished({ nodes, edges: edges("ab", "bc") }).map(({ id }) => id), ["c", "b", "a"]);
});
