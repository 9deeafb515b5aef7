/** The access rules: general ones, those of topics, and those of channels. */

import { useEffect, useState } from "preact/hooks";

import { act, useAsk } from "../../asking.ts";
import { type Access as Rules, api } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { Card, ErrorNote, Loading } from "../../parts/notes.tsx";
import { toast } from "../../parts/Toast.tsx";
import { plain } from "../../words.ts";
import { listed } from "../webhooks/states.ts";
import { GENERAL, OF_CHANNELS, OF_TOPICS, type OwnRules, changesOf } from "./rules.ts";
import { Tester } from "./Tester.tsx";

export function Access() {
  const asked = useAsk((signal) => api.access.get({ signal }), []);
  const [draft, setDraft] = useState<Rules | null>(null);
  const stored = asked.value;
  useEffect(() => {
    if (stored && !draft) setDraft(stored);
  }, [stored]);
  if (asked.error !== undefined && !stored) return <ErrorNote error={asked.error} again={asked.again} what="The rules could not be read" />;
  if (!stored || !draft) return <Loading />;
  const changes = changesOf(stored, draft);
  const set = (change: Partial<Rules>) => setDraft({ ...draft, ...change });
  const save = async () => {
    if (!changes) return;
    let saved: Rules | undefined;
    const isDone = await act("Save the rules", async () => {
      saved = await api.access.set(changes);
    });
    if (!isDone || !saved) return;
    const now = saved;
    asked.put(() => now);
    setDraft(now);
    toast({ text: "The rules are saved, and hold at once on every server." });
  };
  return (
    <>
      <Card title="HTTP API" note="for all but superusers">
        <div class="stack">
          <label class="tick">
            <input type="checkbox" checked={draft.http_enabled} onChange={(event) => set({ http_enabled: event.currentTarget.checked })} />
            The API is on
          </label>
          <label>
            Topics that may be enqueued over HTTP; empty for all
            <input value={draft.allowed_topics.join(", ")} placeholder="all topics" autocomplete="off" onChange={(event) => set({ allowed_topics: listed(event.currentTarget.value) })} />
          </label>
        </div>
      </Card>
      <Card title="General rules" note="an empty rule allows superusers only">
        <div class="stack">
          {(Object.keys(GENERAL) as (keyof typeof GENERAL)[]).map((name) => (
            <RuleInput key={name} label={`${name}: ${GENERAL[name]}`} text={draft[name]} set={(text) => set({ [name]: text })} />
          ))}
        </div>
      </Card>
      <Own
        title="Topics with rules of their own"
        noun="topic"
        pattern="[A-Za-z0-9_\-]+"
        names={OF_TOPICS}
        otherwise="the general rule decides"
        rules={draft.topics}
        set={(topics) => set({ topics })}
      />
      <Own
        title="Channels with rules, by the beginning of their names"
        noun="beginning"
        pattern="[A-Za-z0-9_.:\-]+"
        names={OF_CHANNELS}
        otherwise="a shorter beginning decides"
        rules={draft.channels}
        set={(channels) => set({ channels })}
      />
      <div class="bar save-bar" role="region" aria-label="Changes of the rules">
        <Button kind="primary" disabled={!changes} onClick={save}>
          Save the rules
        </Button>
        <Button disabled={!changes} onClick={() => setDraft(stored)}>
          Take the changes back
        </Button>
        <span class="note">{changes ? `Changed: ${Object.keys(changes).join(", ")}. Nothing is saved yet.` : "Nothing is changed."}</span>
      </div>
      <Tester changes={changes} />
    </>
  );
}

function RuleInput({ label, text, set }: { label: string; text: string; set: (text: string) => void }) {
  return (
    <label>
      <bdi>{label}</bdi>
      <textarea class="mono rule" rows={1} value={text} maxLength={4000} placeholder="superusers only" spellcheck={false} onInput={(event) => set(event.currentTarget.value)} />
    </label>
  );
}

interface OwnGiven {
  title: string;
  noun: string;
  pattern: string;
  names: readonly string[];
  otherwise: string;
  rules: Record<string, OwnRules>;
  set: (rules: Record<string, OwnRules>) => void;
}

function Own({ title, noun, pattern, names, otherwise, rules, set }: OwnGiven) {
  const entries = Object.entries(rules).sort(([one], [other]) => (one < other ? -1 : 1));
  const add = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const name = String(new FormData(form).get("name")).trim();
    if (name && !rules[name]) set({ ...rules, [name]: { [names[0] ?? ""]: "" } });
    form.reset();
  };
  const remove = (name: string) => () => set(Object.fromEntries(entries.filter(([each]) => each !== name)));
  return (
    <Card title={title}>
      <div class="stack">
        {entries.map(([name, own]) => (
          <fieldset key={name} class="own">
            <legend>
              <bdi>{plain(name)}</bdi>
            </legend>
            {names.map((rule) => {
              const text = own[rule];
              const isOwn = typeof text === "string";
              const put = (to: string | null) => set({ ...rules, [name]: { ...own, [rule]: to } });
              return (
                <div key={rule} class="own-rule">
                  <label class="tick">
                    <input type="checkbox" aria-label={`${rule} of ${name} is its own`} checked={isOwn} onChange={() => put(isOwn ? null : "")} />
                    {rule}
                  </label>
                  {isOwn ? (
                    <textarea class="mono rule" rows={1} aria-label={`${rule} of ${name}`} value={text} maxLength={4000} placeholder="superusers only" spellcheck={false} onInput={(event) => put(event.currentTarget.value)} />
                  ) : (
                    <span class="note">{otherwise}</span>
                  )}
                </div>
              );
            })}
            <Button kind="quiet danger" label={`Remove the rules of ${name}`} onClick={remove(name)}>
              Remove
            </Button>
          </fieldset>
        ))}
        <form class="filters" onSubmit={add}>
          <label>
            Add a {noun}
            <input name="name" maxLength={200} pattern={pattern} required autocomplete="off" />
          </label>
          <Button submits>Add</Button>
        </form>
      </div>
    </Card>
  );
}
