/** What the runs of the job say, as it comes; a reload reads it again from the start. */

import { useEffect, useRef, useState } from "preact/hooks";

import { type JobDetail, NotFound, api, isLoggedOut, said as sentence } from "../../client.ts";
import { Button, Copy } from "../../parts/Button.tsx";
import { LongText } from "../../parts/LongText.tsx";
import { Card } from "../../parts/notes.tsx";
import { Time } from "../../parts/Time.tsx";
import { ended } from "../../session.ts";
import { counted, number, plain } from "../../words.ts";
import { textOf as textOfEvent } from "../channels/exact.ts";
import { type Spoken, hasSpoken, heard, silent, textOf } from "./said.ts";

const AFTER: Record<string, string> = {
  crash: "the worker of the try before died",
  failure: "the try before failed",
  release: "the try before was given back",
  reset: "the job began again",
};

const SHOWN_PAYLOAD = 200; // characters
const SHOW_EVERY = 50; // milliseconds

export function Stream({ job, stop }: { job: JobDetail; stop: () => Promise<void> }) {
  const { spoken, trouble } = useStream(job.id, job.finishedAt !== null);
  if (!hasSpoken(spoken) && !trouble) return null;
  const text = textOf(spoken);
  const isOver = spoken.ended !== null;
  const isRunning = job.status === "processing" && !isOver;
  return (
    <Card
      title="Stream"
      note={
        <span role="status">
          {spoken.epoch !== null ? `try ${spoken.epoch}` : spoken.restarts ? "another try" : "try 1"}
          {text && ` · ${counted(text.length, "character")}`}
          {spoken.eventCount > 0 && ` · ${counted(spoken.eventCount, "event")}`}
          {isOver ? ` · ended: ${spoken.ended}` : isRunning ? " · running" : " · waits"}
        </span>
      }
      tools={
        <>
          {isRunning && (
            <Button kind="danger" disabled={job.cancelRequested} onClick={stop}>
              {job.cancelRequested ? "Stopping" : "Stop the job"}
            </Button>
          )}
          {text && <Copy text={text} label="Copy the text of the stream" />}
        </>
      }
    >
      {spoken.restarts > 0 && (
        <p class="note">
          What a lost try had said was dropped: {AFTER[spoken.after ?? ""] ?? "another try began"}.
        </p>
      )}
      {trouble && <p class="problem">{trouble}</p>}
      {text && <Tail text={text} />}
      {spoken.events.length > 0 && <Events spoken={spoken} />}
    </Card>
  );
}

/** Stays at the end of the text, unless the reader has gone up. */
function Tail({ text }: { text: string }) {
  const around = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    const box = around.current?.querySelector("pre");
    if (box && isAtEnd.current) box.scrollTop = box.scrollHeight;
  }, [text]);
  const note = () => {
    const box = around.current?.querySelector("pre");
    if (box) isAtEnd.current = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  };
  return (
    <div ref={around} onScrollCapture={note}>
      <LongText text={text} label="Text so far" />
    </div>
  );
}

function Events({ spoken }: { spoken: Spoken }) {
  const { events, eventCount } = spoken;
  return (
    <details class="pieces">
      <summary>
        {counted(eventCount, "event")}
        {events.length < eventCount && `, the newest ${number(events.length)} are shown`}
      </summary>
      <ol>
        {events.toReversed().map((event) => (
          <li key={event.cursor}>
            <Time at={event.at} as="clock" /> <bdi>{plain(event.type ?? "")}</bdi>{" "}
            <code>
              <bdi>{plain(textOfEvent(event).slice(0, SHOWN_PAYLOAD))}</bdi>
            </code>
          </li>
        ))}
      </ol>
    </details>
  );
}

/** Reads the stream from its start, and again if a job whose stream has ended is requeued. */
function useStream(id: string, isFinished: boolean): { spoken: Spoken; trouble: string } {
  const [spoken, speak] = useState(silent);
  const [trouble, tell] = useState("");
  const [reads, read] = useState(0);
  useEffect(() => {
    if (!isFinished && spoken.ended !== null) read(reads + 1);
  }, [isFinished, spoken.ended]);
  useEffect(() => {
    const mine = new AbortController();
    let latest = silent();
    let timer: ReturnType<typeof setTimeout> | undefined;
    // Pieces may come faster than a screen can show them.
    const show = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        speak(latest);
      }, SHOW_EVERY);
    };
    speak(latest);
    void (async () => {
      try {
        for await (const piece of api.jobs.stream(id, { signal: mine.signal })) {
          latest = heard(latest, piece);
          show();
        }
      } catch (error) {
        if (mine.signal.aborted || error instanceof NotFound) return;
        if (isLoggedOut(error)) ended();
        tell(`The stream could not be read: ${sentence(error)}`);
      }
    })();
    return () => {
      clearTimeout(timer);
      mine.abort();
    };
  }, [id, reads]);
  return { spoken, trouble };
}
