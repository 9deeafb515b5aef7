/** What can be done to a topic. */

import { useState } from "preact/hooks";

import { act } from "../../asking.ts";
import { Preview } from "../../bulk/Preview.tsx";
import { type Topic, api } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { changed } from "../../parts/live.ts";
import { Menu } from "../../parts/Menu.tsx";
import { Time } from "../../parts/Time.tsx";
import { toast } from "../../parts/Toast.tsx";
import { counted, depth, duration, plain } from "../../words.ts";

const MINUTE = 60;
const TIMES: { label: string; seconds: number | undefined }[] = [
  { label: "for 1 minute", seconds: MINUTE },
  { label: "for 15 minutes", seconds: 15 * MINUTE },
  { label: "for 1 hour", seconds: 60 * MINUTE },
  { label: "for 1 day", seconds: 24 * 60 * MINUTE },
  { label: "until it is resumed", seconds: undefined },
];

export async function resume(topic: string): Promise<void> {
  if (!(await act(`Resume ${topic}`, () => api.topics.resume(topic)))) return;
  toast({ text: `${plain(topic)} is handed out again.` });
  changed();
}

async function pause(topic: string, seconds: number | undefined): Promise<void> {
  if (!(await act(`Pause ${topic}`, () => api.topics.pause(topic, { duration: seconds })))) return;
  const how = seconds === undefined ? "until it is resumed" : `for ${duration(seconds * 1000)}`;
  toast({ text: `${plain(topic)} is paused ${how}.`, action: { label: "Undo", run: () => resume(topic) } });
  changed();
}

/** Pause for a time, or resume. */
export function PauseOrResume({ topic }: { topic: Topic }) {
  if (topic.paused) return <Button onClick={() => resume(topic.topic)}>Resume</Button>;
  return (
    <Menu
      label="Pause"
      name={`Pause ${plain(topic.topic)}`}
      choices={TIMES.map(({ label, seconds }) => ({ label: `Pause ${label}`, run: () => pause(topic.topic, seconds) }))}
    />
  );
}

/** Which workers serve a topic, or why none does. */
export function ServedBy({ topic }: { topic: Topic }) {
  if (topic.paused) {
    return (
      <span class="mark warned">
        {topic.pausedUntil ? (
          <span>
            paused, ends <Time at={topic.pausedUntil} />
          </span>
        ) : (
          "paused until resumed"
        )}
      </span>
    );
  }
  if (topic.workers) return <>{counted(topic.workers, "worker")}</>;
  if (topic.waiting) return <>{counted(topic.waiting, "client waits", "clients wait")}</>;
  if (topic.reserved) return <>clients without a session</>;
  return <span class={topic.ready ? "mark failed" : "note"}>no worker</span>;
}

/** Make failed jobs ready again: by a bulk act, which touches only those that are still failed then. */
export function RequeueFailed({ topic }: { topic: Topic }) {
  const [isOpen, open] = useState(false);
  const close = () => open(false);
  const choice = { topic: topic.topic, status: "failed" } as const;
  return (
    <>
      {topic.buried > 0 && (
        <Button onClick={() => open(true)}>
          Re-queue {depth(topic.buried, topic)} failed {topic.buried === 1 ? "job" : "jobs"} …
        </Button>
      )}
      {isOpen && <Preview wanted={{ verb: "requeue", choice, words: `failed · topic ${topic.topic}` }} close={close} done={close} />}
    </>
  );
}

/** Delete all that waits and all that failed; the name must be typed. */
export function Purge({ topic }: { topic: Topic }) {
  const [isOpen, open] = useState(false);
  const [typed, type] = useState("");
  const purge = async () => {
    let purged = 0;
    if (!(await act(`Purge ${topic.topic}`, async () => (purged = await api.topics.purge(topic.topic))))) return;
    toast({ text: `${counted(purged, "job")} of ${plain(topic.topic)} ${purged === 1 ? "was" : "were"} deleted.` });
    open(false);
    changed();
  };
  return (
    <>
      <Button
        kind="danger"
        onClick={() => {
          type("");
          open(true);
        }}
      >
        Purge …
      </Button>
      {isOpen && (
        <Dialog title="Purge the topic?" onClose={() => open(false)}>
          <form
            class="stack"
            onSubmit={(event) => {
              event.preventDefault();
              if (typed === topic.topic) void purge();
            }}
          >
            <p>
              This deletes the pending and the failed jobs of <bdi class="mono">{plain(topic.topic)}</bdi>. Running and ended jobs stay.
              It cannot be undone.
            </p>
            <label>
              The name of the topic
              <input value={typed} autocomplete="off" spellcheck={false} onInput={(event) => type(event.currentTarget.value)} />
            </label>
            <div class="bar">
              <Button kind="danger" submits disabled={typed !== topic.topic}>
                Purge
              </Button>
              <Button onClick={() => open(false)}>Keep</Button>
            </div>
          </form>
        </Dialog>
      )}
    </>
  );
}
