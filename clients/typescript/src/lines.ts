/** Chooses the line of a subscription: a WebSocket, else server-sent events, else requests that wait. */

import { NetworkError, Unavailable } from "./errors.ts";
import type { Acking, Line, Sink, Wanted } from "./line.ts";
import { LongPoll, MOST_AT_ONCE } from "./longpoll.ts";
import { ServerSent } from "./sse.ts";
import { type SocketLike, Sockets } from "./socket.ts";
import type { Token, Transport } from "./transport.ts";

export type WebSocketClass = new (url: string) => SocketLike;

export class Lines implements Line {
  readonly #acking: Acking;
  readonly #sockets: Sockets | undefined;
  readonly #serverSent: ServerSent;
  readonly #polling: LongPoll;
  #subscriptions = 0;

  constructor(
    transport: Transport,
    token: Token,
    WebSocket: WebSocketClass | null | undefined,
    acking: Acking,
  ) {
    this.#acking = acking;
    const { url, parse } = transport;
    const answers = () => isReachable(transport);
    if (WebSocket) this.#sockets = new Sockets({ url, parse, token, WebSocket, answers, acking });
    this.#serverSent = new ServerSent(transport, answers);
    this.#polling = new LongPoll(transport, () => this.#best !== this.#polling);
  }

  /** Each answer that goes on takes a connection of the browser; with too many, all take turns. */
  get #best(): Line {
    if (this.#sockets && !this.#sockets.areRefused) return this.#sockets;
    const isTooMuch = this.#serverSent.areRefused || this.#subscriptions > MOST_AT_ONCE;
    return isTooMuch ? this.#polling : this.#serverSent;
  }

  /** Count a subscription, before it follows its channel; returns what ends this. */
  join(): () => void {
    this.#subscriptions += 1;
    if (this.#best === this.#polling) this.#serverSent.renew();
    return () => {
      this.#subscriptions -= 1;
    };
  }

  async follow(wanted: Wanted, sink: Sink, signal: AbortSignal): Promise<string> {
    const line = this.#best;
    if (wanted.consumer === undefined || line === this.#sockets) {
      return line.follow(wanted, sink, signal);
    }
    return line.follow(...(await this.#attached(wanted, wanted.consumer, sink)), signal);
  }

  renew(): void {
    this.#sockets?.renew();
    this.#serverSent.renew();
    this.#polling.renew();
  }

  /** Attach by a request, and only once: a reader that is fenced must not come back. */
  async #attached(wanted: Wanted, consumer: string, sink: Sink): Promise<[Wanted, Sink]> {
    const { channel } = wanted;
    let { from, generation } = wanted;
    const ack = async (cursor: string) => {
      await this.#acking.ack(channel, consumer, cursor, generation ?? 0);
    };
    if (generation === undefined) {
      const attached = await this.#acking.attach(channel, consumer, { from: from as string });
      ({ cursor: from, generation } = attached);
      sink.attach({ ...attached, ack });
    }
    const checked: Sink = {
      begin: (cursor) => sink.begin(cursor),
      attach: (attachment) => sink.attach(attachment),
      // These lines do not tell that another reader has attached: ask before there is work to do.
      take: async (batch) => {
        if (batch.items.length) await ack(batch.from);
        await sink.take(batch);
      },
    };
    return [{ ...wanted, from }, checked];
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
