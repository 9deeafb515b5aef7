/** K1: all of it by the keyboard alone. B2: rows chosen by keys. The palette, and the sheet of the keys. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Locator, Page } from "playwright-core";

import { SERVER, WHO, open, settled, towpath, triedJob } from "./here.ts";

const field = (page: Page) => page.locator("[role=combobox]");
const options = (page: Page) => page.locator("[role=option]");
const rows = (page: Page) => page.locator("table.jobs tbody tr");
const dialog = (page: Page, title: string) => page.locator("dialog", { has: page.locator(`h2:text-is("${title}")`) });
const enqueued = (topic: string, count: number) =>
  towpath.jobs.enqueueMany(Array.from({ length: count }, (_, nth) => ({ topic, payload: { nth } })));

/** The text that has the focus. */
const focused = (page: Page) => page.evaluate(() => document.activeElement?.textContent?.trim());

/** What is wrong with the focus: it must be on the screen, and show itself. */
async function unseen(page: Page): Promise<string | null> {
  return page.evaluate(() => {
    const at = document.activeElement as HTMLElement;
    const { top, bottom, left, right, width, height } = at.getBoundingClientRect();
    const { outlineStyle, outlineWidth } = getComputedStyle(at);
    const isOnScreen = bottom > 0 && top < innerHeight && right > 0 && left < innerWidth && width > 0 && height > 0;
    const isOutlined = outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
    return at !== document.body && isOnScreen && isOutlined ? null : at.outerHTML.slice(0, 300);
  });
}

/** Where the focus is on the paper, within the side bar, the page or the dialog. */
async function spot(page: Page) {
  return page.evaluate(() => {
    const at = document.activeElement as HTMLElement;
    const part = at.closest("nav.side, main, dialog")?.localName ?? "";
    const { top, bottom, left, right } = at.getBoundingClientRect();
    return { part, top: top + scrollY, bottom: bottom + scrollY, left, right, text: at.textContent };
  });
}

/** Press Tab until something has the focus, which is seen all the way and goes as the eye does. */
async function tabTo(page: Page, wanted: Locator, key: "Tab" | "Shift+Tab" = "Tab"): Promise<void> {
  for (let before = await spot(page); !(await wanted.evaluate((each) => each === document.activeElement)); ) {
    await page.keyboard.press(key);
    assert.equal(await unseen(page), null);
    const after = await spot(page);
    const [one, other] = key === "Tab" ? [before, after] : [after, before];
    if (one.part && one.part === other.part) {
      const isAbove = other.bottom <= one.top && other.left < one.right;
      const isLeft = other.top < one.bottom && one.top < other.bottom && other.right <= one.left;
      assert.ok(!isAbove && !isLeft, `${JSON.stringify(one)} comes before ${JSON.stringify(other)}`);
    }
    before = after;
  }
}

test("by the keyboard alone: log in, find the jobs, reach a failed one, read its traceback, re-queue it, log out", async () => {
  /** K1 */
  const job = await triedJob("by-keyboard", { userId: 4711 }, 1);
  const page = await open("/login", { isLoggedIn: false });
  await page.locator("[name=email]:focus").waitFor();
  await page.keyboard.type(WHO.email);
  await page.keyboard.press("Tab");
  await page.keyboard.type(WHO.password);
  await page.keyboard.press("Enter");
  await page.locator("nav.side").waitFor();
  await settled(page);

  await page.keyboard.press("Control+k");
  await field(page).waitFor();
  assert.equal(await unseen(page), null);
  await page.keyboard.type("jobs");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${SERVER}/jobs`);
  await page.locator("main:focus").waitFor();
  assert.equal(await unseen(page), null);
  await settled(page);
  await tabTo(page, page.locator("nav.tabs a", { hasText: "failed" }));
  await page.keyboard.press("Enter");
  await page.waitForURL(/status=failed/);
  const link = page.locator(`tr[data-id="${job.id}"] a`);
  await link.waitFor();
  await settled(page);
  await tabTo(page, link);

  await page.keyboard.press("?");
  await dialog(page, "Keys").waitFor();
  assert.equal(await unseen(page), null);
  await page.keyboard.press("Escape");
  await dialog(page, "Keys").waitFor({ state: "detached" });
  assert.ok(await link.evaluate((each) => each === document.activeElement), await focused(page));
  await page.keyboard.press("Enter");
  await page.waitForURL(`${SERVER}/jobs/${job.id}`);
  await page.locator("main:focus").waitFor();
  await page.locator(".tries summary").waitFor();
  await settled(page);

  await tabTo(page, page.locator(".tries summary"));
  await page.keyboard.press("Enter");
  const traceback = page.getByLabel("Traceback of try 1", { exact: true });
  await tabTo(page, traceback);
  assert.match(await traceback.innerText(), /File "mail.py", line 41, in send_mail/);
  await tabTo(page, page.locator("main header.top").getByRole("button", { name: "Re-queue" }).or(page.locator("main button:text-is('Re-queue')")).first(), "Shift+Tab");
  await page.keyboard.press("Enter");
  await page.locator(".titled .mark:text-is('ready'), main .mark:text-is('ready')").first().waitFor();
  assert.equal((await towpath.jobs.get(job.id)).status, "pending");
  await settled(page);
  assert.equal(await unseen(page), null); // the button is gone, the focus is not

  await tabTo(page, page.locator("nav.side .menu button"), "Shift+Tab");
  await page.keyboard.press("Enter");
  await page.locator("[role^=menuitem]:focus").first().waitFor();
  assert.equal(await unseen(page), null);
  await page.keyboard.press("End");
  assert.equal(await focused(page), "Log out");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/login/);
});

test("rows are chosen by keys, one and a range, and cancelled", async () => {
  /** B2 */
  const jobs = await enqueued("by-keys", 5);
  const page = await open("/jobs?topic=by-keys");
  await rows(page).nth(4).waitFor();
  for (const key of ["j", "j", "k", "k", "j", "x", "j", "j", "Shift+X"]) await page.keyboard.press(key);
  await page.locator(".chosen-bar", { hasText: "3 chosen" }).waitFor();
  assert.equal(await unseen(page), null);
  await tabTo(page, page.locator(".chosen-bar button:text-is('Cancel')"), "Shift+Tab");

  await page.keyboard.press("Enter");
  await page.locator(".toast", { hasText: "Cancel: 3 jobs." }).waitFor();

  const states = await Promise.all(jobs.map(async ({ id }) => (await towpath.jobs.get(id)).status));
  assert.deepEqual(states, ["pending", "cancelled", "cancelled", "cancelled", "pending"]);
  await page.locator(".chosen-bar").waitFor({ state: "detached" });
  assert.equal(await unseen(page), null);
});

test("Enter opens the row, x leaves it out again, and / goes to the search field", async () => {
  const [job] = await enqueued("opened", 1);
  const page = await open("/jobs?topic=opened");
  await rows(page).first().waitFor();
  await page.keyboard.press("/");
  await page.locator("[name=text]:focus").waitFor();
  await page.keyboard.type("nth");
  await page.keyboard.press("Enter");
  await page.waitForURL(/text=nth/);
  await page.locator("button:text-is('Search')").focus();

  for (const key of ["j", "x"]) await page.keyboard.press(key);
  await page.locator(".chosen-bar").waitFor();
  await page.keyboard.press("x");
  await page.locator(".chosen-bar").waitFor({ state: "detached" });
  await page.keyboard.press("Enter");
  await page.waitForURL(`${SERVER}/jobs/${job?.id}`);

  await page.goto(`${SERVER}/workers`); // it has no search field
  await page.locator("h1:text-is('Workers')").waitFor();
  await page.keyboard.press("/");
  await field(page).waitFor();
});

test("single keys do nothing in a field, with a modifier, under a dialog, or if they are off", async () => {
  await enqueued("typed", 2);
  const page = await open("/jobs?topic=typed");
  await rows(page).first().waitFor();
  await page.focus("[name=text]");
  await page.keyboard.type("jkx/?");
  assert.equal(await page.inputValue("[name=text]"), "jkx/?");
  await page.locator("thead input").focus(); // a box takes no text
  for (const key of ["Alt+j", "Alt+x", "Alt+/"]) await page.keyboard.press(key);
  assert.equal(await page.evaluate(() => document.activeElement?.closest("thead") !== null), true);
  await page.keyboard.press("Control+k");
  await field(page).waitFor();
  await page.keyboard.type("?j");
  assert.equal(await field(page).inputValue(), "?j");
  assert.equal(await page.locator("dialog").count(), 1);
  assert.equal(await page.locator(".chosen-bar").count(), 0);

  await page.goto(`${SERVER}/settings/browser`);
  const keys = page.locator("fieldset", { hasText: "Keys without Ctrl" });
  await keys.getByLabel("off").check();
  await page.goto(`${SERVER}/jobs?topic=typed`);
  await rows(page).first().waitFor();
  for (const key of ["j", "x", "/", "?"]) await page.keyboard.press(key);
  assert.equal(await page.evaluate(() => document.activeElement === document.body), true);
  await page.keyboard.press("Control+k"); // it is no single key
  await dialog(page, "Go to").waitFor();
  assert.equal(await page.locator("dialog").count(), 1);
  await page.goto(`${SERVER}/settings/browser`);
  await keys.getByLabel("on").check();
  await keys.locator("legend").click();
  await page.keyboard.press("?");
  await dialog(page, "Keys").waitFor();
});

test("the palette finds pages, topics, and jobs by id, number and key", async () => {
  const job = await towpath.jobs.enqueue("found-topic", {}, { key: "order 4711 <b>" });
  const page = await open("/");
  await page.locator("h1").first().waitFor();
  for (const [text, kind, path] of [
    ["dead", "Page", "/webhooks/dead-letters"],
    ["api KEYS", "Page", "/settings/keys"],
    ["und-top", "Topic", "/topics/found-topic"],
    [job.id.toUpperCase(), "Job", `/jobs/${job.id}`],
    [String(job.seq), "Job", `/jobs/${job.id}`],
    ["order 4711 <b>", "Job", `/jobs/${job.id}`],
  ] as const) {
    await page.keyboard.press("Control+k");
    await field(page).fill(text);
    const found = options(page).filter({ hasText: new RegExp(`^${kind}`) });
    await found.waitFor();
    if (kind === "Job") assert.match(await found.innerText(), /found-topic[^]*key order 4711 <b>[^]*ready/);
    await found.click();
    await page.waitForURL(SERVER + path);
    await page.locator("main:focus").waitFor();
  }
  await page.keyboard.press("Meta+k");
  await field(page).fill("no such thing");
  await page.locator("[role=status]", { hasText: "No page, topic or job fits." }).waitFor();
});

test("the palette is moved in by arrows, and gives the focus back", async () => {
  const [job] = await enqueued("palette", 1);
  const page = await open("/jobs?topic=palette");
  await rows(page).first().waitFor();
  const active = () => page.evaluate(() => document.getElementById(document.activeElement?.getAttribute("aria-activedescendant") ?? "")?.textContent);
  await page.focus("[name=text]");
  await page.keyboard.press("Control+k");
  await field(page).fill("w");
  assert.deepEqual(await options(page).allInnerTexts().then((all) => all.map((each) => each.replace(/\s+/, " "))), [
    "Page Workers",
    "Page Webhooks",
    "Page Overview",
    "Page Flows",
    "Page Settings: This browser",
  ]);
  assert.equal(await active(), "PageWorkers");
  await page.keyboard.press("ArrowDown");
  assert.equal(await active(), "PageWebhooks");
  for (const key of ["ArrowUp", "ArrowUp"]) await page.keyboard.press(key);
  assert.equal(await active(), "PageSettings: This browser");
  await page.keyboard.press("Escape");
  await page.locator("[name=text]:focus").waitFor();
  await page.keyboard.press("Control+k");
  await field(page).waitFor();
  await page.keyboard.press("Control+k");
  await page.locator("[name=text]:focus").waitFor();

  const button = page.locator("nav.side button", { hasText: "Go to" });
  await button.click();
  await field(page).waitFor();
  await page.keyboard.press("Escape");
  await dialog(page, "Go to").waitFor({ state: "detached" });
  assert.ok(await button.evaluate((each) => each === document.activeElement));
  await button.click();
  await field(page).fill(job?.id ?? "");
  await page.keyboard.press("Enter"); // before the server has answered
  await page.waitForURL(`${SERVER}/jobs/${job?.id}`);
  await page.goBack();
  await page.waitForURL(`${SERVER}/jobs?topic=palette`);
});
