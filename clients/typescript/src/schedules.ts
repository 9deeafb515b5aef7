import { decoded } from "./payloads.ts";
import { type CallOptions, type Transport, path } from "./transport.ts";
import type { Job, NewSchedule, Schedule, SchedulePreview, ScheduleRule } from "./types.ts";

/** The verbs of schedules: rules that enqueue again and again. */
export class Schedules {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** All schedules; with `details` also the next and the last fires of each. */
  async list(
    options: CallOptions & { details?: boolean | undefined } = {},
  ): Promise<Schedule[]> {
    const { signal, ...query } = options;
    const call = { query, signal };
    const { items } = await this.#transport.get<{ items: Schedule[] }>("/api/schedules", call);
    return items.map(decoded);
  }

  /** When a rule would fire, and what it says in words; nothing is stored. */
  preview(rule: ScheduleRule, options: CallOptions = {}): Promise<SchedulePreview> {
    const { from, ...rest } = rule;
    const body = { ...rest, from: from instanceof Date ? from.toISOString() : from };
    return this.#transport.post("/api/schedule-preview", { ...options, body, repeatable: true });
  }

  async get(name: string, options: CallOptions = {}): Promise<Schedule> {
    return decoded(await this.#transport.get<Schedule>(path`/api/schedules/${name}`, options));
  }

  /** Its payload as the text that is stored; hidden values are shown with `reveal`, which is an act. */
  async payload(
    name: string,
    options: CallOptions & { reveal?: boolean | undefined } = {},
  ): Promise<string> {
    const { signal, ...query } = options;
    const where = path`/api/schedules/${name}/payload`;
    return (await this.#transport.open(where, { query, signal })).text();
  }

  /**
   * Make a schedule, or change it: `cron` with a time zone `tz`, or `every` so many seconds.
   *
   * What is left out gets its default: to change a schedule, give the `options` that it tells,
   * and its payload or `keepPayload`.
   */
  async set(name: string, schedule: NewSchedule, options: CallOptions = {}): Promise<Schedule> {
    const call = { ...options, body: schedule };
    return decoded(await this.#transport.send("PUT", path`/api/schedules/${name}`, call));
  }

  async pause(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.post(path`/api/schedules/${name}/pause`, options);
  }

  async resume(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.post(path`/api/schedules/${name}/resume`, options);
  }

  /** Enqueue its job now, beside its fires. */
  async run(name: string, options: CallOptions = {}): Promise<Job> {
    return decoded(await this.#transport.post<Job>(path`/api/schedules/${name}/run`, options));
  }

  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.send("DELETE", path`/api/schedules/${name}`, options);
  }
}
