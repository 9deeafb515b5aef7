/** A little server with one channel, which can be told to misbehave. */

import { createHash } from "node:crypto";
import { once } from "node:events";
import { type IncomingMessage, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import type { TestContext } from "node:test";

import { type Answer, json } from "./server.ts";

export const cursor = (n: number) => `0000000000000007_${String(n).padStart(16, "0")}`;

export const event = (n: number, payload: unknown = n) => ({
  id: `event-${n}`,
  cursor: cursor(n),
  at: new Date(n * 1000).toISOString(),
  type: n % 2 ? "odd" : "even",
  key: null,
  headers: {},
  encoding: "json",
  payload,
});

/** The events behind one number up to another. */
export const batch = (from: number, to: number) => ({
  events: {
    channel: "c",
    from: cursor(from),
    to: cursor(to),
    items: Array.from({ length: to - from }, (_, at) => event(from + at + 1)),
  },
});

export const closed = (n: number) => ({ closed: { channel: "c", cursor: cursor(n), ended: "closed" } });

type Frame = Record<string, any>;

/** The server's end of one WebSocket. */
export class Peer {
  readonly received: Frame[] = [];
  isOpen = true;
  written = 0; // bytes
  readonly #stream: Duplex;
  readonly #most: number;
  readonly #arrived: (() => void)[] = [];
  #bytes = Buffer.alloc(0);

  /** It is cut off before more than so many bytes are written. */
  constructor(stream: Duplex, most: number) {
    this.#stream = stream;
    this.#most = most;
    stream.on("error", () => undefined);
    stream.on("data", (bytes: Buffer) => this.#read(bytes));
    stream.on("close", () => {
      this.isOpen = false;
      this.#wake();
    });
  }

  accept(request: IncomingMessage): void {
    const salted = `${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
    const accept = createHash("sha1").update(salted).digest("base64");
    const lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"];
    this.write([...lines, `Sec-WebSocket-Accept: ${accept}`, "", ""].join("\r\n"));
  }

  send(...frames: Frame[]): void {
    for (const frame of frames) this.write(framed(1, Buffer.from(JSON.stringify(frame))));
  }

  close(code: number): void {
    this.write(framed(8, Buffer.from([code >> 8, code & 255])));
  }

  cut(): void {
    this.#stream.destroy();
  }

  write(bytes: Buffer | string): void {
    const all = Buffer.from(bytes);
    const allowed = all.subarray(0, Math.max(0, this.#most - this.written));
    this.written += allowed.length;
    if (allowed.length) this.#stream.write(allowed);
    if (allowed.length < all.length) this.#stream.end();
  }

  /** Wait for a frame with this verb, and answer it; the answer has its id. */
  async answer(verb: string, answer: Frame = { ok: {} }): Promise<any> {
    for (;;) {
      const at = this.received.findIndex((frame) => verb in frame);
      if (at >= 0) {
        const [frame] = this.received.splice(at, 1) as [Frame];
        this.send({ id: frame["id"], ...answer });
        return frame[verb];
      }
      if (!this.isOpen) return undefined;
      await new Promise<void>((resolve) => this.#arrived.push(resolve));
    }
  }

  /** Say hello and that the subscription begins where it asks; returns the number it asks for. */
  async begin(beat = 25): Promise<number> {
    await this.answer("hello", { ok: { beat } });
    return this.subscribed();
  }

  async subscribed(): Promise<number> {
    const next = this.received.find((frame) => "subscribe" in frame);
    if (!next && this.isOpen) await new Promise<void>((resolve) => this.#arrived.push(resolve));
    if (!next && this.isOpen) return this.subscribed();
    const from = Number(String(next?.["subscribe"].from).split("_")[1] ?? 0);
    await this.answer("subscribe", { ok: { channel: "c", cursor: cursor(from) } });
    return from;
  }

  #read(bytes: Buffer): void {
    this.#bytes = Buffer.concat([this.#bytes, bytes]);
    for (;;) {
      const [first = 0, second = 0] = this.#bytes;
      const short = second & 127;
      const more = short === 126 ? 2 : short === 127 ? 8 : 0;
      if (this.#bytes.length < 2 + more) return;
      const length =
        more === 2
          ? this.#bytes.readUInt16BE(2)
          : more
            ? Number(this.#bytes.readBigUInt64BE(2))
            : short;
      const begin = 2 + more + 4;
      if (this.#bytes.length < begin + length) return;
      const mask = this.#bytes.subarray(begin - 4, begin);
      const body = this.#bytes.subarray(begin, begin + length).map((b, at) => b ^ mask[at % 4]!);
      this.#bytes = this.#bytes.subarray(begin + length);
      if ((first & 15) === 1) this.received.push(JSON.parse(Buffer.from(body).toString()));
      if ((first & 15) === 8) this.#stream.end();
      this.#wake();
    }
  }

  #wake(): void {
    for (const wake of this.#arrived.splice(0)) wake();
  }
}

function framed(opcode: number, body: Buffer): Buffer {
  const head = [0x80 | opcode];
  if (body.length < 126) return Buffer.concat([Buffer.from([...head, body.length]), body]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64BE(BigInt(body.length));
  if (body.length < 65_536) {
    return Buffer.concat([Buffer.from([...head, 126]), length.subarray(6), body]);
  }
  return Buffer.concat([Buffer.from([...head, 127]), length, body]);
}

export type Session = (peer: Peer) => unknown;

export interface Manners {
  /** What becomes of the first connection, the second …; the last of these goes on for ever. */
  sessions: Session[];
  /** After so many bytes the first connection is cut. */
  cutAt?: number;
  /** Answers requests that are no WebSockets. */
  http?: Answer;
  refuseUpgrades?: boolean;
}

export async function serveChannel(t: TestContext, manners: Manners) {
  const peers: Peer[] = [];
  const requests: string[] = [];
  const server = createServer(async (request, response) => {
    requests.push(request.url ?? "");
    const { method = "", url = "", headers } = request;
    const answer = manners.http ?? json(200, {});
    const body = await text(request);
    answer(response, { method, url, headers, body: body ? JSON.parse(body) : undefined });
  });
  let upgrades = 0;
  server.on("upgrade", (request, stream) => {
    upgrades += 1;
    if (manners.refuseUpgrades) {
      stream.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
      return;
    }
    const peer = new Peer(stream, peers.length ? Infinity : (manners.cutAt ?? Infinity));
    const session = manners.sessions[Math.min(peers.length, manners.sessions.length - 1)];
    peers.push(peer);
    peer.accept(request);
    void session?.(peer);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const stop = () => {
    for (const peer of peers) peer.cut();
    server.closeAllConnections();
    server.close();
  };
  t.after(stop);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, peers, requests, stop, upgrades: () => upgrades };
}
