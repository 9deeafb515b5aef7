/** For superusers: one verb for many jobs. */

import { type CallOptions, type Transport, path } from "./transport.ts";
import type { BulkAct, BulkChoice, BulkPreview, BulkVerb } from "./types.ts";

export class BulkActs {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Count the jobs that a bulk act would cover, and show ten. Its `upTo` is for `begin`. */
  preview(verb: BulkVerb, choice: BulkChoice, options: CallOptions = {}): Promise<BulkPreview> {
    const body = { verb, ...bodyOf(choice) };
    return this.#transport.post("/api/bulk/preview", { ...options, repeatable: true, body });
  }

  /**
   * Do it, to jobs up to the number `upTo`. It begins after `delay` seconds, by default 10; until then
   * `stop` undoes it.
   */
  begin(
    verb: BulkVerb,
    choice: BulkChoice,
    options: CallOptions & { upTo: number; delay?: number | undefined },
  ): Promise<BulkAct> {
    const { signal, upTo, delay } = options;
    const body = { verb, ...bodyOf(choice), upTo, delay };
    return this.#transport.post("/api/bulk", { signal, body });
  }

  get(id: string, options: CallOptions = {}): Promise<BulkAct> {
    return this.#transport.get(path`/api/bulk/${id}`, options);
  }

  /** The newest first; ended ones are kept for 30 days. */
  async list(options: CallOptions & { limit?: number | undefined } = {}): Promise<BulkAct[]> {
    const { signal, limit } = options;
    const call = { signal, query: { limit } };
    return (await this.#transport.get<{ items: BulkAct[] }>("/api/bulk", call)).items;
  }

  /** End it where it is; before it begins, that undoes it. */
  stop(id: string, options: CallOptions = {}): Promise<BulkAct> {
    const call = { ...options, repeatable: true };
    return this.#transport.post(path`/api/bulk/${id}/stop`, call);
  }
}

function bodyOf(choice: BulkChoice) {
  if ("ids" in choice) return { ids: choice.ids };
  return { filter: choice };
}
