/** Events by requests that wait: where nothing better passes, or for many channels. */

import { Interrupted, type Line, Readings, type Sink, type Wanted, queryOf } from "./line.ts";
import { type Transport, path } from "./transport.ts";
import type { EventPage } from "./types.ts";

const WAIT = 25; // seconds that a request waits for events
const SHORT_WAIT = 1; // while other channels wait for their turn
export const MOST_AT_ONCE = 4; // requests: a browser makes six to one server, for all tabs and calls
const PAGE = 1_000; // events

export class LongPoll implements Line {
  readonly #transport: Transport;
  readonly #hasBetter: () => boolean;
  readonly #readings = new Readings();
  readonly #turns: (() => void)[] = [];
  #free = MOST_AT_ONCE;

  /** It ends where it is when there is a better line. */
  constructor(transport: Transport, hasBetter: () => boolean) {
    this.#transport = transport;
    this.#hasBetter = hasBetter;
  }

  follow(wanted: Wanted, sink: Sink, signal: AbortSignal): Promise<string> {
    return this.#readings.run(signal, (reading) => this.#follow(wanted, sink, reading.signal));
  }

  /** Wait no longer as the account that was logged in. */
  renew(): void {
    this.#readings.interrupt();
  }

  async #follow(wanted: Wanted, sink: Sink, signal: AbortSignal): Promise<string> {
    let page = await this.#read(wanted, signal);
    for (;;) {
      sink.begin(page.after);
      await sink.take({ from: page.after, to: page.cursor, items: page.events });
      if (page.ended !== null) return page.ended;
      if (this.#hasBetter()) throw new Interrupted();
      const next = { ...wanted, from: page.cursor };
      page = await this.#inTurn((wait) => this.#read(next, signal, wait));
    }
  }

  #read(wanted: Wanted, signal: AbortSignal, wait = 0): Promise<EventPage> {
    const query = { ...queryOf(wanted), limit: PAGE, wait };
    const call = { query, signal, patience: wait * 1000, repeatable: false, hasEvents: true };
    return this.#transport.get<EventPage>(path`/api/channels/${wanted.channel}/events`, call);
  }

  async #inTurn<T>(read: (wait: number) => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#turns.push(resolve));
    try {
      return await read(this.#readings.size > MOST_AT_ONCE ? SHORT_WAIT : WAIT);
    } finally {
      const next = this.#turns.shift();
      if (next) next();
      else this.#free += 1;
    }
  }
}
