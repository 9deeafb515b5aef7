/** Buttons, which wait for what they began: a double click sends one request. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export type Kind = "plain" | "primary" | "quiet" | "danger" | "quiet danger";

interface Given {
  onClick?: (() => unknown) | undefined;
  kind?: Kind;
  children: ComponentChildren;
  /** Says more than the words on it, for screen readers. */
  label?: string;
  disabled?: boolean;
  title?: string;
  /** Submits the form around it. */
  submits?: boolean;
  pressed?: boolean;
  /** Whether what it opens is open. */
  expanded?: boolean;
  class?: string;
}

export function Button({ onClick, kind = "plain", children, label, submits, pressed, expanded, ...rest }: Given) {
  const [isBusy, setBusy] = useState(false);
  const running = useRef(false);
  const made = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => () => passOn(made.current), []);
  const click = async () => {
    if (running.current) return;
    running.current = true;
    setBusy(true);
    try {
      await onClick?.();
    } finally {
      running.current = false;
      setBusy(false);
    }
  };
  return (
    <button
      {...rest}
      ref={made}
      type={submits ? "submit" : "button"}
      class={`${kind} ${rest.class ?? ""}`.trim()}
      aria-label={label}
      aria-busy={isBusy || undefined}
      aria-pressed={pressed}
      aria-expanded={expanded}
      onClick={onClick && (() => void click())}
    >
      {children}
    </button>
  );
}

/**
 * Give the focus of a button that goes, as after its act, to the link of its row, or to the page.
 *
 * Never to another button: a second Enter would press it.
 */
function passOn(gone: HTMLButtonElement | null): void {
  const main = gone?.closest("main");
  if (!gone || !main || gone !== document.activeElement) return;
  const link = gone.closest("tr")?.querySelector<HTMLElement>("a[href]") ?? main;
  queueMicrotask(() => {
    if (document.activeElement === document.body) link.focus({ preventScroll: true });
  });
}

/** A button whose act cannot be undone: it asks in its own place before it acts. */
export function Confirmed({ onClick, children, label, question, kind = "quiet danger" }: Given & { question: string }) {
  const [isAsking, ask] = useState(false);
  const place = useRef<HTMLSpanElement>(null);
  const wasAsking = useRef(false);
  useLayoutEffect(() => {
    // The button that had the focus is gone: its successor gets it.
    if (isAsking || wasAsking.current) place.current?.querySelector("button")?.focus();
    wasAsking.current = isAsking;
  }, [isAsking]);
  if (!isAsking) {
    return (
      <span ref={place}>
        <Button kind={kind} onClick={() => ask(true)} {...(label === undefined ? {} : { label })}>
          {children}
        </Button>
      </span>
    );
  }
  return (
    <span class="confirm" role="group" aria-label={question} ref={place}>
      <span>{question}</span>
      <Button
        kind="danger"
        onClick={async () => {
          await onClick?.();
          ask(false);
        }}
      >
        {children}
      </Button>
      <Button onClick={() => ask(false)}>Keep</Button>
    </span>
  );
}

/** Copies a text; says so for two seconds. */
export function Copy({ text, children = "Copy", label }: { text: string | (() => Promise<string>); children?: ComponentChildren; label?: string }) {
  const [isDone, setDone] = useState(false);
  const copy = async () => {
    await toClipboard(typeof text === "string" ? text : await text());
    setDone(true);
    setTimeout(() => setDone(false), 2000);
  };
  return (
    <Button kind="quiet" onClick={copy} {...(label === undefined ? {} : { label })}>
      {isDone ? "Copied" : children}
    </Button>
  );
}

/** Pages of plain HTTP beyond this machine have no clipboard, but can copy what is selected. */
export async function toClipboard(text: string): Promise<void> {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
