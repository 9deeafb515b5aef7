/** What the pictures of channels, webhooks, activity and settings show; each gives its addresses. */

import { towpath } from "./here.ts";

const HOSTILE = `<script>alert(1)</script>\u001b[31m red \u202e desrever ${"w".repeat(200)}`;

export async function channelScenes(): Promise<Record<string, string>> {
  for (let nth = 0; nth < 12; nth += 1) {
    const payload = { delta: "Hello ".repeat(nth + 1) };
    await towpath.events.publish("chat:42", payload, { type: nth % 3 ? "text" : "order.paid" });
  }
  await towpath.events.publish("chat:42", { [HOSTILE]: HOSTILE }, { type: "order.paid" });
  await towpath.events.attach("chat:42", "mailer", { from: "start" });
  await towpath.events.attach("chat:42", "audit", { from: "now" });
  return { channels: "/channels", channel: "/channels/chat:42", "channel-none": "/channels/nothing" };
}
