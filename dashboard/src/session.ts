/** The login of this browser, which is a cookie that scripts cannot read. */

import { signal } from "@preact/signals";

import { Forbidden, type Me, api, isLoggedOut } from "./client.ts";

/** `ended`: there was a login; the page stays as it is until there is one again. */
export type Session = "unknown" | "in" | "out" | "ended" | "unreachable";

export const session = signal<Session>("unknown");
export const me = signal<Me | null>(null);
/** Grows with every login, so that what was refused is read again. */
export const logins = signal(0);
export const trouble = signal<unknown>(null);

const SUPERUSERS = { collection: "_superusers", cookie: true } as const;

/** Ask the server whether this browser is logged in. */
export async function ask(): Promise<void> {
  try {
    me.value = await api.me();
    session.value = "in";
  } catch (error) {
    trouble.value = error;
    // An account that is no superuser may log in as one.
    session.value = isLoggedOut(error) || error instanceof Forbidden ? "out" : "unreachable";
  }
}

export async function logIn(email: string, password: string): Promise<void> {
  await api.authWithPassword(email, password, SUPERUSERS);
  await entered();
}

export async function setUp(token: string, email: string, password: string): Promise<void> {
  await api.setUp(token, email, password, { cookie: true });
  await entered();
}

/** Log out here and on the server; without an answer the page forgets the login all the same. */
export async function logOut(): Promise<void> {
  try {
    await api.logout(SUPERUSERS);
  } finally {
    me.value = null;
    session.value = "out";
  }
}

/** Note that the server knows no login of ours any more. */
export function ended(): void {
  if (session.peek() === "in") session.value = "ended";
}

async function entered(): Promise<void> {
  me.value = await api.me();
  session.value = "in";
  logins.value += 1;
}

// A browser may show a page of its history without asking the server.
addEventListener("pageshow", (event) => {
  if (event.persisted) void ask();
});
