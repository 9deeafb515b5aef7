/** JSON that is typed is sent with the digits that were typed. */

interface Exact {
  parse(text: string, reviver: (name: string, value: unknown, context: { source?: string }) => unknown): unknown;
  rawJSON?: (text: string) => unknown;
}

/** Read JSON; a number that JavaScript cannot hold stays as it was written. */
export function exactly(text: string): unknown {
  const json = JSON as unknown as Exact;
  return json.parse(text, (_, value, { source } = {}) =>
    typeof value === "number" && source !== undefined && String(value) !== source && json.rawJSON
      ? json.rawJSON(source)
      : value,
  );
}
