/**
 * Channels over one WebSocket, however often the connection is lost.
 *
 * Each channel keeps the cursor up to which its events were handled; a new connection goes on
 * behind it. So no event is missed, and none is handled twice.
 *
 * @typedef {{cursor: string, type: string | null, payload: any}} Item
 * @typedef {object} Follower
 * @property {(items: Item[]) => void} events
 * @property {(ended: string) => void} [closed] the channel has ended; nothing more comes
 * @property {(oldest: string) => void} reset the channel cannot go on from its cursor
 * @property {() => void} [refused] the channel may not be read, or is not there
 * @typedef {"connecting" | "live" | "lost" | "refused"} State
 */

const SILENCE = 60_000; // the server says something every 25 s
const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 5_000;
const REFUSALS = new Set(["forbidden", "login_required", "invalid_token", "not_found"]);

export class Live {
  /** @type {Map<string, {cursor: string, follower: Follower}>} */
  #followed = new Map();
  /** @type {WebSocket | null} */
  #socket = null;
  #url;
  #onState;
  #failures = 0;
  /** @type {number | undefined} */
  #silence;
  /** @type {number | undefined} */
  #pause;

  /** @param {string} url @param {(state: State) => void} onState */
  constructor(url, onState) {
    this.#url = url;
    this.#onState = onState;
    // What was open before the network went, or the machine slept, may be dead and not say so.
    addEventListener("online", () => this.#connect());
    this.#connect();
  }

  /** @param {string} channel @param {string} cursor @param {Follower} follower */
  follow(channel, cursor, follower) {
    this.#followed.set(channel, { cursor, follower });
    if (this.#socket?.readyState === WebSocket.OPEN) this.#subscribe(this.#socket, channel);
  }

  #connect() {
    this.#leave();
    if (this.#failures === 0) this.#onState("connecting");
    const socket = new WebSocket(this.#url);
    this.#socket = socket;
    this.#listen();
    socket.onopen = () => {
      this.#onState("live");
      for (const channel of this.#followed.keys()) this.#subscribe(socket, channel);
    };
    socket.onmessage = ({ data }) => {
      this.#listen();
      this.#take(JSON.parse(data));
    };
    socket.onclose = ({ code }) => {
      if (code >= 4400 && code < 4500) {
        this.#leave();
        this.#onState("refused");
      } else this.#lose();
    };
  }

  /** Forget the connection, and whatever it may still say. */
  #leave() {
    clearTimeout(this.#silence);
    clearTimeout(this.#pause);
    const socket = this.#socket;
    this.#socket = null;
    if (!socket) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  }

  /** Connect again after a while, which is random so that not all clients come at once. */
  #lose(pause = Math.random() * Math.min(FIRST_PAUSE * 2 ** this.#failures, LONGEST_PAUSE)) {
    this.#leave();
    this.#failures += 1;
    this.#onState("lost");
    this.#pause = setTimeout(() => this.#connect(), pause);
  }

  #listen() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => this.#lose(), SILENCE);
  }

  /** @param {WebSocket} socket @param {string} channel */
  #subscribe(socket, channel) {
    const from = this.#followed.get(channel)?.cursor;
    socket.send(JSON.stringify({ id: channel, subscribe: { channel, from } }));
  }

  /** @param {any} frame */
  #take({ id, ok, error, events, closed, reset, bye }) {
    if (ok) this.#failures = 0;
    if (bye) this.#lose(bye.after * 1000);
    if (error) this.#break(id, { reason: error.code, ...error.details });
    if (reset) this.#break(reset.channel, reset);
    if (closed) this.#dropped(closed.channel)?.closed?.(closed.ended);
    const following = events && this.#followed.get(events.channel);
    if (following) {
      following.follower.events(events.items);
      following.cursor = events.to;
    }
  }

  /** @param {string} channel @param {{reason: string, oldest?: string}} why */
  #break(channel, { reason, oldest }) {
    if (oldest !== undefined) this.#dropped(channel)?.reset(oldest);
    else if (REFUSALS.has(reason)) this.#dropped(channel)?.refused?.();
    else this.#lose(); // such as a database that is away
  }

  /** @param {string} channel */
  #dropped(channel) {
    const following = this.#followed.get(channel);
    this.#followed.delete(channel);
    return following?.follower;
  }
}
