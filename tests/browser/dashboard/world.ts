/** A server with something on each page, usual and hostile; for the pictures and the test of every page. */

import { jobOfEachState, speakingJob, towpath, triedJob } from "./here.ts";
import { channelScenes, settingScenes, webhookScenes } from "./scenes.ts";
import { HOSTILE, NAME } from "./receiver.ts";

/** Fill the server, and return its pages by the names of their pictures; a new page is a line here. */
export async function everyPage(): Promise<Record<string, string>> {
  await towpath.jobs.enqueueMany(
    Array.from({ length: 60 }, (_, nth) => ({ topic: "reports", payload: { report: nth, big: "x".repeat(nth * 20) } })),
  );
  for (const topic of ["mail_digest", "pdf_embed", "check_pay"]) await jobOfEachState(topic);
  const payload = { userId: 4711, email: "ann@example.com", apiToken: "hunter2", tags: ["news", "daily"], options: { retry: true } };
  const tried = await triedJob("mail", payload);
  for (let nth = 0; nth < 2; nth += 1) await triedJob("mail", payload, 1);
  const speaking = await speakingJob("answers");
  const waiting = await towpath.jobs.enqueue("mail", payload, { delay: 3600, key: "ann", limit: { key: "mailer", concurrency: 5 } });
  const edited = await towpath.jobs.enqueue("mail", payload);
  const hostile = await hostileJobs();
  const { packed, published } = await flows();
  await towpath.schedules.set("digest", { topic: "mail", cron: "0 7 * * *", tz: "Europe/Zurich", payload });
  await towpath.schedules.set("sweep", { topic: "clean", every: 1 });
  await towpath.schedules.set(NAME, { topic: "clean", cron: "0 0 29 2 *", tz: "UTC", payload: { [HOSTILE]: HOSTILE } });
  await towpath.schedules.pause(NAME);
  const pages = {
    overview: "/",
    "overview-week": "/?range=week",
    jobs: "/jobs",
    "jobs-failed": "/jobs?status=failed",
    "jobs-none": "/jobs?topic=nothing",
    enqueue: "/jobs/new?topic=mail",
    edit: `/jobs/new?from=${edited.id}`,
    "edit-hostile": `/jobs/new?from=${hostile.failed.id}`,
    "job-failed": `/jobs/${tried.id}`,
    "job-running": `/jobs/${speaking.job.id}`,
    "job-delayed": `/jobs/${waiting.id}`,
    "job-flow": `/jobs/${packed.id}`,
    "job-hostile": `/jobs/${hostile.failed.id}`,
    "job-hostile-running": `/jobs/${hostile.running.id}`,
    "job-gone": "/jobs/0199c1de-7d52-7c7f-b0f4-4f5a25678903",
    topics: "/topics",
    "topics-none": "/topics?find=nothing",
    topic: "/topics/mail",
    "topic-hostile": "/topics/hostile",
    workers: "/workers",
    schedules: "/schedules",
    "schedule-new": "/schedules?new=yes",
    schedule: "/schedules/digest",
    "schedule-hostile": `/schedules/${encodeURIComponent(NAME)}`,
    flows: `/flows?flow=${published.id}`,
    "flows-stopped": "/flows?show=stopped",
    "not-found": "/elsewhere",
    ...(await channelScenes()),
    ...(await webhookScenes()),
    ...(await settingScenes()),
  };
  while (!(await towpath.schedules.get("sweep")).history.length) await new Promise((resolve) => setTimeout(resolve, 100));
  await towpath.schedules.pause("sweep"); // a page that changes every second does not settle
  return pages;
}

/** Jobs whose every text is hostile. */
async function hostileJobs() {
  const options = { maxRetries: 1, ttr: 3600, limit: { key: NAME, concurrency: 1 } };
  const failed = await towpath.jobs.enqueue("hostile", { [HOSTILE]: HOSTILE }, { ...options, key: NAME });
  const [failing] = await towpath.jobs.reserve(["hostile"], { worker: NAME });
  await failing?.say({ progress: 0.5, message: HOSTILE, lines: [HOSTILE], events: [{ type: "text", payload: HOSTILE }] });
  const error = new Error(HOSTILE);
  error.stack = `${error}\n  File "${HOSTILE}", line 1\n${error}`;
  await failing?.fail(error);
  const running = await towpath.jobs.enqueue("hostile", HOSTILE, options);
  const [lease] = await towpath.jobs.reserve(["hostile"], { worker: NAME });
  await lease?.say({ progress: 0.5, message: HOSTILE, lines: [HOSTILE], events: [{ type: "text", payload: HOSTILE }] });
  await towpath.jobs.enqueue("hostile", HOSTILE, options); // waits for the limit
  return { failed, running };
}

/** A flow at work, and one that has stopped. */
async function flows() {
  const fetched = await towpath.jobs.enqueue("fetch", {});
  const [fetching] = await towpath.jobs.reserve(["fetch"]);
  await fetching?.complete();
  const resized = [];
  for (let nth = 0; nth < 5; nth += 1) {
    resized.push(await towpath.jobs.enqueue("resize", { nth }, { after: [fetched.id], ttr: 3600, maxRetries: 1 }));
  }
  const packed = await towpath.jobs.enqueue("pack", {}, { after: resized.map(({ id }) => id) });
  const published = await towpath.jobs.enqueue("publish", {}, { after: [packed.id] });
  const resizing = await towpath.jobs.reserve(["resize"], { limit: 2 });
  await resizing[0]?.complete();
  const broken = await towpath.jobs.enqueue("import", {}, { maxRetries: 1 });
  await towpath.jobs.enqueue("report", {}, { after: [broken.id] });
  const [breaking] = await towpath.jobs.reserve(["import"]);
  await breaking?.fail("ValueError: row 7 has no date");
  return { packed, published };
}
