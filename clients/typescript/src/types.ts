/** What travels: the types of the OpenAPI document, narrowed where JavaScript knows more. */

import type { components } from "./schema.ts";

type Schemas = components["schemas"];

export type Status = Schemas["Status"];
export type State = Schemas["State"];

/** A job, as it was when it was read. Instants are text in UTC: `new Date(job.runAt)`. */
export type Job<Payload = unknown, Result = unknown> = Omit<
  Schemas["Job"],
  "payload" | "result"
> & {
  /** The data it was enqueued with; raw bytes are a Uint8Array. */
  payload: Payload;
  /** What its worker returned; null until it has completed. */
  result: Result | null;
};

/** How a job is run. Times are seconds. */
export type JobOptions = Omit<Schemas["NewJob"], "topic" | "payload" | "encoding" | "runAt"> & {
  /** Not before this instant. */
  runAt?: Date | string | null;
};

/** A job to be stored. A Uint8Array is stored as raw bytes, anything else as JSON. */
export type NewJob = JobOptions & { topic: string; payload?: unknown };

export interface Page<T> {
  items: T[];
  /** To be given as `before`, for those that follow; null on the last page. */
  next: string | null;
}

export type Stats = Schemas["Stats"];
export type Minute = Schemas["Minute"];
export type Failure = Schemas["Failure"];
export type LogLine = Schemas["Line"];
export type JobEvent = Schemas["Event"];
export type Run = Schemas["Run"];
export type Touched = Schemas["TouchedLease"];
export type LeaseShown = Schemas["Lease"];

export type Topic = Schemas["Topic"];
export type WorkerInfo = Schemas["Worker"];
export type Schedule = Schemas["Schedule"];
export type NewSchedule = Schemas["NewSchedule"];

export type Key = Schemas["Key"];
export type NewKey = Schemas["NewKey"];
/** A key with its secret, which is shown this once. */
export type CreatedKey = Schemas["CreatedKey"];
export type Scope = Key["scopes"][number];
export type Access = Schemas["Access"];
export type AccessChange = Schemas["AccessChange"];

/** An account, with fields of its own. */
export type AccountRecord = Schemas["Record"];
export type NewAccount = Schemas["NewRecord"];
export type AccountChange = Schemas["RecordChange"];
export type AccountPage = Schemas["RecordPage"];
export type Login = Schemas["Login"];
