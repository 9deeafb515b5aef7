/** For superusers: what people did, from the events `act.*` of channel `system`. */

import type { Events } from "./events.ts";
import type { Subscription } from "./subscription.ts";
import type { CallOptions } from "./transport.ts";
import type { Act, ChannelEvent } from "./types.ts";

const TYPES = ["act.*"];
const AT_ONCE = 1_000;

export interface ActivityOptions extends CallOptions {
  /** Look at so many of the newest events of `system`, which tells of more than acts; default 5,000. */
  last?: number | undefined;
}

export class Activity {
  readonly #events: Events;

  constructor(events: Events) {
    this.#events = events;
  }

  /** The acts, the newest first. */
  async list({ last = 5_000, signal }: ActivityOptions = {}): Promise<ChannelEvent<Act>[]> {
    const found: ChannelEvent<Act>[] = [];
    const call = { types: TYPES, limit: AT_ONCE, signal };
    let page = await this.#events.read<Act>("system", { ...call, last });
    for (;;) {
      found.push(...page.events);
      if (page.cursor >= page.head) return found.reverse();
      page = await this.#events.read<Act>("system", { ...call, after: page.cursor });
    }
  }

  /** Hear of acts as they are done. */
  subscribe(handler: (act: ChannelEvent<Act>) => void | Promise<void>): Subscription {
    return this.#events.subscribe<Act>("system", { types: TYPES, from: "now" }, handler);
  }
}
