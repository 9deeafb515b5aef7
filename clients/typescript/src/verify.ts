/** Webhooks of Towpath, and of every sender that follows Standard Webhooks: are they genuine? */

import { Invalid, InvalidSignature } from "./errors.ts";

/** A webhook whose signature is right. */
export interface Received<Payload = unknown> {
  /** The same in every attempt: tell repetitions by it. */
  id: string;
  /** When this attempt was sent. */
  at: Date;
  /** As it was signed. */
  body: Uint8Array;
  /** The body as JSON; it throws `Invalid` if it is something else. */
  readonly payload: Payload;
}

const PREFIX = "whsec_";
const LEAST_SECRET = 24; // bytes
const MOST_SECRET = 64;
const TOLERANCE = 300; // seconds, before and after our own time
const VERSION = "v1,";

/**
 * Return the webhook if a secret has signed it in the last five minutes.
 *
 * Pass the body as it arrived: as text or bytes, not as parsed JSON. Every other webhook rejects
 * with `InvalidSignature`.
 */
export async function verify<Payload = unknown>(
  headers: Headers | Record<string, string | string[] | undefined>,
  body: string | ArrayBuffer | Uint8Array,
  secret: string | readonly string[],
): Promise<Received<Payload>> {
  const keys = await Promise.all((typeof secret === "string" ? [secret] : secret).map(keyOf));
  const id = header(headers, "webhook-id");
  const timestamp = header(headers, "webhook-timestamp");
  // With a dot in the id the signed text could be split in two ways.
  if (!/^[\x20-\x2d\x2f-\x7e]+$/.test(id)) throw refused("the header webhook-id is missing or malformed");
  if (!/^[0-9]{1,11}$/.test(timestamp)) {
    throw refused("the header webhook-timestamp is missing or not a number");
  }
  const at = Number(timestamp) * 1000;
  if (Math.abs(Date.now() - at) > TOLERANCE * 1000) {
    throw refused("the header webhook-timestamp is more than five minutes away from now");
  }
  const bytes = bytesOf(body);
  const signed = concat(new TextEncoder().encode(`${id}.${timestamp}.`), bytes);
  for (const token of header(headers, "webhook-signature").split(" ")) {
    const signature = token.startsWith(VERSION) ? base64(token.slice(VERSION.length)) : undefined;
    if (!signature) continue;
    for (const key of keys) {
      // It compares in constant time.
      if (await crypto.subtle.verify("HMAC", key, signature, signed)) {
        return {
          id,
          at: new Date(at),
          body: bytes,
          get payload() {
            return parsed(bytes) as Payload;
          },
        };
      }
    }
  }
  throw refused("no signature of webhook-signature is right");
}

function header(headers: Headers | Record<string, string | string[] | undefined>, name: string) {
  if (headers instanceof Headers) return headers.get(name) ?? "";
  for (const [each, value] of Object.entries(headers)) {
    if (each.toLowerCase() === name) return (Array.isArray(value) ? value[0] : value) ?? "";
  }
  return "";
}

async function keyOf(secret: string): Promise<CryptoKey> {
  const key = base64(secret.startsWith(PREFIX) ? secret.slice(PREFIX.length) : secret);
  if (!key || key.length < LEAST_SECRET || key.length > MOST_SECRET) {
    // The secret is not repeated: errors end up in logs.
    throw refused(`the secret is not ${PREFIX} and the base64 of 24 to 64 bytes`);
  }
  return crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}

/** Read base64, with or without its padding; undefined if it is none. */
function base64(text: string): Uint8Array<ArrayBuffer> | undefined {
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text)) return undefined;
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function bytesOf(body: string | ArrayBuffer | Uint8Array): Uint8Array {
  if (typeof body === "string") return new TextEncoder().encode(body);
  if (body instanceof ArrayBuffer) return new Uint8Array(body);
  if (body instanceof Uint8Array) return body;
  throw refused("pass the body as it arrived, not as parsed JSON");
}

function concat(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}

function parsed(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    throw new Invalid("the body of the webhook is not JSON; read `body`", { code: "invalid_payload" });
  }
}

function refused(reason: string): InvalidSignature {
  return new InvalidSignature(`the webhook was not accepted: ${reason}`, {
    code: "invalid_signature",
  });
}
