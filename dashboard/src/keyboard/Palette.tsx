/** The palette: finds pages, topics and jobs by what is typed, and goes there. */

import { useEffect, useId, useRef, useState } from "preact/hooks";

import { useAsk } from "../asking.ts";
import { api } from "../client.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { Mark, markOf } from "../parts/Mark.tsx";
import { ErrorNote } from "../parts/notes.tsx";
import { go } from "../router.ts";
import { counted, plain, short } from "../words.ts";
import { type Found, jobsNamed, pagesWith, topicsWith } from "./found.ts";
import { over } from "./keyboard.ts";
import "./keyboard.css";

const PAUSE = 150; // milliseconds without a key, after which the server is asked
const MOST_TOPICS = 8;

export function Palette() {
  const [typed, type] = useState("");
  const [asked, ask] = useState("");
  const [chosen, choose] = useState(0);
  const isEntered = useRef(false); // Enter was pressed before the answer came
  const list = useRef<HTMLUListElement>(null);
  const id = useId();
  const text = typed.trim();
  useEffect(() => {
    const timer = setTimeout(() => ask(text), PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  const topics = useAsk((signal) => api.topics.list({ signal }), []);
  const jobs = useAsk(async (signal) => ({ of: asked, found: await jobsNamed(asked, signal) }), [asked]);

  const isAnswered = jobs.value?.of === text;
  const named = topicsWith(text, topics.value ?? []);
  const found = [...pagesWith(text), ...named.slice(0, MOST_TOPICS), ...(isAnswered ? (jobs.value?.found ?? []) : [])];
  const nth = Math.min(chosen, found.length - 1);
  const error = jobs.error ?? topics.error;
  const open = (each: Found | undefined) => each && go(each.path);

  useEffect(() => {
    if (isEntered.current) open(found[0]);
  }, [isAnswered, topics.value]);
  useEffect(() => {
    list.current?.children[nth]?.scrollIntoView({ block: "nearest" });
  }, [nth, text]);

  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.isComposing) return;
    if (step !== undefined) choose((nth + step + found.length) % Math.max(1, found.length));
    else if (event.key !== "Enter") return;
    else if (found[nth]) open(found[nth]);
    else isEntered.current = true;
    event.preventDefault();
  };
  return (
    <Dialog title="Go to" onClose={() => (over.value = null)}>
      <div class="palette">
        <input
          role="combobox"
          aria-label="A page, a topic, or the id, number or key of a job"
          aria-expanded={found.length > 0}
          aria-controls={id}
          aria-autocomplete="list"
          aria-activedescendant={found[nth] && `${id}-${nth}`}
          placeholder="Page, topic, job id, number or key"
          autocomplete="off"
          spellcheck={false}
          maxLength={255}
          autofocus
          value={typed}
          onInput={(event) => {
            isEntered.current = false;
            type(event.currentTarget.value);
            choose(0);
          }}
          onKeyDown={onKey}
        />
        <ul ref={list} role="listbox" id={id} aria-label="Found">
          {found.map((each, at) => (
            <li key={each.path} role="option" id={`${id}-${at}`} aria-selected={at === nth} onClick={() => open(each)}>
              <small>{each.kind}</small>
              <Name of={each} />
            </li>
          ))}
        </ul>
        {error !== undefined && <ErrorNote error={error} what="Not all could be searched" />}
        <p class="note" role="status">
          {found.length ? counted(found.length, "result") : isAnswered ? "No page, topic or job fits." : "Looking …"}
          {named.length > MOST_TOPICS && ` · ${counted(named.length - MOST_TOPICS, "other topic")} fit: type more`}
        </p>
      </div>
    </Dialog>
  );
}

function Name({ of: { name, job } }: { of: Found }) {
  if (!job) return <bdi>{plain(name)}</bdi>;
  return (
    <>
      <bdi>
        <code>{short(job.id)}</code> {plain(name)}
        {job.key !== null && <span class="note"> key {plain(job.key)}</span>}
      </bdi>
      <Mark of={markOf(job)} />
    </>
  );
}
