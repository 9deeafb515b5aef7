/** Workers: which live, and how one is ended gently. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { open, towpath } from "./here.ts";

const row = (page: Page, worker: string) => page.locator("table.workers tbody tr", { hasText: worker });
const SLOW = `
import time
from pathlib import Path
from towpath import App

app = App(${JSON.stringify(process.env["TOWPATH_TEST_DATABASE"])})

@app.task()
def slow(gate: str) -> str:
    while not Path(gate).exists():
        time.sleep(0.05)
    return "done"
`;

/** A worker process that runs the task `slow`, which waits until a file exists. */
function startedWorker(name: string) {
  const folder = mkdtempSync(join(tmpdir(), "towpath-worker-"));
  writeFileSync(join(folder, "program.py"), SLOW);
  const words = ["-m", "towpath", "worker", "program:app", "--name", name, "--concurrency", "4"];
  const worker = spawn(process.env["TOWPATH_TEST_PYTHON"] ?? "", words, { cwd: folder, stdio: "ignore" });
  const ended = new Promise<number | null>((resolve) => worker.once("exit", resolve));
  return { worker, ended, gate: join(folder, "gate"), open: () => writeFileSync(join(folder, "gate"), "") };
}

test("a real worker is asked to stop, and ends after the job that it runs", async () => {
  /** P3 */
  const { worker, ended, gate, open: openGate } = startedWorker("gentle-1");
  try {
    const job = await towpath.jobs.enqueue("slow", { gate });
    const page = await open("/workers");
    await row(page, "gentle-1").locator(".mark", { hasText: "live" }).waitFor();
    await row(page, "gentle-1").locator("td", { hasText: "1 / 4" }).waitFor();
    await row(page, "gentle-1").locator(`a[href$="/jobs/${job.id}"]`).waitFor();

    await row(page, "gentle-1").locator("button", { hasText: "Ask to stop" }).click();
    await row(page, "gentle-1").locator(".mark", { hasText: "stopping" }).waitFor();
    await page.locator(".toast", { hasText: "was asked to stop" }).waitFor();
    openGate();

    assert.equal(await ended, 0);
    assert.equal((await towpath.jobs.get(job.id)).status, "completed");
    await row(page, "gentle-1").waitFor({ state: "detached" });
  } finally {
    worker.kill("SIGKILL");
  }
});

test("a worker that stops beating turns silent", async () => {
  /** P3 */
  const { worker } = startedWorker("frozen-1");
  try {
    const page = await open("/workers");
    await row(page, "frozen-1").locator(".mark", { hasText: "live" }).waitFor();

    worker.kill("SIGSTOP");

    await row(page, "frozen-1").locator(".mark", { hasText: "silent for" }).waitFor();
    await page.locator("header .note", { hasText: "1 silent" }).waitFor();
  } finally {
    worker.kill("SIGKILL");
  }
});

test("clients without a session are counted by topic", async () => {
  await towpath.jobs.enqueueMany([1, 2].map((payload) => ({ topic: "unnamed", payload })));
  await towpath.jobs.reserve(["unnamed"], { limit: 2 });
  const page = await open("/workers");

  await page.locator("section:has-text('Clients without a session') li", { hasText: /unnamed.*2 leases/ }).waitFor();
});
