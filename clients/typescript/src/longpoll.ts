/** Events by requests that wait: where there is no WebSocket, or a proxy refuses it. */

import { NotFound } from "./errors.ts";
import { type From, Interrupted, type Line, type Sink, type Wanted } from "./line.ts";
import { type Transport, path } from "./transport.ts";
import type { Channel, ChannelEvent, EventPage } from "./types.ts";

const WAIT = 25; // seconds that a request waits for events
const SHORT_WAIT = 1; // while other channels wait for their turn
const MOST_AT_ONCE = 4; // requests: a browser makes six to one server, for all tabs and calls
const PAGE = 1_000; // events

export class LongPoll implements Line {
  readonly #transport: Transport;
  readonly #hasBetter: () => boolean;
  readonly #readings = new Set<AbortController>();
  readonly #turns: (() => void)[] = [];
  #free = MOST_AT_ONCE;

  /** It ends where it is when there is a better line. */
  constructor(transport: Transport, hasBetter: () => boolean) {
    this.#transport = transport;
    this.#hasBetter = hasBetter;
  }

  async follow(wanted: Wanted, sink: Sink, signal: AbortSignal): Promise<string> {
    const reading = new AbortController();
    const close = () => reading.abort(signal.reason);
    signal.addEventListener("abort", close);
    this.#readings.add(reading);
    try {
      return await this.#follow(wanted, sink, reading.signal);
    } finally {
      this.#readings.delete(reading);
      signal.removeEventListener("abort", close);
    }
  }

  /** Wait no longer as the account that was logged in. */
  renew(): void {
    for (const each of this.#readings) each.abort(new Interrupted());
  }

  async #follow({ channel, from, types }: Wanted, sink: Sink, signal: AbortSignal): Promise<string> {
    const wants = filter(types);
    let page = await this.#read(channel, await this.#first(channel, from, signal), signal);
    sink.begin(page.after);
    for (;;) {
      await sink.take({ from: page.after, to: page.cursor, items: page.events.filter(wants) });
      if (page.ended !== null) return page.ended;
      if (this.#hasBetter()) throw new Interrupted();
      page = await this.#inTurn((wait) => this.#read(channel, page.cursor, signal, wait));
    }
  }

  #read(channel: string, after: string | undefined, signal: AbortSignal, wait = 0) {
    const query = { after, limit: PAGE, wait };
    const call = { query, signal, patience: wait * 1000, repeatable: false };
    return this.#transport.get<EventPage>(path`/api/channels/${channel}/events`, call);
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

  /** The cursor behind which to begin; undefined: at the oldest event. */
  async #first(channel: string, from: From, signal: AbortSignal): Promise<string | undefined> {
    if (typeof from === "object" && "since" in from) {
      return this.#firstSince(channel, new Date(from.since), signal);
    }
    if (typeof from === "string" && from !== "now") return from === "start" ? undefined : from;
    try {
      const found = await this.#transport.get<Channel>(path`/api/channels/${channel}`, { signal });
      return from === "now" ? found.head : beforeLast(found, from.last);
    } catch (error) {
      if (error instanceof NotFound) return undefined; // the first event makes it
      throw error;
    }
  }

  async #firstSince(channel: string, since: Date, signal: AbortSignal): Promise<string> {
    for (let page = await this.#read(channel, undefined, signal); ; ) {
      const first = page.events.findIndex(({ at }) => new Date(at) >= since);
      if (first >= 0) return page.events[first - 1]?.cursor ?? page.after;
      if (!page.events.length) return page.cursor;
      page = await this.#read(channel, page.cursor, signal);
    }
  }
}

/** The cursor before the last so many events of a channel. */
function beforeLast({ oldest, head }: Channel, last: number): string {
  const [place = "", number = ""] = head.split("_");
  const first = String(Math.max(0, Number(number) - last));
  const cursor = `${place}_${first.padStart(number.length, "0")}`;
  return cursor > oldest ? cursor : oldest;
}

/** Selects events by their types as the server does: those without a type match only `*`. */
function filter(types: readonly string[] | undefined): (event: ChannelEvent) => boolean {
  const patterns = types?.map((each) => {
    return new RegExp(`^${each.split("*").map(escaped).join(".*")}$`, "s");
  });
  return ({ type }) => !patterns || patterns.some((each) => each.test(type ?? ""));
}

function escaped(text: string): string {
  return text.replace(/[\\^$.+?()[\]{}|]/g, "\\$&");
}
