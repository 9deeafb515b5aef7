/** A form that enqueues a job: a new one, or another one that is edited first. */

import { useEffect, useState } from "preact/hooks";

import { Head } from "../../Layout.tsx";
import { act, useAsk } from "../../asking.ts";
import { Conflict, Invalid, type Job, type JobDetail, NotFound, type Topic, api, newId, said } from "../../client.ts";
import { Button, Confirmed } from "../../parts/Button.tsx";
import { compact, hiddenHeaders, hiddenIn, pretty } from "../../parts/json.ts";
import { changed } from "../../parts/live.ts";
import { Card, ErrorNote, Loading } from "../../parts/notes.tsx";
import { toast } from "../../parts/Toast.tsx";
import { go, href, place } from "../../router.ts";
import { counted, plain, short } from "../../words.ts";
import { Arguments } from "./Arguments.tsx";
import { Diff } from "./Diff.tsx";
import { Editor } from "./Editor.tsx";
import { Kept } from "./Kept.tsx";
import { Options } from "./Options.tsx";
import { type Draft, draftOf, optionsOf } from "./draft.ts";
import { mistakeIn } from "./mistake.ts";

export function Enqueue() {
  const { query } = place.value;
  const from = query.get("from") ?? "";
  return from ? <Edited key={from} from={from} /> : <Form key="new" topic={query.get("topic") ?? ""} />;
}

/** The form, with what the other job has. */
function Edited({ from }: { from: string }) {
  const [isRevealed, reveal] = useState(false);
  const asked = useAsk(async (signal) => {
    const job = await api.jobs.get(from, { signal });
    const text = await api.jobs.payload(from, { ...(isRevealed ? { reveal: true } : {}), signal });
    if (isRevealed && hiddenHeaders(job.headers)) {
      job.headers = JSON.parse(await api.jobs.payload(from, { part: "headers", reveal: true, signal })) as Record<string, string>;
    }
    return { job, text: job.encoding === "json" ? pretty(text) : text, isRevealed };
  }, [isRevealed]);
  const what = asked.error instanceof NotFound ? "The job is gone" : "The job could not be read";
  const trouble = asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what={what} />;
  if (!asked.value) {
    if (!trouble) return <Loading />;
    return (
      <>
        <Head title="Edit and enqueue again" />
        {trouble}
      </>
    );
  }
  const { job, text } = asked.value;
  // Once the form is shown it stays: what was typed is not lost because the job has gone.
  return (
    <>
      {trouble}
      <Form key={String(asked.value.isRevealed)} topic={job.topic} source={{ job, text }} reveal={() => (isRevealed ? asked.again() : reveal(true))} />
    </>
  );
}

interface Given {
  topic: string;
  source?: { job: JobDetail; text: string };
  reveal?: () => void;
}

function Form({ topic, source, reveal }: Given) {
  const [draft, setDraft] = useState<Draft>(() => draftOf(topic, source));
  const [problem, tell] = useState("");
  const change = (changes: Partial<Draft>) => setDraft((before) => ({ ...before, ...changes }));
  const topics = useAsk((signal) => api.topics.list({ signal }), []);
  const schema = useArguments(draft.topic, topics.value);
  const isJson = source?.job.encoding !== "text";
  const mistake = isJson ? mistakeIn(draft.text) : null;
  const hidden = source && source.job.hidden > 0 ? Math.min(source.job.hidden, hiddenIn(draft.text)) : 0;
  const hiddenOfHeaders = source && reveal ? hiddenHeaders(source.job.headers) : 0;

  const submit = async (event: Event) => {
    event.preventDefault();
    if (mistake && draft.text.trim()) return tell("The payload is not JSON: see its mistake above.");
    if (hidden) return tell(`${counted(hidden, "value")} of the payload ${hidden === 1 ? "is" : "are"} hidden: reveal them, or write others in their place.`);
    if (hiddenOfHeaders) return tell(`${counted(hiddenOfHeaders, "header")} of the job ${hiddenOfHeaders === 1 ? "is" : "are"} hidden: reveal the hidden values.`);
    tell("");
    const id = newId();
    let made: Job | undefined;
    await act("Enqueue", async () => {
      try {
        made = await send(id, draft, isJson, source?.job);
      } catch (error) {
        if (!(error instanceof Invalid || error instanceof Conflict)) throw error;
        tell(said(error));
      }
    });
    if (!made) return;
    changed();
    if (made.id === id) toast({ text: `Job ${short(id)} of ${made.topic} is ${made.state}.` });
    else toast({ text: `Nothing was enqueued: job ${short(made.id)} holds this key already.`, tone: "bad" });
    go(`/jobs/${made.id}`);
  };

  return (
    <>
      <a class="back" href={href(source ? `/jobs/${source.job.id}` : "/jobs")}>
        ‹ {source ? `Job ${short(source.job.id)}` : "Jobs"}
      </a>
      <Head title={source ? "Edit and enqueue again" : "Enqueue a job"} />
      <div class="two enqueue">
        <form class="card stack" onSubmit={(event) => void submit(event)} noValidate>
          <label>
            Topic
            <input
              name="topic"
              list="topics"
              required
              autocomplete="off"
              value={draft.topic}
              onInput={(event) => change({ topic: event.currentTarget.value.trim() })}
            />
          </label>
          <datalist id="topics">
            {topics.value?.map((each) => <option key={each.topic} value={each.topic} />)}
          </datalist>
          {hidden + hiddenOfHeaders > 0 && reveal && <Hidden count={hidden + hiddenOfHeaders} isEdited={draft.text !== source?.text} reveal={reveal} />}
          <Editor text={draft.text} onText={(text) => change({ text })} isJson={isJson} />
          <Options draft={draft} change={change} />
          <div class="bar">
            <Button kind="primary" submits disabled={!draft.topic}>
              Enqueue
            </Button>
            <a class="button" href={href(source ? `/jobs/${source.job.id}` : "/jobs")}>
              Leave
            </a>
          </div>
          <p class="problem" role="alert">
            {problem && <bdi>{plain(problem)}</bdi>}
          </p>
        </form>
        <div class="stack">
          {schema && <Arguments schema={schema} text={mistake ? null : draft.text} fill={(text) => change({ text })} />}
          {source && <Diff before={source.text} after={isJson && !mistake ? pretty(draft.text) : draft.text} />}
          {source && <Kept job={source.job} />}
          {!source && !schema && (
            <Card title="Payload">
              <p class="note">Any JSON value. The worker of the topic reads it. A number keeps all its digits.</p>
            </Card>
          )}
        </div>
      </div>
    </>
  );
}

function Hidden({ count, isEdited, reveal }: { count: number; isEdited: boolean; reveal: () => void }) {
  const label = `Reveal ${counted(count, "hidden value")}`;
  return (
    <div class="bar">
      <span class="note">{counted(count, "value")} of this job cannot be seen, and would not be enqueued.</span>
      {isEdited ? (
        <Confirmed question="Your changes will be lost." kind="plain" onClick={reveal}>
          {label}
        </Confirmed>
      ) : (
        <Button onClick={reveal}>{label}</Button>
      )}
    </div>
  );
}

/** The JSON schema of the topic's task, if the server has one. */
function useArguments(topic: string, known: Topic[] | undefined) {
  const [schema, setSchema] = useState<Record<string, unknown> | null>(null);
  const isKnown = known?.some((each) => each.topic === topic) ?? false;
  useEffect(() => {
    setSchema(null);
    if (!isKnown) return;
    const mine = new AbortController();
    api.topics.get(topic, { signal: mine.signal }).then(
      (found) => setSchema(found.arguments),
      () => undefined, // the server checks the arguments in any case
    );
    return () => mine.abort();
  }, [topic, isKnown]);
  return schema;
}

function send(id: string, draft: Draft, isJson: boolean, source: JobDetail | undefined): Promise<Job> {
  const options = { ...optionsOf(draft, source), id };
  if (!isJson) return api.jobs.enqueue(draft.topic, new TextEncoder().encode(draft.text), options);
  return api.jobs.enqueue(draft.topic, undefined, { ...options, payloadText: compact(draft.text) || "null" });
}
