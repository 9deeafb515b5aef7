/** What the doctor found, with what can be done about it here. */

import { useState } from "preact/hooks";

import { useAsk } from "../../asking.ts";
import { type Check, api } from "../../client.ts";
import { Copy } from "../../parts/Button.tsx";
import { Alarm } from "../../parts/Mark.tsx";
import { ErrorNote } from "../../parts/notes.tsx";
import { useEvery, useSeldom } from "../../parts/seldom.ts";
import { href } from "../../router.ts";
import { plain } from "../../words.ts";
import { RemedyButton } from "../job/Why.tsx";

const MOST_LINKS = 3;
const ABOUT_TOPICS = new Set(["no_worker", "behind", "unknown_tasks", "overdue_jobs", "ended_leases"]);

export function Findings() {
  const asked = useAsk((signal) => api.doctor({ signal }), []);
  useSeldom(asked.again, 10_000);
  useEvery(asked.again, 30_000);
  // The server remembers a check-up for a while: what was done about it here is left out of it.
  const [done, setDone] = useState<{ at: string; paths: string[] }>({ at: "", paths: [] });
  if (asked.error !== undefined) {
    return <ErrorNote error={asked.error} again={asked.again} what="The doctor gave no answer" />;
  }
  const at = asked.value?.at ?? "";
  const paths = done.at === at ? done.paths : [];
  const isDone = ({ remedies }: Check) => remedies.length > 0 && remedies.every(({ path }) => paths.includes(path));
  const found = (asked.value?.items ?? [])
    .filter((each) => each.verdict !== "ok" && !isDone(each))
    .sort((one, other) => Number(one.verdict === "warning") - Number(other.verdict === "warning"));
  if (!found.length) return null;
  return (
    <section class="findings" aria-label="Findings">
      {found.map((each) => (
        <Found
          key={`${each.code} ${each.message}`}
          check={{ ...each, remedies: each.remedies.filter(({ path }) => !paths.includes(path)) }}
          onDone={(path) => setDone({ at, paths: [...paths, path] })}
        />
      ))}
    </section>
  );
}

function Found({ check, onDone }: { check: Check; onDone: (path: string) => void }) {
  const { verdict, message, advice, remedies } = check;
  const command = /`(towpath [^`]+)`/.exec(advice ?? "")?.[1];
  return (
    <div class={`finding ${verdict}`}>
      <Alarm level={verdict === "problem" ? "problem" : "warning"} />
      <div>
        <p>
          <bdi>{sentence(plain(message))}</bdi>
        </p>
        {advice && (
          <p class="note">
            <bdi>{sentence(plain(advice))}</bdi>
          </p>
        )}
      </div>
      <div class="bar">
        {remedies.map((remedy) => (
          <RemedyButton key={remedy.path} remedy={remedy} again={(isDone) => isDone && onDone(remedy.path)} />
        ))}
        {linksOf(check).map(({ name, to }) => (
          <a key={to} href={to}>
            Show <bdi>{plain(name)}</bdi>
          </a>
        ))}
        {command && <Copy text={command}>Copy the command</Copy>}
      </div>
    </div>
  );
}

/** The pages of what a finding is about. */
function linksOf({ code, about }: Check): { name: string; to: string }[] {
  if (code === "silent_workers") return [{ name: "the workers", to: href("/workers") }];
  const place = ABOUT_TOPICS.has(code) ? "topics" : code === "late_schedules" ? "schedules" : null;
  if (!place) return [];
  return about.slice(0, MOST_LINKS).map((name) => ({ name, to: href(`/${place}/${encodeURIComponent(name)}`) }));
}

/** "no worker serves mail" as a sentence. */
function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
