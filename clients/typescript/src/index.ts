/** Jobs in the database you already have: the client and worker of Towpath. */

export { Towpath, type AuthOptions, type TowpathOptions } from "./client.ts";
export {
  Conflict,
  CursorReset,
  Forbidden,
  Invalid,
  LeaseLost,
  NetworkError,
  NotFound,
  TimeoutError,
  TooMany,
  TowpathError,
  Unauthorized,
  Unavailable,
} from "./errors.ts";
export {
  Events,
  type ChannelListOptions,
  type PublishOptions,
  type ReadOptions,
  type WebSocketClass,
} from "./events.ts";
export { Jobs, type EnqueueOptions, type ListOptions, type ReserveOptions } from "./jobs.ts";
export { type BuryOptions, Lease, type ReleaseOptions, type Said, type Word } from "./lease.ts";
export { withJobs, type PocketBaseLike } from "./pocketbase.ts";
export type { From } from "./line.ts";
export type { SocketLike } from "./socket.ts";
export {
  Subscription,
  type CursorStore,
  type EventHandler,
  type SubscribeOptions,
} from "./subscription.ts";
export type { CallOptions, Token } from "./transport.ts";
export type * from "./types.ts";
export { Bury, Release, type Context, type Handler } from "./run.ts";
export { Worker, type StopOptions, type WorkerOptions } from "./worker.ts";
