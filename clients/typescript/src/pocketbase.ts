import { Events } from "./events.ts";
import { Jobs } from "./jobs.ts";
import type { WebSocketClass } from "./lines.ts";
import { Transport, type TransportOptions } from "./transport.ts";

/** The part of a PocketBase client that is used here, in any version. */
export type PocketBaseLike = {
  authStore: { token: string; onChange?(callback: () => void): unknown };
} & ({ baseURL: string } | { baseUrl: string });

export interface PocketBaseOptions extends TransportOptions {
  url?: string | undefined;
  /** As in `TowpathOptions`. */
  WebSocket?: WebSocketClass | null | undefined;
}

/**
 * Add `.jobs` to a PocketBase client. Its calls use the login of that client.
 *
 * The jobs are on the client's own server, unless `url` names another one.
 */
export function withJobs<Client extends PocketBaseLike>(
  client: Client,
  options: PocketBaseOptions = {},
): Client & { jobs: Jobs } {
  const url = options.url ?? ("baseURL" in client ? client.baseURL : client.baseUrl);
  const token = () => client.authStore.token;
  const transport = new Transport(url, token, options);
  const { WebSocket = globalThis.WebSocket } = options;
  const events = new Events(transport, token, WebSocket);
  client.authStore.onChange?.(() => events.renew());
  return Object.assign(client, { jobs: new Jobs(transport, events) });
}
