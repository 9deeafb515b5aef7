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

/** Whether a value holds numbers whose digits may have been lost when it was read. */
export function hasLostDigits(value: unknown): boolean {
  if (typeof value === "number") return Math.abs(value) > Number.MAX_SAFE_INTEGER;
  return typeof value === "object" && value !== null && Object.values(value).some(hasLostDigits);
}
