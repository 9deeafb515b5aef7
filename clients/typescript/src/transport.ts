/** One call: the request, its time limit, and its repetition where that is safe. */

import { Invalid, NetworkError, TimeoutError, TooMany, TowpathError, errorFrom } from "./errors.ts";

const FIRST_WAIT = 200; // milliseconds
const LONGEST_WAIT = 5_000;
const LONGEST_TIMER = 2 ** 31 - 1; // milliseconds; a longer timer would fire at once
const WORTH_REPEATING = new Set([429, 502, 503, 504]);
const NEVER_SENT = new Set<unknown>(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"]); // of Node

export interface TransportOptions {
  /** How long a call may take with all its retries, in milliseconds. */
  timeout?: number | undefined;
  /** How often a call that is safe to repeat is tried again. */
  retries?: number | undefined;
  fetch?: typeof globalThis.fetch | undefined;
  /** Reads the JSON that holds events, if not `JSON.parse`, which rounds long numbers. */
  parse?: ((text: string) => unknown) | undefined;
}

export interface CallOptions {
  /** Ends the call; it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface Call extends CallOptions {
  query?: Record<string, string | number | boolean | readonly string[] | undefined>;
  body?: unknown;
  /** Fields of the body that are JSON already, and are sent as they are. */
  asWritten?: Record<string, string> | undefined;
  headers?: Record<string, string | undefined>;
  /** Whether the call may be sent twice: a GET may, some only if the first had no effect. */
  repeatable?: boolean | "without effect";
  /** Milliseconds for the call with all its retries, if less than those of the client. */
  timeout?: number | undefined;
  /** Whether the answer holds events. */
  hasEvents?: boolean;
  /** Milliseconds that the server may take on purpose, on top of the time limit. */
  patience?: number;
}

/** Gives the token of a call; empty without a login. */
export type Token = () => string | Promise<string>;

export class Transport {
  /** The address of the server, without a slash at its end. */
  readonly url: string;
  /** Reads JSON that holds events. */
  readonly parse: (text: string) => unknown;

  readonly #token: Token;
  readonly #timeout: number;
  readonly #retries: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(url: string, token: Token, options: TransportOptions = {}) {
    this.url = checkedBase(url);
    this.parse = options.parse ?? JSON.parse;
    this.#token = token;
    this.#timeout = options.timeout ?? 30_000;
    this.#retries = options.retries ?? 3;
    this.#fetch = options.fetch ?? ((...request) => fetch(...request));
  }

  get<T>(path: string, call: Call = {}): Promise<T> {
    return this.send<T>("GET", path, { repeatable: true, ...call });
  }

  post<T>(path: string, call: Call = {}): Promise<T> {
    return this.send<T>("POST", path, call);
  }

  async send<T>(method: string, path: string, call: Call = {}): Promise<T> {
    const request = this.#request(method, await this.#token(), call);
    const url = this.url + path + queryOf(call.query);
    const parse = call.hasEvents ? this.parse : JSON.parse;
    const timeout = Math.min(this.#timeout, call.timeout ?? this.#timeout);
    const limit = new TimeLimit(timeout + (call.patience ?? 0), call.signal);
    try {
      for (let tried = 0; ; tried += 1) {
        try {
          return (await this.#attempt(url, { ...request, signal: limit.signal }, parse)) as T;
        } catch (error) {
          limit.signal.throwIfAborted();
          if (tried >= this.#retries || !mayRepeat(error, call)) throw error;
          const wait = waitAfter(error, tried);
          if (wait >= limit.left) throw error;
          await sleep(wait, limit.signal);
        }
      }
    } finally {
      limit.end();
    }
  }

  /** Send a GET whose answer goes on; resolves when it has begun, and reads nothing of it. */
  async open(path: string, call: Call): Promise<Response> {
    const url = this.url + path + queryOf(call.query);
    const request = this.#request("GET", await this.#token(), call);
    const { signal = null } = call;
    const response = await answered(url, this.#fetch(url, { ...request, signal }));
    if (response.ok) return response;
    throw errorFrom(response, parsed(await answered(url, response.text())));
  }

  #request(method: string, token: string, call: Call): RequestInit {
    const headers = new Headers({ Accept: "application/json" });
    if (token) headers.set("Authorization", `Bearer ${token}`);
    for (const [name, value] of Object.entries(call.headers ?? {})) {
      if (value !== undefined) headers.set(name, value);
    }
    if (call.body === undefined) return { method, headers };
    headers.set("Content-Type", "application/json");
    return { method, headers, body: bodyOf(call) };
  }

  async #attempt(url: string, request: RequestInit, parse: Transport["parse"]): Promise<unknown> {
    const response = await answered(url, this.#fetch(url, request));
    const body = parsed(await answered(url, response.text()), parse);
    if (!response.ok) throw errorFrom(response, body);
    if (body === undefined && response.status !== 204) {
      throw new TowpathError(`${url} did not answer with JSON: is it a Towpath server?`, {
        code: "bad_answer",
        status: response.status,
      });
    }
    return body;
  }
}

async function answered<T>(url: string, answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (cause) {
    const message = `no answer from ${url}: ${reasonOf(cause)}`;
    throw new NetworkError(message, { code: "network_error", cause });
  }
}

/** A path in which each inserted part stays one segment, whatever it contains. */
export function path(texts: TemplateStringsArray, ...parts: (string | number)[]): string {
  return String.raw(
    { raw: texts },
    ...parts.map((part) => {
      if (["", ".", ".."].includes(String(part))) {
        throw new Invalid(`${JSON.stringify(part)} is neither an id nor a name`, {
          code: "invalid",
        });
      }
      return encodeURIComponent(part);
    }),
  );
}

function mayRepeat(error: unknown, { repeatable = false }: Call): boolean {
  return repeatable === "without effect" ? hadNoEffect(error) : repeatable && isTransient(error);
}

/** Whether the server surely did not do it. A page is not told why there was no answer. */
function hadNoEffect(error: unknown): boolean {
  if (error instanceof TooMany) return true;
  const { cause } = error instanceof NetworkError ? (error.cause as Error) : new Error();
  return cause instanceof Error && "code" in cause && NEVER_SENT.has(cause.code);
}

/** Whether the same call might succeed a little later. */
function isTransient(error: unknown): boolean {
  if (error instanceof NetworkError) return true;
  return error instanceof TowpathError && WORTH_REPEATING.has(error.status);
}

/** Milliseconds to wait before the next try: what the server said, or longer each time. */
export function waitAfter(error: unknown, tried: number): number {
  const told = error instanceof TowpathError ? error.retryAfter : undefined;
  if (told !== undefined) return told * 1000;
  const wait = Math.min(FIRST_WAIT * 2 ** tried, LONGEST_WAIT);
  return wait * (0.5 + Math.random() / 2); // so that many clients do not retry at the same time
}

/** Wait; a signal ends it, with its reason. */
export function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", abort);
      resolve();
    }, Math.min(milliseconds, LONGEST_TIMER));
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
}

/**
 * The caller's signal and the time limit, as one signal.
 *
 * Not AbortSignal.any: the one signal of a worker would keep a reference to each of its calls.
 */
class TimeLimit {
  readonly #controller = new AbortController();
  readonly #deadline: number;
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #caller: AbortSignal | undefined;

  constructor(milliseconds: number, caller: AbortSignal | undefined) {
    caller?.throwIfAborted();
    this.#deadline = performance.now() + milliseconds;
    this.#timer = setTimeout(
      () => {
        const message = `no answer within ${milliseconds} ms`;
        this.#controller.abort(new TimeoutError(message, { code: "timeout" }));
      },
      Math.min(milliseconds, LONGEST_TIMER),
    );
    this.#caller = caller;
    caller?.addEventListener("abort", this.#abort);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get left(): number {
    return this.#deadline - performance.now();
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#abort);
  }

  readonly #abort = () => this.#controller.abort(this.#caller?.reason);
}

function checkedBase(url: string): string {
  // In a page, "/" is the server that the page came from.
  const base = URL.canParse(url, globalThis.location?.href)
    ? new URL(url, globalThis.location?.href)
    : undefined;
  if (!base || !/^https?:$/.test(base.protocol)) {
    const message = `${JSON.stringify(url)} is not a server's address`;
    throw new Invalid(`${message}, such as "http://localhost:8090"`, { code: "invalid_url" });
  }
  if (base.username || base.password) {
    const message = "the address holds a password: log in, or give a token";
    throw new Invalid(message, { code: "invalid_url" });
  }
  return base.origin + base.pathname.replace(/\/+$/, "");
}

function bodyOf({ body, asWritten = {} }: Call): string {
  const text = JSON.stringify(body);
  const fields = Object.entries(asWritten).map(([name, json]) => `${JSON.stringify(name)}:${json}`);
  return fields.length ? `{${[text.slice(1, -1), ...fields].filter(Boolean).join(",")}}` : text;
}

function queryOf(query: Call["query"] = {}): string {
  const pairs = Object.entries(query).flatMap(([name, value]) => {
    const values = Array.isArray(value) ? value : value === undefined ? [] : [value];
    return values.map((each) => [name, String(each)]);
  });
  const text = new URLSearchParams(pairs).toString();
  return text && `?${text}`;
}

function parsed(text: string, parse: Transport["parse"] = JSON.parse): unknown {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  // Node says "fetch failed"; the cause has the reason.
  return cause.cause instanceof Error ? cause.cause.message || cause.message : cause.message;
}
