/** The channels, by name; a text finds those whose names begin with it. */

import { useEffect, useRef } from "preact/hooks";

import { Head } from "../../Layout.tsx";
import { useAsk } from "../../asking.ts";
import { type Channel, api } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { Pager } from "../../parts/Pager.tsx";
import { useEvery } from "../../parts/seldom.ts";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { FIRST, stepsBy } from "../../parts/trail.ts";
import { filter, go, href, place } from "../../router.ts";
import { bytes, counted, number } from "../../words.ts";
import "./channels.css";

const AT_ONCE = 100;
const EVERY = 5_000; // milliseconds

const COLUMNS = [
  { name: "Name", class: "cut" },
  { name: "Events", isNumber: true },
  { name: "Size", isNumber: true },
  { name: "Begun", isNumber: true },
  { name: "State" },
];

export function Channels() {
  const { query } = place.value;
  const prefix = query.get("find") ?? "";
  const after = query.get("after") ?? undefined;
  const asked = useAsk(
    (signal) => api.events.channels({ prefix: prefix || undefined, after, limit: AT_ONCE, signal }),
    [prefix, after],
  );
  useEvery(asked.again, EVERY);
  const page = asked.value;
  const steps = stepsBy("after", page?.next);
  return (
    <>
      <Head title="Channels" />
      <Find prefix={prefix} />
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what="The channels could not be read" />}
      {!page && asked.error === undefined && <Loading />}
      {page && !page.items.length && <Nothing prefix={prefix} isFirst={!after} />}
      {page && page.items.length > 0 && (
        <Table label="Channels" columns={COLUMNS} class="channels">
          {page.items.map((channel) => (
            <Row key={channel.name} channel={channel} />
          ))}
        </Table>
      )}
      {page && (after || page.next) && (
        <Pager
          where={`Page ${steps.page}`}
          prev={steps.prev}
          next={steps.next}
          note={`${counted(page.items.length, "channel")}, by name`}
        />
      )}
    </>
  );
}

function Find({ prefix }: { prefix: string }) {
  const text = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (text.current) text.current.value = prefix;
  }, [prefix]);
  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        filter({ ...FIRST, find: text.current?.value.trim() });
      }}
    >
      <label class="wide">
        Find by the beginning of the name
        <input ref={text} type="search" name="find" maxLength={200} placeholder="chat:" />
      </label>
      <Button submits>Find</Button>
    </form>
  );
}

function Row({ channel }: { channel: Channel }) {
  return (
    <tr>
      <td class="cut mono">
        <a href={href(`/channels/${encodeURIComponent(channel.name)}`)} title={channel.name}>
          {channel.name}
        </a>
      </td>
      <td class="num">{number(channel.events)}</td>
      <td class="num">{bytes(channel.size)}</td>
      <td class="num">
        <Time at={channel.createdAt} />
      </td>
      <td class="push">{channel.ended ? <span class="note">ended: {channel.ended}</span> : "open"}</td>
    </tr>
  );
}

function Nothing({ prefix, isFirst }: { prefix: string; isFirst: boolean }) {
  if (prefix || !isFirst) {
    return (
      <Empty title={isFirst ? `No channel begins with ${prefix}.` : "No more channels."}>
        <Button onClick={() => go("/channels")}>Show all channels</Button>
      </Empty>
    );
  }
  return (
    <Empty
      title="There is no channel yet."
      commands={[`towpath events publish chat:42 '{"text": "hello"}' --type said`, 'app.events.publish("chat:42", {"text": "hello"}, type="said")']}
    >
      <p>A channel begins with its first event.</p>
    </Empty>
  );
}
