/**
 * One question and its answer on the page.
 *
 * The text is what the last try of the job has said. Where another try begins, what came behind its
 * `since` is dropped, in the same moment as its own first words are shown.
 *
 * @typedef {import("./live.js").Item} Item
 * @typedef {{id: string, question: string, answer: string | null}} Asked
 */

/** @type {Record<string, string>} */
const ENDS = {
  completed: "Answered",
  cancelled: "Stopped",
  failed: "The answer failed. Ask again.",
  expired: "No worker was there to answer. Ask again.",
  deleted: "This answer is no longer kept.",
};
/** @type {Record<string, string>} */
const AFTER = {
  crash: "a worker died, another went on",
  failure: "after a failed try",
  release: "another worker went on",
};

export class Turn {
  element = made("li", "turn");
  /** How the answer has ended; null: it is being written. @type {string | null} */
  ended = null;
  #text = document.createTextNode("");
  #answer = made("p", "answer");
  #state = made("p", "state");
  /** @type {Item[]} */
  #words = [];
  #remark = "";
  #isStopping = false;

  /** @param {Asked} asked */
  constructor({ id, question, answer }) {
    this.id = id;
    this.question = question;
    this.element.dataset.job = id;
    this.#answer.append(this.#text, made("span", "caret"));
    const whose = made("h2", "unseen", "Answer");
    const card = made("div", "card");
    card.append(whose, this.#answer, this.#state);
    this.element.append(made("h2", "unseen", "Question"), made("p", "question", question), card);
    this.#show();
    if (answer !== null) {
      this.#text.data = answer;
      this.closed("completed");
    }
  }

  get text() {
    return this.#text.data;
  }

  /** @param {Item[]} items */
  events(items) {
    for (const item of items) {
      if (item.type === "towpath.try") this.#begin(item.payload.towpath);
      else if (item.type === "text") this.#words.push(item);
    }
    const text = this.#words.map((word) => word.payload).join("");
    if (text.startsWith(this.text)) this.#text.appendData(text.slice(this.text.length));
    else this.#text.data = text;
    this.#show();
  }

  /** @param {{since: string, after: string}} lost */
  #begin({ since, after }) {
    this.#words = this.#words.filter((word) => word.cursor <= since);
    this.#remark = AFTER[after] ?? "";
    // The new words may be fewer for a while: what is below must not jump.
    this.#answer.style.minHeight = `${this.#answer.offsetHeight}px`;
  }

  /** Begin again: the stream is another one. */
  restart() {
    this.#words = [];
    this.#text.data = "";
    this.#show();
  }

  /** @param {string} ended */
  closed(ended) {
    this.ended = ended;
    this.#answer.style.minHeight = "";
    this.#show();
  }

  /** Tell that the stop was asked for; the end of the stream tells that it has happened. */
  stopping() {
    this.#isStopping = true;
    this.#show();
  }

  #show() {
    const begun = this.text !== "" ? "writing" : "waiting";
    const state = this.ended ?? begun;
    this.element.dataset.state = state;
    this.element.ariaBusy = String(this.ended === null);
    const busy = begun === "writing" ? "Writing…" : "Waiting for a worker…";
    const running = this.#isStopping ? "Stopping…" : busy;
    const told = this.ended === null ? running : (ENDS[this.ended] ?? this.ended);
    this.#state.textContent = [told, this.#remark].filter(Boolean).join(" · ");
  }
}

/** @param {string} tag @param {string} name */
function made(tag, name, text = "") {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  return element;
}
