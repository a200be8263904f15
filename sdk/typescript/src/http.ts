/** One request at a time: sent, sent again where that is safe, and refused as an error with a class. */
import { LONGEST_RETRY_AFTER_MS, REQUEST_RETRY, type RetryOptions, pause, sleep } from "./backoff.js";
import { randomId } from "./bytes.js";
import { AshApiError, AshConnectionError, AshInvalidRequestError, apiErrorOf } from "./errors.js";

/** Where the server is, and how to talk to it. */
export interface AshClientOptions {
  /** The server's address, such as `http://127.0.0.1:4100`. */
  serverUrl: string;
  /** An API key. Without it, only what everybody may see is answered. */
  apiKey?: string;
  /** Another `fetch` than the platform's. */
  fetch?: typeof fetch;
  /** Headers for every request. */
  headers?: Record<string, string>;
  /** Ends every request of this client. */
  signal?: AbortSignal;
  /** How long an answer may take to begin, in milliseconds; five minutes. A command may take longer. */
  timeoutMs?: number;
  /** How patiently a request is tried again. */
  retry?: Partial<RetryOptions>;
  /** How patiently a stream that brings nothing new is tried again. */
  streamRetry?: Partial<RetryOptions>;
  /** After how long without a byte a stream counts as broken, in milliseconds. The server sends one every 15 s; 45 s. */
  heartbeatTimeoutMs?: number;
  /** The largest frame of a stream that is taken, in bytes; 64 MiB. */
  maxFrameBytes?: number;
}

/** Whether a request may be sent again. */
export type Repeat =
  /** Also if it is not known what became of it: it changes nothing the second time, or the server knows it again. */
  | "always"
  /** Only if the server says that it did nothing. */
  | "refused";

/** A request. */
export interface Ask {
  method: "GET" | "POST" | "PATCH" | "DELETE";
  /** The path, with what stands in it already encoded. */
  path: string;
  query?: Record<string, string | number | boolean | undefined>;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as it is. */
  bytes?: { type: string; body: Uint8Array };
  headers?: Record<string, string>;
  /** GET and DELETE: always. POST and PATCH: only if refused, unless there is a key. */
  repeat?: Repeat;
  /** Makes the request one that is carried out once: a new key, or the caller's. */
  key?: string | true;
  signal?: AbortSignal | undefined;
  timeoutMs?: number;
}

const TIMEOUT_MS = 300_000;

/** An answer whose head is there. */
export interface Arriving {
  response: Response;
  /** To be called when enough of it has come: it is late no more. */
  arrived: () => void;
}

/** Sends requests. */
export class Transport {
  readonly options: Readonly<AshClientOptions>;
  readonly #base: string;
  readonly #key: string | undefined;
  readonly #retry: RetryOptions;

  constructor(options: AshClientOptions) {
    this.options = options;
    this.#base = baseOf(options);
    this.#key = keyOf(options);
    this.#retry = { ...REQUEST_RETRY, ...options.retry };
  }

  /** The JSON of an answer. */
  async json<T>(ask: Ask): Promise<T> {
    // Asked again as a whole: the connection may break within the body.
    const text = await this.#again(ask, async ({ response, arrived }) =>
      response
        .text()
        .catch((error: unknown) => Promise.reject(this.broken(ask, error)))
        .finally(arrived),
    );
    if (text === "") return {} as T;
    try {
      return JSON.parse(text) as T;
    } catch (cause) {
      throw new AshConnectionError(`${ask.method} ${this.#base}${ask.path}: the answer is no JSON; is this an Ash server?`, { cause });
    }
  }

  /** The bytes of an answer. */
  async bytes(ask: Ask): Promise<{ data: ArrayBuffer; headers: Headers }> {
    return this.#again(ask, async ({ response, arrived }) => {
      arrived();
      const data = await response.arrayBuffer().catch((error: unknown) => Promise.reject(this.broken(ask, error)));
      return { data, headers: response.headers };
    });
  }

  /** The answer, once its head is there. */
  async response(ask: Ask): Promise<Response> {
    return this.#again(ask, ({ response, arrived }) => {
      arrived();
      return Promise.resolve(response);
    });
  }

  /** Sends a request once. What is not a success is an error. */
  async once(ask: Ask, key: string | undefined): Promise<Arriving> {
    const headers = new Headers({ ...this.options.headers, ...ask.headers });
    if (this.#key !== undefined) headers.set("authorization", `Bearer ${this.#key}`);
    if (key !== undefined) headers.set("idempotency-key", key);
    const milliseconds = ask.timeoutMs ?? this.options.timeoutMs ?? TIMEOUT_MS;
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(new Error(`no answer within ${milliseconds} ms`)), milliseconds);
    const arrived = (): void => clearTimeout(timer);
    const wanted = [ask.signal, this.options.signal].filter((signal) => signal !== undefined);
    const init: RequestInit = { method: ask.method, headers, signal: AbortSignal.any([...wanted, late.signal]), cache: "no-store" };
    if (ask.bytes !== undefined) {
      headers.set("content-type", ask.bytes.type);
      init.body = ask.bytes.body as Uint8Array<ArrayBuffer>;
    } else if (ask.json !== undefined) {
      headers.set("content-type", "application/json");
      init.body = JSON.stringify(ask.json);
    }
    const send = this.options.fetch ?? globalThis.fetch;
    try {
      const response = await send(this.#base + ask.path + queryOf(ask.query), init);
      if (!response.ok) throw this.#explained(await apiErrorOf(response, `${ask.method} ${ask.path}`));
      return { response, arrived };
    } catch (error) {
      arrived();
      for (const signal of wanted) signal.throwIfAborted();
      throw error instanceof AshApiError ? error : this.broken(ask, error);
    }
  }

  /** The error of a connection that failed. */
  broken(ask: Ask, cause: unknown): AshConnectionError {
    const inner: unknown = cause instanceof Error ? (cause.cause ?? cause) : cause;
    const code = inner instanceof Error && "code" in inner ? inner.code : undefined;
    const reason = REASONS[String(code)] ?? (inner instanceof Error ? inner.message : String(inner));
    const bodyUnwanted = isCutWhileSending(cause) && isLarge(ask);
    return new AshConnectionError(`${ask.method} ${this.#base}${ask.path}: ${reason}`, { cause, bodyUnwanted });
  }

  #explained(error: AshApiError): AshApiError {
    if (error.statusCode === 401 && this.#key === undefined) error.message += ": this client has no apiKey";
    return error;
  }

  async #again<T>(ask: Ask, read: (answer: Arriving) => Promise<T>): Promise<T> {
    const key = ask.key === true ? randomId() : ask.key;
    const repeat = ask.repeat ?? (ask.method === "GET" || ask.method === "DELETE" || key !== undefined ? "always" : "refused");
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await read(await this.once(ask, key));
      } catch (error) {
        const wait = attempt < this.#retry.attempts ? waitAfter(error, repeat, pause(this.#retry, attempt)) : undefined;
        const aborted = ask.signal?.aborted === true || this.options.signal?.aborted === true;
        if (wait === undefined || aborted) throw error;
        await sleep(wait, ask.signal ?? this.options.signal);
      }
    }
  }
}

/** What people can do something about, in words; by the codes that Node has. */
const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "the connection is refused (ECONNREFUSED): is the server running there?",
  ERR_SSL_WRONG_VERSION_NUMBER: "no TLS is spoken there: is it http:// and not https://?",
};

function baseOf({ serverUrl }: AshClientOptions): string {
  const isRelative = typeof location !== "undefined" && /^(\/|$)/.test(serverUrl);
  if (!isRelative && !/^https?:\/\//i.test(serverUrl)) {
    throw new TypeError(`the serverUrl begins with http:// or https://, not like ${JSON.stringify(serverUrl)}`);
  }
  return serverUrl.replace(/\/+$/, "");
}

/** The key; one that was read from a file often has the end of its line with it. */
function keyOf({ apiKey }: AshClientOptions): string | undefined {
  const key = apiKey?.trim() ?? "";
  if (!/^[\x20-\x7e]*$/.test(key)) throw new TypeError("the apiKey has characters that no key has");
  return key === "" ? undefined : key;
}

/** How long to wait before a request is sent again; undefined if it must not be. */
export function waitAfter(error: unknown, repeat: Repeat, own: number): number | undefined {
  if (error instanceof AshConnectionError) return repeat === "always" && !error.bodyUnwanted ? own : undefined;
  if (!(error instanceof AshApiError) || !isTransient(error, repeat)) return undefined;
  const asked = error.retryAfterMs ?? 0;
  return asked > LONGEST_RETRY_AFTER_MS ? undefined : Math.max(asked, own);
}

function isTransient(error: AshApiError, repeat: Repeat): boolean {
  if (error.statusCode === 429) return true;
  if (error.statusCode === 503) return error.retryable;
  // What stands in between lost the server: what became of the request is not known.
  return repeat === "always" && (error.statusCode === 502 || error.statusCode === 504);
}

/** What the server reads of a body that it does not want, before it closes the connection. */
const LITTLE_BYTES = 1024 * 1024;

function isLarge(ask: Ask): boolean {
  return (ask.bytes?.body.length ?? JSON.stringify(ask.json ?? null).length) > LITTLE_BYTES;
}

/** Whether the other end had closed the connection when something was sent. */
function isCutWhileSending(cause: unknown): boolean {
  for (let one = cause; one instanceof Error; one = one.cause) {
    if ("code" in one && one.code === "EPIPE") return true;
  }
  return false;
}

function queryOf(query: Ask["query"]): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined) parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text === "" ? "" : `?${text}`;
}

/** A part of a path. */
export function part(text: string): string {
  // Addresses are made shorter before they are sent: these would lead elsewhere.
  if (text === "" || text === "." || text === "..") {
    const message = `${JSON.stringify(text)} can be neither a name, nor an id, nor a part of a path`;
    const known = { retryable: false, requestId: undefined, retryAfterMs: undefined };
    throw new AshInvalidRequestError({ statusCode: 400, code: "invalid_path", message, ...known });
  }
  return encodeURIComponent(text);
}

/** A path of a file within a path: its slashes stay. */
export function filePath(path: string): string {
  return path.split("/").map(part).join("/");
}
