/** Pages that can import the client. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { BrowserContext, Page } from "playwright-core";

import type * as sdk from "../../clients/typescript/src/index.ts";

export type Sdk = typeof sdk;

const HTML = "<!doctype html><title>a page</title>";

/** A page of an origin, to which the test adds the files of the client. */
export async function open(context: BrowserContext, origin: string): Promise<Page> {
  const opened = await context.newPage();
  await opened.route(/\/sdk\/.*$/, (route) => {
    const { type, body } = file(new URL(route.request().url()).pathname);
    return route.fulfill({ contentType: type, body });
  });
  // The page itself comes from there: one that comes from nowhere may not open a WebSocket.
  await opened.goto(`${origin}/healthz`);
  return opened;
}

/** What a page is made of: itself, and the files of the client. */
export function file(path: string): { type: string; body: string } {
  if (!path.startsWith("/sdk/")) return { type: "text/html", body: HTML };
  const body = readFileSync(join(given("TOWPATH_SDK"), path.slice("/sdk/".length)), "utf8");
  return { type: "text/javascript", body };
}

/** Run a function in a page, with the client and what it is given. */
export function withClient<T, Given>(
  at: Page,
  run: (sdk: Sdk, given: Given) => T | Promise<T>,
  given: Given,
): Promise<T> {
  const call = `import("/sdk/index.js").then((sdk) => (${run})(sdk, ${JSON.stringify(given)}))`;
  return at.evaluate(call) as Promise<T>;
}

export function given(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run ./dev test tests/browser`);
  return value;
}
