/** The subscriptions with their health, and what can be done to them. */

import { useState } from "preact/hooks";

import { useAsk } from "../../asking.ts";
import { type WebhookSubscription, api } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { Mark } from "../../parts/Mark.tsx";
import { Menu } from "../../parts/Menu.tsx";
import { Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { Pager } from "../../parts/Pager.tsx";
import { useEvery } from "../../parts/seldom.ts";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { stepsBy } from "../../parts/trail.ts";
import { go, place } from "../../router.ts";
import { counted, number, plain } from "../../words.ts";
import { Deleting, Rotating, Secret, type Shown } from "./dialogs.tsx";
import { Form } from "./Form.tsx";
import { enable, pause, ping, resume } from "./acts.ts";
import { openUntil, stateOf } from "./states.ts";
import { Frame } from "./Webhooks.tsx";

const AT_ONCE = 25; // each row asks for its health
const EVERY = 10_000; // milliseconds

const COLUMNS = [
  { name: "URL", class: "cut" },
  { name: "Events" },
  { name: "Last attempts" },
  { name: "Breaker" },
  { name: "State" },
  { name: "Actions" },
];

/** The dialog that is open. */
type Open =
  | { what: "form" | "rotate" | "delete"; of: WebhookSubscription | null }
  | ({ what: "secret" } & Shown);

export function Subscriptions() {
  const after = Number(place.value.query.get("after")) || undefined;
  const asked = useAsk((signal) => api.webhooks.list({ after, limit: AT_ONCE, signal }), [after]);
  const [open, setOpen] = useState<Open | null>(null);
  useEvery(asked.again, EVERY);
  const page = asked.value;
  const steps = stepsBy("after", page?.items.length === AT_ONCE ? page.next : null);
  const close = () => setOpen(null);
  const done = (secret?: Shown) => {
    setOpen(secret ? { what: "secret", ...secret } : null);
    asked.again();
  };
  return (
    <Frame
      at="/webhooks"
      tools={
        <Button kind="primary" onClick={() => setOpen({ what: "form", of: null })}>
          New subscription
        </Button>
      }
    >
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what="The subscriptions could not be read" />}
      {!page && asked.error === undefined && <Loading />}
      {page && !page.items.length && (
        <Empty title={after ? "No more subscriptions." : "There is no subscription yet."} commands={after ? [] : ["towpath webhooks create orders https://shop.example/hooks --types 'order.*'"]}>
          <p>A subscription is a URL that is called for the events of a channel.</p>
        </Empty>
      )}
      {page && page.items.length > 0 && (
        <Table label="Subscriptions" columns={COLUMNS} class="subscriptions">
          {page.items.map((each) => (
            <Row key={each.id} subscription={each} again={asked.again} setOpen={setOpen} />
          ))}
        </Table>
      )}
      {page && (after || page.items.length === AT_ONCE) && (
        <Pager
          where={`Page ${steps.page}`}
          prev={steps.prev}
          next={steps.next}
          note={counted(page.items.length, "subscription")}
        />
      )}
      {open?.what === "form" && <Form of={open.of} close={close} done={done} />}
      {open?.what === "rotate" && open.of && <Rotating of={open.of} close={close} done={done} />}
      {open?.what === "delete" && open.of && <Deleting of={open.of} close={close} done={done} />}
      {open?.what === "secret" && <Secret {...open} close={close} />}
    </Frame>
  );
}

function Row({ subscription, again, setOpen }: { subscription: WebhookSubscription; again: () => void; setOpen: (open: Open) => void }) {
  const { id, url, channel, types } = subscription;
  const asked = useAsk((signal) => api.webhooks.health(id, { signal }), [id, subscription]);
  const health = asked.value;
  const isStopped = !!health?.stoppedAt;
  const until = health && openUntil(health);
  const both = async (run: (subscription: WebhookSubscription) => Promise<void>) => {
    await run(subscription);
    again();
  };
  return (
    <tr data-id={id}>
      <td class="cut">
        <bdi title={url}>{plain(url)}</bdi>
        {subscription.description && <bdi class="note"> {plain(subscription.description)}</bdi>}
      </td>
      <td class="of">
        <bdi>{channel}</bdi> <bdi class="note">{plain(types.join(", "))}</bdi>
      </td>
      <td>
        {health && (
          <span class="marks">
            {health.recent === 0 && <span class="note">none yet</span>}
            {health.recent > health.recentFailed && <Mark of="completed" word={`${number(health.recent - health.recentFailed)} delivered`} />}
            {health.recentFailed > 0 && <Mark of="failed" word={`${number(health.recentFailed)} failed`} />}
            {health.held > 0 && <Mark of="blocked" word={`${number(health.held)} held`} />}
            {health.waiting > 0 && <Mark of="delayed" word={`${number(health.waiting)} wait`} />}
            {health.deadLetters > 0 && <Mark of="failed" word={counted(health.deadLetters, "dead letter")} />}
          </span>
        )}
        {asked.error !== undefined && !health && "–"}
      </td>
      <td class={until ? "" : "shut"}>
        {until ? (
          <span class="warned">
            open, tries <Time at={until} />
          </span>
        ) : (
          <span class="note">closed</span>
        )}
      </td>
      <td>
        <Mark {...markOf(subscription, health)} />
        {isStopped && <span class="note"> {health?.stoppedWhy === "gone" ? "answered 410" : "5 days of failures"}</span>}
        {!isStopped && health?.failures ? <span class="note"> {counted(health.failures, "failure")} in a row{health.lastError ? `, ${plain(health.lastError)}` : ""}</span> : null}
      </td>
      <td class="acts">
        <Button kind="quiet" label={`Ping ${url}`} onClick={() => both(ping)}>
          Ping
        </Button>
        {isStopped && !subscription.paused ? (
          <Button kind="quiet" label={`Enable ${url}`} onClick={() => both(enable)}>
            Enable
          </Button>
        ) : subscription.paused ? (
          <Button kind="quiet" label={`Resume ${url}`} onClick={() => both(resume)}>
            Resume
          </Button>
        ) : (
          <Button kind="quiet" label={`Pause ${url}`} onClick={() => both(pause)}>
            Pause
          </Button>
        )}
        <Menu
          kind="quiet"
          label="More"
          name={url}
          choices={[
            { label: "Deliveries", run: () => go("/webhooks/deliveries", { subscription: id }) },
            { label: "Edit", run: () => setOpen({ what: "form", of: subscription }) },
            { label: "Rotate the secret", run: () => setOpen({ what: "rotate", of: subscription }) },
            { label: "Delete", tone: "danger", run: () => setOpen({ what: "delete", of: subscription }) },
          ]}
        />
      </td>
    </tr>
  );
}

function markOf(...given: Parameters<typeof stateOf>) {
  const { mark, word } = stateOf(...given);
  return { of: mark, word };
}
