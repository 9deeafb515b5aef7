import { decoded } from "./payloads.ts";
import { type CallOptions, type Transport, path } from "./transport.ts";
import type {
  CreatedWebhook,
  DeadLetter,
  DeadLetterOutline,
  DeliveryAttempt,
  NewWebhook,
  Replay,
  ReplayFilter,
  Saga,
  SagaStatus,
  WebhookChange,
  WebhookHealth,
  WebhookPage,
  WebhookSubscription,
} from "./types.ts";

export interface WebhookListOptions extends CallOptions {
  channel?: string | undefined;
  owner?: string | undefined;
  /** The `next` of the page before. */
  after?: number | undefined;
  /** Default 100, at most 1,000. */
  limit?: number | undefined;
}

export interface RotateOptions extends CallOptions {
  /** A secret of your own, such as `whsec_…`; by default a new one is made. */
  secret?: string | undefined;
  /** Seconds for which the old secret signs, too; default a day, at most a week. */
  overlap?: number | undefined;
}

export interface SagaListOptions extends CallOptions {
  /** Required of callers that may not see those of all. */
  subscription?: number | undefined;
  status?: SagaStatus | undefined;
  /** Of the event. */
  type?: string | undefined;
  /** The id of the last one of the page before. */
  before?: number | undefined;
  /** Default 50, at most 1,000. */
  limit?: number | undefined;
}

export interface DeadLetterListOptions extends CallOptions {
  /** Required of callers that may not see those of all. */
  subscription?: number | undefined;
  /** The id of the last one of the page before. */
  before?: number | undefined;
  /** Default 50, at most 1,000. */
  limit?: number | undefined;
}

/** The verbs of webhooks: subscriptions, which are URLs that are called for events of a channel. */
export class Webhooks {
  readonly sagas: Sagas;
  readonly deadLetters: DeadLetters;
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
    this.sagas = new Sagas(transport);
    this.deadLetters = new DeadLetters(transport);
  }

  /**
   * Call a URL for each event that is published to a channel from now on. Only this answer contains
   * the secret that signs the requests.
   */
  create(webhook: NewWebhook, options: CallOptions = {}): Promise<CreatedWebhook> {
    return this.#transport.post("/api/webhooks", { ...options, body: webhook });
  }

  get(id: number, options: CallOptions = {}): Promise<WebhookSubscription> {
    return this.#transport.get(path`/api/webhooks/${id}`, options);
  }

  /** List subscriptions by id, those that the caller may manage. */
  list(options: WebhookListOptions = {}): Promise<WebhookPage> {
    const { signal, ...query } = options;
    return this.#transport.get("/api/webhooks", { signal, query });
  }

  /** Change what is given and keep the rest; deliveries that wait follow the change. */
  update(
    id: number,
    change: WebhookChange,
    options: CallOptions = {},
  ): Promise<WebhookSubscription> {
    const call = { ...options, body: change, repeatable: true };
    return this.#transport.send("PATCH", path`/api/webhooks/${id}`, call);
  }

  /** Hold what is published until `resume`; tells how many attempts still end. */
  async pause(id: number, options: CallOptions = {}): Promise<number> {
    const call = { ...options, repeatable: true };
    const where = path`/api/webhooks/${id}/pause`;
    return (await this.#transport.post<{ underWay: number }>(where, call)).underWay;
  }

  /** Deliver again: what was held, in its order, and what is new. */
  resume(id: number, options: CallOptions = {}): Promise<WebhookSubscription> {
    const call = { ...options, repeatable: true };
    return this.#transport.post(path`/api/webhooks/${id}/resume`, call);
  }

  /** Start a subscription that its failures, or a 410, have stopped. */
  enable(id: number, options: CallOptions = {}): Promise<WebhookSubscription> {
    const call = { ...options, repeatable: true };
    return this.#transport.post(path`/api/webhooks/${id}/enable`, call);
  }

  /** Sign with another secret, which only this answer contains, and for a while with both. */
  async rotate(id: number, options: RotateOptions = {}): Promise<string> {
    const { signal, ...body } = options;
    const where = path`/api/webhooks/${id}/rotate`;
    return (await this.#transport.post<{ secret: string }>(where, { signal, body })).secret;
  }

  /** Deliver an event of type `ping`, the way that all events go. */
  ping(id: number, options: CallOptions = {}): Promise<Saga> {
    return this.#transport.post(path`/api/webhooks/${id}/ping`, options);
  }

  /** Delete a subscription and its secrets; deliveries that wait for it are cancelled. */
  async delete(id: number, options: CallOptions = {}): Promise<void> {
    await this.#transport.send("DELETE", path`/api/webhooks/${id}`, options);
  }

  /** Read how its deliveries go. */
  health(id: number, options: CallOptions = {}): Promise<WebhookHealth> {
    return this.#transport.get(path`/api/webhooks/${id}/health`, options);
  }

  /** Count the deliveries that `replay` would make again. */
  async preview(
    id: number,
    filter: ReplayFilter = {},
    options: CallOptions = {},
  ): Promise<number> {
    const body = { ...filter, preview: true };
    const call = { ...options, body, repeatable: true };
    return (await this.#transport.post<Replay>(path`/api/webhooks/${id}/replay`, call)).count;
  }

  /** Make ended deliveries again, each once, as a job with progress. */
  replay(id: number, filter: ReplayFilter = {}, options: CallOptions = {}): Promise<Replay> {
    return this.#transport.post(path`/api/webhooks/${id}/replay`, { ...options, body: filter });
  }
}

/** The deliveries of single events to single subscriptions. */
export class Sagas {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** List sagas, the newest first. */
  async list(options: SagaListOptions = {}): Promise<Saga[]> {
    const { signal, ...query } = options;
    const call = { signal, query };
    return (await this.#transport.get<{ items: Saga[] }>("/api/webhooks/sagas", call)).items;
  }

  get(id: number, options: CallOptions = {}): Promise<Saga> {
    return this.#transport.get(path`/api/webhooks/sagas/${id}`, options);
  }

  /** Read the attempts of a saga, in order. */
  async attempts(id: number, options: CallOptions = {}): Promise<DeliveryAttempt[]> {
    const where = path`/api/webhooks/sagas/${id}/attempts`;
    return (await this.#transport.get<{ items: DeliveryAttempt[] }>(where, options)).items;
  }

  /** Deliver the event of an ended saga once more; one that was delivered needs `confirm`. */
  resend(id: number, options: CallOptions & { confirm?: boolean | undefined } = {}): Promise<Saga> {
    const { signal, ...body } = options;
    return this.#transport.post(path`/api/webhooks/sagas/${id}/resend`, { signal, body });
  }

  /** End a saga without a further attempt. */
  cancel(id: number, options: CallOptions = {}): Promise<Saga> {
    const call = { ...options, repeatable: true };
    return this.#transport.post(path`/api/webhooks/sagas/${id}/cancel`, call);
  }
}

/** Deliveries that failed for good, with their events. */
export class DeadLetters {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** List dead letters without their payloads, the newest first. */
  async list(options: DeadLetterListOptions = {}): Promise<DeadLetterOutline[]> {
    const { signal, ...query } = options;
    const where = "/api/webhooks/dead-letters";
    return (await this.#transport.get<{ items: DeadLetterOutline[] }>(where, { signal, query }))
      .items;
  }

  /** Read a dead letter with the payload of its event. */
  async get<Payload = unknown>(
    id: number,
    options: CallOptions = {},
  ): Promise<DeadLetter<Payload>> {
    const where = path`/api/webhooks/dead-letters/${id}`;
    return decoded(await this.#transport.get<DeadLetter<Payload>>(where, options));
  }

  /** Deliver its event again, by a new saga. */
  requeue(id: number, options: CallOptions = {}): Promise<Saga> {
    return this.#transport.post(path`/api/webhooks/dead-letters/${id}/requeue`, options);
  }

  async delete(id: number, options: CallOptions = {}): Promise<void> {
    await this.#transport.send("DELETE", path`/api/webhooks/dead-letters/${id}`, options);
  }
}
