/** Finds the first mistake in JSON text, and says it in words, at its place. */

export interface Mistake {
  /** Where it is, in characters. */
  at: number;
  /** Both from 1. */
  line: number;
  column: number;
  message: string;
}

const SPACE = /[ \t\r\n]*/y;
const TEXT = /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y;
const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const WORD = /(?:true|false|null)(?![A-Za-z0-9_])/y;

/** The first mistake, or null if the text is JSON. It has no recursion, as nesting may be deep. */
export function mistakeIn(text: string): Mistake | null {
  const open: ("{" | "[")[] = [];
  let at = 0;
  /** `value`, `first` (a value or the end), `name`, `firstName` (or the end), `after` a value. */
  let wanted: "value" | "first" | "name" | "firstName" | "after" = "value";

  const take = (shape: RegExp): boolean => {
    shape.lastIndex = at;
    if (!shape.test(text)) return false;
    at = shape.lastIndex;
    return true;
  };
  const skip = () => take(SPACE);
  const wrong = (message: string) => ({ at, ...lineOf(text, at), message });

  for (;;) {
    skip();
    const sign = text[at];
    if (sign === undefined) {
      if (wanted === "after" && !open.length) return null;
      if (!text.trim()) return wrong("A value is missing; {} is an empty one.");
      return wrong(open.length ? `The text ends here, but a ${open.at(-1) === "{" ? "}" : "]"} is missing.` : "A value is missing.");
    }
    if (wanted === "after") {
      const inside = open.at(-1);
      if (inside === undefined) return wrong("There is more text behind the value.");
      if (sign === ",") {
        at += 1;
        wanted = inside === "{" ? "name" : "value";
      } else if (sign === (inside === "{" ? "}" : "]")) {
        at += 1;
        open.pop();
      } else return wrong(inside === "{" ? "A comma or } is expected here." : "A comma or ] is expected here.");
    } else if (wanted === "name" || wanted === "firstName") {
      if (sign === "}" && wanted === "firstName") {
        at += 1;
        open.pop();
        wanted = "after";
        continue;
      }
      if (sign === "}") return wrong("Remove the comma before this }.");
      if (sign !== '"') return wrong("A name in double quotes is expected here.");
      if (!take(TEXT)) return wrong(badText(text, at));
      skip();
      if (text[at] !== ":") return wrong("A colon is expected here.");
      at += 1;
      wanted = "value";
    } else if (sign === "]" && wanted === "first") {
      at += 1;
      open.pop();
      wanted = "after";
    } else if (sign === "{" || sign === "[") {
      at += 1;
      open.push(sign);
      wanted = sign === "{" ? "firstName" : "first";
    } else if (sign === '"') {
      if (!take(TEXT)) return wrong(badText(text, at));
      wanted = "after";
    } else if (take(WORD)) wanted = "after";
    else if (/[-0-9]/.test(sign)) {
      const start = at;
      if (!take(NUMBER) || /[\w.+-]/.test(text[at] ?? " ")) {
        at = start;
        return wrong("This is not a number of JSON.");
      }
      wanted = "after";
    } else if (sign === "]") return wrong("Remove the comma before this ].");
    else return wrong(sign === "'" ? "Text stands in double quotes." : "A value is expected here: text in double quotes, a number, true, false, null, { or [.");
  }
}

function badText(text: string, at: number): string {
  const rest = text.slice(at + 1);
  const end = /(?<!\\)(?:\\\\)*"/.exec(rest);
  const line = rest.indexOf("\n");
  if (!end || (line >= 0 && line < end.index)) return "This text has no end: a double quote is missing on its line.";
  return "This text holds a sign that must be written with a backslash.";
}

function lineOf(text: string, at: number): { line: number; column: number } {
  const before = text.slice(0, at);
  return { line: before.split("\n").length, column: at - before.lastIndexOf("\n") };
}
