/**
 * Events over one WebSocket for all channels: docs/reference/websocket.md describes the frames.
 *
 * A connection is never mended. When it ends, those who follow a channel follow it again, on a new
 * connection, which waits until it may open.
 */

import {
  Forbidden,
  NetworkError,
  type TowpathError,
  Unauthorized,
  errorOfFrame,
  isRecord,
} from "./errors.ts";
import { type Frame, batchToEnd, errorOfReset } from "./frames.ts";
import {
  type Acking,
  type Attached,
  type Batch,
  Interrupted,
  type Line,
  Pauses,
  Refusals,
  type Sink,
  type Wanted,
} from "./line.ts";
import { type Token, sleep } from "./transport.ts";

const OPENING = 10_000; // milliseconds in which a connection must open
const BEAT = 25; // seconds between two signs of life, unless the server says otherwise
const MOST_BEATS = 2.5; // without a frame, after which the connection counts as dead
const MOST_CHANNELS = 1_000; // of one connection
const MOST_WAITING = 2 ** 23; // characters of one channel that wait for a slow handler
const REFUSALS = 2; // times in a row, before WebSockets count as refused

/** The part of a WebSocket that is used here. */
export interface SocketLike {
  send(text: string): void;
  close(): void;
  addEventListener(type: string, listener: (event: any) => void): void;
}

export interface SocketOptions {
  /** The address of the server, as http or https. */
  url: string;
  /** Reads a frame. */
  parse: (text: string) => unknown;
  token: Token;
  WebSocket: new (url: string) => SocketLike;
  /** Whether the server answers requests that are not WebSockets. */
  answers: () => Promise<boolean>;
  acking: Acking;
}

/** The connections of one client: one, unless a channel is followed twice. */
export class Sockets implements Line {
  readonly options: SocketOptions;
  readonly #connections = new Set<Connection>();
  readonly #pauses = new Pauses();
  readonly #refusals = new Refusals(REFUSALS);
  #notBefore = 0;

  constructor(options: SocketOptions) {
    this.options = options;
  }

  /** Whether a proxy lets requests pass and WebSockets not. */
  get areRefused(): boolean {
    return this.#refusals.areTooMany;
  }

  follow(wanted: Wanted, sink: Sink, signal: AbortSignal): Promise<string> {
    const found = [...this.#connections].find((each) => each.hasRoomFor(wanted.channel));
    return (found ?? this.#connect()).follow(wanted, sink, signal);
  }

  /** Connect again at once: as another account, or in another network. */
  readonly renew = (): void => {
    for (const each of this.#connections) each.end(new Interrupted());
    this.#pauses.end();
    this.#notBefore = 0;
  };

  #connect(): Connection {
    const connection = new Connection(this, Math.max(0, this.#notBefore - performance.now()));
    // Not every system has this event; where it comes, an old connection is dead or slow to die.
    if (!this.#connections.size) globalThis.addEventListener?.("online", this.renew);
    this.#connections.add(connection);
    return connection;
  }

  /** A connection has failed after so many milliseconds, or has ended as the server asked. */
  failed(lasted: number, pause?: number): void {
    this.#notBefore = performance.now() + this.#pauses.next(lasted, pause);
  }

  forget(connection: Connection): void {
    this.#connections.delete(connection);
    if (!this.#connections.size) globalThis.removeEventListener?.("online", this.renew);
  }

  opened(): void {
    this.#refusals.end();
  }

  async unopened(): Promise<void> {
    if (await this.options.answers()) this.#refusals.add();
    else this.#refusals.end();
  }
}

class Connection {
  readonly #pool: Sockets;
  readonly #followed = new Map<string, Followed>();
  readonly #answers = new Map<number, (frame?: Frame) => void>();
  readonly #over = new AbortController();
  #socket: SocketLike | undefined;
  #token = "";
  #isReady = false;
  #isClosing = false;
  #asked = 0; // questions
  #openedAt: number | undefined;
  #heardAt = 0;
  #patience = BEAT * MOST_BEATS * 1000; // milliseconds
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(pool: Sockets, wait: number) {
    this.#pool = pool;
    this.#open(wait).catch((error: unknown) => this.end(new Interrupted(error)));
  }

  hasRoomFor(channel: string): boolean {
    return !this.#followed.has(channel) && this.#followed.size < MOST_CHANNELS;
  }

  follow(wanted: Wanted, sink: Sink, signal: AbortSignal): Promise<string> {
    const followed = new Followed(wanted, sink);
    const leave = () => {
      this.#leave(followed);
      followed.fail(signal.reason);
    };
    signal.addEventListener("abort", leave);
    this.#followed.set(wanted.channel, followed);
    if (this.#isReady) this.#subscribe(followed);
    return followed.ended.finally(() => {
      signal.removeEventListener("abort", leave);
      this.#leave(followed);
    });
  }

  /** End it for all channels; `pause` is how many milliseconds the server wants to be left alone. */
  end(why: unknown, pause?: number): void {
    if (this.#over.signal.aborted) return;
    this.#pool.failed(this.#openedAt ? performance.now() - this.#openedAt : 0, pause);
    this.#close();
    for (const each of this.#followed.values()) each.fail(why);
  }

  #close(): void {
    this.#over.abort();
    this.#isReady = false;
    clearTimeout(this.#timer);
    this.#socket?.close();
    this.#pool.forget(this);
    for (const answered of this.#answers.values()) answered();
    this.#answers.clear();
  }

  async #open(wait: number): Promise<void> {
    const { url, token, WebSocket } = this.#pool.options;
    const { signal } = this.#over;
    await sleep(wait, signal);
    this.#token = await token();
    if (signal.aborted) return;
    this.#timer = setTimeout(() => this.#closed(), OPENING);
    const socket = new WebSocket(`${url.replace(/^http/, "ws")}/api/ws`);
    this.#socket = socket;
    socket.addEventListener("open", () => this.#opened());
    socket.addEventListener("message", ({ data }) => this.#receive(data));
    socket.addEventListener("error", () => undefined); // it is closed behind this
    socket.addEventListener("close", ({ code }) => this.#closed(code));
  }

  #opened(): void {
    if (this.#over.signal.aborted) return;
    this.#openedAt = this.#heardAt = performance.now();
    this.#pool.opened();
    this.#watch();
    if (!this.#token) return this.#ready();
    this.#ask({ hello: { token: this.#token } }, ({ ok, error } = {}) => {
      if (this.#over.signal.aborted) return;
      if (error) {
        this.#refuse(errorOfFrame(error.code, error.message, error.details));
        return;
      }
      this.#patience = (ok?.beat ?? BEAT) * MOST_BEATS * 1000;
      this.#watch();
      this.#ready();
    });
  }

  #ready(): void {
    this.#isReady = true;
    for (const each of this.#followed.values()) this.#subscribe(each);
  }

  async #closed(code = 1006): Promise<void> {
    if (this.#isClosing || this.#over.signal.aborted) return;
    this.#isClosing = true;
    const message = `the WebSocket to ${this.#pool.options.url} was closed (${code})`;
    if (code >= 4100 && code < 4200) {
      this.#refuse(new Unauthorized(message, { code: "login_required" }));
    } else if (code >= 4400 && code < 4500) {
      this.end(new Forbidden(message, { code: "forbidden" }));
    } else {
      if (!this.#openedAt) await this.#pool.unopened();
      this.end(new Interrupted(new NetworkError(message, { code: "disconnected" })));
    }
  }

  /** End it when no frame has come for too long: its other end may be gone without a word. */
  #watch(): void {
    clearTimeout(this.#timer);
    const left = this.#heardAt + this.#patience - performance.now();
    if (left > 0) {
      this.#timer = setTimeout(() => this.#watch(), left);
      return;
    }
    const message = `no sign of life from ${this.#pool.options.url} for ${this.#patience} ms`;
    this.end(new Interrupted(new NetworkError(message, { code: "silent" })));
  }

  // ------------------------------------------------------------------ questions

  /** Send a frame; what its answer is given to gets none if the connection ends before. */
  #ask(question: object, answered: (frame?: Frame) => void): void {
    const id = ++this.#asked;
    this.#answers.set(id, answered);
    this.#socket?.send(JSON.stringify({ id, ...question }));
  }

  #subscribe(followed: Followed): void {
    // With its generation it attaches only once: a reader that is fenced must not come back.
    const { channel, from, types, consumer, generation } = followed.wanted;
    const subscribe = { channel, from, types, consumer, generation };
    this.#ask({ subscribe }, ({ ok, error } = {}) => {
      if (error) this.#refuse(errorOfFrame(error.code, error.message, error.details), followed);
      if (!ok) return;
      const { cursor = "", generation = 0 } = ok;
      const ack = (cursor: string) => this.#ack(followed, cursor, generation);
      followed.begin({ cursor, generation, ack });
    });
  }

  /** Ack; by a request if the server follows the channel no longer, as after its end. */
  #ack(followed: Followed, cursor: string, generation: number): Promise<void> {
    const { channel, consumer = "" } = followed.wanted;
    const isFollowed = this.#isReady && this.#followed.get(channel) === followed;
    return new Promise((resolve, reject) => {
      const answered = (frame?: Frame) => {
        if (frame?.ok) return resolve();
        const { acking } = this.#pool.options;
        acking.ack(channel, consumer, cursor, generation).then(() => resolve(), reject);
      };
      if (isFollowed) this.#ask({ ack: { channel, cursor, generation } }, answered);
      else answered();
    });
  }

  /** Also one that has ended by itself: the server may not have finished with it. */
  #leave(followed: Followed): void {
    const { channel } = followed.wanted;
    if (this.#followed.get(channel) !== followed) return;
    this.#followed.delete(channel);
    if (this.#isReady) this.#ask({ unsubscribe: { channel } }, () => undefined);
    setTimeout(() => !this.#followed.size && this.#close()); // unless another one follows at once
  }

  /** End one channel or all, unless it is only the token that is old. */
  async #refuse(error: TowpathError, followed?: Followed): Promise<void> {
    const isStale =
      error instanceof Unauthorized &&
      (await Promise.resolve(this.#pool.options.token()).catch(() => "")) !== this.#token;
    if (isStale) this.end(new Interrupted(error));
    else if (followed) followed.fail(error);
    else this.end(error);
  }

  // ------------------------------------------------------------------ frames

  #receive(text: unknown): void {
    if (this.#over.signal.aborted) return;
    this.#heardAt = performance.now();
    try {
      const frame = this.#pool.options.parse(String(text));
      if (isRecord(frame)) this.#handle(frame, String(text).length);
    } catch (error) {
      this.end(new Interrupted(error)); // it is not as the server writes it
    }
  }

  #handle({ id, events, closed, reset, bye, ...answer }: Frame, size: number): void {
    if (id) {
      this.#answers.get(id)?.(answer);
      this.#answers.delete(id);
    }
    if (events) {
      const followed = this.#followed.get(events.channel);
      followed?.take(events, size);
      if (followed && followed.waiting > MOST_WAITING) {
        this.#leave(followed);
        followed.fail(new Interrupted()); // behind what waits: it is followed again from there
      }
    }
    if (closed) this.#followed.get(closed.channel)?.close(closed.cursor, closed.ended);
    if (reset) {
      const followed = this.#followed.get(reset.channel);
      if (followed?.isOpen) this.#refuse(errorOfReset(reset), followed);
    }
    if (bye) this.end(new Interrupted(), (bye.after ?? 0) * 1000);
  }
}

/** One channel of a connection: its frames are handled one after the other. */
class Followed {
  readonly wanted: Wanted;
  readonly ended: Promise<string>;
  isOpen = false; // before the answer, frames are for an earlier subscription to this channel
  waiting = 0; // characters that are not handled yet
  readonly #sink: Sink;
  #end!: (ended: string | Promise<never>) => void;
  #last = Promise.resolve();
  #isOver = false;

  constructor(wanted: Wanted, sink: Sink) {
    this.wanted = wanted;
    this.#sink = sink;
    this.ended = new Promise((resolve) => (this.#end = resolve));
  }

  begin(attached: Attached): void {
    this.isOpen = true;
    const isConsumer = this.wanted.consumer !== undefined;
    this.#add(() => (isConsumer ? this.#sink.attach(attached) : this.#sink.begin(attached.cursor)));
  }

  take(batch: Batch, size: number): void {
    if (this.isOpen) this.#add(() => this.#sink.take(batch), size);
  }

  close(cursor: string, ended: string): void {
    if (!this.isOpen) return;
    this.#add(() => this.#sink.take(batchToEnd(this.wanted, cursor)));
    this.#add(() => this.#end(ended));
  }

  /** End it, once the frames before are handled. */
  fail(error: unknown): void {
    this.#add(() => Promise.reject(error));
  }

  #add(step: () => unknown, size = 0): void {
    this.waiting += size;
    this.#last = this.#last.then(async () => {
      if (this.#isOver) return;
      try {
        await step();
      } catch (error) {
        this.#isOver = true;
        this.#end(Promise.reject(error));
      }
      this.waiting -= size;
    });
  }
}
