/** What the form holds, and the options of the job that it makes. */

import type { EnqueueOptions, JobDetail } from "../../client.ts";

export interface Draft {
  topic: string;
  text: string;
  when: "now" | "after" | "at";
  /** A number, in the unit. */
  delay: string;
  unit: "s" | "min" | "h" | "d";
  /** As the browser's field for local times gives it. */
  runAt: string;
  priority: string;
  key: string;
  maxRetries: string;
}

export const UNITS = { s: 1, min: 60, h: 3600, d: 86_400 } as const;

export function draftOf(topic: string, source?: { job: JobDetail; text: string }): Draft {
  return {
    topic,
    text: source?.text ?? "{}",
    when: "now",
    delay: "15",
    unit: "min",
    runAt: "",
    priority: source ? String(source.job.priority) : "",
    key: source?.job.key ?? "",
    maxRetries: source ? String(source.job.maxRetries) : "",
  };
}

/** The options of the new job; those that the form does not show are taken from the other job. */
export function optionsOf(draft: Draft, source?: JobDetail): EnqueueOptions {
  const options: EnqueueOptions = source ? { ...keptOf(source) } : {};
  if (draft.when === "after") options.delay = Number(draft.delay) * UNITS[draft.unit];
  if (draft.when === "at" && draft.runAt) options.runAt = new Date(draft.runAt);
  if (draft.priority !== "") options.priority = Number(draft.priority);
  if (draft.maxRetries !== "") options.maxRetries = Number(draft.maxRetries);
  if (draft.key !== "") options.key = draft.key;
  return options;
}

/** What a job hands on to its edited successor, beside the fields of the form. */
export function keptOf(job: JobDetail): EnqueueOptions {
  const { task, ttr, timeout, retention, maxCrashes, workers, onlyWorkers, limit, backoff, headers } = job;
  return {
    ttr,
    timeout,
    retention,
    maxCrashes,
    ...(task === null ? {} : { task }),
    ...(workers === null ? {} : { workers }),
    ...(onlyWorkers === null ? {} : { onlyWorkers }),
    ...(limit === null ? {} : { limit }),
    // Over HTTP a backoff is a list of waits; one by a rule stays that of the topic.
    ...(backoff.waits.length ? { backoff: backoff.waits } : {}),
    ...(Object.keys(headers).length ? { headers } : {}),
  };
}
