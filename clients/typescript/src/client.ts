import { Access, Keys, Workers } from "./access.ts";
import { Accounts } from "./accounts.ts";
import { Invalid } from "./errors.ts";
import { Activity } from "./activity.ts";
import { BulkActs } from "./bulk.ts";
import { Events } from "./events.ts";
import { Jobs } from "./jobs.ts";
import { type LiveHandler, follow } from "./live.ts";
import type { WebSocketClass } from "./lines.ts";
import type { Handler } from "./run.ts";
import { Schedules } from "./schedules.ts";
import { Topics } from "./topics.ts";
import { type CallOptions, type Token, Transport, type TransportOptions, path } from "./transport.ts";
import type {
  AccountRecord,
  Checkup,
  LimitInUse,
  Login,
  Me,
  Remedy,
  Setting,
} from "./types.ts";
import { Webhooks } from "./webhooks.ts";
import { Worker, type WorkerOptions } from "./worker.ts";

export interface TowpathOptions extends TransportOptions {
  /** An API key, the token of an earlier login, or a function that gives one for each call. */
  token?: string | Token | undefined;
  /** Used for subscriptions; by default that of the system. With null they are requests. */
  WebSocket?: WebSocketClass | null | undefined;
}

export interface AuthOptions extends CallOptions {
  /** Default `users`; `_superusers` for accounts that may do everything. */
  collection?: "users" | "_superusers" | undefined;
  /** For a page of the server's own origin: a cookie that scripts cannot read, and no token. */
  cookie?: boolean | undefined;
}

type AuthListener = (token: string, record: AccountRecord | null) => void;

/** A Towpath server, and the login of this client. */
export class Towpath {
  readonly jobs: Jobs;
  readonly events: Events;
  readonly webhooks: Webhooks;
  readonly topics: Topics;
  readonly schedules: Schedules;
  readonly workers: Workers;
  readonly keys: Keys;
  readonly access: Access;
  readonly bulk: BulkActs;
  readonly activity: Activity;

  readonly #transport: Transport;
  readonly #listeners = new Set<AuthListener>();
  #token = "";
  #ask: Token | undefined; // until a login gives a token
  #record: AccountRecord | null = null;

  constructor(url: string, options: TowpathOptions = {}) {
    const { token = "", WebSocket = globalThis.WebSocket } = options;
    if (typeof token === "string") this.#token = token;
    else this.#ask = token;
    const current = () => this.#ask?.() ?? this.#token;
    this.#transport = new Transport(url, current, options);
    this.events = new Events(this.#transport, current, WebSocket);
    this.jobs = new Jobs(this.#transport, this.events);
    this.webhooks = new Webhooks(this.#transport);
    this.topics = new Topics(this.#transport);
    this.schedules = new Schedules(this.#transport);
    this.workers = new Workers(this.#transport);
    this.keys = new Keys(this.#transport);
    this.access = new Access(this.#transport);
    this.bulk = new BulkActs(this.#transport);
    this.activity = new Activity(this.events);
  }

  /** The token that every call sends; empty without a login, and while a function gives it. */
  get token(): string {
    return this.#token;
  }

  /** The account that is logged in, as far as this client knows. */
  get record(): AccountRecord | null {
    return this.#record;
  }

  /** Log in; every later call is made by this account. */
  async authWithPassword(
    identity: string,
    password: string,
    options: AuthOptions = {},
  ): Promise<Login> {
    const { signal, collection = "users", cookie } = options;
    const where = path`/api/collections/${collection}/auth-with-password`;
    const body = { identity, password, cookie };
    return this.#loggedIn(await this.#transport.post<Login>(where, { body, signal }), cookie);
  }

  /** Make the first superuser, by the token of the link that the server printed, and log in. */
  async setUp(
    token: string,
    email: string,
    password: string,
    options: Omit<AuthOptions, "collection"> = {},
  ): Promise<Login> {
    const { signal, cookie } = options;
    const body = { token, email, password, cookie };
    return this.#loggedIn(await this.#transport.post<Login>("/api/setup", { body, signal }), cookie);
  }

  /** The superuser that is logged in, also by cookie, when that ends, and what the server is. */
  async me(options: CallOptions = {}): Promise<Me> {
    const me = await this.#transport.get<Me>("/api/me", options);
    this.#record = me.record;
    return me;
  }

  /** Do what a remedy says: one of those that `jobs.why` gives with its reasons. */
  async apply(remedy: Remedy, options: CallOptions = {}): Promise<void> {
    if (!remedy.path.startsWith("/api/")) {
      throw new Invalid(`${remedy.path} is not a call of this server`, { code: "invalid" });
    }
    const { method, path, body } = remedy;
    await this.#transport.send(method, path, { ...options, body: body ?? undefined });
  }

  /** The limits in use, and how many jobs of each run and wait. */
  async limits(options: CallOptions = {}): Promise<LimitInUse[]> {
    return (await this.#transport.get<{ items: LimitInUse[] }>("/api/limits", options)).items;
  }

  /** What is wrong with the database and the workers; what was found holds for 30 s. */
  doctor(options: CallOptions & { patience?: number | undefined } = {}): Promise<Checkup> {
    const { signal, ...query } = options;
    return this.#transport.get("/api/doctor", { query, signal });
  }

  /** The settings of the server's process, without secrets. */
  async settings(options: CallOptions = {}): Promise<Setting[]> {
    return (await this.#transport.get<{ items: Setting[] }>("/api/settings", options)).items;
  }

  /** Exchange the token for a new one, which lives longer. */
  async authRefresh(options: AuthOptions = {}): Promise<Login> {
    const { signal, cookie } = options;
    const collection = options.collection ?? this.#record?.collectionName ?? "users";
    const where = path`/api/collections/${collection}/auth-refresh`;
    return this.#loggedIn(await this.#transport.post<Login>(where, { signal }), cookie);
  }

  /**
   * End this login, here and on the server, with all its tokens, also refreshed and copied ones.
   * If the server cannot be reached, it ends only here.
   */
  async logout(options: AuthOptions = {}): Promise<void> {
    const collection = options.collection ?? this.#record?.collectionName ?? "users";
    const where = path`/api/collections/${collection}/auth-logout`;
    try {
      await this.#transport.post(where, { signal: options.signal });
    } finally {
      this.#become("", null);
    }
  }

  /** Call a function at every login, refresh and logout; returns a function that ends this. */
  onAuthChange(listener: AuthListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The accounts of a collection, for superusers. */
  collection(name: "users" | "_superusers"): Accounts {
    return new Accounts(this.#transport, name);
  }

  /**
   * Follow the counts of all topics and what changes, for superusers, over lost connections; resolves
   * when the signal aborts, rejects when the login has ended.
   */
  live(handler: LiveHandler, signal: AbortSignal): Promise<void> {
    return follow(this.#transport, handler, signal);
  }

  /** Run the jobs of one or more topics with a function, until the worker is stopped. */
  worker<Payload = unknown>(
    topics: string | readonly string[],
    handler: Handler<Payload>,
    options: WorkerOptions = {},
  ): Worker {
    return new Worker(this.jobs, topics, handler as Handler, options);
  }

  #loggedIn(login: Login, cookie: boolean | undefined): Login {
    this.#become(cookie ? "" : login.token, login.record);
    return login;
  }

  #become(token: string, record: AccountRecord | null): void {
    this.#token = token;
    this.#ask = undefined;
    this.#record = record;
    this.events.renew();
    for (const listener of this.#listeners) listener(token, record);
  }
}
