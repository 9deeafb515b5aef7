/** A little server that answers as a test says. */

import { once } from "node:events";
import { type IncomingMessage, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import type { TestContext } from "node:test";

export interface Received {
  method: string;
  url: string;
  headers: IncomingMessage["headers"];
  body: any;
}

export type Answer = (response: ServerResponse, received: Received) => unknown;

/** Answers the first request with the first answer, and all that follow the last with the last. */
export async function serve(t: TestContext, ...answers: [Answer, ...Answer[]]) {
  const received: Received[] = [];
  const server = createServer(async (request, response) => {
    const body = await text(request);
    const one = {
      method: request.method ?? "",
      url: request.url ?? "",
      headers: request.headers,
      body: body ? JSON.parse(body) : undefined,
    };
    received.push(one);
    const answer = answers[Math.min(received.length, answers.length) - 1];
    await answer?.(response, one);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received };
}

export function json(status: number, body?: unknown, headers: Record<string, string> = {}): Answer {
  return (response) => {
    response.writeHead(status, { "Content-Type": "application/json", ...headers });
    response.end(body === undefined ? undefined : JSON.stringify(body));
  };
}

export const refusal = (status: number, code: string, headers: Record<string, string> = {}) =>
  json(status, { code, message: `refused: ${code}`, details: { why: "a test" } }, headers);

export const hang: Answer = () => {};

export const cutTheLine: Answer = (response) => response.socket?.destroy();

export const cutInTheMiddle: Answer = (response) => {
  response.writeHead(200, { "Content-Type": "application/json", "Content-Length": "100" });
  response.write('{"pending": ', () => response.socket?.destroy());
};

export const hangInTheMiddle: Answer = (response) => {
  response.writeHead(200, { "Content-Type": "application/json" });
  response.write('{"pending": ');
};
