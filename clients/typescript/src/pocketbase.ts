import { Jobs } from "./jobs.ts";
import { Transport, type TransportOptions } from "./transport.ts";

/** The part of a PocketBase client that is used here, in any version. */
export type PocketBaseLike = { authStore: { token: string } } & (
  { baseURL: string } | { baseUrl: string }
);

/**
 * Add `.jobs` to a PocketBase client. Its calls use the login of that client.
 *
 * The jobs are on the client's own server, unless `url` names another one.
 */
export function withJobs<Client extends PocketBaseLike>(
  client: Client,
  options: TransportOptions & { url?: string | undefined } = {},
): Client & { jobs: Jobs } {
  const url = options.url ?? ("baseURL" in client ? client.baseURL : client.baseUrl);
  const transport = new Transport(url, () => client.authStore.token, options);
  return Object.assign(client, { jobs: new Jobs(transport) });
}
