/** One channel: its events as they come, and how far its consumers are. */

import { useRef, useState } from "preact/hooks";

import type { PageParts } from "../../pages.ts";
import { Head } from "../../Layout.tsx";
import { useAsk } from "../../asking.ts";
import { type ChannelEvent, type From, NotFound, api } from "../../client.ts";
import { Button, Copy } from "../../parts/Button.tsx";
import { Json } from "../../parts/Json.tsx";
import { Card, ErrorNote } from "../../parts/notes.tsx";
import { useEvery } from "../../parts/seldom.ts";
import { Time } from "../../parts/Time.tsx";
import { filter, href, place } from "../../router.ts";
import { bytes, counted, number, plain } from "../../words.ts";
import { Consumers } from "./Consumers.tsx";
import { textOf } from "./exact.ts";
import { MOST, useTail } from "./tail.ts";
import "./channels.css";

const EVERY = 5_000; // milliseconds
const PREVIEW = 300; // characters

const STARTS: Record<string, { label: string; from: From }> = {
  now: { label: "now", from: "now" },
  "20": { label: "the last 20", from: { last: 20 } },
  "100": { label: "the last 100", from: { last: 100 } },
  start: { label: "the start", from: "start" },
};

export function Channel({ channel = "" }: PageParts) {
  const asked = useAsk((signal) => api.events.get(channel, { signal }), [channel]);
  useEvery(asked.again, EVERY);
  const known = asked.value;
  const isNew = asked.error instanceof NotFound;
  return (
    <>
      <a class="back" href={href("/channels")}>
        ‹ Channels
      </a>
      <Head
        title={
          <>
            Channel <bdi>{channel}</bdi>
          </>
        }
      />
      {asked.error !== undefined && !isNew && <ErrorNote error={asked.error} again={asked.again} what="The channel could not be read" />}
      {isNew && <p class="note">There is no such channel yet. Its events appear here as soon as there are some.</p>}
      {known && !isNew && (
        <div class="figures">
          <span>
            <b>{number(known.events)}</b> events kept
          </span>
          <span>
            <b>{bytes(known.size)}</b>
          </span>
          <span>
            since <Time at={known.createdAt} />
          </span>
          {known.ended && <span>ended: {known.ended}</span>}
        </div>
      )}
      <Events channel={channel} />
      <Consumers channel={channel} />
    </>
  );
}

function Events({ channel }: { channel: string }) {
  const { query } = place.value;
  const types = query.get("types") ?? "";
  const start = query.get("from") ?? "";
  const from = STARTS[start] ? start : "20";
  const tail = useTail(channel, STARTS[from]?.from ?? "now", types);
  // Rows stay where they are while one is open.
  const [frozen, freeze] = useState<ChannelEvent[] | null>(null);
  const open = useRef(new Set<string>());
  const rows = frozen ?? tail.rows;
  const waiting = frozen ? tail.rows.findIndex((event) => event.cursor === frozen[0]?.cursor) : 0;
  const toggle = (cursor: string, isOpen: boolean) => {
    if (isOpen) open.current.add(cursor);
    else open.current.delete(cursor);
    if (!open.current.size) freeze(null);
    else if (!frozen) freeze(tail.rows);
  };
  const thaw = () => {
    open.current.clear();
    freeze(null);
  };
  return (
    <Card
      title="Events"
      note={tail.end ? `ended: ${tail.end}` : tail.isPaused ? "paused" : "as they come"}
      tools={
        <Button onClick={() => tail.pause(!tail.isPaused)} disabled={tail.end !== null}>
          {tail.isPaused ? "Go on" : "Pause"}
        </Button>
      }
    >
      <form
        class="filters"
        onSubmit={(event) => {
          event.preventDefault();
          thaw();
          filter({ types: String(new FormData(event.currentTarget).get("types")).trim() });
        }}
      >
        <label>
          From
          <select
            value={from}
            onChange={(event) => {
              thaw();
              filter({ from: event.currentTarget.value });
            }}
          >
            {Object.entries(STARTS).map(([name, { label }]) => (
              <option key={name} value={name}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label class="wide">
          Only these types
          <input key={types} name="types" defaultValue={types} maxLength={500} placeholder="text, order.*" />
        </label>
        <Button submits>Show</Button>
      </form>
      {tail.error !== undefined && <ErrorNote error={tail.error} what="The events could not be read" />}
      {waiting !== 0 && (
        <Button class="fresh" onClick={thaw}>
          ↑ {waiting < 0 ? `${MOST}+ new events` : counted(waiting, "new event")}
        </Button>
      )}
      {!rows.length && tail.error === undefined && (
        <p class="note waits">{types ? "No event of these types so far." : "No event so far."} The next one appears here.</p>
      )}
      <ul class="events">
        {rows.map((event) => (
          <li key={event.cursor}>
            <Event event={event} toggle={(isOpen) => toggle(event.cursor, isOpen)} />
          </li>
        ))}
      </ul>
      {tail.dropped > 0 && (
        <p class="note">
          Only {number(MOST)} events are shown; {number(tail.dropped)} older ones have left the page.
          {from === "start" && tail.isPaused && " Go on to read the next ones."}
        </p>
      )}
      {from === "start" && tail.isPaused && !tail.dropped && <p class="note">Go on to read the next events.</p>}
    </Card>
  );
}

function Event({ event, toggle }: { event: ChannelEvent; toggle: (isOpen: boolean) => void }) {
  const [isOpen, setOpen] = useState(false);
  const text = textOf(event);
  const headers = Object.entries(event.headers);
  return (
    <details
      onToggle={(happened) => {
        setOpen(happened.currentTarget.open);
        toggle(happened.currentTarget.open);
      }}
    >
      <summary>
        <Time at={event.at} as="clock" />
        <bdi class="type">{plain(event.type ?? "–")}</bdi>
        <bdi class="mono preview">{plain(text.slice(0, PREVIEW))}</bdi>
      </summary>
      {isOpen && (
        <div class="stack">
          <Json text={text} label={`Payload of ${event.cursor}`} />
          <dl>
            <dt>Cursor</dt>
            <dd class="mono">{event.cursor}</dd>
            <dt>Id</dt>
            <dd class="mono">{event.id}</dd>
            {event.key !== null && (
              <>
                <dt>Key</dt>
                <dd>
                  <bdi>{plain(event.key)}</bdi>
                </dd>
              </>
            )}
            {headers.map(([name, value]) => (
              <>
                <dt>
                  <bdi>{plain(name)}</bdi>
                </dt>
                <dd>
                  <bdi>{plain(value)}</bdi>
                </dd>
              </>
            ))}
          </dl>
          <div>
            <Copy text={text} label="Copy the payload">
              Copy the payload
            </Copy>
          </div>
        </div>
      )}
    </details>
  );
}
