/** What people did, the newest first, and bulk acts with their progress. */

import { useEffect } from "preact/hooks";

import { Head } from "../../Layout.tsx";
import { useAsk } from "../../asking.ts";
import { type Act, type ChannelEvent, api, isLoggedOut } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { filter, go, place } from "../../router.ts";
import { ended, logins } from "../../session.ts";
import { counted, plain } from "../../words.ts";
import { Bulk } from "./Bulk.tsx";
import { KINDS, kindOf, told } from "./acts.ts";
import "./activity.css";

const MOST = 500; // rows of the page

const COLUMNS = [{ name: "When" }, { name: "Who" }, { name: "What", class: "cut" }, { name: "From" }];

export function Activity() {
  const { query } = place.value;
  const [who, what] = [query.get("who") ?? "", query.get("what") ?? ""];
  const asked = useAsk((signal) => api.activity.list({ signal }), []);
  useEffect(() => {
    const subscription = api.activity.subscribe((act) => {
      asked.put((acts) => (acts.some(({ id }) => id === act.id) ? acts : [act, ...acts]));
    });
    subscription.done.catch((error: unknown) => {
      if (isLoggedOut(error)) ended();
    });
    return () => subscription.close();
  }, [logins.value]);
  const acts = asked.value ?? [];
  const people = [...new Set(acts.map(nameOf))].sort();
  const found = acts.filter((act) => (!who || nameOf(act) === who) && (!what || kindOf(act.type ?? "") === what));
  return (
    <>
      <Head title="Activity" />
      <Bulk />
      <form class="filters" role="search">
        <label>
          Who
          <select value={who} onChange={(event) => filter({ who: event.currentTarget.value })}>
            <option value="">Anyone</option>
            {[...new Set([...people, ...(who ? [who] : [])])].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label>
          What
          <select value={what} onChange={(event) => filter({ what: event.currentTarget.value })}>
            <option value="">Anything</option>
            {Object.entries(KINDS).map(([kind, label]) => (
              <option key={kind} value={kind}>
                {label}
              </option>
            ))}
          </select>
        </label>
      </form>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what="The acts could not be read" />}
      {!asked.value && asked.error === undefined && <Loading />}
      {asked.value && !found.length && (
        <Empty title={who || what ? "No act fits." : "No person has changed anything lately."}>
          {who || what ? (
            <Button onClick={() => go("/activity")}>Clear the filters</Button>
          ) : (
            <p>What people change over HTTP appears here, and stays for 24 hours. Programs with an API key are not people.</p>
          )}
        </Empty>
      )}
      {found.length > 0 && (
        <>
          <Table label="Acts" columns={COLUMNS} class="acts-list">
            {found.slice(0, MOST).map((act) => (
              <Row key={act.id} act={act} />
            ))}
          </Table>
          <p class="note">
            {counted(Math.min(found.length, MOST), "act")}
            {found.length > MOST && ` of ${counted(found.length, "act")}`}, the newest first. Acts are kept for 24 hours, unless the limits of the channel system say otherwise.
          </p>
        </>
      )}
    </>
  );
}

function Row({ act }: { act: ChannelEvent<Act> }) {
  const { verb, object, link, more } = told(act.type ?? "", act.payload);
  return (
    <tr>
      <td>
        <Time at={act.at} as="clock" />
      </td>
      <td>
        <bdi title={plain(nameOf(act))}>{plain(nameOf(act))}</bdi>
      </td>
      <td class="cut">
        {verb} <bdi>{link ? <a href={link}>{plain(object)}</a> : plain(object)}</bdi>
        {more && <bdi class="note"> {plain(more)}</bdi>}
      </td>
      <td class="push">
        <bdi class="note">{plain(act.payload.from ?? "")}</bdi>
      </td>
    </tr>
  );
}

function nameOf({ payload }: ChannelEvent<Act>): string {
  return payload.who.name || payload.who.id;
}
