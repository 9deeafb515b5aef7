/** The types of requests and answers, from the OpenAPI document; some are narrower here. */

import type { components, operations } from "./schema.ts";

type Schemas = components["schemas"];

export type Status = Schemas["Status"];
export type State = Schemas["State"];

/** A job, as it was when it was read. Instants are text in UTC: `new Date(job.runAt)`. */
export type Job<Payload = unknown, Result = unknown> = Omit<
  Schemas["Job"],
  "payload" | "result"
> & {
  /** The data of the job; raw bytes are a Uint8Array. */
  payload: Payload;
  /** The result of its worker; null until the job has completed. */
  result: Result | null;
};

/** A job, its lease, and all its options. */
export type JobDetail<Payload = unknown, Result = unknown> = Omit<
  Schemas["JobDetail"],
  "payload" | "result"
> &
  Pick<Job<Payload, Result>, "payload" | "result">;
/** One lease of a job, or a reason for which it was not run. */
export type Try = Schemas["Try"];
/** One reason why a job is where it is. */
export type Reason = Schemas["Reason"];
/** The jobs that wait for each other, directly or through others. */
export type FlowGraph = Schemas["FlowGraph"];
/** A flow: its last job, and how many of its jobs are in each state. */
export type Flow = Schemas["Flow"];
/** A call that changes a situation. */
export type Remedy = Schemas["Remedy"];

/** How a job is run. Times are seconds. */
export type JobOptions = Omit<
  Schemas["JobInput"],
  "topic" | "payload" | "encoding" | "runAt" | "expiresAt"
> & {
  /** Not before this instant. */
  runAt?: Instant;
  /** A job that has not begun by this instant is cancelled. */
  expiresAt?: Instant;
};

export type Instant = Date | string | null;

/** Changes of a job that waits. */
export type JobChange = Omit<Schemas["JobChangeInput"], "runAt"> & { runAt?: Instant };

/** A job to be stored. A Uint8Array is stored as raw bytes, anything else as JSON. */
export type NewJob = JobOptions & { topic: string; payload?: unknown };

export interface Page<T> {
  items: T[];
  /** Pass it as `before` (of channels: as `after`) to read the next page; null on the last page. */
  next: string | null;
}

/** What a list shows of a job: no payload, but a preview with secrets hidden. */
export type JobBrief = Schemas["JobBrief"];

/** How many there are; if it is not exact, there are at least so many. */
export type Total = Schemas["Total"];

/** A page of jobs. */
export interface JobPage<T> extends Page<T> {
  /** Pass it as `after` to read the page before; null on the first page. */
  prev: string | null;
  /** Set if the search stopped before the page was full; `next` goes on from there. */
  lookedTo: string | null;
  /** Only with `count`, and if it can be known. */
  total: Total | null;
}

export type Stats = Schemas["Stats"];
export type Minute = Schemas["Minute"];
/** Outcomes by steps, without gaps. */
export type History = Schemas["Throughput"];
/** Failed jobs by their errors. */
export type RecentFailures = Schemas["RecentFailures"];
/** How long completed jobs ran and waited. */
export type Durations = Schemas["Durations"];
export type Failure = Schemas["Failure"];
export type FailureKind = Schemas["FailureKind"];
export type LogLine = Schemas["Line"];
/** The answer to the output of a run. */
export type Heard = Schemas["Said"];
export type Run = Schemas["Run"];

/** What is done to many jobs. */
export type BulkVerb = Schemas["BulkVerb"];
/** Which jobs: ids, or a filter with at least one part. */
export type BulkChoice = { ids: readonly string[] } | Schemas["BulkFilter"];
/** What a bulk act would do if it began now. */
export type BulkPreview = Schemas["BulkPreview"];
/** One verb for many jobs, and how far it is. */
export type BulkAct = Schemas["Bulk"];

/** What a person did; the type of its event says what, such as `act.job.requeued`. */
export interface Act {
  who: { collection: string; id: string; name: string };
  /** How many things it was done to. */
  count: number;
  /** The network address. */
  from: string;
  [about: string]: unknown;
}

/** A channel, and where it stands. */
export type Channel = Schemas["Channel"];
/** An event of a channel. */
export type ChannelEvent<Payload = unknown> = Omit<
  Schemas["ChannelEvent"],
  "payload" | "cursor"
> & {
  /** The data of the event; raw bytes are a Uint8Array. */
  payload: Payload;
  /** Go on behind this event from here. */
  cursor: string;
};
/** An event to be published; its payload is stored as JSON. */
export type NewEvent = Schemas["EventInput"];
/** Events in a row: nothing is between `after` and `cursor` but these. */
export type EventPage<Payload = unknown> = Omit<Schemas["EventPage"], "events"> & {
  events: ChannelEvent<Payload>[];
};
/** A consumer of a channel, and how far behind it is. */
export type Consumer = Schemas["Consumer"];
/** The right to read as a consumer, until another reader attaches. */
export type Attachment = Schemas["Attachment"];
/** What a channel keeps. */
export type ChannelLimits = Schemas["LimitsInput"];
export type Touched = Schemas["TouchedLease"];
export type LeaseShown = Schemas["Lease"];

export type Topic = Schemas["Topic"];
/** A topic with its limits, and the arguments of its task. */
export type TopicDetail = Schemas["TopicDetail"];
/** What `live` tells of a topic. */
export type LiveTopic = Omit<Topic, "rate" | "workers" | "waiting" | "emptyInS">;
export type WorkerInfo = Schemas["Worker"];
/** The workers, and the leases of clients that have neither a session nor a name. */
export type WorkerOverview = Schemas["Workers"];
export type Schedule = Schemas["Schedule"];
export type NewSchedule = Schemas["ScheduleInput"];
/** How the jobs of a schedule are run. */
export type ScheduleOptions = Schemas["ScheduleOptions"];
/** A rule whose next fires are asked for. */
export type ScheduleRule = Omit<Schemas["PreviewInput"], "from"> & { from?: Instant };
export type SchedulePreview = Schemas["Preview"];

/** A URL that is called for events of a channel. */
export type WebhookSubscription = Schemas["Subscription"];
export type NewWebhook = Schemas["SubscriptionInput"];
export type WebhookChange = Schemas["SubscriptionChange"];
/** A subscription with its secret, which is shown only once. */
export type CreatedWebhook = Schemas["MadeSubscription"];
export type WebhookPage = Schemas["SubscriptionPage"];
export type WebhookHealth = Schemas["Health"];
/** The delivery of one event to one subscription. */
export type Saga = Schemas["Saga"];
export type SagaStatus = Schemas["SagaStatus"];
export type DeliveryAttempt = Schemas["Attempt"];
export type DeadLetterOutline = Schemas["DeadLetterOutline"];
/** A delivery that failed for good; raw bytes are a Uint8Array. */
export type DeadLetter<Payload = unknown> = Omit<Schemas["DeadLetter"], "payload"> & {
  payload: Payload;
};
/** Which ended deliveries are made again. */
export type ReplayFilter = Omit<Schemas["ReplayInput"], "preview" | "since" | "until"> & {
  /** Only events published since then, */
  since?: Instant;
  /** or before then. */
  until?: Instant;
};
export type Replay = Schemas["Replay"];

export type Key = Schemas["Key"];
export type NewKey = Schemas["KeyInput"];
/** A key with its secret, which is shown only once. */
export type CreatedKey = Schemas["MadeKey"];
export type Scope = Key["scopes"][number];
export type Access = Schemas["Access"];
export type AccessChange = Schemas["AccessChange"];
/** A request to imagine. */
export type AccessTry = Omit<Schemas["AccessTry"], "as"> & {
  /** An account, an API key by its id, the fields of a login, or null: without a login. */
  as?:
    | { collection: "users" | "_superusers"; id: string }
    | { key: string }
    | { auth: OwnFields }
    | null;
};
/** Whether it would be allowed, and why. */
export type AccessAnswer = Schemas["AccessAnswer"];

type Json<Body extends { content: { "application/json": unknown } }> =
  Body["content"]["application/json"];
type OwnFields = Record<string, unknown>;

/** An account, with its custom fields. */
export type AccountRecord = Schemas["LoggedIn"]["record"] & OwnFields;
export type NewAccount = Json<operations["create_record"]["requestBody"]> & OwnFields;
export type AccountChange = Partial<NewAccount>;
export type AccountPage = Omit<Schemas["Records"], "items"> & { items: AccountRecord[] };
/** All checks of the doctor, and when it looked. */
export type Checkup = Schemas["Checkup"];
export type Check = Schemas["Check"];
/** A limit in use, and how many jobs it binds. */
export type LimitInUse = Schemas["Limit"];
/** A setting of the server's process. */
export type Setting = Schemas["Setting"];
/** A login of a superuser, and the server that it is at. */
export type Me = Omit<Schemas["Me"], "record"> & { record: AccountRecord };
export type Login = Omit<Schemas["LoggedIn"], "record"> & { record: AccountRecord };
