/** What must hold of every page, however it is looked at. */

import type { Page } from "playwright-core";

import { SERVER, THEMES, WIDTHS, violations } from "./here.ts";

/** All that is wrong with a page: K2, K3, M1, X1. */
export async function problems(page: Page): Promise<string[]> {
  const found: string[] = [];
  const note = (where: string, what: string[]) => found.push(...what.map((each) => `${where}: ${each}`));
  note("text", await page.evaluate(strangeTexts));
  for (const theme of THEMES) {
    for (const width of WIDTHS) {
      await page.emulateMedia({ colorScheme: theme });
      await resize(page, width);
      note(`${theme} ${width}`, await violations(page));
      note(`${theme} ${width}`, await page.evaluate(tooWide));
      note(`${theme} ${width}`, await page.evaluate(cutTables));
    }
  }
  note("390 px", await page.evaluate(smallTargets));
  await resize(page, 320);
  note("320 px", await page.evaluate(tooWide));

  // A window of 1,280 px at 200 % is 640 px wide.
  await resize(page, 640);
  note("200 %", await page.evaluate(tooWide));
  note("200 %", await page.evaluate(cutTexts));
  await resize(page, 1280);
  await page.evaluate(spaceTexts);
  note("spaced", await page.evaluate(tooWide));
  note("spaced", await page.evaluate(cutTexts));

  await page.emulateMedia({ forcedColors: "active" });
  note("forced colours", await page.evaluate(unseenMarks));
  await page.emulateMedia({ forcedColors: "none", reducedMotion: "reduce" });
  note("reduced motion", await page.evaluate(() => document.getAnimations().map((each) => (each as CSSAnimation).animationName)));
  return found;
}

/** Give a page another width, and wait until its charts have followed. */
async function resize(page: Page, width: number): Promise<void> {
  await page.setViewportSize({ width, height: 860 });
  await page.waitForFunction((wanted) => {
    const isDrawn = (chart: Element) =>
      Number(chart.querySelector("svg")?.getAttribute("width")) === Math.floor(chart.getBoundingClientRect().width);
    return innerWidth === wanted && [...document.querySelectorAll(".chart")].every(isDrawn);
  }, width);
}

/** Texts of others that are more than text, or that turn around what stands beside them. */
function strangeTexts(): string[] {
  const found: string[] = [];
  for (const each of document.querySelectorAll("main :is(script, img, iframe, b b, h2 b), [href^='javascript' i]")) {
    found.push(each.outerHTML.slice(0, 200));
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.textContent ?? "";
    if (text.includes("\u001b")) found.push(`an escape code is in ${text.slice(0, 100)}`);
    if (!text.includes("\u202e") || node.parentElement?.closest("textarea, option, title")) continue;
    let at = node.parentElement as HTMLElement;
    while (getComputedStyle(at).display === "inline" && !/isolate|plaintext/.test(getComputedStyle(at).unicodeBidi)) {
      at = at.parentElement as HTMLElement;
    }
    if (getComputedStyle(at).display === "inline" || at.textContent?.trim() === text.trim()) continue;
    if (!/isolate|plaintext/.test(getComputedStyle(at).unicodeBidi) || at.localName !== "bdi") found.push(`not isolated: ${at.outerHTML.slice(0, 200)}`);
  }
  return found;
}

/** Tables of which a long name pushes columns away. */
function cutTables(): string[] {
  const found = [...document.querySelectorAll(".scroll")].filter((each) => each.scrollWidth > each.clientWidth);
  return found.map((each) => `a table is cut: ${each.outerHTML.slice(0, 200)}`);
}

/** What sticks out of the screen, or of an open dialog. */
function tooWide(): string[] {
  const root = document.documentElement;
  const dialogs = [...document.querySelectorAll("dialog[open]")].filter((each) => each.scrollWidth > each.clientWidth);
  if (root.scrollWidth > innerWidth) dialogs.push(root);
  return dialogs.flatMap((outer) => {
    const { right } = outer.getBoundingClientRect();
    const out = [...outer.querySelectorAll("*")].filter((each) => each.getBoundingClientRect().right > right + 1);
    return [`too wide: ${outer.localName}`, ...out.slice(0, 3).map((each) => each.outerHTML.slice(0, 150))];
  });
}

/** What a finger cannot hit: lower than 44 px. What stands in a line of text is as high as the line. */
function smallTargets(): string[] {
  const found: string[] = [];
  for (const each of document.querySelectorAll<HTMLElement>("a[href], button, input, select, textarea, summary")) {
    const target = each.closest("label") ?? each;
    const { width, height } = target.getBoundingClientRect();
    const style = getComputedStyle(target);
    if (!width || !height || style.display === "inline" || each.closest(".skip, .json")) continue;
    if (height < 44) found.push(`${Math.round(height)} px: ${each.outerHTML.slice(0, 150)}`);
  }
  return found;
}

/** Texts that their boxes cut, but for those that end with an ellipsis. */
function cutTexts(): string[] {
  const found: string[] = [];
  for (const each of document.querySelectorAll<HTMLElement>("body *")) {
    if (!each.getClientRects().length || each.closest("svg, .only-read, .unseen, .skip, input, textarea")) continue;
    const { overflowX, overflowY, textOverflow } = getComputedStyle(each);
    const isHiding = overflowX === "hidden" || overflowX === "clip" || overflowY === "hidden" || overflowY === "clip";
    const isControl = each.matches("button, .button, .mark, select, summary, h1, h2, label");
    if (textOverflow === "ellipsis" || (!isHiding && !isControl)) continue;
    const isCut = each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1;
    if (isCut && each.clientWidth) found.push(`cut: ${each.outerHTML.slice(0, 150)} ${each.scrollWidth}/${each.clientWidth} ${each.scrollHeight}/${each.clientHeight}`);
  }
  return found;
}

/** WCAG 1.4.12: lines, letters and words further apart. The policy allows no style in the page. */
function spaceTexts(): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`* { line-height: 1.5 !important; letter-spacing: 0.12em !important; word-spacing: 0.16em !important; }
    p { margin-bottom: 2em !important; }`);
  document.adoptedStyleSheets.push(sheet);
}

/** Marks that have the colour of what is behind them. */
function unseenMarks(): string[] {
  const found: string[] = [];
  for (const shape of document.querySelectorAll<SVGElement>(".mark svg > *")) {
    if (!shape.getClientRects().length) continue;
    const { stroke, fill } = getComputedStyle(shape);
    let behind: Element | null = shape.closest(".mark");
    while (behind && getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
    const paper = behind ? getComputedStyle(behind).backgroundColor : "rgb(255, 255, 255)";
    if ([stroke, fill].every((colour) => colour === "none" || colour === paper)) found.push(shape.outerHTML);
  }
  return found;
}

/** Requests of a page to other servers, and dialogs that it opens. */
export function watched(page: Page): string[] {
  const found: string[] = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(`${SERVER}/`) && !request.url().startsWith("data:")) found.push(`asked ${request.url()}`);
  });
  page.on("dialog", (dialog) => {
    found.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return found;
}
