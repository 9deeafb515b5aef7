/** What can be done to this job, as buttons of the head. */

import { api, type JobDetail } from "../../client.ts";
import { act } from "../../asking.ts";
import { Button, Confirmed, toClipboard } from "../../parts/Button.tsx";
import { hiddenIn } from "../../parts/json.ts";
import { Menu } from "../../parts/Menu.tsx";
import { toast } from "../../parts/Toast.tsx";
import { go } from "../../router.ts";
import { counted } from "../../words.ts";
import { type Verb, labelOf, verbsOf } from "../jobs/acts.ts";
import { enqueueCommand } from "./command.ts";

/** The payload, if nothing of it is hidden: a command must not enqueue the marks. */
async function whole(job: JobDetail): Promise<string> {
  const text = await api.jobs.payload(job.id);
  const hidden = Math.min(job.hidden, hiddenIn(text));
  if (!hidden) return text;
  throw new Error(`${counted(hidden, "value")} of the payload ${hidden === 1 ? "is" : "are"} hidden; reveal the payload, copy it and write the command yourself.`);
}

export function Acts({ job, run }: { job: JobDetail; run: (verb: Verb) => Promise<void> }) {
  const verbs = verbsOf(job);
  const isPrimary = (verb: Verb) => verb === "requeue" || verb === "kick";
  const copy = (what: string, text: () => string | Promise<string>) => async () => {
    if (await act(`Copy ${what}`, async () => toClipboard(await text()))) toast({ text: `Copied ${what}.` });
  };
  const choices = [
    { label: "Copy the link", run: copy("the link", () => location.href) },
    { label: "Copy the command that shows it", run: copy("the command", () => `towpath jobs show ${job.id}`) },
  ];
  if (job.encoding === "json") {
    choices.push({
      label: "Copy the command that enqueues it again",
      run: copy("the command", async () => enqueueCommand(job, await whole(job))),
    });
  }
  return (
    <>
      {verbs.map((verb) => {
        if (verb === "delete") return null;
        const isAsked = verb === "cancel" && job.cancelRequested;
        return (
          <Button key={verb} kind={isPrimary(verb) ? "primary" : "plain"} disabled={isAsked} onClick={() => run(verb)}>
            {isAsked ? "Stopping" : labelOf(verb, job)}
          </Button>
        );
      })}
      {job.encoding !== "base64" && !job.whyUnreadable && (
        <Button onClick={() => go("/jobs/new", { from: job.id })}>Edit and enqueue again</Button>
      )}
      {verbs.includes("delete") && (
        <Confirmed kind="danger" question="Delete?" onClick={() => run("delete")}>
          Delete
        </Confirmed>
      )}
      <Menu label="Copy" choices={choices} />
    </>
  );
}
