/** Commands that people copy into a shell: what a payload holds stays one word there. */

import type { JobDetail } from "../../client.ts";

/** One word of a POSIX shell. In single quotes no sign has a meaning, but the single quote. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** The command that enqueues such a job again; `text` is its payload, as it is shown. */
export function enqueueCommand(
  job: Pick<JobDetail, "topic" | "priority" | "key" | "task" | "maxRetries">,
  text: string,
): string {
  const words = ["towpath", "jobs", "enqueue", job.topic, text, "--priority", String(job.priority)];
  words.push("--max-retries", String(job.maxRetries));
  if (job.task !== null) words.push("--task", job.task);
  // `--key=…`, as a key may begin with a dash.
  if (job.key !== null) words.push(`--key=${job.key}`);
  return words.map(quoted).join(" ");
}
