/**
 * JSON as a tree over its own text, so that every digit stays as it was stored.
 *
 * The parser has no recursion: a payload may have 10,000 levels. It reads only text that the server
 * has accepted as JSON; what is none becomes one leaf.
 */

export interface Node {
  kind: "object" | "array" | "text" | "number" | "word" | "raw";
  start: number;
  end: number;
  /** Of objects and arrays. */
  items: Item[];
}

export interface Item {
  /** The stored text of the name, with its quotes; null in an array. */
  name: string | null;
  node: Node;
}

const SPACE = /[ \t\r\n]*/y;
const TEXT = /"[^"\\]*(?:\\[^][^"\\]*)*"/y;
const NUMBER = /-?[0-9][0-9.eE+-]*/y;
const WORD = /true|false|null|NaN|-?Infinity/y;

export function parsed(text: string): Node {
  try {
    return tree(text);
  } catch {
    return { kind: "raw", start: 0, end: text.length, items: [] };
  }
}

function tree(text: string): Node {
  let at = 0;
  const open: Node[] = [];
  let root: Node | null = null;
  let name: string | null = null;

  const skip = () => {
    SPACE.lastIndex = at;
    SPACE.exec(text);
    at = SPACE.lastIndex;
  };
  const take = (shape: RegExp): string | null => {
    shape.lastIndex = at;
    const found = shape.exec(text);
    if (!found) return null;
    at = shape.lastIndex;
    return found[0];
  };
  const place = (node: Node) => {
    const parent = open.at(-1);
    if (parent) parent.items.push({ name, node });
    else if (root) throw new Error("there is text behind the value");
    else root = node;
    name = null;
  };
  const leaf = (kind: Node["kind"], start: number) => place({ kind, start, end: at, items: [] });

  for (;;) {
    skip();
    if (at >= text.length) break;
    const start = at;
    const sign = text[at] ?? "";
    const parent = open.at(-1);
    if (sign === "{" || sign === "[") {
      at += 1;
      const node: Node = { kind: sign === "{" ? "object" : "array", start, end: start, items: [] };
      place(node);
      open.push(node);
    } else if (sign === "}" || sign === "]") {
      at += 1;
      const closed = open.pop();
      if (!closed) throw new Error("there is nothing to close");
      closed.end = at;
    } else if (sign === ",") {
      at += 1;
    } else if (parent?.kind === "object" && name === null) {
      name = take(TEXT);
      skip();
      if (name === null || text[at] !== ":") throw new Error("a name is missing");
      at += 1;
    } else if (take(TEXT) !== null) leaf("text", start);
    else if (take(NUMBER) !== null) leaf("number", start);
    else if (take(WORD) !== null) leaf("word", start);
    else throw new Error("this is no JSON");
  }
  if (!root || open.length) throw new Error("the value has no end");
  return root;
}

/** The nodes that are open at first: near the root, as many as fit the budget. */
export function openAtFirst(root: Node, budget: number): Set<Node> {
  const open = new Set<Node>();
  const line: Node[] = [root];
  let left = budget;
  for (let nth = 0; nth < line.length; nth += 1) {
    const node = line[nth] as Node;
    const shown = Math.min(node.items.length, AT_ONCE);
    if (!node.items.length || shown > left) continue;
    left -= shown;
    open.add(node);
    for (const item of node.items.slice(0, AT_ONCE)) line.push(item.node);
  }
  return open;
}

/** So many items of a node are shown at once. */
export const AT_ONCE = 100;

const TOKENS = /"[^"\\]*(?:\\[^][^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const DEEPEST = 40; // levels that are still indented

/** JSON without spaces between its values, which stay as they are written. */
export function compact(text: string): string {
  return (text.match(TOKENS) ?? []).join("");
}

/** JSON with a line for each value, which stay as they are written. */
export function pretty(text: string): string {
  const tokens = text.match(TOKENS) ?? [];
  const lines: string[] = [];
  let depth = 0;
  let line = "";
  const next = () => {
    lines.push(line);
    line = "  ".repeat(Math.min(depth, DEEPEST));
  };
  for (const [nth, token] of tokens.entries()) {
    const after = tokens[nth + 1];
    if (token === "{" || token === "[") {
      line += token;
      if (after === "}" || after === "]") continue;
      depth += 1;
      next();
    } else if (token === "}" || token === "]") {
      const before = tokens[nth - 1];
      if (before !== "{" && before !== "[") {
        depth -= 1;
        next();
      }
      line += token;
    } else if (token === ",") {
      line += token;
      next();
    } else line += token === ":" ? ": " : token;
  }
  return [...lines, line].join("\n");
}

/** How many values are the mark of a hidden one. */
export function hiddenIn(text: string): number {
  const tokens = text.match(TOKENS) ?? [];
  const isHidden = (token: string, nth: number) => token === HIDDEN && tokens[nth - 1] === ":";
  return text.trim() === MARK ? 1 : tokens.filter(isHidden).length;
}

const MARK = "•••"; // as the server writes it
const HIDDEN = `"${MARK}"`;

/** How many headers have a hidden value. */
export function hiddenHeaders(headers: Record<string, string>): number {
  return Object.values(headers).filter((value) => value === MARK).length;
}

/** Read a frame or a page of events; `payloadText` of each event is the text that is stored. */
export function withTexts(text: string): unknown {
  const value = JSON.parse(text) as { events?: Told[] | { items: Told[] } } | null;
  const told = value?.events;
  if (!told) return value;
  const events = field(parsed(text), "events");
  const nodes = Array.isArray(told) ? events : field(events, "items");
  for (const [nth, event] of (Array.isArray(told) ? told : told.items).entries()) {
    const payload = field(nodes?.items[nth]?.node, "payload");
    if (payload) event.payloadText = text.slice(payload.start, payload.end);
  }
  return value;
}

interface Told {
  payloadText?: string;
}

function field(node: Node | undefined, name: string): Node | undefined {
  return node?.items.find((item) => item.name === `"${name}"`)?.node;
}
