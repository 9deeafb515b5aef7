/** The frame of every page: the side bar, which is a strip on a phone, and the content. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { act } from "./asking.ts";
import { BulkActs } from "./bulk/BulkActs.tsx";
import { KeySheet, Keys } from "./keyboard/KeySheet.tsx";
import { PALETTE_KEYS, over, useKeyboard } from "./keyboard/keyboard.ts";
import { Palette } from "./keyboard/Palette.tsx";
import { NAVIGATION } from "./pages.ts";
import { Button } from "./parts/Button.tsx";
import { Menu } from "./parts/Menu.tsx";
import { asOf, counts, isOld, line, pause, resume } from "./parts/live.ts";
import { href, place } from "./router.ts";
import { logOut, me } from "./session.ts";
import { type Theme, dense, theme } from "./settings.ts";
import { atLeast, clock, number } from "./words.ts";

export function Layout({ under, title, children }: { under: string; title: string; children: ComponentChildren }) {
  const main = useRef<HTMLElement>(null);
  const { path } = place.value;
  const before = useRef(path);
  const isCounted = counts.value !== null; // the figure beside a page makes the strip of pages wider
  useKeyboard();
  useEffect(() => {
    document.title = `${title} · Towpath`;
    document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    if (before.current === path) return;
    before.current = path;
    // As after a load: the top of the page, where a screen reader begins to read.
    scrollTo(0, 0);
    main.current?.focus({ preventScroll: true });
  }, [path, title, isCounted]);
  return (
    <>
      <a class="skip" href="#main">
        To the content
      </a>
      <div class="shell">
        <nav class="side" aria-label="Pages">
          <a class="brand" href={href("/")}>
            <Brand />
            Towpath
          </a>
          <button type="button" class="finder" aria-haspopup="dialog" aria-keyshortcuts="Control+K Meta+K" onClick={() => (over.value = "palette")}>
            Go to …
            <span aria-hidden="true">
              <Keys of={PALETTE_KEYS} />
            </span>
          </button>
          {NAVIGATION.map((page) => (
            <a key={page.path} href={href(page.path)} aria-current={page.path === under ? "page" : undefined}>
              {page.title}
              <Count of={page.path} />
            </a>
          ))}
          <Foot />
        </nav>
        <main id="main" ref={main} tabIndex={-1}>
          {children}
          {under !== "/activity" && <BulkActs />}
        </main>
      </div>
      {over.value === "palette" && <Palette />}
      {over.value === "sheet" && <KeySheet />}
    </>
  );
}

export function Brand() {
  return (
    <svg class="waves" width="22" height="16" viewBox="0 0 22 16" aria-hidden="true">
      <path d="M0 4q5.5-6 11 0t11 0M0 10q5.5-6 11 0t11 0" fill="none" stroke="currentColor" stroke-width="2.5" />
    </svg>
  );
}

/** The figure beside a page of the side bar, if it has one. */
function Count({ of }: { of: string }) {
  const found = counts.value;
  if (!found) return null;
  if (of === "/jobs") return <small title="pending and processing">{atLeast(found.pending + found.processing, found.exact)}</small>;
  return of === "/topics" ? <small>{number(found.topics)}</small> : null;
}

const KINDS: Record<string, string> = { sqlite: "SQLite", postgresql: "PostgreSQL", postgres: "PostgreSQL" };

/** Which server this is, who is logged in, and how the page looks. */
function Foot() {
  const known = me.value;
  const themes: Theme[] = ["system", "light", "dark"];
  return (
    <div class="foot">
      {known && (
        <p>
          <bdi title={known.database.name}>{known.database.name.split("/").at(-1)}</bdi>
          <br />
          {KINDS[known.database.kind] ?? known.database.kind} · v{known.version}
        </p>
      )}
      <Menu
        kind="quiet"
        label={<bdi>{known?.record.name || known?.record.email || "Account"}</bdi>}
        name="Account and appearance"
        choices={[
          ...themes.map((each) => ({
            label: `${each === "system" ? "Theme of the system" : each === "light" ? "Light" : "Dark"}`,
            isChosen: theme.value === each,
            run: () => (theme.value = each),
          })),
          {
            label: "Dense rows",
            isChosen: dense.value === "yes",
            run: () => (dense.value = dense.value === "yes" ? "no" : "yes"),
          },
          { label: "Keys", run: () => (over.value = "sheet") },
          { label: "Log out", run: () => act("Log out", logOut) },
        ]}
      />
    </div>
  );
}

/** The head of a page: its title, the state of the line, and what can be done here. */
export function Head({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  return (
    <header class="top">
      <h1>{title}</h1>
      {isOld.value && (
        <Button kind="primary" onClick={() => location.reload()}>
          New version, reload
        </Button>
      )}
      <LineState />
      {children}
    </header>
  );
}

function LineState() {
  const words = {
    connecting: "connecting",
    live: "live",
    asking: "asks every 5 s",
    paused: "paused",
    reconnecting: `reconnecting, as of ${clock(asOf.value, asOf.value)}`,
  };
  const isPaused = line.value === "paused";
  return (
    <button
      type="button"
      class={`live ${line.value}`}
      aria-pressed={!isPaused}
      title={isPaused ? "Go on" : "Pause: the page stays as it is"}
      onClick={isPaused ? resume : pause}
    >
      {words[line.value]}
    </button>
  );
}

