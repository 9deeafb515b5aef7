/** Bulk acts that wait, run or have just ended, on every page: with Undo, and later Stop. */

import { act, now } from "../asking.ts";
import { type BulkAct, ahead, api } from "../client.ts";
import { Button } from "../parts/Button.tsx";
import { bulkActs, noteBulk } from "../parts/live.ts";
import { href } from "../router.ts";
import { me } from "../session.ts";
import { atLeast, counted, number, plain, rough, short } from "../words.ts";
import { about, intent, outcome, refusal } from "./said.ts";

export function BulkActs() {
  const acts = bulkActs.value;
  if (!acts.length) return null;
  return (
    <section class="bulk-acts" aria-label="Bulk acts">
      {acts.map((each) => (
        <One key={each.id} given={each} />
      ))}
    </section>
  );
}

function One({ given }: { given: BulkAct }) {
  const { verb, count, exact, state, by, endedAt } = given;
  const what = intent(verb, count, exact);
  const mine = me.value?.record;
  const isMine = by === mine?.name || by === mine?.email;
  const stop = (word: string) =>
    act(`${word}: ${what}`, async () => {
      noteBulk(await api.bulk.stop(given.id));
    });
  return (
    <div class={`bulk-act ${state}`} role="group" aria-label={what}>
      <div class="bar">
        <b role="status">{endedAt ? outcome(given) : what}</b>
        {state === "waiting" && (
          <>
            <span>{begins(given)}</span>
            <Button onClick={() => stop("Undo")}>Undo</Button>
          </>
        )}
        {state === "running" && (
          <>
            <progress value={given.done + given.refusedCount} max={Math.max(count, 1)} aria-label="Progress of the bulk act" />
            <span>
              {number(given.done)} of {atLeast(count, exact)}
            </span>
            <Button onClick={() => stop("Stop")}>Stop</Button>
          </>
        )}
        {endedAt && (
          <Button kind="quiet" label={`Close: ${what}`} onClick={() => forget(given.id)}>
            Close
          </Button>
        )}
        <span class="note">
          <bdi>{plain(about(given))}</bdi>
          {!isMine && <bdi> · by {plain(by)}</bdi>}
        </span>
      </div>
      {given.refusedCount > 0 && <Refused given={given} />}
    </div>
  );
}

function begins({ beginsAt }: BulkAct): string {
  const seconds = Math.ceil((new Date(beginsAt).getTime() - now.value - ahead.value) / 1000);
  return seconds > 0 ? `Begins in ${rough(seconds * 1000)}` : "Begins now";
}

function Refused({ given }: { given: BulkAct }) {
  const { refused, refusedCount } = given;
  return (
    <details>
      <summary>{counted(refusedCount, "job")} refused, left as they are</summary>
      <ul>
        {refused.map(({ id, code }) => (
          <li key={id}>
            <a href={href(`/jobs/${id}`)} class="mono" title={id}>
              {short(id)}
            </a>{" "}
            {refusal(code)}
          </li>
        ))}
      </ul>
      {refusedCount > refused.length && <p class="note">The first {number(refused.length)} are listed.</p>}
    </details>
  );
}

function forget(id: string): void {
  bulkActs.value = bulkActs.value.filter((each) => each.id !== id);
}
