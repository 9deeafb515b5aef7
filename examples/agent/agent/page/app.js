/** The page of one chat: what was asked, what is being answered, and the form. */

import { Live } from "./live.js";
import { Turn } from "./turn.js";

/** @typedef {import("./turn.js").Asked} Asked */

const START = "start";
const NEAR = 40; // pixels from the end that count as the end

const chat = location.pathname.split("/")[2] ?? "";
const turnsUrl = `/c/${chat}/turns`;

/** @template {HTMLElement} T @param {string} id @param {new () => T} kind @returns {T} */
function part(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${id}`);
  return found;
}

const scroller = part("scroller", HTMLElement);
const list = part("turns", HTMLOListElement);
const empty = part("empty", HTMLElement);
const connection = part("connection", HTMLElement);
const announcer = part("announcer", HTMLElement);
const problem = part("problem", HTMLElement);
const form = part("composer", HTMLFormElement);
const question = part("question", HTMLTextAreaElement);
const send = part("send", HTMLButtonElement);
const stop = part("stop", HTMLButtonElement);
const down = part("down", HTMLButtonElement);
const copy = part("copy", HTMLButtonElement);

/** @type {Map<string, Turn>} */
const turns = new Map();
const running = () => [...turns.values()].filter((turn) => turn.ended === null);

// ---------------------------------------------------------------- what comes

const live = new Live(`/queue/api/ws?chat=${chat}`, (state) => {
  const words = { connecting: "Connecting…", live: "Live", refused: "Refused" };
  const lost = navigator.onLine ? "Reconnecting…" : "Offline";
  connection.textContent = state === "lost" ? lost : words[state];
  document.body.dataset.connection = state;
});

/** Read the chat, and follow it from there. */
async function load() {
  try {
    const answer = await fetch(turnsUrl);
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    /** @type {{cursor: string, turns: Asked[]}} */
    const known = await answer.json();
    known.turns.forEach(add);
    empty.hidden = turns.size > 0;
    live.follow(`chat:${chat}`, known.cursor, {
      events: (items) => items.forEach((item) => add(item.payload)),
      reset: load,
    });
  } catch {
    setTimeout(load, 1_000);
  }
}

/** Add a question, unless it is here: this page may have asked it, or read it before.
 * @param {{id: string, question: string, answer?: string | null}} asked */
function add({ id, question, answer = null }) {
  if (turns.has(id)) return;
  const turn = new Turn({ id, question, answer });
  turns.set(id, turn);
  empty.hidden = true;
  keepingTheEnd(() => list.append(turn.element));
  if (turn.ended === null) follow(turn, START);
  showButtons();
}

/** @param {Turn} turn @param {string} from */
function follow(turn, from) {
  live.follow(`job:${turn.id}`, from, {
    events: (items) => keepingTheEnd(() => turn.events(items)),
    closed: (ended) => end(turn, ended),
    reset: (oldest) => {
      turn.restart();
      follow(turn, oldest);
    },
    refused: () => end(turn, "deleted"),
  });
}

/** @param {Turn} turn @param {string} ended */
function end(turn, ended) {
  keepingTheEnd(() => turn.closed(ended));
  announcer.textContent = ended === "completed" ? `Answer: ${turn.text}` : `Answer: ${ended}`;
  showButtons();
}

function showButtons() {
  const isRunning = running().length > 0;
  const hadFocus = document.activeElement === stop || document.activeElement === send;
  send.hidden = isRunning;
  stop.hidden = !isRunning;
  stop.disabled = false;
  if (hadFocus) question.focus();
}

// ---------------------------------------------------------------- the end of the page

const isAtEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR;
const goToEnd = () => scroller.scrollTo({ top: scroller.scrollHeight });

/** Change the page; a reader at its end stays there, any other stays where it reads.
 * @param {() => void} change */
function keepingTheEnd(change) {
  const wasAtEnd = isAtEnd();
  change();
  if (wasAtEnd) goToEnd();
  down.hidden = isAtEnd();
}

scroller.addEventListener("scroll", () => (down.hidden = isAtEnd()), { passive: true });
addEventListener("resize", () => (down.hidden = isAtEnd()));
down.addEventListener("click", () => {
  goToEnd();
  scroller.focus(); // the button hides itself
});

// ---------------------------------------------------------------- what is asked

/** The question that is being sent: to send it again with the same id asks it once.
 * @type {{id: string, question: string} | null} */
let sending = null;

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = question.value.trim();
  if (!text || send.disabled || running().length > 0) return;
  if (sending?.question !== text) sending = { id: newId(), question: text };
  send.disabled = true;
  problem.textContent = "";
  try {
    const body = JSON.stringify(sending);
    const headers = { "content-type": "application/json" };
    const answer = await fetch(turnsUrl, { method: "POST", headers, body });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    question.value = "";
    goToEnd();
    add(await answer.json());
    sending = null;
  } catch {
    problem.textContent = "Not sent: the server cannot be reached. Send it again.";
  } finally {
    send.disabled = false;
  }
});

question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});

stop.addEventListener("click", async () => {
  stop.disabled = true;
  problem.textContent = "";
  const asked = running().map(async (turn) => {
    turn.stopping();
    const answer = await fetch(`${turnsUrl}/${turn.id}/stop`, { method: "POST" });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  });
  const failed = (await Promise.allSettled(asked)).some(({ status }) => status === "rejected");
  if (!failed) return;
  problem.textContent = "Not stopped: the server cannot be reached. Stop it again.";
  stop.disabled = false;
});

for (const suggestion of document.querySelectorAll(".suggestion")) {
  suggestion.addEventListener("click", () => {
    question.value = suggestion.textContent ?? "";
    form.requestSubmit();
    question.focus();
  });
}

copy.addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    copy.textContent = "Copied";
  } catch {
    copy.textContent = "Copy the address"; // of the browser: it lets no script do it
  }
  setTimeout(() => (copy.textContent = "Copy link"), 2_000);
});

/** A UUID; `crypto.randomUUID` is missing where a page comes over plain HTTP. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return `${hex.slice(0, 12)}4${hex.slice(13, 16)}a${hex.slice(17)}`.replace(
    /^(.{8})(.{4})(.{4})(.{4})(.{12})$/,
    "$1-$2-$3-$4-$5",
  );
}

await load();
