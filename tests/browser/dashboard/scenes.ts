/** What the pictures of channels, webhooks, activity and settings show; each gives its addresses. */

import { towpath } from "./here.ts";
import { HOSTILE, NAME, receiver } from "./receiver.ts";

export async function channelScenes(): Promise<Record<string, string>> {
  for (let nth = 0; nth < 12; nth += 1) {
    const payload = { delta: "Hello ".repeat(nth + 1) };
    await towpath.events.publish("chat:42", payload, { type: nth % 3 ? "text" : "order.paid" });
  }
  await towpath.events.publish("chat:42", { [HOSTILE]: HOSTILE }, { type: "order.paid", key: NAME, headers: { [NAME]: NAME } });
  await towpath.events.attach("chat:42", "mailer", { from: "start" });
  await towpath.events.attach("chat:42", "w".repeat(200), { from: "now" });
  return { channels: "/channels", channel: "/channels/chat:42", "channel-none": "/channels/nothing" };
}

export async function webhookScenes(): Promise<Record<string, string>> {
  const made = (to: string, options = {}) =>
    towpath.webhooks.create({ channel: "orders", url: receiver(to), types: ["order.*"], ...options });
  await made("ok", { description: "the shop" });
  const broken = await made("broken", { waits: [] });
  await made("hostile", { waits: [3600], description: HOSTILE });
  const paused = await made("ok?paused");
  await towpath.webhooks.pause(paused.id);
  for (let nth = 0; nth < 4; nth += 1) {
    await towpath.events.publish("orders", { order: nth, text: HOSTILE }, { type: "order.paid" });
  }
  while ((await towpath.webhooks.sagas.list({ subscription: broken.id, status: "DeadLettered" })).length < 4) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return { webhooks: "/webhooks", deliveries: "/webhooks/deliveries", "dead-letters": "/webhooks/dead-letters" };
}

export async function settingScenes(): Promise<Record<string, string>> {
  await towpath.collection("users").create({ email: "ann@example.com", password: "correct horse", name: "Ann" });
  await towpath.collection("users").create({ email: "hostile@example.com", password: "correct horse", name: NAME });
  await towpath.keys.create({ name: "backend", scopes: ["enqueue", "manage"], topics: ["mail"] });
  await towpath.keys.create({ name: NAME, scopes: ["subscribe"], channels: ["chat:"], expiresIn: 86_400 });
  await towpath.access.set({
    enqueue_rule: "@request.auth.id != ''",
    topics: { mail: { manage_rule: "@job.payload.userId = @request.auth.id && @request.auth.verified = true" } },
    channels: { "user:": { subscribe_rule: "@channel.rest = @request.auth.id" } },
  });
  const choice = { topic: "reports" };
  const { upTo } = await towpath.bulk.preview("cancel", choice);
  await towpath.bulk.begin("cancel", choice, { upTo, delay: 3600 });
  await towpath.topics.pause("check_pay", { duration: 900 });
  const parts = ["access", "users", "superusers", "keys", "server", "browser"];
  return { activity: "/activity", ...Object.fromEntries(parts.map((part) => [`settings-${part}`, `/settings/${part}`])) };
}
