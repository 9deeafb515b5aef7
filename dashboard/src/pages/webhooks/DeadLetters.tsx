/** Deliveries that have failed for good: requeued one by one, or many by a replay. */

import { useState } from "preact/hooks";

import { act, useAsk } from "../../asking.ts";
import { type DeadLetterOutline, api } from "../../client.ts";
import { Button, Confirmed } from "../../parts/Button.tsx";
import { Json } from "../../parts/Json.tsx";
import { Chevron } from "../../parts/Mark.tsx";
import { Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { Pager } from "../../parts/Pager.tsx";
import { useEvery } from "../../parts/seldom.ts";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { toast } from "../../parts/Toast.tsx";
import { FIRST, stepsBy } from "../../parts/trail.ts";
import { filter, go, place } from "../../router.ts";
import { counted, plain } from "../../words.ts";
import { textOf } from "../channels/exact.ts";
import { Replaying } from "./Replay.tsx";
import { ChooseSubscription, useSubscriptions } from "./choice.tsx";
import { Frame } from "./Webhooks.tsx";

const AT_ONCE = 50;
const EVERY = 10_000; // milliseconds

const COLUMNS = [
  { name: "Event" },
  { name: "To", class: "cut" },
  { name: "Error" },
  { name: "Failed", isNumber: true },
  { name: "Payload" },
  { name: "Actions" },
];

export function DeadLetters() {
  const { query } = place.value;
  const subscription = Number(query.get("subscription")) || undefined;
  const before = Number(query.get("before")) || undefined;
  const asked = useAsk(
    (signal) => api.webhooks.deadLetters.list({ subscription, before, limit: AT_ONCE, signal }),
    [subscription, before],
  );
  const subscriptions = useSubscriptions();
  const [isReplaying, replay] = useState(false);
  useEvery(asked.again, EVERY);
  const letters = asked.value;
  const steps = stepsBy("before", letters?.length === AT_ONCE ? letters.at(-1)?.id : null);
  return (
    <Frame at="/webhooks/dead-letters" tools={<Button onClick={() => replay(true)}>Replay many …</Button>}>
      <form class="filters" role="search">
        <ChooseSubscription among={subscriptions} chosen={subscription} choose={(id) => filter({ ...FIRST, subscription: id })} />
      </form>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what="The dead letters could not be read" />}
      {!letters && asked.error === undefined && <Loading />}
      {letters && !letters.length && (
        <Empty title={subscription || before ? "No dead letter fits." : "There is no dead letter."}>
          {subscription || before ? (
            <Button onClick={() => go("/webhooks/dead-letters")}>Clear the filters</Button>
          ) : (
            <p>A delivery whose last attempt has failed becomes a dead letter, which is kept for 30 days.</p>
          )}
        </Empty>
      )}
      {letters && letters.length > 0 && (
        <>
          <Table label="Dead letters" columns={COLUMNS} class="letters">
            {letters.map((letter) => (
              <Row key={letter.id} letter={letter} url={subscriptions.get(letter.subscription)?.url} again={asked.again} />
            ))}
          </Table>
          <Pager where={`Page ${steps.page}`} prev={steps.prev} next={steps.next} note={`${counted(letters.length, "dead letter")}, the newest first`} />
        </>
      )}
      {isReplaying && <Replaying among={subscriptions} chosen={subscription} close={() => replay(false)} again={asked.again} />}
    </Frame>
  );
}

function Row({ letter, url, again }: { letter: DeadLetterOutline; url: string | undefined; again: () => void }) {
  const [isOpen, open] = useState(false);
  const name = `dead letter ${letter.id}`;
  const requeue = async () => {
    if (await act(`Re-queue ${name}`, () => api.webhooks.deadLetters.requeue(letter.id))) {
      toast({
        text: `The ${name} is delivered again, by a new delivery.`,
        action: { label: "Show it", run: () => go("/webhooks/deliveries", { subscription: letter.subscription }) },
      });
    }
    again();
  };
  const remove = async () => {
    if (await act(`Delete ${name}`, () => api.webhooks.deadLetters.delete(letter.id))) toast({ text: `The ${name} is deleted.` });
    again();
  };
  return (
    <>
      <tr data-id={letter.id}>
        <td class="of">
          <bdi>{plain(letter.type ?? "no type")}</bdi>
        </td>
        <td class="cut">
          <bdi title={url}>{plain(url ?? `subscription ${letter.subscription}`)}</bdi>
        </td>
        <td>
          <code>{plain(letter.errorCode ?? "–")}</code>
        </td>
        <td class="num">
          <Time at={letter.failedAt} />
        </td>
        <td>
          <Button kind="quiet" class="fold" label={`Payload of ${name}`} expanded={isOpen} onClick={() => open(!isOpen)}>
            Payload <Chevron />
          </Button>
        </td>
        <td class="acts">
          {letter.requeuedAs === null ? (
            <Button kind="quiet" label={`Re-queue ${name}`} onClick={requeue}>
              Re-queue
            </Button>
          ) : (
            <span class="note">requeued as {letter.requeuedAs}</span>
          )}
          <Confirmed question="Delete?" label={`Delete ${name}`} onClick={remove}>
            Delete
          </Confirmed>
        </td>
      </tr>
      {isOpen && (
        <tr class="more">
          <td colSpan={COLUMNS.length}>
            <Payload id={letter.id} label={`Payload of ${name}`} />
          </td>
        </tr>
      )}
    </>
  );
}

function Payload({ id, label }: { id: number; label: string }) {
  const asked = useAsk((signal) => api.webhooks.deadLetters.get(id, { signal }), [id]);
  if (asked.error !== undefined) return <ErrorNote error={asked.error} again={asked.again} what="The payload could not be read" />;
  return asked.value ? <Json text={textOf(asked.value)} label={label} /> : <Loading rows={1} />;
}
