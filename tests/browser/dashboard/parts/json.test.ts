/** The tree over the text of JSON, without a page. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { decoded } from "../../../../clients/typescript/src/payloads.ts";
import { textOf } from "../../../../dashboard/src/pages/channels/exact.ts";
import { AT_ONCE, type Node, openAtFirst, parsed, withTexts } from "../../../../dashboard/src/parts/json.ts";

/** The text of every leaf and name, in order. */
function told(text: string): string[] {
  const found: string[] = [];
  const line: Node[] = [parsed(text)];
  for (let node = line.shift(); node; node = line.shift()) {
    if (!node.items.length) found.push(text.slice(node.start, node.end));
    for (const { name } of node.items) if (name !== null) found.push(name);
    line.unshift(...node.items.map((item) => item.node));
  }
  return found;
}

test("digits, escapes and repeated names stay as they were stored", () => {
  const text = '{"n": 12345678901234567890, "d": 1.10, "e": 1e400, "n": -0, "u": "\\u00e9\\"", "数": "\u202e"}';

  assert.deepEqual(told(text), [
    ...['"n"', '"d"', '"e"', '"n"', '"u"', '"数"'],
    ...["12345678901234567890", "1.10", "1e400", "-0", '"\\u00e9\\""', '"\u202e"'],
  ]);
});

test("values of every kind are leaves", () => {
  for (const [text, kind] of [
    ["true", "word"],
    ["null", "word"],
    ['"text"', "text"],
    ["-1.5e+3", "number"],
    ["[]", "array"],
    ["{}", "object"],
  ] as const) {
    assert.equal(parsed(text).kind, kind, text);
  }
});

test("text that is no JSON is shown as it is", () => {
  for (const text of ["", "{", "[1", '{"a" 1}', "]", "1 2", "hello", '{"a": }x']) {
    const { kind, end } = parsed(text);
    assert.deepEqual([kind, end], ["raw", text.length], text);
  }
});

test("10,000 levels are read, and only some of them are open at first", () => {
  const text = "[".repeat(10_000) + "]".repeat(10_000);
  const root = parsed(text);

  assert.equal(root.end, 20_000);
  assert.ok(openAtFirst(root, 200).size <= 200);
});

test("of 100,000 items a page shows a hundred", () => {
  const text = JSON.stringify(Array.from({ length: 100_000 }, (_, nth) => ({ nth })));
  const open = openAtFirst(parsed(text), 200);
  const lines = [...open].reduce((sum, { items }) => sum + Math.min(items.length, AT_ONCE), 0);

  assert.ok(lines <= 200, String(lines));
});

test("1 MiB in one line is one leaf", () => {
  const text = JSON.stringify("x".repeat(2 ** 20));

  assert.equal(parsed(text).end, 2 ** 20 + 2);
});

test("events carry the text of their payloads, in frames and in pages", () => {
  const texts = ['{"n": 12345678901234567890, "1": 1.10, "e": 1e400}', '"\\u00e9"', "null"];
  const items = texts.map((text) => `{"type": "payload", "payload": ${text}}`).join();
  for (const json of [`{"events": {"channel": "a", "items": [${items}]}}`, `{"events": [${items}], "cursor": "b"}`]) {
    const { events } = withTexts(json) as { events: { payloadText: string }[] & { items?: { payloadText: string }[] } };

    assert.deepEqual((events.items ?? events).map(({ payloadText }) => payloadText), texts);
  }
  assert.deepEqual(withTexts('{"bye": {"after": 1.0}}'), { bye: { after: 1 } });
});

test("bytes of an event are shown as their text, not as JSON", () => {
  const frame = '{"events": [{"payload": "a\\nb", "encoding": "text"}, {"payload": "YQpi", "encoding": "base64"}, {"payload": 1.10, "encoding": "json"}]}';
  const { events } = withTexts(frame) as { events: { payload: unknown; encoding: string }[] };

  assert.deepEqual(events.map((event) => textOf(decoded(event))), ["a\nb", "a\nb", "1.10"]);
});
