/** For superusers: the access rules, API keys, and the list of workers. */

import { type CallOptions, type Transport, path } from "./transport.ts";
import type {
  Access as Settings,
  AccessChange,
  CreatedKey,
  Key,
  NewKey,
  WorkerInfo,
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
    return (await this.#transport.get<{ items: WorkerInfo[] }>("/api/workers", options)).items;
  }
}
