/** The form of a schedule: it shows the next fires while the rule is typed. */

import { useEffect, useState } from "preact/hooks";

import { act, useAsk } from "../../asking.ts";
import { type NewSchedule, type Schedule, api, said } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { Json } from "../../parts/Json.tsx";
import { hiddenIn, pretty } from "../../parts/json.ts";
import { changed } from "../../parts/live.ts";
import { ErrorNote, Loading } from "../../parts/notes.tsx";
import { toast } from "../../parts/Toast.tsx";
import { counted, plain, whole } from "../../words.ts";
import { exactly } from "./exact.ts";

const PAUSE = 300; // milliseconds after a key, before the rule is asked for
const FIRES = 5;
const ZONES = Intl.supportedValuesOf("timeZone");
const FIRE = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });

interface Typed {
  name: string;
  topic: string;
  kind: "cron" | "every";
  cron: string;
  tz: string;
  every: string;
  catchUp: NonNullable<NewSchedule["catchUp"]>;
  payload: string | null; // null: it stays as it is stored
  priority: string;
  maxRetries: string;
  timeout: string;
}

export function Form({ schedule, onDone }: { schedule?: Schedule; onDone: () => void }) {
  const [typed, setTyped] = useState<Typed>(() => typedOf(schedule));
  const [problem, setProblem] = useState("");
  const set = (changes: Partial<Typed>) => setTyped((before) => ({ ...before, ...changes }));
  const text = (name: keyof Typed) => ({
    value: String(typed[name]),
    onInput: (event: { currentTarget: HTMLInputElement | HTMLTextAreaElement }) => set({ [name]: event.currentTarget.value }),
  });

  const save = async () => {
    setProblem("");
    const body = bodyOf(typed, schedule);
    if (typeof body === "string") {
      setProblem(body);
      return;
    }
    if (!(await act(`Save ${typed.name}`, () => api.schedules.set(typed.name, body)))) return;
    toast({ text: `${plain(typed.name)} is saved.` });
    if (schedule) set({ payload: null });
    changed();
    onDone();
  };

  return (
    <form
      class="stack schedule"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <div class="fields">
        {!schedule && (
          <label>
            Name
            <input required maxLength={200} {...text("name")} />
          </label>
        )}
        <label>
          Topic
          <input required {...text("topic")} />
        </label>
      </div>
      <fieldset>
        <legend>Rule</legend>
        <div class="bar">
          {(["cron", "every"] as const).map((kind) => (
            <label key={kind} class="inline">
              <input type="radio" name="kind" checked={typed.kind === kind} onChange={() => set({ kind })} />
              {kind === "cron" ? "at times (cron)" : "every so many seconds"}
            </label>
          ))}
        </div>
        <div class="fields">
          {typed.kind === "cron" ? (
            <>
              <label>
                Cron: minute, hour, day, month, weekday
                <input class="mono" required spellcheck={false} {...text("cron")} />
              </label>
              <label>
                Time zone
                <input list="zones" required {...text("tz")} />
              </label>
              <datalist id="zones">
                {ZONES.map((zone) => (
                  <option key={zone} value={zone} />
                ))}
              </datalist>
            </>
          ) : (
            <label>
              Seconds
              <input type="number" min="1" step="any" required {...text("every")} />
            </label>
          )}
          <label>
            Missed fires
            <select onChange={(event) => set({ catchUp: event.currentTarget.value as Typed["catchUp"] })}>
              {(["latest", "skip", "all"] as const).map((each) => (
                <option key={each} value={each} selected={typed.catchUp === each}>
                  {{ latest: "one job for all of them", skip: "none", all: "a job for each" }[each]}
                </option>
              ))}
            </select>
          </label>
        </div>
        <Preview typed={typed} />
      </fieldset>
      {typed.payload === null && schedule ? (
        <Stored schedule={schedule} edit={(payload) => set({ payload })} />
      ) : (
        <label>
          Payload, as JSON
          <textarea class="mono" rows={4} spellcheck={false} {...text("payload")} />
        </label>
      )}
      <div class="fields">
        <label>
          Priority
          <input type="number" min="0" placeholder="default" {...text("priority")} />
        </label>
        <label>
          Retries at most
          <input type="number" min="0" placeholder="default" {...text("maxRetries")} />
        </label>
        <label>
          Time limit in seconds
          <input type="number" min="0" step="any" placeholder="default" {...text("timeout")} />
        </label>
      </div>
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      <div class="bar">
        <Button kind="primary" submits>
          {schedule ? "Save the changes" : "Create the schedule"}
        </Button>
        {!schedule && <Button onClick={onDone}>Cancel</Button>}
      </div>
    </form>
  );
}

/** The payload as it is stored, which stays as it is unless it is edited. */
function Stored({ schedule, edit }: { schedule: Schedule; edit: (payload: string) => void }) {
  const { name } = schedule;
  const isRaw = schedule.payload instanceof Uint8Array;
  const asked = useAsk((signal) => (isRaw ? Promise.resolve("") : api.schedules.payload(name, { signal })), [name, isRaw]);
  if (isRaw) return <p class="note">Its payload is raw bytes, which stay as they are.</p>;
  if (asked.error !== undefined) return <ErrorNote error={asked.error} again={asked.again} what="The payload could not be read" />;
  if (asked.value === undefined) return <Loading rows={2} />;
  const shown = asked.value;
  const hidden = hiddenIn(shown);
  const begin = async () => {
    let text = shown;
    const isRead = !hidden || (await act("Reveal", async () => (text = await api.schedules.payload(name, { reveal: true }))));
    if (isRead) edit(pretty(text));
  };
  return (
    <div class="stack stored">
      <div class="bar">
        <span class="note">Payload</span>
        <Button onClick={begin} {...(hidden ? { title: "Activity will tell that you have looked at it" } : {})}>
          {hidden ? `Reveal ${counted(hidden, "hidden value")} and edit` : "Edit the payload"}
        </Button>
      </div>
      <Json text={shown} label="Payload" />
    </div>
  );
}

/** The next fires of the rule as it is typed, or what is wrong with it. */
function Preview({ typed: { kind, cron, tz, every } }: { typed: Typed }) {
  const [rule, setRule] = useState({ kind, cron, tz, every });
  useEffect(() => {
    const timer = setTimeout(() => setRule({ kind, cron, tz, every }), PAUSE);
    return () => clearTimeout(timer);
  }, [kind, cron, tz, every]);
  const asked = useAsk(
    async (signal) => {
      const isEmpty = rule.kind === "cron" ? !rule.cron.trim() : !(Number(rule.every) >= 1);
      if (isEmpty) return null;
      const wanted = rule.kind === "cron" ? { cron: rule.cron, tz: rule.tz } : { every: Number(rule.every) };
      // A rule that cannot be read is an answer, too.
      return api.schedules.preview({ ...wanted, count: FIRES }, { signal }).catch((error: unknown) => {
        if (signal.aborted) throw error;
        return said(error);
      });
    },
    [rule],
  );
  const { value } = asked;
  return (
    <div class="preview" role="status" aria-label="Next fires">
      {value === null && <p class="note">The next {FIRES} times appear here.</p>}
      {typeof value === "string" && <p class="problem">{value}</p>}
      {value && typeof value !== "string" && (
        <>
          <p>{value.words}</p>
          <p class="note">The next fires, in local time:</p>
          <ol>
            {value.fires.map((at) => (
              <li key={at}>
                <time dateTime={at} title={whole(Date.parse(at))}>
                  {FIRE.format(Date.parse(at))}
                </time>
              </li>
            ))}
          </ol>
        </>
      )}
    </div>
  );
}

function typedOf(schedule: Schedule | undefined): Typed {
  const words = (value: number | null | undefined) => (value === null || value === undefined ? "" : String(value));
  return {
    name: schedule?.name ?? "",
    topic: schedule?.topic ?? "",
    kind: schedule && schedule.cron === null ? "every" : "cron",
    cron: schedule?.cron ?? "",
    tz: schedule?.tz ?? (schedule ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone),
    every: words(schedule?.every),
    catchUp: (schedule?.catchUp ?? "latest") as Typed["catchUp"],
    payload: schedule ? null : "null",
    priority: words(schedule?.options.priority),
    maxRetries: words(schedule?.options.maxRetries),
    timeout: words(schedule?.options.timeout),
  };
}

/** What is stored, or what is wrong with what was typed. */
function bodyOf(typed: Typed, schedule: Schedule | undefined): NewSchedule | string {
  const figure = (text: string) => (text.trim() ? Number(text) : null);
  let data: Pick<NewSchedule, "payload" | "keepPayload">;
  try {
    data = typed.payload === null ? { keepPayload: true } : { payload: exactly(typed.payload) };
  } catch (error) {
    return `The payload is no JSON: ${said(error)}`;
  }
  const rule = typed.kind === "cron" ? { cron: typed.cron, tz: typed.tz } : { every: Number(typed.every) };
  return {
    ...rule,
    ...data,
    topic: typed.topic,
    catchUp: typed.catchUp,
    options: {
      ...schedule?.options,
      priority: figure(typed.priority),
      maxRetries: figure(typed.maxRetries),
      timeout: figure(typed.timeout),
    },
  };
}
