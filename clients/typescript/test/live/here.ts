/** The server that the tests are run against; `tests/clients/test_typescript.py` starts it. */

import { randomUUID } from "node:crypto";

import { Towpath, type TowpathOptions } from "../../src/index.ts";

export const url = given("TOWPATH_URL");
export const email = given("TOWPATH_EMAIL");
export const password = given("TOWPATH_PASSWORD");

/** A client of the superuser. */
export async function superuser(options: TowpathOptions = {}): Promise<Towpath> {
  const towpath = new Towpath(url, options);
  await towpath.authWithPassword(email, password, { collection: "_superusers" });
  return towpath;
}

/** A client for each line: of the superuser, unless there is a token. */
export async function lines(token?: string): Promise<Record<string, Towpath>> {
  const known = { token: token ?? (await superuser()).token };
  return {
    "a WebSocket": new Towpath(url, known),
    "server-sent events": new Towpath(url, { ...known, WebSocket: null }),
    "requests that wait": new Towpath(url, { ...known, WebSocket: null, fetch: withoutServerSent }),
  };
}

/** Hides from the server that this client reads answers while they go on. */
export const withoutServerSent: typeof fetch = (address, request) => {
  const headers = new Headers(request?.headers);
  headers.set("Accept", "application/json");
  return fetch(address, { ...request, headers });
};

/** A client of a new user. */
export async function newUser(fields: Record<string, unknown> = {}): Promise<Towpath> {
  const account = { email: `${randomUUID()}@example.com`, password: "correct horse", ...fields };
  await (await superuser()).collection("users").create(account);
  const towpath = new Towpath(url);
  await towpath.authWithPassword(account.email, account.password);
  return towpath;
}

/** A topic of one test's own. */
export function newTopic(): string {
  return `t-${randomUUID()}`;
}

/** Wait until a condition holds, however long the machine takes. */
export async function eventually<T>(look: () => Promise<T | false | undefined>): Promise<T> {
  for (const deadline = Date.now() + 60_000; ;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > deadline) throw new Error("it never happened");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A promise, and what resolves it. */
export function gate<T = void>() {
  let open!: (value: T) => void;
  const opened = new Promise<T>((resolve) => (open = resolve));
  return { open, opened };
}

function given(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run ./dev test tests/clients`);
  return value;
}
