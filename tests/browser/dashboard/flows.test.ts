/** Flows: their progress, their graph, and what can be done about one that has stopped: P5. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { open, towpath } from "./here.ts";

const nodes = (page: Page) => page.locator(".graph .node");
const node = (page: Page, id: string) => page.locator(`.graph .node[href$="${id}"]`);

/** A chain with a group in its middle: first → 28 parts → last. */
async function flow(topic: string, parts = 28) {
  const first = await towpath.jobs.enqueue(`${topic}-fetch`, {}, { maxRetries: 1 });
  const middle = await towpath.jobs.enqueueMany(
    Array.from({ length: parts }, (_, nth) => ({ topic: `${topic}-resize`, payload: { nth }, after: [first.id] })),
  );
  const last = await towpath.jobs.enqueue(`${topic}-pack`, {}, { after: middle.map(({ id }) => id) });
  return { first, middle, last };
}

async function lease(topic: string) {
  const [found] = await towpath.jobs.reserve([topic], { timeout: 30 });
  assert.ok(found);
  return found;
}

/** The edges that are drawn, by the places of the nodes at their ends. */
async function drawn(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const at = new Map<string, string>();
    for (const link of document.querySelectorAll<HTMLAnchorElement>(".graph .node")) {
      const { left, top } = (link.parentElement as HTMLElement).style;
      const [x, y] = [parseFloat(left), parseFloat(top)];
      const id = link.getAttribute("href")?.slice(-36) ?? "";
      at.set(`out ${x + 176} ${y + 22}`, id);
      at.set(`in ${x} ${y + 22}`, id);
    }
    return [...document.querySelectorAll(".graph .lines path")].map((path) => {
      const [from, , , to] = (path.getAttribute("d") ?? "").replace(/[MC]/g, " ").trim().split(/\s+/).reduce<string[][]>(
        (pairs, word) => {
          const last = pairs.at(-1);
          if (last && last.length < 2) last.push(word);
          else pairs.push([word]);
          return pairs;
        },
        [],
      );
      return `${at.get(`out ${from?.join(" ")}`)} ${at.get(`in ${to?.join(" ")}`)}`;
    });
  });
}

test("the graph of a flow has the edges that the server tells", async () => {
  /** P5 */
  const { first, last } = await flow("graph");
  const page = await open(`/jobs/${first.id}`);
  await nodes(page).nth(29).waitFor();
  const told = await towpath.jobs.flow(last.id);
  assert.equal(told.edges.length, 56);
  assert.deepEqual((await drawn(page)).sort(), told.edges.map(({ parent, child }) => `${parent} ${child}`).sort());
  assert.equal(await node(page, first.id).getAttribute("aria-current"), "true");

  await node(page, last.id).click();
  await page.waitForURL(new RegExp(last.id));
  await page.getByText("It waits for 28 jobs to complete.").waitFor();
});

test("a failed job is requeued from the page of its flow, and those behind it wait again", async () => {
  /** P5 */
  const { first, middle, last } = await flow("stopped", 2);
  await (await lease("stopped-fetch")).fail("no network");
  const page = await open(`/flows?flow=${last.id}`);
  await page.locator("tr.chosen", { hasText: "4 failed" }).waitFor();
  await page.locator(".card button", { hasText: "Re-queue" }).click();
  await page.locator("tr.chosen", { hasText: "3 blocked" }).waitFor();
  await node(page, first.id).locator(".mark", { hasText: "ready" }).waitFor();
  for (const { id } of [...middle, last]) assert.equal((await towpath.jobs.get(id)).state, "blocked");

  await (await lease("stopped-fetch")).complete();
  await page.click("button.live >> nth=0"); // pause and go on: the page asks at once
  await page.click("button.live >> nth=0");
  await page.locator("tr.chosen", { hasText: "1 of 4" }).waitFor();
});

test("what is left of a flow is cancelled after a second word, and nothing of it fails", async () => {
  const { first, middle, last } = await flow("left", 3);
  await (await lease("left-fetch")).complete();
  const page = await open(`/flows?flow=${last.id}`);
  await page.click("button:has-text('Cancel what is left')");
  await page.locator(".confirm", { hasText: "Cancel 4 jobs?" }).waitFor();
  await page.click(".confirm button.danger");
  await page.locator("tr.chosen", { hasText: "4 cancelled" }).waitFor();
  for (const { id } of [...middle, last]) assert.equal((await towpath.jobs.get(id)).state, "cancelled");
  assert.equal((await towpath.jobs.get(first.id)).state, "completed");

  await page.selectOption("select", "open");
  await page.waitForURL(/show=open/);
  await page.locator("tr", { hasText: "left-pack" }).waitFor({ state: "detached" });
});
