/** Settings: P9, rules and their tester; accounts, keys, settings, and what this browser remembers. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import type { Page } from "playwright-core";

import { SERVER, context, expectComplaints, open, towpath } from "./here.ts";

const row = (page: Page, text: string) => page.locator("main table tr", { hasText: text });

/** The examples of the page about rules: rule, caller, answer. */
const DOCUMENT = readFileSync(join(import.meta.dirname, "../../../docs/rules.md"), "utf8");
const EXAMPLES = DOCUMENT.slice(DOCUMENT.indexOf("## Examples"), DOCUMENT.indexOf("## What is refused"));
const CALLERS = JSON.parse(/```json\n(\{\n[^]*?\n\})\n```/.exec(EXAMPLES)?.[1] ?? "") as Record<
  string,
  { auth: object; body?: object; query?: object }
>;

/** Choose a caller of the examples in the tester, and its request. */
async function become(page: Page, name: string): Promise<void> {
  const { auth, body, query } = CALLERS[name] ?? { auth: {} };
  await page.selectOption("[name=as]", "auth");
  await page.fill("[name=auth]", JSON.stringify(auth));
  await page.fill("[name=body]", body ? JSON.stringify(body) : "");
  await page.fill("[name=query]", query ? new URLSearchParams(Object.entries(query)).toString() : "");
}

test("the documented examples of rules get the documented answers", async () => {
  /** P9 */
  const found = [...EXAMPLES.matchAll(/^\| `(.*)` \| (\w+) \| (yes|no) \|$/gm)];
  assert.ok(found.length > 20);
  const job = await towpath.jobs.enqueue("mail", { userId: "ann", to: [{ id: "bob" }, { id: "carol" }] }, { priority: 10, maxRetries: 1 });
  const [lease] = await towpath.jobs.reserve(["mail"]);
  await lease?.fail("no");
  const page = await open("/settings/access");
  await page.locator("details.request summary").click();
  await page.fill("[name=what]", job.id);
  for (const [, written = "", caller = "", answer] of found) {
    const rule = written.replaceAll("\\|", "|");
    await page.fill("label:has-text('manage_rule: ') textarea", rule);
    await become(page, caller);
    await page.click("button:text-is('Try')");
    const edited = page.locator(`[aria-label="With the rules as ${rule ? "edited" : "saved"}"]`);
    await edited.locator(`.bar .mark:text-is("${answer}")`).waitFor();
    if (answer === "no" && rule) await edited.locator("li.fails").first().waitFor();
  }
});

test("the tester names the part that fails, with its values", async () => {
  /** P9 */
  const job = await towpath.jobs.enqueue("parts", { userId: "ann" });
  const page = await open("/settings/access");
  await page.fill("label:has-text('manage_rule: ') textarea", "@job.payload.userId = @request.auth.id && @request.auth.verified = true");
  await page.selectOption("[name=as]", "auth");
  await page.fill("[name=auth]", '{"id": "ann"}');
  await page.fill("[name=what]", job.id);
  await page.click("button:text-is('Try')");

  const answer = page.locator("[aria-label='With the rules as edited']");
  await answer.waitFor();
  assert.match(await answer.locator("li.holds").innerText(), /"ann" = "ann"/);
  assert.match(await answer.locator("li.fails").innerText(), /@request\.auth\.verified[\s\S]*missing = true/);
  assert.equal((await towpath.access.get()).manage_rule, "");

  // A name alone does not say whether it is that of a topic or of a channel.
  await page.fill("[name=what]", "news");
  await page.selectOption("[name=kind]", "channel");
  const asked = page.waitForRequest("**/api/access/try");
  await page.click("button:text-is('Try')");
  assert.equal((await asked).postDataJSON().channel, "news");
  await answer.waitFor();
});

test("rules are saved, general ones and those of a topic and a channel", async () => {
  const page = await open("/settings/access");
  await page.fill("label:has-text('enqueue_rule: ') textarea", "@request.auth.id != ''");
  await page.fill("label:has-text('Add a topic') input", "saved");
  await page.keyboard.press("Enter");
  await page.fill("[aria-label='enqueue_rule of saved']", "true");
  await page.fill("label:has-text('Add a beginning') input", "news:");
  await page.keyboard.press("Enter");
  await page.check("[aria-label='subscribe_rule of news: is its own']");
  await page.fill("[aria-label='subscribe_rule of news:']", "true");
  await page.uncheck("[aria-label='publish_rule of news: is its own']");
  await page.click("button:text-is('Save the rules')");
  await page.locator(".toast", { hasText: "saved" }).waitFor();

  const { enqueue_rule, topics, channels } = await towpath.access.get();
  assert.equal(enqueue_rule, "@request.auth.id != ''");
  assert.equal(topics["saved"]?.enqueue_rule, "true");
  assert.deepEqual([channels["news:"]?.subscribe_rule, channels["news:"]?.publish_rule ?? null], ["true", null]);

  await page.click("[aria-label='Remove the rules of saved']");
  await page.click("button:text-is('Save the rules')");
  await page.locator("text=Nothing is changed.").waitFor();
  assert.equal((await towpath.access.get()).topics["saved"], undefined);
});

test("a rule that cannot be read is refused in words, and stays in the page", async () => {
  const page = await open("/settings/access");
  await page.fill("label:has-text('work_rule: ') textarea", "userId = 1");
  await page.click("button:text-is('Save the rules')");
  await page.locator(".toast.bad", { hasText: "userId" }).waitFor();
  assert.equal(await page.inputValue("label:has-text('work_rule: ') textarea"), "userId = 1");
  assert.equal((await towpath.access.get()).work_rule, "");
  expectComplaints(/400|422/);
});

test("superusers are created, get another password, and are deleted", async () => {
  const page = await open("/settings/superusers");
  await row(page, "that is you").waitFor();
  await page.click("button:text-is('New superuser')");
  await page.fill("[name=email]", "grace@example.com");
  await page.fill("[name=password]", "correct horse");
  await page.fill("[name=again]", "correct horse");
  await page.click("button:text-is('Create superuser')");
  await row(page, "grace@example.com").waitFor();

  await row(page, "grace@example.com").locator("button:text-is('Change password')").click();
  await page.fill("[name=password]", "battery staple");
  await page.fill("[name=again]", "battery stable");
  await page.click("dialog button:text-is('Change password')");
  await page.locator("text=The two passwords differ.").waitFor();
  await page.fill("[name=again]", "battery staple");
  await page.click("dialog button:text-is('Change password')");
  await page.locator(".toast", { hasText: "is changed" }).waitFor();
  const data = { identity: "grace@example.com", password: "battery staple" };
  const answer = await (await context({ isLoggedIn: false })).request.post(`${SERVER}/api/collections/_superusers/auth-with-password`, { data });
  assert.ok(answer.ok());

  await row(page, "grace@example.com").locator("button:text-is('Delete')").click();
  await row(page, "grace@example.com").locator(".confirm button:text-is('Delete')").click();
  await row(page, "grace@example.com").waitFor({ state: "detached" });
});

test("a key is shown once, and revoked", async () => {
  const page = await open("/settings/keys");
  await page.click("button:text-is('New API key')");
  await page.fill("[name=name]", "backend <b>");
  await page.click("button:text-is('Create API key')");
  await page.locator("text=Choose at least one thing").waitFor();
  await page.check("[value=enqueue]");
  await page.fill("[name=topics]", "mail, reports");
  await page.click("button:text-is('Create API key')");
  const key = await page.locator("dialog pre").innerText();
  await page.click("button:text-is('I have copied it')");

  assert.ok(!(await page.content()).includes(key));
  const [stored] = await towpath.keys.list();
  assert.deepEqual([stored?.scopes, stored?.topics], [["enqueue"], ["mail", "reports"]]);
  await row(page, "backend <b>").locator("button:text-is('Revoke')").click();
  await row(page, "backend <b>").locator(".confirm button:text-is('Revoke')").click();
  await page.locator("text=There is no API key yet.").waitFor();
});

test("the settings of the server are shown without secrets", async () => {
  const page = await open("/settings/server");
  await row(page, "webhook_allow").waitFor();
  assert.match(await row(page, "webhook_allow").innerText(), /127\.0\.0\.0\/8\s+environment/);
  assert.doesNotMatch(await row(page, "webhook_key").innerText(), /[A-Za-z0-9+/_-]{40}/);
});

test("theme, density and keys are remembered by the browser", async () => {
  const page = await open("/settings/browser");
  await page.check("fieldset:has-text('Theme') >> label:has-text('dark') input");
  await page.check("fieldset:has-text('Rows') >> label:has-text('dense') input");
  await page.check("fieldset:has-text('Keys') >> label:has-text('off') input");
  await page.reload();
  assert.ok(await page.isChecked("fieldset:has-text('Keys') >> label:has-text('off') input"));
  const shown = await page.evaluate(() => ({ ...document.documentElement.dataset }));
  assert.deepEqual([shown["theme"], shown["dense"]], ["dark", "yes"]);
});
