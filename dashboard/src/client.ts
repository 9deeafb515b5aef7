/** The one client of this page. Every call to the server is a verb of the TypeScript SDK. */

import { signal } from "@preact/signals";

import { NetworkError, TimeoutError, Towpath, TowpathError, Unauthorized } from "../../clients/typescript/src/index.ts";
import { withTexts } from "./parts/json.ts";

export { newId } from "../../clients/typescript/src/ids.ts";
export * from "../../clients/typescript/src/index.ts";

const FROM_CLOCKS = 2_000; // milliseconds that two clocks may differ without being wrong

/** How far the clock of the server is ahead of ours, in milliseconds. */
export const ahead = signal(0);

export const api = new Towpath(new URL(document.baseURI).pathname, { fetch: noting, parse: withTexts });

/** The time of the server: a wrong clock of this computer must not show negative ages. */
export function serverTime(): number {
  return Date.now() + ahead.peek();
}

/** Whether the server refused a call because the login has ended; a closed API says so otherwise. */
export function isLoggedOut(error: unknown): boolean {
  return error instanceof Unauthorized || codeOf(error) === "http_disabled";
}

/** An error as a sentence for a person. */
export function said(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(sentence) ? sentence : `${sentence}.`;
}

/** Why something was not done; without an answer it may have been. */
export function notDone(error: unknown): string {
  if (error instanceof NetworkError || error instanceof TimeoutError) return "The server gave no answer, so it may not be done. Look before you do it again.";
  return `${said(error)} Nothing was changed.`;
}

/** The stable code of an error, to search for. */
export function codeOf(error: unknown): string {
  return error instanceof TowpathError ? error.code : "";
}

async function noting(...request: Parameters<typeof fetch>): Promise<Response> {
  const answer = await fetch(...request);
  const date = Date.parse(answer.headers.get("date") ?? "");
  if (!Number.isNaN(date)) {
    const found = date + 500 - Date.now(); // the header counts whole seconds
    ahead.value = Math.abs(found) > FROM_CLOCKS ? found : 0;
  }
  return answer;
}
