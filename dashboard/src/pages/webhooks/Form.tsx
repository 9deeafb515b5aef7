/** Makes a subscription, or changes one: an edit sends only what was changed. */

import { useState } from "preact/hooks";

import { type NewWebhook, type WebhookChange, type WebhookSubscription, api, isLoggedOut, notDone } from "../../client.ts";
import { Button } from "../../parts/Button.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { toast } from "../../parts/Toast.tsx";
import { ended } from "../../session.ts";
import type { Shown } from "./dialogs.tsx";
import { listed } from "./states.ts";

interface Given {
  of: WebhookSubscription | null;
  close: () => void;
  done: (secret?: Shown) => void;
}

export function Form({ of, close, done }: Given) {
  const [problem, tell] = useState("");
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    tell("");
    try {
      if (of) {
        await api.webhooks.update(of.id, changes(of, form));
        toast({ text: "The subscription is changed; deliveries that wait follow it." });
        done();
      } else {
        const made = await api.webhooks.create(created(form));
        done({ secret: made.secret, url: made.url });
      }
    } catch (error) {
      if (isLoggedOut(error)) ended();
      tell(notDone(error));
    }
  };
  return (
    <Dialog title={of ? "Edit the subscription" : "New subscription"} onClose={close}>
      <form class="stack" onSubmit={submit}>
        {!of && (
          <label>
            Channel
            <input name="channel" required maxLength={200} pattern="[A-Za-z0-9_.:\-]+" placeholder="orders" autocomplete="off" autofocus />
          </label>
        )}
        <label>
          URL, https and public
          <input name="url" type="url" required defaultValue={of?.url ?? ""} placeholder="https://shop.example/hooks" autocomplete="off" />
        </label>
        <label>
          Types of events, with commas between
          <input name="types" required defaultValue={of?.types.join(", ") ?? "*"} placeholder="order.*" autocomplete="off" />
        </label>
        <label>
          Only events that fit this rule
          <input name="filterRule" class="mono" defaultValue={of?.filterRule ?? ""} placeholder="@event.payload.total > 100" autocomplete="off" />
        </label>
        <label>
          Description
          <input name="description" maxLength={1000} defaultValue={of?.description ?? ""} autocomplete="off" />
        </label>
        <div class="pair">
          <label>
            Timeout of an attempt, in seconds
            <input name="timeout" type="number" min={1} max={60} step="any" defaultValue={of ? String(of.timeout) : ""} placeholder="15" />
          </label>
          <label>
            Deliveries at once
            <input name="concurrency" type="number" min={1} max={100} defaultValue={of ? String(of.concurrency) : ""} placeholder="10" />
          </label>
        </div>
        <label class="tick">
          <input name="ordered" type="checkbox" defaultChecked={of?.ordered ?? false} /> One after the other, in the order of events
        </label>
        <p class="problem" role="alert">
          <bdi>{problem}</bdi>
        </p>
        <div class="bar">
          <Button kind="primary" submits>
            {of ? "Save" : "Create subscription"}
          </Button>
          <Button onClick={close}>{of ? "Leave it as it is" : "Cancel"}</Button>
        </div>
      </form>
    </Dialog>
  );
}

/** What the form says; what is empty is left to the server. */
function fields(form: FormData) {
  const text = (name: string) => String(form.get(name) ?? "").trim();
  const count = (name: string) => (text(name) ? Number(text(name)) : undefined);
  return {
    url: text("url"),
    types: listed(text("types")),
    filterRule: text("filterRule") || null,
    description: text("description"),
    timeout: count("timeout"),
    concurrency: count("concurrency"),
    ordered: form.has("ordered"),
  };
}

function created(form: FormData): NewWebhook {
  const given = Object.entries(fields(form)).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(given), channel: String(form.get("channel")).trim() } as NewWebhook;
}

/** The fields that differ, so that an edit loses nothing that this form does not show. */
function changes(of: WebhookSubscription, form: FormData): WebhookChange {
  const differ = Object.entries(fields(form)).filter(
    ([name, value]) => value !== undefined && JSON.stringify(value) !== JSON.stringify(of[name as keyof WebhookSubscription]),
  );
  return Object.fromEntries(differ);
}
