/** Tries the rules: may this caller do that, and which part of which rule decides. */

import { useState } from "preact/hooks";

import { useAsk } from "../../asking.ts";
import { type AccessAnswer, type AccessChange, type AccessTry, api, isLoggedOut, said } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { Mark } from "../../parts/Mark.tsx";
import { Card } from "../../parts/notes.tsx";
import { ended } from "../../session.ts";
import { plain } from "../../words.ts";

const VERBS = ["enqueue", "manage", "work", "publish", "subscribe"] as const;
const MOST_ACCOUNTS = 100;

interface Result {
  stored: AccessAnswer;
  edited: AccessAnswer | null;
}

export function Tester({ changes }: { changes: AccessChange | undefined }) {
  const users = useAsk((signal) => api.collection("users").list({ perPage: MOST_ACCOUNTS, signal }), []);
  const keys = useAsk((signal) => api.keys.list({ signal }), []);
  const [as, setAs] = useState("");
  const [result, setResult] = useState<Result | null>(null);
  const [problem, tell] = useState("");
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    tell("");
    setResult(null);
    try {
      const question = asked(form);
      const stored = await api.access.try(question);
      setResult({ stored, edited: changes ? await api.access.try({ ...question, rules: changes }) : null });
    } catch (error) {
      if (isLoggedOut(error)) ended();
      tell(said(error));
    }
  };
  return (
    <Card title="Try the rules" note="nothing is changed">
      <form class="stack" onSubmit={submit}>
        <div class="filters">
          <label>
            As
            <select name="as" value={as} onChange={(event) => setAs(event.currentTarget.value)}>
              <option value="">a caller without a login</option>
              <option value="auth">a login with these fields …</option>
              {(users.value?.items ?? []).map(({ id, email, name }) => (
                <option key={id} value={`user ${id}`}>
                  {plain(String(email || name || id))}
                </option>
              ))}
              {(keys.value ?? []).map(({ id, name }) => (
                <option key={id} value={`key ${id}`}>
                  API key {plain(name)}
                </option>
              ))}
            </select>
          </label>
          <label>
            May it
            <select name="verb">
              {VERBS.map((verb) => (
                <option key={verb} selected={verb === "manage"}>
                  {verb}
                </option>
              ))}
            </select>
          </label>
          <label>
            On a
            <select name="kind">
              <option value="">topic or job</option>
              <option>channel</option>
            </select>
          </label>
          <label class="wide">
            Name, or id of a job
            <input name="what" maxLength={200} placeholder="mail, or all topics" autocomplete="off" />
          </label>
          <Button kind="primary" submits>
            Try
          </Button>
        </div>
        {as === "auth" && (
          <label>
            Fields of the login, as JSON
            <textarea name="auth" class="mono" rows={2} spellcheck={false} defaultValue={'{"id": "ann", "email": "ann@example.com"}'} />
          </label>
        )}
        <details class="request">
          <summary>The request: method, body and query</summary>
          <div class="stack">
            <label>
              Method
              <select name="method">
                {["GET", "POST", "PUT", "PATCH", "DELETE"].map((each) => (
                  <option key={each} selected={each === "POST"}>
                    {each}
                  </option>
                ))}
              </select>
            </label>
            <label>
              Body, as JSON; of an enqueue, the new job
              <textarea name="body" class="mono" rows={2} spellcheck={false} placeholder={'{"payload": {"userId": "ann"}}'} />
            </label>
            <label>
              Query
              <input name="query" class="mono" placeholder="page=12" autocomplete="off" />
            </label>
          </div>
        </details>
      </form>
      <div aria-live="polite" class="stack tried">
        {problem && (
          <p class="problem">
            <bdi>{plain(problem)}</bdi>
          </p>
        )}
        {result && <Answer answer={result.stored} title="With the rules as saved" />}
        {result?.edited && <Answer answer={result.edited} title="With the rules as edited" />}
      </div>
    </Card>
  );
}

/** The answer, with each part of the rule and its values. */
function Answer({ answer, title }: { answer: AccessAnswer; title: string }) {
  const { allowed, why, rule, parts } = answer;
  return (
    <section aria-label={title} class="answer">
      <p class="bar">
        <Mark of={allowed ? "completed" : "failed"} word={allowed ? "yes" : "no"} />
        <b>{title}:</b> <bdi>{plain(why)}.</bdi>
      </p>
      {rule && rule.text && (
        <pre tabIndex={0} role="region" aria-label="The rule that decides">
          <bdi>{plain(rule.text)}</bdi>
        </pre>
      )}
      {parts.length > 0 && (
        <ul>
          {parts.map((part) => (
            <li key={part.position} class={part.holds ? "holds" : "fails"}>
              <Mark of={part.holds ? "completed" : "failed"} word={part.holds ? "holds" : "does not hold"} />
              <bdi class="mono">{plain(part.text)}</bdi>
              {part.operator && (
                <bdi class="mono note">
                  {plain(part.left)} {part.operator} {plain(part.right)}
                </bdi>
              )}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

function asked(form: FormData): AccessTry {
  const text = (name: string) => String(form.get(name) ?? "").trim();
  const verb = text("verb") as (typeof VERBS)[number];
  const what = text("what");
  const body = text("body");
  const isChannel = verb === "publish" || verb === "subscribe" || text("kind") === "channel" || what.includes(":");
  return {
    verb,
    method: text("method"),
    query: Object.fromEntries(new URLSearchParams(text("query"))),
    ...callerOf(text("as"), text("auth")),
    ...(body ? { body: read(body, "The body") } : {}),
    ...(!what ? {} : UUID.test(what) ? { job: what } : isChannel ? { channel: what } : { topic: what }),
  };
}

function callerOf(chosen: string, auth: string): Pick<AccessTry, "as"> {
  if (!chosen) return { as: null };
  if (chosen === "auth") return { as: { auth: read(auth, "The login") as Record<string, unknown> } };
  const [kind, id = ""] = chosen.split(" ");
  return { as: kind === "key" ? { key: id } : { collection: "users", id } };
}

function read(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not JSON: ${error instanceof Error ? error.message : error}`);
  }
}
