/** Webhooks: subscriptions, deliveries and dead letters, each under an address of its own. */

import type { ComponentChildren } from "preact";

import { Head } from "../../Layout.tsx";
import { href } from "../../router.ts";
import "./webhooks.css";

const PARTS = [
  { path: "/webhooks", title: "Subscriptions" },
  { path: "/webhooks/deliveries", title: "Deliveries" },
  { path: "/webhooks/dead-letters", title: "Dead letters" },
];

export function Frame({ at, tools, children }: { at: string; tools?: ComponentChildren; children: ComponentChildren }) {
  return (
    <>
      <Head title="Webhooks">{tools}</Head>
      <nav class="tabs" aria-label="Parts of webhooks">
        {PARTS.map(({ path, title }) => (
          <a key={path} href={href(path)} aria-current={path === at ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      {children}
    </>
  );
}
