/** For superusers: the access rules, API keys, and the list of workers. */

import { type CallOptions, type Transport, path } from "./transport.ts";
import type {
  Access as Settings,
  AccessAnswer,
  AccessChange,
  AccessTry,
  CreatedKey,
  Key,
  NewKey,
  WorkerInfo,
  WorkerOverview,
} from "./types.ts";

/** The rules that allow requests. */
export class Access {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  get(options: CallOptions = {}): Promise<Settings> {
    return this.#transport.get("/api/access", options);
  }

  /** Say whether a caller may do something, which rule decides, and which of its parts hold. */
  try(question: AccessTry, options: CallOptions = {}): Promise<AccessAnswer> {
    const call = { ...options, repeatable: true, body: question };
    return this.#transport.post("/api/access/try", call);
  }

  /** Change the given rules and keep the others; the change holds at once, on every server. */
  set(change: AccessChange, options: CallOptions = {}): Promise<Settings> {
    return this.#transport.send("PATCH", "/api/access", { ...options, body: change });
  }
}

/** API keys: for programs, with scopes instead of rules. */
export class Keys {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list(options: CallOptions = {}): Promise<Key[]> {
    return (await this.#transport.get<{ items: Key[] }>("/api/keys", options)).items;
  }

  /** Create a key. Only this answer contains its secret. */
  create(key: NewKey, options: CallOptions = {}): Promise<CreatedKey> {
    return this.#transport.post("/api/keys", { ...options, body: key });
  }

  /** Revoke the key: requests with it are refused from now on. */
  async revoke(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.send("DELETE", path`/api/keys/${id}`, options);
  }
}

/** The workers, with a session or without, and when each was last heard. */
export class Workers {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list(options: CallOptions = {}): Promise<WorkerInfo[]> {
    return (await this.overview(options)).items;
  }

  /** The workers, and the leases of clients that have neither a session nor a name. */
  overview(options: CallOptions = {}): Promise<WorkerOverview> {
    return this.#transport.get("/api/workers", options);
  }

  /** Ask a worker to stop, by its session: it ends its jobs and takes no more. */
  async stop(session: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.post(path`/api/workers/${session}/stop`, options);
  }
}
