/** The durable readers of a channel, and how far behind they are. */

import { act, useAsk } from "../../asking.ts";
import { type Consumer, NotFound, api } from "../../client.ts";
import { Confirmed } from "../../parts/Button.tsx";
import { Menu } from "../../parts/Menu.tsx";
import { Card, Empty, ErrorNote } from "../../parts/notes.tsx";
import { useEvery } from "../../parts/seldom.ts";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { toast } from "../../parts/Toast.tsx";
import { number, plain } from "../../words.ts";

const EVERY = 5_000; // milliseconds

const COLUMNS = [
  { name: "Consumer", class: "cut" },
  { name: "Behind", isNumber: true },
  { name: "Seen", isNumber: true },
  { name: "State" },
  { name: "Actions" },
];

export function Consumers({ channel }: { channel: string }) {
  const asked = useAsk((signal) => api.events.consumers(channel, { signal }), [channel]);
  useEvery(asked.again, EVERY);
  const found = asked.value ?? [];
  const isNew = asked.error instanceof NotFound;
  return (
    <Card title="Consumers" note="readers whose places the server keeps">
      {asked.error !== undefined && !isNew && <ErrorNote error={asked.error} again={asked.again} what="The consumers could not be read" />}
      {(asked.value || isNew) && !found.length && (
        <Empty title="No consumer reads this channel." commands={[`app.events.subscribe("${channel}", consumer="mailer")`]} />
      )}
      {found.length > 0 && (
        <Table label="Consumers" columns={COLUMNS} class="consumers">
          {found.map((each) => (
            <ConsumerRow key={each.name} channel={channel} consumer={each} again={asked.again} />
          ))}
        </Table>
      )}
    </Card>
  );
}

function ConsumerRow({ channel, consumer, again }: { channel: string; consumer: Consumer; again: () => void }) {
  const { name, lag, isExpired, isOvertaken } = consumer;
  const isOurs = name.startsWith("towpath."); // it routes events to webhooks
  const move = (from: "start" | "now") => async () => {
    if (await act(`Move ${name}`, () => api.events.moveConsumer(channel, name, from))) {
      toast({ text: `${name} goes on ${from === "now" ? "with what comes from now on" : "with the oldest event"}.` });
      again();
    }
  };
  const forget = async () => {
    if (await act(`Forget ${name}`, () => api.events.forgetConsumer(channel, name))) {
      toast({ text: `${name} and its place are forgotten.` });
      again();
    }
  };
  return (
    <tr>
      <td class="cut">
        <bdi title={consumer.cursor}>{plain(name)}</bdi>
      </td>
      <td class="num">{lag ? `${number(lag)} behind` : "up to date"}</td>
      <td class="num">
        <Time at={consumer.seenAt} />
      </td>
      <td>{isOvertaken ? <span class="failed">its events are gone</span> : isExpired ? <span class="warned">silent</span> : "reads"}</td>
      <td class="acts">
        {!isOurs && (
          <>
            <Menu
              kind="quiet"
              label="Move"
              name={name}
              choices={[
                { label: "To the oldest event", run: move("start") },
                { label: "To what comes from now on", run: move("now") },
              ]}
            />
            <Confirmed question="Forget?" label={`Forget ${name}`} onClick={forget}>
              Forget
            </Confirmed>
          </>
        )}
      </td>
    </tr>
  );
}
