/** What the form that enqueues a job computes, without a page: mistakes, differences, arguments. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { diff, nearChanges } from "../../../../dashboard/src/pages/enqueue/diff.ts";
import { mistakeIn } from "../../../../dashboard/src/pages/enqueue/mistake.ts";
import { argumentsOf, misfits, skeleton } from "../../../../dashboard/src/pages/enqueue/schema.ts";
import { compact, hiddenIn, pretty } from "../../../../dashboard/src/parts/json.ts";

const GOOD = [
  "{}",
  "[]",
  " null ",
  "-0.5e+10",
  '"a\\u00e9\\n"',
  '{"a": [1, {"b": "c"}], "d": true}',
  "[".repeat(10_000) + "]".repeat(10_000),
  JSON.stringify("x".repeat(1_000_000)),
];
const BAD: [string, number, number, RegExp][] = [
  ["", 1, 1, /value is missing/],
  ["{", 1, 2, /} is missing/],
  ["[1, 2", 1, 6, /\] is missing/],
  ['{"a": 1,\n "b" 2}', 2, 6, /colon/],
  ['{"a": 1\n "b": 2}', 2, 2, /comma or }/],
  ["[1 2]", 1, 4, /comma or \]/],
  ['{"a": 1,}', 1, 9, /comma before/],
  ["[1,]", 1, 4, /comma before/],
  ["{a: 1}", 1, 2, /double quotes/],
  ["['a']", 1, 2, /double quotes/],
  ['["a]', 1, 2, /no end/],
  ['["a\tb"]', 1, 2, /backslash/],
  ["[01]", 1, 2, /number/],
  ["[1.]", 1, 2, /number/],
  ["[NaN]", 1, 2, /value is expected/],
  ["[True]", 1, 2, /value is expected/],
  ["{} {}", 1, 4, /behind the value/],
];

test("JSON has no mistake, however deep or long it is", () => {
  for (const text of GOOD) assert.equal(mistakeIn(text), null, text.slice(0, 40));
});

test("a mistake is found where JSON.parse finds one, and is named with its place", () => {
  for (const [text, line, column, message] of BAD) {
    assert.throws(() => JSON.parse(text) as unknown);
    const found = mistakeIn(text);
    assert.deepEqual([found?.line, found?.column], [line, column], text);
    assert.match(found?.message ?? "", message, text);
  }
});

test("random cuts of JSON are mistakes exactly where JSON.parse says so", () => {
  const text = '{"a": [1, -2.5e3, {"b": "c\\"d"}], "e": null, "f": [true, false, {}]}';
  for (let from = 0; from < text.length; from += 1) {
    for (const without of [text.slice(0, from), text.slice(0, from) + text.slice(from + 1)]) {
      let isGood = true;
      try {
        JSON.parse(without);
      } catch {
        isGood = false;
      }
      assert.equal(mistakeIn(without) === null, isGood, without);
    }
  }
});

test("lines and spaces change, values do not", () => {
  const stored = '{"big":12345678901234567890,"price":1.10,"list":[1,[],{}],"text":"a: {b}, [c]"}';
  const lines = pretty(stored);
  assert.equal(compact(lines), stored);
  assert.equal(lines.split("\n").length, 10);
  assert.match(lines, /\n {2}"price": 1\.10,\n/);
  assert.equal(compact(" [ 1 , 2 ] "), "[1,2]");
});

test("hidden values are counted, other text that looks like them is not", () => {
  assert.equal(hiddenIn('{"token":"•••","list":["•••"],"a":"x •••"}'), 1);
  assert.equal(hiddenIn("•••"), 1);
});

test("a difference has exactly the changed lines", () => {
  const lines = diff("a\nb\nc\nd", "a\nB\nc\nd\ne");
  assert.deepEqual(
    lines.map(({ kind, text }) => `${kind} ${text}`),
    ["same a", "gone b", "new B", "same c", "same d", "new e"],
  );
  assert.deepEqual(diff("a\nb", "a\nb").filter(({ kind }) => kind !== "same"), []);
});

test("a difference applied to the old text is the new one", () => {
  const random = (seed: number) => Array.from({ length: 30 }, (_, nth) => String((nth * seed) % 5)).join("\n");
  for (let seed = 1; seed < 40; seed += 1) {
    const [before, after] = [random(seed), random(seed + 3)];
    const lines = diff(before, after);
    const side = (left: string) => lines.filter(({ kind }) => kind !== left).map(({ text }) => text).join("\n");
    assert.equal(side("new"), before);
    assert.equal(side("gone"), after);
  }
});

test("lines far from a change are left out", () => {
  const before = Array.from({ length: 100 }, (_, nth) => `line ${nth}`).join("\n");
  const shown = nearChanges(diff(before, before.replace("line 50\n", "line fifty\n")));
  assert.equal(shown.length, 10);
  assert.deepEqual([shown[0], shown.at(-1)], [null, null]);
});

const SCHEMA = {
  type: "object",
  properties: {
    to: { type: "string" },
    copies: { type: "integer", default: 1 },
    tags: { type: "array", items: { type: "string" } },
    who: { anyOf: [{ $ref: "#/$defs/Person" }, { type: "null" }], default: null },
  },
  required: ["to", "tags"],
  $defs: { Person: { type: "object" } },
};

test("the arguments of a task are told in words", () => {
  assert.deepEqual(
    argumentsOf(SCHEMA).map(({ name, kind, isRequired, otherwise }) => [name, kind, isRequired, otherwise]),
    [
      ["to", "text", true, null],
      ["copies", "whole number", false, "1"],
      ["tags", "list of text", true, null],
      ["who", "object or null", false, "null"],
    ],
  );
  assert.deepEqual(JSON.parse(skeleton(SCHEMA)), { to: "", tags: [] });
});

test("missing and unknown arguments are named", () => {
  assert.deepEqual(misfits(SCHEMA, { to: "ann", tags: [] }), []);
  assert.deepEqual(misfits(SCHEMA, { tag: 1, to: "" }), ["tags is missing.", "The task does not know tag."]);
  assert.equal(misfits(SCHEMA, [1]).length, 1);
});
