/** A receiver of webhooks for the tests and pictures; the end of the URL chooses its answers. */

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export const HOSTILE = `<script>alert(1)</script>javascript:alert(1)\u001b[31m\u202e${"w".repeat(200)}`;

/** The same without a control character, for names. */
export const NAME = `<script>alert(1)</script> javascript:alert(1) "\u202e ' ${"w".repeat(100)}`;

const ANSWERS: Record<string, { status: number; body?: string; headers?: Record<string, string> }> = {
  ok: { status: 204 },
  broken: { status: 500, body: "out of ink" },
  gone: { status: 410 },
  moved: { status: 302, headers: { location: "javascript:alert(1)" } },
  hostile: { status: 500, body: HOSTILE },
};

let isMended = false;

const server = createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    const name = request.url?.split("/").at(-1) ?? "ok";
    const { status, body = "", headers = {} } = ANSWERS[name === "broken" && isMended ? "ok" : name] ?? { status: 204 };
    response.writeHead(status, headers).end(body);
  });
});
await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
server.unref();

/** The URL of a receiver that answers so: ok, broken, gone, moved or hostile. */
export function receiver(name: string): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks/${name}`;
}

/** Let broken receivers answer well from now on. */
export function mend(): void {
  isMended = true;
}

export function closeReceiver(): void {
  server.closeAllConnections();
  server.close();
}
