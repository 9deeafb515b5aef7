import { type CallOptions, type Transport, path } from "./transport.ts";
import type { Topic, TopicDetail } from "./types.ts";

/** The verbs of topics. */
export class Topics {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Read the counts of every topic. */
  async list(options: CallOptions = {}): Promise<Topic[]> {
    return (await this.#transport.get<{ items: Topic[] }>("/api/topics", options)).items;
  }

  /** Read the counts of a topic, its limits, and the arguments of its task. */
  get(topic: string, options: CallOptions = {}): Promise<TopicDetail> {
    return this.#transport.get(path`/api/topics/${topic}`, options);
  }

  /** Hand out no job of this topic for so many seconds, or until it is resumed. */
  async pause(
    topic: string,
    options: CallOptions & { duration?: number | undefined } = {},
  ): Promise<void> {
    const { signal, duration } = options;
    await this.#transport.post(path`/api/topics/${topic}/pause`, { signal, body: { duration } });
  }

  /** Hand out jobs of this topic again. */
  async resume(topic: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.post(path`/api/topics/${topic}/resume`, options);
  }

  /** Make up to `limit` buried jobs ready, or delayed ones if none is buried; returns how many. */
  async kick(topic: string, limit = 1, options: CallOptions = {}): Promise<number> {
    const call = { ...options, body: { limit } };
    const done = await this.#transport.post<{ kicked: number }>(
      path`/api/topics/${topic}/kick`,
      call,
    );
    return done.kicked;
  }

  /** Delete the pending and failed jobs of the topic; returns how many. */
  async purge(topic: string, options: CallOptions = {}): Promise<number> {
    const done = await this.#transport.post<{ purged: number }>(
      path`/api/topics/${topic}/purge`,
      options,
    );
    return done.purged;
  }
}
