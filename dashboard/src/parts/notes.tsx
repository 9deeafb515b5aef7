/** What stands in the place of data: while it comes, if there is none, and after an error. */

import type { ComponentChildren } from "preact";

import { codeOf, said } from "../client.ts";
import { Button, Copy } from "./Button.tsx";

/** Grey lines of the right height; they appear only if the answer takes a while. */
export function Loading({ rows = 8, what = "Loading" }: { rows?: number; what?: string }) {
  return (
    <div class="loading" role="status" aria-label={what}>
      {Array.from({ length: rows }, (_, nth) => (
        <span key={nth} />
      ))}
    </div>
  );
}

/** Says why there is nothing, and what fills it. */
export function Empty({ title, children, commands = [] }: { title: string; children?: ComponentChildren; commands?: string[] }) {
  return (
    <div class="empty">
      <p>
        <b>{title}</b>
      </p>
      {children}
      {commands.map((command) => (
        <div class="command" key={command}>
          <pre tabIndex={0}>{command}</pre>
          <Copy text={command} label={`Copy the command ${command}`} />
        </div>
      ))}
    </div>
  );
}

/** What a server without jobs shows. */
export function NoJobs() {
  return (
    <Empty
      title="Nothing was enqueued yet."
      commands={[`towpath jobs enqueue mail '{"to": "ann@example.com"}'`, 'app.jobs.enqueue("mail", {"to": "ann@example.com"})']}
    >
      <p>Jobs appear here as soon as a program, or one of these lines, enqueues them.</p>
    </Empty>
  );
}

/** Says what happened, in the place of what was asked for. */
export function ErrorNote({ error, again, what = "This could not be read" }: { error: unknown; again?: (() => void) | undefined; what?: string }) {
  const code = codeOf(error);
  return (
    <div class="error" role="alert">
      <p>
        <b>{what}.</b> <bdi>{said(error)}</bdi> {code && <code>{code}</code>}
      </p>
      {again && <Button onClick={again}>Try again</Button>}
    </div>
  );
}

/** A part of a page with a title, as a card. */
export function Card({ title, note, tools, children, class: more = "" }: { title?: ComponentChildren; note?: ComponentChildren; tools?: ComponentChildren; children: ComponentChildren; class?: string }) {
  return (
    <section class={`card ${more}`}>
      {title !== undefined && (
        <header>
          <h2>{title}</h2>
          {note !== undefined && <small>{note}</small>}
          {tools}
        </header>
      )}
      {children}
    </section>
  );
}
