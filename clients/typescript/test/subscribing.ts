/** Subscriptions to the channel of a little server. */

import type { TestContext } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import {
  type ChannelEvent,
  type SubscribeOptions,
  Towpath,
  type TowpathOptions,
} from "../src/index.ts";

export const upTo = (n: number) => Array.from({ length: n }, (_, at) => at + 1);

export const hasCode = (code: string) => (error: unknown) => {
  return (error as { code?: string }).code === code;
};

export type Asked = SubscribeOptions & TowpathOptions & { handler?: (event: ChannelEvent) => unknown };

/** Subscribe to the channel of a little server. */
export function subscribe(t: TestContext, url: string, { handler, ...options }: Asked = {}) {
  const seen: unknown[] = [];
  const errors: unknown[] = [];
  const towpath = new Towpath(url, { token: "key", ...options });
  const onError = (error: unknown) => errors.push(error);
  const subscription = towpath.events.subscribe("c", { onError, ...options }, async (event) => {
    await handler?.(event);
    seen.push(event.payload);
  });
  subscription.done.catch(() => undefined);
  t.after(() => subscription.close());
  return { towpath, subscription, seen, errors };
}

export async function until(condition: () => boolean): Promise<void> {
  for (const deadline = Date.now() + 30_000; !condition(); await pause(5)) {
    if (Date.now() > deadline) throw new Error("it never happened");
  }
}
