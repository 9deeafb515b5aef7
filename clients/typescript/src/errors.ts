/**
 * Every error that this package throws on purpose.
 *
 *     TowpathError
 *     ├── Invalid         the request makes no sense, whatever the state
 *     ├── Unauthorized    there is no login, or the token has expired
 *     ├── Forbidden       a rule, a key's scopes or its topics refuse this
 *     ├── NotFound        it does not exist, or a rule hides it
 *     ├── Conflict        it exists, but its state does not allow this
 *     │   ├── LeaseLost   the lease has ended: stop working on the job
 *     │   ├── CursorReset a subscription cannot go on from its cursor; go on at `oldest` or `head`
 *     │   └── ConsumerFenced   another reader has attached as this consumer
 *     ├── TooMany         too many requests; `retryAfter` says when to try again
 *     ├── Unavailable     the server or its database cannot answer now
 *     ├── InvalidSignature a webhook that no secret of ours has signed, or not lately
 *     ├── NetworkError    no answer, or only a part of one: the call may have been done or not
 *     └── TimeoutError    no answer in time: the call may have been done or not
 *
 * The `code` is more precise than the class and never changes: `payload_too_large`, `key_taken` …
 */

export interface ErrorOptions {
  code: string;
  status?: number;
  details?: Record<string, unknown>;
  retryAfter?: number | undefined;
  cause?: unknown;
}

export class TowpathError extends Error {
  readonly code: string;
  /** The HTTP status; 0 if there was no answer. */
  readonly status: number;
  readonly details: Record<string, unknown>;
  /** Seconds after which to try again, if the server said so. */
  readonly retryAfter: number | undefined;

  static {
    this.prototype.name = "TowpathError";
  }

  constructor(message: string, options: ErrorOptions) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.code = options.code;
    this.status = options.status ?? 0;
    this.details = options.details ?? {};
    this.retryAfter = options.retryAfter;
  }
}

// Named by hand, because minifiers rename classes.
export class Invalid extends TowpathError {
  static {
    this.prototype.name = "Invalid";
  }
}

export class Unauthorized extends TowpathError {
  static {
    this.prototype.name = "Unauthorized";
  }
}

export class Forbidden extends TowpathError {
  static {
    this.prototype.name = "Forbidden";
  }
}

export class NotFound extends TowpathError {
  static {
    this.prototype.name = "NotFound";
  }
}

export class Conflict extends TowpathError {
  static {
    this.prototype.name = "Conflict";
  }
}

export class LeaseLost extends Conflict {
  static {
    this.prototype.name = "LeaseLost";
  }
}

/**
 * The events behind a cursor are gone, or never were here.
 *
 * The reason is `retention` (they were deleted), `channel` (the channel was deleted, and perhaps
 * made again), `era` (a backup was restored) or `ahead` (the channel has not so many events).
 */
export class CursorReset extends Conflict {
  static {
    this.prototype.name = "CursorReset";
  }

  get reason(): string {
    return String(this.details["reason"]);
  }

  /** The cursor before the oldest event that is kept. */
  get oldest(): string {
    return String(this.details["oldest"]);
  }

  /** The cursor of the newest event. */
  get head(): string {
    return String(this.details["head"]);
  }
}

export class ConsumerFenced extends Conflict {
  static {
    this.prototype.name = "ConsumerFenced";
  }
}

export class TooMany extends TowpathError {
  static {
    this.prototype.name = "TooMany";
  }
}

export class Unavailable extends TowpathError {
  static {
    this.prototype.name = "Unavailable";
  }
}

export class InvalidSignature extends TowpathError {
  static {
    this.prototype.name = "InvalidSignature";
  }
}

export class NetworkError extends TowpathError {
  static {
    this.prototype.name = "NetworkError";
  }
}

export class TimeoutError extends TowpathError {
  static {
    this.prototype.name = "TimeoutError";
  }
}

const BY_STATUS: Record<number, typeof TowpathError> = {
  400: Invalid,
  401: Unauthorized,
  403: Forbidden,
  404: NotFound,
  409: Conflict,
  413: Invalid,
  422: Invalid,
  429: TooMany,
  502: Unavailable,
  503: Unavailable,
  504: Unavailable,
};

const BY_CODE: Record<string, typeof TowpathError> = {
  lease_lost: LeaseLost,
  cursor_reset: CursorReset,
  consumer_fenced: ConsumerFenced,
};

/** Make the error that an answer stands for. Proxies answer too, with bodies of their own. */
export function errorFrom(response: Response, body: unknown): TowpathError {
  const { status } = response;
  const said: Record<string, unknown> = isRecord(body) ? body : {};
  const code = typeof said["code"] === "string" ? said["code"] : `http_${status}`;
  const message =
    typeof said["message"] === "string"
      ? said["message"]
      : `the server answered ${status} ${response.statusText}`.trimEnd();
  const kind = BY_CODE[code] ?? BY_STATUS[status] ?? TowpathError;
  const details = isRecord(said["details"]) ? said["details"] : {};
  return new kind(message, { code, status, details, retryAfter: retryAfter(response) });
}

const OF_FRAMES: Record<string, typeof TowpathError> = {
  ...BY_CODE,
  forbidden: Forbidden,
  http_disabled: Forbidden,
  invalid: Invalid,
  invalid_channel: Invalid,
  invalid_cursor: Invalid,
  invalid_token: Unauthorized,
  login_required: Unauthorized,
  not_found: NotFound,
};

/** Make the error that a frame of a WebSocket tells; it has no status. */
export function errorOfFrame(code: string, message: string, details: unknown): TowpathError {
  const kind = OF_FRAMES[code] ?? TowpathError; // of an unknown kind: worth another try
  return new kind(message, { code, details: isRecord(details) ? details : {} });
}

/** Whether the job is no longer ours. */
export function isLost(error: unknown): boolean {
  return error instanceof LeaseLost || error instanceof NotFound;
}

/** Why the run of a job stops that was cancelled. */
export function cancelled(): TowpathError {
  return new TowpathError("the job was cancelled", { code: "job_cancelled" });
}

const PASSING = new Set([401, 403, 408, 429]); // a token that has ended says nothing of the word

/** Whether it is the word itself that is wrong, not only the moment or the line. */
export function isRefusal(error: unknown): boolean {
  if (!(error instanceof TowpathError)) return true; // it could not even be written
  return error.status >= 400 && error.status < 500 && !PASSING.has(error.status);
}

function retryAfter(response: Response): number | undefined {
  const text = response.headers.get("Retry-After")?.trim();
  if (!text) return undefined;
  const seconds = /^\d+$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
