import { Invalid, NetworkError, Unavailable } from "./errors.ts";
import type { Line, Sink, Wanted } from "./line.ts";
import { LongPoll } from "./longpoll.ts";
import { decoded } from "./payloads.ts";
import { type SocketLike, Sockets } from "./socket.ts";
import { type EventHandler, type SubscribeOptions, Subscription } from "./subscription.ts";
import { type CallOptions, type Token, type Transport, path } from "./transport.ts";
import type { Channel, ChannelEvent, EventPage, NewEvent } from "./types.ts";

export interface ReadOptions extends CallOptions {
  /** The cursor behind which to read; without it, from the oldest event. */
  after?: string | undefined;
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

export type WebSocketClass = new (url: string) => SocketLike;

/** The verbs of channels and their events. */
export class Events {
  readonly #transport: Transport;
  readonly #line: Lines;

  /** Without a class of WebSockets, subscriptions are requests that wait. */
  constructor(transport: Transport, token: Token, WebSocket: WebSocketClass | null | undefined) {
    this.#transport = transport;
    this.#line = new Lines(transport, token, WebSocket);
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
    return new Subscription(this.#line, channel, options, handler);
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
    const call = { signal, query, patience: (options.wait ?? 0) * 1000 };
    const where = path`/api/channels/${channel}/events`;
    const page = await this.#transport.get<EventPage<Payload>>(where, call);
    return { ...page, events: page.events.map(decoded) };
  }

  /** Read where a channel stands. */
  get(channel: string, options: CallOptions = {}): Promise<Channel> {
    return this.#transport.get(path`/api/channels/${channel}`, options);
  }

  /** List channels by name. */
  async channels(options: ChannelListOptions = {}): Promise<Channel[]> {
    const { signal, ...query } = options;
    const call = { signal, query };
    return (await this.#transport.get<{ items: Channel[] }>("/api/channels", call)).items;
  }

  /** End a channel: its readers are told, and a later publish is refused. */
  async close(channel: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.post(path`/api/channels/${channel}/close`, options);
  }

  /** Delete a channel and its events; its readers are reset. */
  async delete(channel: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.send("DELETE", path`/api/channels/${channel}`, options);
  }

  /** Go on with the token that is current now. */
  renew(): void {
    this.#line.renew();
  }
}

/** The best line that there is: a WebSocket, else requests that wait. */
class Lines implements Line {
  readonly #sockets: Sockets | undefined;
  readonly #polling: LongPoll;

  constructor(transport: Transport, token: Token, WebSocket: WebSocketClass | null | undefined) {
    const { url } = transport;
    const answers = () => isReachable(transport);
    if (WebSocket) this.#sockets = new Sockets({ url, token, WebSocket, answers });
    this.#polling = new LongPoll(transport, () => this.#best !== this.#polling);
  }

  get #best(): Line {
    return this.#sockets && !this.#sockets.areRefused ? this.#sockets : this.#polling;
  }

  follow(wanted: Wanted, sink: Sink, signal: AbortSignal): Promise<string> {
    return this.#best.follow(wanted, sink, signal);
  }

  renew(): void {
    this.#sockets?.renew();
    this.#polling.renew();
  }
}

async function isReachable(transport: Transport): Promise<boolean> {
  try {
    await transport.get("/healthz", { repeatable: false, timeout: 10_000 });
    return true;
  } catch (error) {
    return !(error instanceof NetworkError || error instanceof Unavailable);
  }
}
