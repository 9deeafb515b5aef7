/** Payloads: JSON as it is; raw bytes as text or base64, as `encoding` says. */

const CHUNK = 0x8000; // the most arguments of one function call

export function encoded(payload: unknown): { payload?: unknown; encoding?: "base64" } {
  if (!(payload instanceof Uint8Array)) return { payload };
  let binary = "";
  for (let at = 0; at < payload.length; at += CHUNK) {
    binary += String.fromCharCode(...payload.subarray(at, at + CHUNK));
  }
  return { payload: btoa(binary), encoding: "base64" };
}

export function decoded<T extends { payload?: unknown; encoding: string }>(shown: T): T {
  if (shown.encoding === "json" || typeof shown.payload !== "string") return shown;
  const text = shown.payload;
  const bytes =
    shown.encoding === "text"
      ? new TextEncoder().encode(text)
      : Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return { ...shown, payload: bytes };
}
