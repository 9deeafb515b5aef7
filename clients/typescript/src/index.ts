/** Jobs in the database you already have: the client and worker of Towpath. */

export { Activity, type ActivityOptions } from "./activity.ts";
export { BulkActs } from "./bulk.ts";
export { Towpath, type AuthOptions, type TowpathOptions } from "./client.ts";
export {
  Conflict,
  ConsumerFenced,
  CursorReset,
  Forbidden,
  Invalid,
  InvalidSignature,
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
  type AttachOptions,
  type ChannelListOptions,
  type ConsumerListOptions,
  type PublishOptions,
  type ReadOptions,
} from "./events.ts";
export {
  Jobs,
  type BodyOptions,
  type EnqueueOptions,
  type HistoryOptions,
  type ListOptions,
  type ReserveOptions,
} from "./jobs.ts";
export { type BuryOptions, Lease, type ReleaseOptions, type Said, type Word } from "./lease.ts";
export { withJobs, type PocketBaseLike, type PocketBaseOptions } from "./pocketbase.ts";
export type { LiveHandler } from "./live.ts";
export type { From } from "./line.ts";
export type { WebSocketClass } from "./lines.ts";
export {
  JobStream,
  type EndPiece,
  type EventPiece,
  type Piece,
  type StreamOptions,
  type TextPiece,
  type TryPiece,
} from "./stream.ts";
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
export { type Received, verify } from "./verify.ts";
export {
  DeadLetters,
  Sagas,
  Webhooks,
  type DeadLetterListOptions,
  type RotateOptions,
  type SagaListOptions,
  type WebhookListOptions,
} from "./webhooks.ts";
export { Worker, type StopOptions, type WorkerOptions } from "./worker.ts";
