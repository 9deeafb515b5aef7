/** Dialogs of a subscription: a secret that is shown once, its rotation, and the end. */

import { useState } from "preact/hooks";

import { act } from "../../asking.ts";
import { type WebhookSubscription, api, serverTime } from "../../client.ts";
import { Button, Copy } from "../../parts/Button.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Time } from "../../parts/Time.tsx";
import { toast } from "../../parts/Toast.tsx";
import { plain } from "../../words.ts";

export interface Shown {
  secret: string;
  url: string;
  /** Until then the old secret signs, too. */
  until?: number | undefined;
}

interface Given {
  of: WebhookSubscription;
  close: () => void;
  done: (secret?: Shown) => void;
}

const DAY = 86_400; // seconds
const OVERLAPS = { "3600": "an hour", [DAY]: "a day", [7 * DAY]: "a week", "0": "no time: the old one leaked" };

/** The secret stays here until the dialog is closed, and is nowhere else. */
export function Secret({ secret, url, until, close }: Shown & { close: () => void }) {
  return (
    <Dialog title="The secret is shown only now">
      <div class="stack">
        <p>
          It signs the requests to <bdi>{plain(url)}</bdi>. Give it to the receiver; it cannot be read again.
        </p>
        <div class="command">
          <pre tabIndex={0}>{secret}</pre>
          <Copy text={secret} label="Copy the secret" />
        </div>
        {until !== undefined && (
          <p class="note">
            {until > serverTime() ? (
              <>
                The old secret signs as well until <Time at={until} as="clock" />, so both are valid.
              </>
            ) : (
              "The old secret signs no more."
            )}
          </p>
        )}
        <Button kind="primary" onClick={close}>
          I have copied it
        </Button>
      </div>
    </Dialog>
  );
}

export function Rotating({ of, close, done }: Given) {
  const [overlap, setOverlap] = useState(String(DAY));
  const rotate = async () => {
    let secret = "";
    const isDone = await act("Rotate the secret", async () => {
      secret = await api.webhooks.rotate(of.id, { overlap: Number(overlap) });
    });
    if (isDone) done({ secret, url: of.url, until: serverTime() + Number(overlap) * 1000 });
  };
  return (
    <Dialog title="Rotate the secret" onClose={close}>
      <div class="stack">
        <p>
          Requests to <bdi>{plain(of.url)}</bdi> get a new secret. For a while both sign, so that the receiver can change over.
        </p>
        <label>
          Both sign for
          <select value={overlap} onChange={(event) => setOverlap(event.currentTarget.value)}>
            {Object.entries(OVERLAPS)
              .sort(([one], [other]) => Number(one) - Number(other))
              .map(([seconds, label]) => (
                <option key={seconds} value={seconds}>
                  {label}
                </option>
              ))}
          </select>
        </label>
        <div class="bar">
          <Button kind="primary" onClick={rotate}>
            Rotate
          </Button>
          <Button onClick={close}>Keep the secret</Button>
        </div>
      </div>
    </Dialog>
  );
}

export function Deleting({ of, close, done }: Given) {
  const remove = async () => {
    if (!(await act("Delete the subscription", () => api.webhooks.delete(of.id)))) return;
    toast({ text: `The subscription of ${of.url} is deleted.` });
    done();
  };
  return (
    <Dialog title="Delete the subscription?" onClose={close}>
      <div class="stack">
        <p>
          <bdi>{plain(of.url)}</bdi> gets no more events of <bdi>{of.channel}</bdi>. Deliveries that wait are cancelled, and the secret is forgotten.
        </p>
        <div class="bar">
          <Button kind="danger" onClick={remove}>
            Delete
          </Button>
          <Button onClick={close}>Keep</Button>
        </div>
      </div>
    </Dialog>
  );
}
