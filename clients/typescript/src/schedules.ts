import { decoded } from "./payloads.ts";
import { type CallOptions, type Transport, path } from "./transport.ts";
import type { Job, NewSchedule, Schedule } from "./types.ts";

/** The verbs of schedules: rules that enqueue again and again. */
export class Schedules {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list(options: CallOptions = {}): Promise<Schedule[]> {
    const { items } = await this.#transport.get<{ items: Schedule[] }>("/api/schedules", options);
    return items.map(decoded);
  }

  async get(name: string, options: CallOptions = {}): Promise<Schedule> {
    return decoded(await this.#transport.get<Schedule>(path`/api/schedules/${name}`, options));
  }

  /** Make a schedule, or change it: `cron` with a time zone `tz`, or `every` so many seconds. */
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
