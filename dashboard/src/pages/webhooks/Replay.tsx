/** Makes many ended deliveries again, each once: counted first, then a job with progress. */

import { useState } from "preact/hooks";

import { act, useAsk } from "../../asking.ts";
import { type ReplayFilter, api } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { useEvery } from "../../parts/seldom.ts";
import { href } from "../../router.ts";
import { counted, percent, plain } from "../../words.ts";
import { listed } from "./states.ts";
import { ChooseSubscription, type Subscriptions } from "./choice.tsx";

interface Given {
  among: Subscriptions;
  chosen: number | undefined;
  close: () => void;
  again: () => void;
}

interface Plan {
  subscription: number;
  filter: ReplayFilter;
  count: number;
}

const STATUSES = { DeadLettered: "dead letters", Completed: "delivered ones", Cancelled: "cancelled ones" };

export function Replaying({ among, chosen, close, again }: Given) {
  const [subscription, choose] = useState<number | null>(chosen ?? (among.size === 1 ? ([...among.keys()][0] ?? null) : null));
  const [plan, setPlan] = useState<Plan | null>(null);
  const [job, setJob] = useState<string | null>(null);
  const count = async (event: SubmitEvent) => {
    event.preventDefault();
    if (subscription === null) return;
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    const types = listed(text("types"));
    const filter: ReplayFilter = {
      status: text("status") as keyof typeof STATUSES,
      ...(types.length ? { types } : {}),
      ...(text("since") ? { since: new Date(text("since")).toISOString() } : {}),
      ...(text("rate") ? { rate: text("rate") } : {}),
    };
    await act("Count the deliveries", async () => {
      setPlan({ subscription, filter, count: await api.webhooks.preview(subscription, filter) });
    });
  };
  const begin = async () => {
    if (!plan) return;
    await act("Replay", async () => setJob((await api.webhooks.replay(plan.subscription, plan.filter)).job));
  };
  if (job) {
    return (
      <Dialog title="Replay" onClose={close}>
        <Progress id={job} again={again} />
      </Dialog>
    );
  }
  return (
    <Dialog title="Replay many deliveries" onClose={close}>
      <form class="stack" onSubmit={count} onInput={() => setPlan(null)}>
        <ChooseSubscription among={among} chosen={subscription ?? undefined} choose={choose} isNeeded />
        <label>
          Which
          <select name="status">
            {Object.entries(STATUSES).map(([name, label]) => (
              <option key={name} value={name}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <label>
          Only these types
          <input name="types" placeholder="order.*" autocomplete="off" />
        </label>
        <label>
          Only events published since
          <input name="since" type="datetime-local" />
        </label>
        <label>
          Not faster than
          <input name="rate" placeholder="100/s" autocomplete="off" />
        </label>
        <p aria-live="polite">{plan && (plan.count ? `${counted(plan.count, "delivery", "deliveries")} are made again, each once.` : "No delivery fits.")}</p>
        <div class="bar">
          {plan?.count ? (
            <Button kind="primary" onClick={begin}>
              Replay {counted(plan.count, "delivery", "deliveries")}
            </Button>
          ) : (
            <Button kind="primary" submits>
              Count them
            </Button>
          )}
          <Button onClick={close}>Replay nothing</Button>
        </div>
      </form>
    </Dialog>
  );
}

function Progress({ id, again }: { id: string; again: () => void }) {
  const asked = useAsk((signal) => api.jobs.get(id, { signal }), [id]);
  const job = asked.value;
  const isOver = !!job && !["pending", "processing"].includes(job.status);
  useEvery(() => {
    if (isOver) return;
    asked.again();
    again();
  }, 1_000);
  const stop = () => act("Stop the replay", () => api.jobs.cancel(id)).then(asked.again);
  const share = job?.status === "completed" ? 1 : (job?.progress ?? 0);
  return (
    <div class="stack">
      <p class="bar">
        <progress value={share} aria-label="Progress of the replay" />
        {percent(share)} <bdi class="note">{plain(job?.progressMessage ?? "")}</bdi>
      </p>
      <p aria-live="polite">
        {!job || job.status === "pending"
          ? "It begins as soon as a process that delivers webhooks is free. It goes on if this page is closed."
          : job.status === "processing"
            ? "It goes on if this page is closed."
            : job.status === "completed"
              ? "All of them are made again."
              : `It is ${job.status}. ${plain(job.lastError ?? "")}`}
      </p>
      <div class="bar">
        {!isOver && (
          <Button kind="danger" onClick={stop}>
            Stop
          </Button>
        )}
        <a href={href(`/jobs/${id}`)}>Show its job</a>
      </div>
    </div>
  );
}
