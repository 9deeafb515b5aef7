/**
 * The address bar: which page is shown, and with which filters.
 *
 * Paths here begin with "/" and do not contain the prefix under which the server is mounted. Plain
 * links (`<a href={href("/jobs")}>`) are followed without a reload.
 */

import { signal } from "@preact/signals";

export interface Place {
  path: string;
  query: URLSearchParams;
}

export type Query = Record<string, string | number | null | undefined>;

const BASE = new URL(document.baseURI);

export const place = signal<Place>(here());

/** The address of a page; filters without a value are left out. */
export function href(path: string, query: Query = {}): string {
  const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return BASE.pathname + path.slice(1) + (text && `?${text}`);
}

/** Show another page; `replace` leaves no way back to this one. */
export function go(path: string, query: Query = {}, replace = false): void {
  visit(href(path, query), replace);
}

/** Change some filters of this page; null removes one. */
export function filter(changes: Query, replace = false): void {
  const { path, query } = place.peek();
  go(path, { ...Object.fromEntries(query), ...changes }, replace);
}

/** The parts of a path that a pattern such as `/jobs/{id}` names, or null if it does not fit. */
export function matched(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  const parts: Record<string, string> = {};
  for (const [nth, part] of wanted.entries()) {
    const text = given[nth] ?? "";
    if (part.startsWith("{")) parts[part.slice(1, -1)] = unescaped(text);
    else if (part !== text) return null;
  }
  return parts;
}

/** A part of a path as it was meant; one that is not escaped well stays as it is. */
function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A path of this dashboard that a link may name; anything else, as another site, is the first page. */
export function safe(next: string | null): string {
  if (!next || !/^\/(?![/\\])/.test(next) || !URL.canParse(next.slice(1), BASE)) return BASE.pathname;
  const url = new URL(next.slice(1) || ".", BASE);
  // As an address, a path that begins with two slashes names another site.
  const isOurs = url.origin === BASE.origin && url.pathname.startsWith(BASE.pathname) && !url.pathname.startsWith("//");
  return isOurs ? url.pathname + url.search : BASE.pathname;
}

/** Go to an address of this dashboard, as `safe` and `href` return it. */
export function visit(address: string, replace = false): void {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  place.value = here();
}

function here(): Place {
  const path = location.pathname.startsWith(BASE.pathname)
    ? location.pathname.slice(BASE.pathname.length)
    : "";
  return { path: `/${path.replace(/\/+$/, "")}`, query: new URLSearchParams(location.search) };
}

addEventListener("popstate", () => {
  place.value = here();
});

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link?.href || !isPlain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  const isPage = url.origin === BASE.origin && url.pathname.startsWith(BASE.pathname);
  if (!isPage || url.hash || /^(api|v1|static)\//.test(url.pathname.slice(BASE.pathname.length))) return;
  event.preventDefault();
  visit(url.pathname + url.search);
});
