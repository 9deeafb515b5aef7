/** The deliveries: one event to one subscription, with every attempt. */

import { useState } from "preact/hooks";

import { act, useAsk } from "../../asking.ts";
import { type Saga, type SagaStatus, api } from "../../client.ts";
import { Button, Confirmed } from "../../parts/Button.tsx";
import { Chevron, Mark } from "../../parts/Mark.tsx";
import { Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { Pager } from "../../parts/Pager.tsx";
import { useEvery } from "../../parts/seldom.ts";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { toast } from "../../parts/Toast.tsx";
import { FIRST, stepsBy } from "../../parts/trail.ts";
import { filter, go, href, place } from "../../router.ts";
import { counted, plain } from "../../words.ts";
import { Attempts } from "./Attempts.tsx";
import { SAGAS, STATUSES, hasEnded } from "./states.ts";
import { ChooseSubscription, useSubscriptions } from "./choice.tsx";
import { Frame } from "./Webhooks.tsx";

const AT_ONCE = 50;
const EVERY = 5_000; // milliseconds

const COLUMNS = [
  { name: "Status" },
  { name: "Event" },
  { name: "To", class: "cut" },
  { name: "Attempts" },
  { name: "Published", isNumber: true },
  { name: "Actions" },
];

export function Deliveries() {
  const { query } = place.value;
  const status = STATUSES.find((each) => each === query.get("status"));
  const subscription = Number(query.get("subscription")) || undefined;
  const type = query.get("type") || undefined;
  const before = Number(query.get("before")) || undefined;
  const asked = useAsk(
    (signal) => api.webhooks.sagas.list({ status, subscription, type, before, limit: AT_ONCE, signal }),
    [status, subscription, type, before],
  );
  const subscriptions = useSubscriptions();
  useEvery(asked.again, EVERY);
  const sagas = asked.value;
  const isNarrowed = !!(status || subscription || type);
  const steps = stepsBy("before", sagas?.length === AT_ONCE ? sagas.at(-1)?.id : null);
  return (
    <Frame at="/webhooks/deliveries">
      <form
        class="filters"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          filter({ ...FIRST, type: String(new FormData(event.currentTarget).get("type")).trim() });
        }}
      >
        <label>
          Status
          <select value={status ?? ""} onChange={(event) => filter({ ...FIRST, status: event.currentTarget.value as SagaStatus })}>
            <option value="">Any</option>
            {STATUSES.map((each) => (
              <option key={each} value={each}>
                {SAGAS[each].word}
              </option>
            ))}
          </select>
        </label>
        <ChooseSubscription among={subscriptions} chosen={subscription} choose={(id) => filter({ ...FIRST, subscription: id })} />
        <label class="wide">
          Type of the event
          <input key={type} name="type" type="search" maxLength={200} defaultValue={type ?? ""} placeholder="order.paid" />
        </label>
        <Button submits>Show</Button>
      </form>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what="The deliveries could not be read" />}
      {!sagas && asked.error === undefined && <Loading />}
      {sagas && !sagas.length && (
        <Empty
          title={isNarrowed || before ? "No delivery fits." : "Nothing was delivered yet."}
          commands={isNarrowed || before ? [] : [`towpath events publish orders '{"order": 1}' --type order.paid`]}
        >
          {isNarrowed || before ? (
            <Button onClick={() => go("/webhooks/deliveries")}>Clear the filters</Button>
          ) : (
            <p>Each event of a channel becomes a delivery to each subscription that wants it.</p>
          )}
        </Empty>
      )}
      {sagas && sagas.length > 0 && (
        <>
          <Table label="Deliveries" columns={COLUMNS} class="deliveries">
            {sagas.map((saga) => (
              <Row key={saga.id} saga={saga} url={subscriptions.get(saga.subscription)?.url} again={asked.again} />
            ))}
          </Table>
          <Pager where={`Page ${steps.page}`} prev={steps.prev} next={steps.next} note={`${counted(sagas.length, "delivery", "deliveries")}, the newest first`} />
        </>
      )}
    </Frame>
  );
}

function Row({ saga, url, again }: { saga: Saga; url: string | undefined; again: () => void }) {
  const [isOpen, open] = useState(false);
  const { mark, word } = SAGAS[saga.status];
  const name = `delivery ${saga.id}`;
  return (
    <>
      <tr data-id={saga.id}>
        <td>
          <Mark of={mark} word={saga.cancelRequested && !hasEnded(saga) ? "ends soon" : word} />
        </td>
        <td class="of">
          <bdi>{plain(saga.type ?? "no type")}</bdi>
        </td>
        <td class="cut">
          <bdi title={url}>{plain(url ?? `subscription ${saga.subscription}`)}</bdi>
          {saga.lastError && <bdi class="note"> {plain(saga.lastError)}</bdi>}
        </td>
        <td>
          <Button kind="quiet" class="fold" label={`${counted(saga.attempts, "attempt")} of ${name}`} expanded={isOpen} onClick={() => open(!isOpen)}>
            {counted(saga.attempts, "attempt")} <Chevron />
          </Button>
        </td>
        <td class="num">
          <Time at={saga.createdAt} as="clock" />
          {saga.nextAttemptAt && saga.status === "PendingRetry" && (
            <span class="note">
              , next <Time at={saga.nextAttemptAt} as="next" />
            </span>
          )}
        </td>
        <td class="acts">
          <Acts saga={saga} name={name} again={again} />
        </td>
      </tr>
      {isOpen && (
        <tr class="more">
          <td colSpan={COLUMNS.length}>
            <Attempts saga={saga} />
          </td>
        </tr>
      )}
    </>
  );
}

function Acts({ saga, name, again }: { saga: Saga; name: string; again: () => void }) {
  const resend = async () => {
    const isDone = await act(`Resend ${name}`, () => api.webhooks.sagas.resend(saga.id, { confirm: true }));
    if (isDone) toast({ text: "The event is on its way once more, with the same webhook-id." });
    again();
  };
  const cancel = async () => {
    if (await act(`Cancel ${name}`, () => api.webhooks.sagas.cancel(saga.id))) {
      toast({ text: saga.status === "InProgress" ? `The ${name} ends with its attempt.` : `The ${name} is cancelled.` });
    }
    again();
  };
  if (!hasEnded(saga)) {
    return (
      <Button kind="quiet danger" label={`Cancel ${name}`} disabled={saga.cancelRequested} onClick={cancel}>
        Cancel
      </Button>
    );
  }
  if (saga.status === "DeadLettered") return <a href={href("/webhooks/dead-letters", { subscription: saga.subscription })}>Dead letter</a>;
  const question = saga.status === "Completed" ? "It was delivered. Once more?" : "Deliver once more?";
  return (
    <Confirmed kind="quiet" question={question} label={`Resend ${name}`} onClick={resend}>
      Resend
    </Confirmed>
  );
}
