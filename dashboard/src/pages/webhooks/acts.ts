/** What can be done to a subscription without a question. */

import { act } from "../../asking.ts";
import { type WebhookSubscription, api } from "../../client.ts";
import { toast } from "../../parts/Toast.tsx";
import { go } from "../../router.ts";
import { counted } from "../../words.ts";

export async function ping({ id, url }: WebhookSubscription): Promise<void> {
  if (!(await act(`Ping ${url}`, () => api.webhooks.ping(id)))) return;
  toast({
    text: "A ping is on its way, as all events go.",
    action: { label: "Show it", run: () => go("/webhooks/deliveries", { subscription: id }) },
  });
}

export async function pause(subscription: WebhookSubscription): Promise<void> {
  const { id, url } = subscription;
  let underWay = 0;
  const isDone = await act(`Pause ${url}`, async () => {
    underWay = await api.webhooks.pause(id);
  });
  if (!isDone) return;
  const rest = underWay ? ` ${counted(underWay, "attempt")} under way still end.` : "";
  toast({
    text: `${url} is paused; its events are held.${rest}`,
    action: { label: "Undo", run: () => act("Undo", () => api.webhooks.resume(id)) },
  });
}

export async function resume({ id, url }: WebhookSubscription): Promise<void> {
  if (await act(`Resume ${url}`, () => api.webhooks.resume(id))) toast({ text: `${url} gets its events again.` });
}

export async function enable({ id, url }: WebhookSubscription): Promise<void> {
  if (await act(`Enable ${url}`, () => api.webhooks.enable(id))) toast({ text: `${url} is started again.` });
}
