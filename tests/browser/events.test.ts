/** Events in a page; `tests/browser/test_chromium.py` starts the server. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, type Socket, connect, createServer } from "node:net";
import { after, test } from "node:test";

import type { BrowserContext, Page } from "playwright-core";

import { Towpath } from "../../clients/typescript/src/index.ts";
import { launch } from "./chromium.ts";
import { given, open, withClient } from "./page.ts";

declare global {
  interface Window {
    seen: unknown[];
    errors: string[];
  }
}

const SERVER = new URL(given("TOWPATH_URL"));
const towpath = new Towpath(SERVER.href);
await towpath.authWithPassword(given("TOWPATH_EMAIL"), given("TOWPATH_PASSWORD"), {
  collection: "_superusers",
});

/** The network between the pages and the server. */
class Wire {
  readonly #ends = new Set<Socket>();
  #isCut = false;
  readonly #server = createServer((near) => {
    if (this.#isCut) return near.destroy();
    const far = connect(Number(SERVER.port), SERVER.hostname);
    for (const [end, other] of [[near, far], [far, near]] as const) {
      this.#ends.add(end);
      end.pipe(other);
      end.on("error", () => undefined).on("close", () => other.destroy() && this.#ends.delete(end));
    }
    return undefined;
  });

  async open(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  cut(): void {
    this.#isCut = true;
    for (const end of this.#ends) end.destroy();
  }

  mend(): void {
    this.#isCut = false;
  }

  /** Let what is open carry nothing more, and say nothing of it. */
  silence(): void {
    for (const end of this.#ends) end.unpipe().pause();
  }

  close(): void {
    this.cut();
    this.#server.close();
  }
}

const browser = await launch();
const wire = new Wire();
const origin = await wire.open();
after(async () => {
  await browser.close();
  wire.close();
});

let channels = 0;
const newChannel = () => `page:${channels++}`;

async function publish(channel: string, ...payloads: unknown[]): Promise<void> {
  await towpath.events.publishMany(channel, payloads.map((payload) => ({ payload })));
}

/** Subscribe in a page; `seen` returns what its handler has seen. */
async function subscribed(at: Page, channel: string, remember?: string) {
  const { token } = towpath;
  await withClient(
    at,
    ({ Towpath }, { token, channel, remember }) => {
      const towpath = new Towpath("/", { token });
      window.seen = [];
      window.errors = [];
      const onError = (error: unknown) => window.errors.push(String(error));
      towpath.events.subscribe(channel, { remember, onError }, ({ payload }) => {
        window.seen.push(payload);
      });
    },
    { token, channel, remember },
  );
  return {
    count: (n: number) => at.waitForFunction((n) => window.seen.length >= n, n),
    seen: () => at.evaluate(() => window.seen),
    errors: () => at.evaluate(() => window.errors),
  };
}

const newContext = (): Promise<BrowserContext> => browser.newContext();

test("a network that is cut and mended loses and doubles nothing", async () => {
  const channel = newChannel();
  await publish(channel, 1, 2);
  const { count, seen, errors } = await subscribed(await open(await newContext(), origin), channel);
  await count(2);

  for (let n = 2; n < 8; n += 2) {
    wire.cut();
    await publish(channel, n + 1, n + 2);
    wire.mend();
    await count(n + 2);
  }
  assert.deepEqual(await seen(), [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.ok((await errors()).length >= 3);
});

test("a page that is offline for a while goes on when it is online", async () => {
  const channel = newChannel();
  const context = await newContext();
  const { count, seen } = await subscribed(await open(context, origin), channel);
  await publish(channel, 1);
  await count(1);

  await context.setOffline(true);
  wire.cut();
  await publish(channel, 2, 3);
  wire.mend();
  await context.setOffline(false);
  await count(3);
  assert.deepEqual(await seen(), [1, 2, 3]);
});

test("a connection that fell silent, as after sleep, is left", async () => {
  const channel = newChannel();
  const at = await open(await newContext(), origin);
  await at.clock.install();
  const { count, seen, errors } = await subscribed(at, channel);
  await publish(channel, 1);
  await count(1);

  wire.silence();
  await publish(channel, 2, 3);
  await at.clock.fastForward(70_000);
  await at.clock.runFor(1_000);
  await count(3);
  assert.deepEqual(await seen(), [1, 2, 3]);
  assert.match((await errors()).join(), /no sign of life/);
});

test("a page that is loaded again goes on where it was, and another tab begins anew", async () => {
  const channel = newChannel();
  const context = await newContext();
  const at = await open(context, origin);
  await publish(channel, 1, 2);
  await (await subscribed(at, channel, "mine")).count(2);

  await at.reload();
  await publish(channel, 3);
  const first = await subscribed(at, channel, "mine");
  await first.count(1);
  const second = await subscribed(await open(context, origin), channel, "mine");
  await second.count(3);
  await publish(channel, 4);
  await Promise.all([first.count(2), second.count(4)]);

  assert.deepEqual(await first.seen(), [3, 4]);
  assert.deepEqual(await second.seen(), [1, 2, 3, 4]);
});

/** A page that has no WebSockets. */
async function withoutSockets(): Promise<Page> {
  const at = await open(await newContext(), origin);
  await at.evaluate("delete window.WebSocket");
  return at;
}

test("a page without WebSockets gets its events as the server sends them", async () => {
  const channel = newChannel();
  const at = await withoutSockets();
  await at.clock.install();
  const asked: string[] = [];
  at.on("request", (request) => {
    if (request.url().includes("/api/channels")) asked.push(request.headers()["accept"] ?? "");
  });
  const { count, seen, errors } = await subscribed(at, channel);
  await publish(channel, 1);
  await count(1);
  wire.cut();
  await publish(channel, 2);
  wire.mend();
  await at.clock.runFor(1_000);
  await count(2);

  wire.silence();
  await publish(channel, 3);
  await at.clock.fastForward(40_000);
  await at.clock.runFor(1_000);
  await count(3);
  assert.deepEqual(await seen(), [1, 2, 3]);
  assert.match((await errors()).join(), /no sign of life/);
  assert.deepEqual(new Set(asked), new Set(["text/event-stream"]));
});

test("a page whose proxy knows no server-sent events gets its events by requests that wait", async () => {
  const channel = newChannel();
  const at = await withoutSockets();
  await at.route(/\/api\/channels/, (route) => {
    const headers = { ...route.request().headers(), accept: "application/json" };
    return route.continue({ headers });
  });
  const { count, seen } = await subscribed(at, channel);
  await publish(channel, 1);
  await count(1);
  wire.cut();
  await publish(channel, 2);
  wire.mend();
  await count(2);
  assert.deepEqual(await seen(), [1, 2]);
});

test("many channels leave a page without WebSockets connections for its calls", async () => {
  const names = [1, 2, 3, 4, 5, 6, 7].map(newChannel);
  const at = await withoutSockets();
  const { token } = towpath;
  await withClient(
    at,
    ({ Towpath }, { token, names }) => {
      const towpath = new Towpath("/", { token });
      window.seen = [];
      for (const name of names) towpath.events.subscribe(name, () => window.seen.push(name));
    },
    { token, names },
  );
  for (const name of names) await publish(name, 1);
  await at.waitForFunction((n) => window.seen.length === n, names.length);
  const answers = await withClient(
    at,
    ({ Towpath }, { token }) => new Towpath("/", { token }).jobs.stats().then(() => true),
    { token },
  );
  assert.equal(answers, true);
});

for (const [line, page] of Object.entries({
  "a WebSocket": async () => open(await newContext(), origin),
  "server-sent events": withoutSockets,
})) {
  test(`by ${line}, a page shows the text of a job, over cuts and when it is loaded again`, async (t) => {
    const topic = newChannel().replace(":", "-");
    let goOn = () => undefined as void;
    const worker = towpath.worker(topic, async (_, { stream }) => {
      for (let n = 0; n < 6; n += 1) {
        await stream(`word-${n} `);
        await new Promise<void>((resolve) => (goOn = resolve));
      }
    });
    t.after(() => worker.stop({ grace: 0 }));
    const { id } = await towpath.jobs.enqueue(topic);
    const at = await page();
    const { token } = towpath;
    const show = () =>
      withClient(
        at,
        ({ Towpath }, { token, id }) => {
          const stream = new Towpath("/", { token }).jobs.stream(id);
          window.seen = [];
          void (async () => {
            for await (const piece of stream) {
              document.body.textContent = stream.text;
              if (piece.kind === "end") window.seen.push(piece.ended);
            }
          })();
        },
        { token, id },
      );
    const shows = (text: string) =>
      at.waitForFunction((text) => document.body.textContent === text, text);
    await show();
    for (let n = 0; n < 6; n += 1) {
      const whole = Array.from({ length: n + 1 }, (_, at) => `word-${at} `).join("");
      await shows(whole);
      if (n === 3) {
        await at.reload();
        if (line !== "a WebSocket") await at.evaluate("delete window.WebSocket");
        await show();
        await shows(whole);
      } else if (n % 2) {
        wire.cut();
        wire.mend();
      }
      goOn();
    }
    await at.waitForFunction(() => window.seen.length === 1);
    assert.deepEqual(await at.evaluate(() => window.seen), ["completed"]);
  });
}
