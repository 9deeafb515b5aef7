import { Invalid } from "./errors.ts";
import { Lines, type WebSocketClass } from "./lines.ts";
import { decoded } from "./payloads.ts";
import { type EventHandler, type SubscribeOptions, Subscription } from "./subscription.ts";
import { type CallOptions, type Token, type Transport, path } from "./transport.ts";
import type {
  Attachment,
  Channel,
  ChannelEvent,
  ChannelLimits,
  Consumer,
  EventPage,
  NewEvent,
  Page,
} from "./types.ts";

export interface ReadOptions extends CallOptions {
  /** The cursor behind which to read; without it, from the oldest event. */
  after?: string | undefined;
  /** Instead: begin with the newest so many events. */
  last?: number | undefined;
  /** Only events of these types, such as `order.*`; the others count for `limit`. */
  types?: readonly string[] | undefined;
  /** Default 100, at most 1,000. */
  limit?: number | undefined;
  /** Seconds to wait for the first event, at most 30. */
  wait?: number | undefined;
}

export interface PublishOptions extends CallOptions, Omit<NewEvent, "payload"> {}

export interface ChannelListOptions extends CallOptions {
  prefix?: string | undefined;
  /** The last name of the page before. */
  after?: string | undefined;
  limit?: number | undefined;
}

export interface ConsumerListOptions extends CallOptions {
  /** The last name of the page before. */
  after?: string | undefined;
  limit?: number | undefined;
}

export interface AttachOptions extends CallOptions {
  /** Where a new consumer begins: a cursor, `"start"` (the default) or `"now"`. */
  from?: string | undefined;
}

/** The verbs of channels and their events. */
export class Events {
  readonly #transport: Transport;
  readonly #lines: Lines;

  /** Without a class of WebSockets, subscriptions are requests. */
  constructor(transport: Transport, token: Token, WebSocket: WebSocketClass | null | undefined) {
    this.#transport = transport;
    this.#lines = new Lines(transport, token, WebSocket, this);
  }

  /**
   * Call a function with every event of a channel, once and in order: those that it has, then
   * those that come, over any number of lost connections.
   *
   * The next event waits until the function has returned. If it throws, the subscription ends, and
   * `cursor` stays before that event.
   */
  subscribe<Payload = unknown>(
    channel: string,
    options: SubscribeOptions,
    handler: EventHandler<Payload>,
  ): Subscription;
  subscribe<Payload = unknown>(channel: string, handler: EventHandler<Payload>): Subscription;
  subscribe(
    channel: string,
    ...rest: [SubscribeOptions, EventHandler<any>] | [EventHandler<any>]
  ): Subscription {
    const [options, handler] = rest.length === 1 ? [{}, rest[0]] : rest;
    return new Subscription(this.#lines, channel, options, handler);
  }

  /**
   * Add an event to a channel. With a `key` it is stored once, however often it is published; then
   * the call is also repeated after a lost answer.
   */
  async publish(
    channel: string,
    payload: unknown,
    options: PublishOptions = {},
  ): Promise<ChannelEvent> {
    const { signal, ...rest } = options;
    const [event] = await this.publishMany(channel, [{ ...rest, payload }], { signal });
    return event as ChannelEvent;
  }

  /** Add events to a channel next to each other: all of them or none. */
  async publishMany(
    channel: string,
    events: readonly NewEvent[],
    options: CallOptions = {},
  ): Promise<ChannelEvent[]> {
    if (events.some(({ payload }) => payload instanceof Uint8Array)) {
      const message = "the payload of an event is JSON; publish bytes as text, such as base64";
      throw new Invalid(message, { code: "invalid_payload" });
    }
    const isKeyed = events.every(({ key }) => key !== undefined && key !== null);
    const call = { ...options, body: { events }, repeatable: isKeyed || ("without effect" as const) };
    const where = path`/api/channels/${channel}/events`;
    return (await this.#transport.post<{ items: ChannelEvent[] }>(where, call)).items.map(decoded);
  }

  /** Read one page of events, oldest first. */
  async read<Payload = unknown>(
    channel: string,
    options: ReadOptions = {},
  ): Promise<EventPage<Payload>> {
    const { signal, ...query } = options;
    const call = { signal, query, patience: (options.wait ?? 0) * 1000, hasEvents: true };
    const where = path`/api/channels/${channel}/events`;
    const page = await this.#transport.get<EventPage<Payload>>(where, call);
    return { ...page, events: page.events.map(decoded) };
  }

  /** Read where a channel stands. */
  get(channel: string, options: CallOptions = {}): Promise<Channel> {
    return this.#transport.get(path`/api/channels/${channel}`, options);
  }

  /** List a page of channels by name; pass its `next` as `after` to read the next one. */
  channels(options: ChannelListOptions = {}): Promise<Page<Channel>> {
    const { signal, ...query } = options;
    return this.#transport.get("/api/channels", { signal, query });
  }

  /** End a channel: its readers are told, and a later publish is refused. */
  async close(channel: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.post(path`/api/channels/${channel}/close`, options);
  }

  /** Delete a channel and its events; its readers are reset. */
  async delete(channel: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.send("DELETE", path`/api/channels/${channel}`, options);
  }

  /** List the consumers of a channel and their lags, by name. */
  async consumers(channel: string, options: ConsumerListOptions = {}): Promise<Consumer[]> {
    const { signal, ...query } = options;
    const where = path`/api/channels/${channel}/consumers`;
    return (await this.#transport.get<{ items: Consumer[] }>(where, { signal, query })).items;
  }

  /**
   * Begin to read as a consumer, by hand: a new one begins at `from`, another goes on from its last
   * ack. Readers that have attached as this consumer before are fenced.
   */
  attach(channel: string, consumer: string, options: AttachOptions = {}): Promise<Attachment> {
    const { signal, from } = options;
    const where = path`/api/channels/${channel}/consumers/${consumer}`;
    return this.#transport.send("PUT", where, { signal, body: { from }, repeatable: true });
  }

  /** Note that a consumer is done with everything up to a cursor; returns up to where it is. */
  async ack(
    channel: string,
    consumer: string,
    cursor: string,
    generation: number,
    options: CallOptions = {},
  ): Promise<string> {
    const where = path`/api/channels/${channel}/consumers/${consumer}/ack`;
    const call = { ...options, body: { cursor, generation }, repeatable: true };
    return (await this.#transport.post<{ cursor: string }>(where, call)).cursor;
  }

  /** Let a consumer go on behind a cursor, at `start` or `now`; its readers are fenced. */
  async moveConsumer(
    channel: string,
    consumer: string,
    from: string,
    options: CallOptions = {},
  ): Promise<string> {
    const where = path`/api/channels/${channel}/consumers/${consumer}/move`;
    const call = { ...options, body: { from } };
    return (await this.#transport.post<{ cursor: string }>(where, call)).cursor;
  }

  /** Forget a consumer and its place. */
  async forgetConsumer(
    channel: string,
    consumer: string,
    options: CallOptions = {},
  ): Promise<void> {
    const where = path`/api/channels/${channel}/consumers/${consumer}`;
    await this.#transport.send("DELETE", where, options);
  }

  /** Set what a channel keeps; 0 is no limit, and one that is left out is that of the server. */
  async limit(channel: string, limits: ChannelLimits, options: CallOptions = {}): Promise<void> {
    const call = { ...options, body: limits, repeatable: true };
    await this.#transport.send("PUT", path`/api/channels/${channel}/limits`, call);
  }

  /** Go on with the token that is current now. */
  renew(): void {
    this.#lines.renew();
  }
}
