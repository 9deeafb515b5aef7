/** The subscriptions by number, for lists that name them. */

import { useMemo } from "preact/hooks";

import { useAsk } from "../../asking.ts";
import { type WebhookSubscription, api } from "../../client.ts";
import { plain } from "../../words.ts";

const MOST = 1_000;
const LONGEST = 60; // characters of a URL in a choice

export type Subscriptions = ReadonlyMap<number, WebhookSubscription>;

export function useSubscriptions(): Subscriptions {
  const asked = useAsk((signal) => api.webhooks.list({ limit: MOST, signal }), []);
  return useMemo(() => new Map((asked.value?.items ?? []).map((each) => [each.id, each])), [asked.value]);
}

export function ChooseSubscription({ among, chosen, choose, isNeeded }: { among: Subscriptions; chosen: number | undefined; choose: (id: number | null) => void; isNeeded?: boolean }) {
  return (
    <label>
      Subscription
      <select value={chosen ?? ""} required={isNeeded} onChange={(event) => choose(Number(event.currentTarget.value) || null)}>
        <option value="">{isNeeded ? "Choose one" : "Any"}</option>
        {[...among.values()].map(({ id, url }) => (
          <option key={id} value={id}>
            {plain(url.length > LONGEST ? `${url.slice(0, LONGEST)}…` : url)}
          </option>
        ))}
      </select>
    </label>
  );
}
