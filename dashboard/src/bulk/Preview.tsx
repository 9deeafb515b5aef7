/** The sheet before a bulk act: how many jobs, ten of them, and what would be refused. */

import { act, useAsk } from "../asking.ts";
import { type BulkChoice, type BulkPreview, type BulkVerb, api, serverTime } from "../client.ts";
import { Button } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { noteBulk } from "../parts/live.ts";
import { Mark, markOf } from "../parts/Mark.tsx";
import { ErrorNote, Loading } from "../parts/notes.tsx";
import { clock, counted, plain, short, whole } from "../words.ts";
import { intent, refusal } from "./said.ts";

export interface Wanted {
  verb: BulkVerb;
  choice: BulkChoice;
  /** Which jobs, in words. */
  words: string;
}

const REMARKS: Partial<Record<BulkVerb, string>> = {
  cancel: "Running jobs are asked to stop.",
  delete: "Deleted jobs cannot be brought back.",
};

export function Preview({ wanted, close, done }: { wanted: Wanted; close: () => void; done: () => void }) {
  const { verb, choice, words } = wanted;
  const asked = useAsk(
    async (signal) => ({ ...(await api.bulk.preview(verb, choice, { signal })), at: serverTime() }),
    [],
  );
  const seen = asked.value;
  const title = seen ? `${intent(verb, seen.count, seen.exact)}?` : "How many jobs?";
  const begin = async (upTo: number, what: string) => {
    if (await act(what, async () => noteBulk(await api.bulk.begin(verb, choice, { upTo })))) done();
  };
  return (
    <Dialog title={title} onClose={close} isWide>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what="The jobs could not be counted" />}
      {!seen && asked.error === undefined && <Loading rows={4} what="Counting" />}
      {seen && (
        <div class="stack preview">
          <p class="note">
            <bdi>{plain(words)}</bdi> · created before <time title={whole(seen.at)}>{clock(seen.at, seen.at)}</time>
          </p>
          <Sample seen={seen} />
          {Object.entries(seen.refused).map(([code, count]) => (
            <p key={code} class="warned">
              {counted(count, "job")} will be refused: {refusal(code)}.
            </p>
          ))}
          {REMARKS[verb] && seen.count > 0 && <p>{REMARKS[verb]}</p>}
          <div class="bar">
            {(seen.count > 0 || !seen.exact) && (
              <Button kind={verb === "delete" ? "danger" : "primary"} onClick={() => begin(seen.upTo, intent(verb, seen.count, seen.exact))}>
                {intent(verb, seen.count, seen.exact)}
              </Button>
            )}
            <Button onClick={close}>Keep them</Button>
            {seen.count > 0 && <span class="note">It begins after 10 s; until then you can undo it.</span>}
          </div>
        </div>
      )}
    </Dialog>
  );
}

function Sample({ seen }: { seen: BulkPreview }) {
  if (!seen.count) return <p>{seen.exact ? "No such job is left." : "None is among the newest 50,000 that were looked at."}</p>;
  const others = seen.count - seen.sample.length;
  return (
    <div>
      <ul class="sample" aria-label="Some of the jobs">
        {seen.sample.map((job) => (
          <li key={job.id}>
            <code title={job.id}>{short(job.id)}</code>
            <Mark of={markOf(job)} />
            <bdi>{job.topic}</bdi>
            <bdi class="note cut">{plain(job.lastError ?? (job.key ? `key ${job.key}` : ""))}</bdi>
          </li>
        ))}
      </ul>
      {others > 0 && <p class="note">and {seen.exact ? counted(others, "other") : `at least ${counted(others, "other")}`}</p>}
    </div>
  );
}
