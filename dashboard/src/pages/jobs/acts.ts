/** What can be done to a job, by the state that it is in. */

import { act } from "../../asking.ts";
import { type Job, type JobBrief, NotFound, api } from "../../client.ts";
import { changed } from "../../parts/live.ts";
import { toast } from "../../parts/Toast.tsx";
import { counted, short } from "../../words.ts";
import type { Filters } from "./filters.ts";

export type Verb = "requeue" | "kick" | "cancel" | "delete";

export const LABELS: Record<Verb, string> = {
  requeue: "Re-queue",
  kick: "Run now",
  cancel: "Cancel",
  delete: "Delete",
};

const DONE: Record<Verb, string> = {
  requeue: "is ready again",
  kick: "is ready now",
  cancel: "is cancelled",
  delete: "is deleted",
};

export const VERBS: readonly Verb[] = ["requeue", "cancel", "kick", "delete"];

/** The verbs for jobs that fit a filter. */
export function verbsFor({ status, state }: Pick<Filters, "status" | "state">): Verb[] {
  if (state) return VERBS.filter((verb) => verbsOf({ status: "pending", state }).includes(verb));
  if (status === "pending") return ["cancel", "kick", "delete"];
  return status ? verbsOf({ status, state: "ready" }) : [...VERBS];
}

/** The verbs that the server would not refuse; a completed job has none. */
export function verbsOf(job: Pick<JobBrief, "status" | "state">): Verb[] {
  if (job.status === "failed" || job.status === "cancelled") return ["requeue", "delete"];
  if (job.status === "processing") return ["cancel"];
  if (job.state === "delayed") return ["kick", "cancel", "delete"];
  return job.status === "pending" ? ["cancel", "delete"] : [];
}

/** The word on the button: a running job is asked to stop. */
export function labelOf(verb: Verb, job: Pick<JobBrief, "status">): string {
  return verb === "cancel" && job.status === "processing" ? "Stop" : LABELS[verb];
}

/** Do it; returns the job as it is then, null if it is gone, undefined if it was refused. */
export async function run(verb: Verb, job: Pick<JobBrief, "id" | "status" | "state">): Promise<Job | null | undefined> {
  let after: Job | null = null;
  const isDone = await act(`${labelOf(verb, job)} of job ${short(job.id)}`, async () => {
    after = await send(verb, job.id);
  });
  if (!isDone) return undefined;
  const isAsked = verb === "cancel" && job.status === "processing";
  const text = `Job ${short(job.id)} ${isAsked ? "is asked to stop" : DONE[verb]}.`;
  toast(verb === "cancel" && job.state === "ready" ? { text, action: undo(job) } : { text });
  return after;
}

/** Do it to many, one after the other; tells how many were refused, and why the first was. */
export async function runAll(verb: Verb, jobs: JobBrief[]): Promise<void> {
  const fitting = jobs.filter((job) => verbsOf(job).includes(verb));
  let done = 0;
  let refusal = "";
  const isHeard = await act(`${LABELS[verb]} of ${counted(fitting.length, "job")}`, async () => {
    for (const job of fitting) {
      try {
        await send(verb, job.id);
        done += 1;
      } catch (error) {
        if (!(error instanceof Error) || !("status" in error) || ![404, 409].includes(Number(error.status))) throw error;
        refusal ||= error instanceof NotFound ? "it is gone" : error.message;
      }
    }
  });
  const refused = jobs.length - done;
  if (!isHeard && !done) return;
  const rest = refused ? ` ${counted(refused, "job")} ${refused === 1 ? "was left as it is" : "were left as they are"}${refusal && `: ${refusal}`}.` : "";
  toast({ text: `${LABELS[verb]}: ${counted(done, "job")}.${rest}`, ...(refused ? { tone: "bad" as const } : {}) });
}

async function send(verb: Verb, id: string): Promise<Job | null> {
  if (verb !== "delete") return api.jobs[verb](id);
  await api.jobs.delete(id);
  return null;
}

function undo(job: Pick<JobBrief, "id">) {
  const run = async () => {
    await act("Undo", () => api.jobs.requeue(job.id));
    changed(); // the counts are as before, so the server does not tell
  };
  return { label: "Undo", run };
}
