/** The schedules: when each fires, how its last fires went, and its next ones. */

import { act, useAsk } from "../../asking.ts";
import { type Schedule, api } from "../../client.ts";
import { Head } from "../../Layout.tsx";
import { Button, Confirmed } from "../../parts/Button.tsx";
import { changed } from "../../parts/live.ts";
import { Mark, type Marked } from "../../parts/Mark.tsx";
import { Card, Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { useEvery, useSeldom } from "../../parts/seldom.ts";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { toast } from "../../parts/Toast.tsx";
import { filter, go, href, place } from "../../router.ts";
import { plain, whole } from "../../words.ts";
import { Form } from "./Form.tsx";

const COLUMNS = [
  { name: "Name" },
  { name: "Rule", class: "cut" },
  { name: "Last 20 fires" },
  { name: "Next" },
  { name: "Enqueues" },
  { name: "Actions" },
];

export function Schedules() {
  const isNew = place.value.query.has("new");
  const asked = useAsk((signal) => api.schedules.list({ details: true, signal }), []);
  useSeldom(asked.again, 5_000);
  useEvery(asked.again, 60_000);
  const { value } = asked;
  return (
    <>
      <Head title="Schedules">
        {!isNew && (
          <Button kind="primary" onClick={() => filter({ new: "yes" })}>
            New schedule
          </Button>
        )}
      </Head>
      {isNew && (
        <Card title="New schedule">
          <Form
            onDone={() => {
              filter({ new: null });
              asked.again();
            }}
          />
        </Card>
      )}
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} />}
      {!value && asked.error === undefined && <Loading />}
      {value && !value.length && !isNew && (
        <Empty
          title="There is no schedule yet."
          commands={["towpath schedules set digest --cron '0 7 * * *' --tz Europe/Zurich --topic mail"]}
        >
          <p>A schedule enqueues a job again and again, by a cron rule or every so many seconds.</p>
        </Empty>
      )}
      {value && value.length > 0 && (
        <Table label="Schedules" columns={COLUMNS} class="schedules">
          {value.map((schedule) => (
            <Row key={schedule.name} schedule={schedule} again={asked.again} />
          ))}
        </Table>
      )}
    </>
  );
}

function Row({ schedule, again }: { schedule: Schedule; again: () => void }) {
  return (
    <tr>
      <td class="name">
        <a href={href(`/schedules/${encodeURIComponent(schedule.name)}`)} title={plain(schedule.name)}>
          <bdi>{plain(schedule.name)}</bdi>
        </a>
      </td>
      <td class="cut">
        <span title={ruleOf(schedule)}>{schedule.words}</span>
        {schedule.error && <span class="failed"> · {plain(schedule.error)}</span>}
      </td>
      <td data-label="fires">
        <Fires of={schedule} />
      </td>
      <td data-label="next">
        {schedule.paused ? <span class="mark warned">paused</span> : schedule.nextAt ? <Time at={schedule.nextAt} as="next" /> : "never fires"}
      </td>
      <td data-label="enqueues">
        <a href={href(`/topics/${encodeURIComponent(schedule.topic)}`)} title={plain(schedule.topic)}>
          <bdi>{plain(schedule.topic)}</bdi>
        </a>
      </td>
      <td class="push">
        <Acts schedule={schedule} again={again} />
      </td>
    </tr>
  );
}

/** The last fires, oldest first: each is the mark of its job, and a link to it. */
export function Fires({ of: { history } }: { of: Schedule }) {
  if (!history.length) return <span class="note">none yet</span>;
  return (
    <span class="fires">
      {[...history].reverse().map(({ at, job, state }) => {
          const title = `${whole(Date.parse(at))}\n${state ?? "its job is no longer kept"}`;
          const mark = state ? <Mark of={state as Marked} word="" /> : <span class="mark pending">·</span>;
          return job ? (
            <a key={at} href={href(`/jobs/${job}`)} title={title} aria-label={`${new Date(at).toISOString()}: ${state ?? "no longer kept"}`}>
              {mark}
            </a>
          ) : (
            <span key={at} title={title}>
              {mark}
            </span>
          );
        })}
    </span>
  );
}

/** What can be done to a schedule. */
export function Acts({ schedule, again, isAlone }: { schedule: Schedule; again: () => void; isAlone?: boolean }) {
  const { name } = schedule;
  const kind = isAlone ? "plain" : "quiet";
  const say = (text: string) => {
    toast({ text });
    again();
    changed();
  };
  const run = async () => {
    if (await act(`Run ${name}`, () => api.schedules.run(name))) say(`A job of ${plain(name)} was enqueued.`);
  };
  const resume = async () => {
    if (await act(`Resume ${name}`, () => api.schedules.resume(name))) say(`${plain(name)} fires again.`);
  };
  const pause = async () => {
    if (!(await act(`Pause ${name}`, () => api.schedules.pause(name)))) return;
    toast({ text: `${plain(name)} is paused until it is resumed.`, action: { label: "Undo", run: resume } });
    again();
    changed();
  };
  const remove = async () => {
    if (!(await act(`Delete ${name}`, () => api.schedules.delete(name)))) return;
    if (isAlone) go("/schedules");
    say(`${plain(name)} was deleted. The jobs that it enqueued stay.`);
  };
  return (
    <span class="bar acts">
      <Button kind={kind} onClick={run}>
        Run now
      </Button>
      {schedule.paused ? (
        <Button kind={kind} onClick={resume}>
          Resume
        </Button>
      ) : (
        <Button kind={kind} onClick={pause}>
          Pause
        </Button>
      )}
      {(isAlone || schedule.paused) && (
        <Confirmed question="Delete?" kind={isAlone ? "danger" : "quiet danger"} onClick={remove}>
          Delete
        </Confirmed>
      )}
    </span>
  );
}

/** The rule as it is written. */
export function ruleOf({ cron, tz, every }: Schedule): string {
  return cron === null ? `every ${every} s` : `${cron} ${tz ?? "UTC"}`;
}
