/** What superusers decide: who may do what, and which workers are there. */

import { type CallOptions, type Transport, path } from "./transport.ts";
import type {
  Access as Settings,
  AccessChange,
  CreatedKey,
  Key,
  NewKey,
  WorkerInfo,
} from "./types.ts";

/** The rules by which requests are allowed. */
export class Access {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  get(options: CallOptions = {}): Promise<Settings> {
    return this.#transport.get("/api/access", options);
  }

  /** Change what is given and keep the rest; it holds at once, on every server. */
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

  /** Make a key. Its secret is in this answer, and never again. */
  create(key: NewKey, options: CallOptions = {}): Promise<CreatedKey> {
    return this.#transport.post("/api/keys", { ...options, body: key });
  }

  /** Refuse whoever uses this key from now on. */
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
    return (await this.#transport.get<{ items: WorkerInfo[] }>("/api/workers", options)).items;
  }
}
