/** Jobs in the database you already have: the client and worker of Towpath. */

export { Towpath, type AuthOptions, type TowpathOptions } from "./client.ts";
export {
  Conflict,
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
export { Jobs, type EnqueueOptions, type ListOptions, type ReserveOptions } from "./jobs.ts";
export { type BuryOptions, Lease, type ReleaseOptions, type Said, type Word } from "./lease.ts";
export { withJobs, type PocketBaseLike } from "./pocketbase.ts";
export type { CallOptions } from "./transport.ts";
export type * from "./types.ts";
export { Bury, Release, type Context, type Handler } from "./run.ts";
export { Worker, type StopOptions, type WorkerOptions } from "./worker.ts";
