/** The arguments of a task, as its JSON schema tells them. */

export type Schema = Record<string, unknown>;

export interface Argument {
  name: string;
  /** "text", "number or null", "list of text". */
  kind: string;
  isRequired: boolean;
  /** The default as JSON; null: it has none. */
  otherwise: string | null;
}

const KINDS: Record<string, string> = {
  string: "text",
  integer: "whole number",
  number: "number",
  boolean: "true or false",
  null: "null",
  object: "object",
  array: "list",
};

const DEEPEST = 5; // levels of a type that are told

export function argumentsOf(schema: Schema): Argument[] {
  const required = Array.isArray(schema["required"]) ? schema["required"] : [];
  return Object.entries(part(schema["properties"])).map(([name, given]) => {
    const value = part(given);
    return {
      name,
      kind: kindOf(value, schema, 0),
      isRequired: required.includes(name),
      otherwise: "default" in value ? (JSON.stringify(value["default"]) ?? null) : null,
    };
  });
}

/** An object with the required arguments, to be filled in. */
export function skeleton(schema: Schema): string {
  const wanted = argumentsOf(schema).filter((each) => each.isRequired);
  const empty = (kind: string) => {
    if (kind.startsWith("text")) return "";
    if (kind.startsWith("list")) return [];
    if (kind.startsWith("object")) return {};
    if (kind.startsWith("true")) return false;
    return kind.includes("number") ? 0 : null;
  };
  return JSON.stringify(Object.fromEntries(wanted.map(({ name, kind }) => [name, empty(kind)])), null, 2);
}

/** What a payload lacks or has too much; the server checks the rest. */
export function misfits(schema: Schema, payload: unknown): string[] {
  if (typeof payload !== "object" || payload === null || Array.isArray(payload)) {
    return ["The task wants an object with its arguments."];
  }
  const all = argumentsOf(schema);
  const names = new Set(all.map(({ name }) => name));
  return [
    ...all.filter(({ name, isRequired }) => isRequired && !(name in payload)).map(({ name }) => `${name} is missing.`),
    ...Object.keys(payload).filter((name) => !names.has(name)).map((name) => `The task does not know ${name}.`),
  ];
}

function kindOf(given: Schema, root: Schema, depth: number): string {
  if (depth > DEEPEST) return "value";
  const next = (value: unknown) => kindOf(part(value), root, depth + 1);
  const { $ref, anyOf, enum: known, type } = given;
  if (typeof $ref === "string") return next(part(root["$defs"])[$ref.split("/").at(-1) ?? ""]);
  if (Array.isArray(anyOf)) return anyOf.map(next).join(" or ");
  if (Array.isArray(known)) return known.map((each) => JSON.stringify(each)).join(" or ");
  if (type === "array" && given["items"]) return `list of ${next(given["items"])}`;
  if (typeof given["format"] === "string") return String(given["format"]);
  return KINDS[String(type)] ?? "value";
}

function part(value: unknown): Schema {
  return typeof value === "object" && value !== null ? (value as Schema) : {};
}
