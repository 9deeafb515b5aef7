/** Bulk acts: those that wait or run with progress and Stop, then the last that have ended. */

import { act, useAsk } from "../../asking.ts";
import { type BulkAct, api } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { changed } from "../../parts/live.ts";
import { Mark, type Marked } from "../../parts/Mark.tsx";
import { Card, ErrorNote } from "../../parts/notes.tsx";
import { useEvery } from "../../parts/seldom.ts";
import { Time } from "../../parts/Time.tsx";
import { toast } from "../../parts/Toast.tsx";
import { counted, number, plain } from "../../words.ts";

const SHOWN = 10;

const VERBS: Record<BulkAct["verb"], string> = { requeue: "Re-queue", kick: "Run now", cancel: "Cancel", delete: "Delete" };
const MARKS: Record<BulkAct["state"], Marked> = { waiting: "delayed", running: "processing", done: "completed", stopped: "cancelled" };

export function Bulk() {
  const asked = useAsk((signal) => api.bulk.list({ limit: SHOWN, signal }), []);
  const isBusy = (asked.value ?? []).some(({ endedAt }) => endedAt === null);
  useEvery(asked.again, isBusy ? 1_000 : 5_000);
  if (asked.error !== undefined && !asked.value) return <ErrorNote error={asked.error} again={asked.again} what="The bulk acts could not be read" />;
  if (!asked.value?.length) return null;
  return (
    <Card title="Bulk acts" note="one verb for many jobs">
      <ul class="bulks">
        {asked.value.map((bulk) => (
          <One key={bulk.id} bulk={bulk} again={asked.again} />
        ))}
      </ul>
    </Card>
  );
}

function One({ bulk, again }: { bulk: BulkAct; again: () => void }) {
  const { verb, filter, count, exact, done, refusedCount, refused, state } = bulk;
  const isWaiting = state === "waiting";
  const stop = async () => {
    if (await act("Stop", () => api.bulk.stop(bulk.id))) toast({ text: isWaiting ? "It is undone: no job was changed." : "It is stopped where it was." });
    again();
    changed();
  };
  const parts = Object.entries(filter)
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => (Array.isArray(value) ? counted(value.length, "chosen job") : `${name} ${String(value)}`));
  return (
    <li>
      <Mark of={MARKS[state]} word={state} />
      <span class="what">
        {VERBS[verb]} {counted(count, "job")}
        {!exact && "+"} <bdi class="note">{plain(parts.join(" · "))}</bdi>
      </span>
      <span class="note">
        <bdi>{plain(bulk.by)}</bdi>, <Time at={bulk.createdAt} />
      </span>
      {state === "running" && <progress value={done + refusedCount} max={Math.max(1, count)} aria-label="Progress" />}
      <span>
        {isWaiting ? (
          <>
            begins <Time at={bulk.beginsAt} />
          </>
        ) : (
          `${number(done)} of ${number(count)}`
        )}
        {refusedCount > 0 && <span class="failed">, {number(refusedCount)} refused</span>}
      </span>
      {bulk.endedAt === null && (
        <Button kind={isWaiting ? "plain" : "danger"} onClick={stop}>
          {isWaiting ? "Undo" : "Stop"}
        </Button>
      )}
      {refused.length > 0 && (
        <details>
          <summary>Refused jobs</summary>
          <ul>
            {refused.map(({ id, code }) => (
              <li key={id}>
                <code>{id}</code> <code>{code}</code>
              </li>
            ))}
          </ul>
        </details>
      )}
    </li>
  );
}
