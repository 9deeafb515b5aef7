/** The TypeScript client in a page; `tests/browser/test_chromium.py` starts the server. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";

import type { Page } from "playwright-core";

import { launch } from "./chromium.ts";
import { type Sdk, file, given, open, withClient } from "./page.ts";

const SERVER = given("TOWPATH_URL");
const OTHER_PORT = Number(given("TOWPATH_OTHER_PORT"));
const ROOT = { email: "root@example.org", password: "correct horse" };

type Given = { server: string; email: string; password: string; topic: string };

const browser = await launch();
// Another origin, on this machine too: Chromium lets no other origin speak to it.
const other = createServer((asked, answer) => {
  const { type, body } = file(asked.url ?? "");
  answer.setHeader("content-type", type).end(body);
}).listen(OTHER_PORT, "127.0.0.1");
after(async () => {
  await browser.close();
  other.close();
});

let topics = 0;
const said = (): Given => ({ server: SERVER, ...ROOT, topic: `page-${topics++}` });

/** A page of an origin, which can import the client. */
async function page(origin: string): Promise<Page> {
  return open(await browser.newContext(), origin);
}

/** Run a function in a page, with the client and what it is given. */
function inPage<T>(at: Page, run: (sdk: Sdk, given: Given) => Promise<T>, given = said()) {
  return withClient(at, run, given);
}

test("the first superuser is made in a page", async () => {
  const at = await (await browser.newContext()).newPage();
  const complaints = listened(at);
  await at.goto(given("TOWPATH_SETUP"));
  await at.waitForURL(`${SERVER}/setup`); // the token is not left in the history
  await at.fill("[name=email]", ROOT.email);
  await at.fill("[name=password]", ROOT.password);
  await at.fill("[name=again]", "another horse");
  await at.click("button");
  await at.locator("[role=alert]", { hasText: "The two passwords differ." }).waitFor();
  await at.fill("[name=again]", ROOT.password);
  await at.click("button");

  await at.waitForURL(`${SERVER}/`);
  assert.ok(await at.locator("h1").isVisible());
  assert.deepEqual(complaints, []);
});

for (const [whose, origin] of [
  ["the server's own", SERVER],
  ["another", `http://127.0.0.1:${OTHER_PORT}`],
] as const) {
  test(`a page of ${whose} origin logs in, enqueues, works and reads`, async () => {
    const found = await inPage(await page(origin), async ({ Towpath }, given) => {
      const towpath = new Towpath(given.server);
      await towpath.authWithPassword(given.email, given.password, { collection: "_superusers" });
      const [later, job] = await towpath.jobs.enqueueMany([
        { topic: given.topic, payload: 1, runAt: new Date("2099-01-01") },
        { topic: given.topic, payload: new Uint8Array([1, 2, 3]) },
      ]);
      const worker = towpath.worker(given.topic, async (job) => {
        return { bytes: Array.from(job.payload as Uint8Array) };
      });
      let done = await towpath.jobs.get(job!.id);
      while (done.status !== "completed") done = await towpath.jobs.get(job!.id);
      await worker.stop();
      return { result: done.result, later: (await towpath.jobs.get(later!.id)).state };
    });

    assert.deepEqual(found, { result: { bytes: [1, 2, 3] }, later: "delayed" });
  });
}

test("a login by cookie outlives the page, and scripts cannot read it", async () => {
  const given = said();
  const at = await page(SERVER);
  await inPage(
    at,
    async ({ Towpath }, given) => {
      const towpath = new Towpath(given.server);
      const who = { collection: "_superusers", cookie: true } as const;
      await towpath.authWithPassword(given.email, given.password, who);
      await towpath.jobs.enqueue(given.topic, "first");
    },
    given,
  );
  await at.reload();

  const found = await inPage(
    at,
    async ({ Towpath }, given) => {
      const towpath = new Towpath(given.server);
      await towpath.jobs.enqueue(given.topic, "after the reload");
      const { items } = await towpath.jobs.list({ topic: given.topic });
      return { cookie: document.cookie, payloads: items.map((job) => job.payload) };
    },
    given,
  );

  assert.deepEqual(found, { cookie: "", payloads: ["after the reload", "first"] });
});

test("an origin that was not named is told nothing", async () => {
  const found = await inPage(await page(`http://localhost:${OTHER_PORT}`), async ({ Towpath }, given) => {
    const towpath = new Towpath(given.server, { retries: 0 });
    const login = towpath.authWithPassword(given.email, given.password);
    return login.then(String, (error: Error) => error.constructor.name);
  });

  assert.equal(found, "NetworkError");
});

test("errors and aborted calls are those of the client", async () => {
  const found = await inPage(await page(SERVER), async (sdk, given) => {
    const towpath = new sdk.Towpath(given.server);
    await towpath.authWithPassword(given.email, given.password, { collection: "_superusers" });
    const name = (error: Error) => error.constructor.name;
    const signal = AbortSignal.timeout(50);
    return [
      await towpath.jobs.get("00000000-0000-7000-8000-000000000000").then(String, name),
      await towpath.jobs.reserve([given.topic], { timeout: 30, signal }).then(String, name),
    ];
  });

  assert.deepEqual(found, ["NotFound", "DOMException"]);
});

/** What a page complains about. */
function listened(at: Page): string[] {
  const complaints: string[] = [];
  at.on("console", (message) => {
    // Without a login the first question is refused, and the browser logs that by itself.
    const isLoggedOut = message.location().url === `${SERVER}/api/me`;
    if (message.type() === "error" && !isLoggedOut) complaints.push(message.text());
  });
  at.on("pageerror", (error) => complaints.push(String(error)));
  return complaints;
}
