/** Settings: access rules with their tester, accounts, keys, and what the server was started with. */

import type { ComponentChildren } from "preact";

import { Head } from "../../Layout.tsx";
import type { PageParts } from "../../pages.ts";
import { href } from "../../router.ts";
import { NotFound } from "../NotFound.tsx";
import { Access } from "./Access.tsx";
import { Accounts } from "./Accounts.tsx";
import { Browser } from "./Browser.tsx";
import { Keys } from "./Keys.tsx";
import { Server } from "./Server.tsx";
import "./settings.css";

export const PARTS: Record<string, { title: string; show: () => ComponentChildren }> = {
  access: { title: "Access", show: () => <Access /> },
  users: { title: "Users", show: () => <Accounts key="users" collection="users" /> },
  superusers: { title: "Superusers", show: () => <Accounts key="superusers" collection="_superusers" /> },
  keys: { title: "API keys", show: () => <Keys /> },
  server: { title: "Server", show: () => <Server /> },
  browser: { title: "This browser", show: () => <Browser /> },
};

export function Settings({ part = "access" }: PageParts) {
  const chosen = PARTS[part];
  if (!chosen) return <NotFound />;
  return (
    <>
      <Head title="Settings" />
      <nav class="tabs" aria-label="Parts of the settings">
        {Object.entries(PARTS).map(([name, { title }]) => (
          <a key={name} href={href(`/settings/${name}`)} aria-current={name === part ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      {chosen.show()}
    </>
  );
}
