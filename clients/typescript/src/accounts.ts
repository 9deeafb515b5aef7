import { type CallOptions, type Transport, path } from "./transport.ts";
import type { AccountChange, AccountPage, AccountRecord, NewAccount } from "./types.ts";

/** The accounts of a collection: `users` or `_superusers`. */
export class Accounts {
  readonly #transport: Transport;
  readonly #records: string;

  constructor(transport: Transport, collection: string) {
    this.#transport = transport;
    this.#records = path`/api/collections/${collection}/records`;
  }

  list(
    options: CallOptions & { page?: number | undefined; perPage?: number | undefined } = {},
  ): Promise<AccountPage> {
    const { signal, ...query } = options;
    return this.#transport.get(this.#records, { query, signal });
  }

  get(id: string, options: CallOptions = {}): Promise<AccountRecord> {
    return this.#transport.get(this.#records + path`/${id}`, options);
  }

  create(account: NewAccount, options: CallOptions = {}): Promise<AccountRecord> {
    return this.#transport.post(this.#records, { ...options, body: account });
  }

  update(id: string, change: AccountChange, options: CallOptions = {}): Promise<AccountRecord> {
    const call = { ...options, body: change };
    return this.#transport.send("PATCH", this.#records + path`/${id}`, call);
  }

  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.send("DELETE", this.#records + path`/${id}`, options);
  }
}
