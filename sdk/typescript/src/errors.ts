/** What went wrong, as classes: one for each thing that a caller does differently. */

/** The base of every error of this package. */
export class AshError extends Error {
  /** The name of the class. */
  override readonly name: string = "AshError";
}

/** What an answer that is not a success says of itself. */
export interface ApiProblem {
  /** The HTTP status. */
  statusCode: number;
  /** A stable name for a program, such as `not_found`; every one has a page in the server's documentation. */
  code: string;
  /** A sentence for a person. */
  message: string;
  /** Whether the same request may succeed later. */
  retryable: boolean;
  /** What to quote when asking somebody about it. */
  requestId: string | undefined;
  /** How long the server asks to wait, in milliseconds, if it does. */
  retryAfterMs: number | undefined;
  /** What was asked, for a person: `GET /api/sessions/…`. */
  request?: string | undefined;
}

/** The server answered, and said no. */
export class AshApiError extends AshError implements ApiProblem {
  override readonly name: string = "AshApiError";
  readonly statusCode: number;
  readonly code: string;
  readonly retryable: boolean;
  readonly requestId: string | undefined;
  readonly retryAfterMs: number | undefined;
  readonly request: string | undefined;

  constructor(problem: ApiProblem) {
    super(problem.message);
    this.statusCode = problem.statusCode;
    this.code = problem.code;
    this.retryable = problem.retryable;
    this.requestId = problem.requestId;
    this.retryAfterMs = problem.retryAfterMs;
    this.request = problem.request;
  }
}

/** 400, 408, 413, 415, 422: the request is not understood, too large, or not possible as things are. Change it. */
export class AshInvalidRequestError extends AshApiError {
  override readonly name: string = "AshInvalidRequestError";
}

/** 401: the key is missing or not known. Ask for another one. */
export class AshUnauthorizedError extends AshApiError {
  override readonly name: string = "AshUnauthorizedError";
}

/** 402: the session's budget is spent. */
export class AshBudgetError extends AshApiError {
  override readonly name: string = "AshBudgetError";
}

/** 403: not from here, or not for this key. In a browser: the page's origin is not in `ALLOWED_ORIGINS`. */
export class AshForbiddenError extends AshApiError {
  override readonly name: string = "AshForbiddenError";
}

/** 404: there is no such thing, or it is another tenant's. */
export class AshNotFoundError extends AshApiError {
  override readonly name: string = "AshNotFoundError";
}

/** 409: something else is in the way. Look at the session again and decide. */
export class AshConflictError extends AshApiError {
  override readonly name: string = "AshConflictError";
}

/** 410: it was there, and will not come back. Make a new one. */
export class AshGoneError extends AshApiError {
  override readonly name: string = "AshGoneError";
}

/** 429: too many requests. `retryAfterMs` says when to come back; by then this package has tried a few times. */
export class AshRateLimitedError extends AshApiError {
  override readonly name: string = "AshRateLimitedError";
}

/** 501: this server does not offer it. */
export class AshNotOfferedError extends AshApiError {
  override readonly name: string = "AshNotOfferedError";
}

/** 502, 503, 504: not now. By then this package has tried a few times. */
export class AshUnavailableError extends AshApiError {
  override readonly name: string = "AshUnavailableError";
}

/** No answer: the server cannot be reached, the connection broke, or nothing came for too long. */
export class AshConnectionError extends AshError {
  override readonly name: string = "AshConnectionError";
  /** Whether the connection was closed in the middle of a large body: whoever did that will not want it the next time. */
  readonly bodyUnwanted: boolean;

  constructor(message: string, options: ErrorOptions & { bodyUnwanted?: boolean } = {}) {
    super(message, options);
    this.bodyUnwanted = options.bodyUnwanted ?? false;
  }
}

/** Why a stream could not go on. */
export type StreamErrorCode =
  /** It broke again and again, and nothing new came in between. */
  | "gave_up"
  /** A frame is larger than `maxFrameBytes`. */
  | "frame_too_large"
  /** What was answered is not a stream of events. */
  | "not_a_stream"
  /** The signal was aborted and the run could not be interrupted: it may go on. */
  | "not_interrupted";

/** A stream of events could not be followed to its end. What was yielded is good, and the run is not affected. */
export class AshStreamError extends AshError {
  override readonly name: string = "AshStreamError";
  /** Why. */
  readonly code: StreamErrorCode;
  /** The last event that was seen: `client.stream(session, { after })` goes on from there. */
  readonly lastEventId: string | undefined;

  constructor(code: StreamErrorCode, message: string, options: { lastEventId?: string | undefined; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.code = code;
    this.lastEventId = options.lastEventId;
  }
}

/** A run ended without an answer. Thrown only by what waits for an answer, such as `text()`. */
export class AshRunError extends AshError {
  override readonly name: string = "AshRunError";
  /** Which run. */
  readonly runId: string | undefined;
  /** Why it ended: `interrupted`, `error`, `budget`, `quota`, `timeout` or `max_turns`. */
  readonly stopReason: string;
  /** The stable code of what went wrong, if something did. */
  readonly code: string | undefined;

  constructor(message: string, of: { runId: string | undefined; stopReason: string; code: string | undefined }) {
    super(message);
    this.runId = of.runId;
    this.stopReason = of.stopReason;
    this.code = of.code;
  }
}

type ApiErrorClass = new (problem: ApiProblem) => AshApiError;

const BY_STATUS: Readonly<Record<number, ApiErrorClass>> = {
  400: AshInvalidRequestError,
  401: AshUnauthorizedError,
  402: AshBudgetError,
  403: AshForbiddenError,
  404: AshNotFoundError,
  408: AshInvalidRequestError,
  409: AshConflictError,
  410: AshGoneError,
  413: AshInvalidRequestError,
  415: AshInvalidRequestError,
  422: AshInvalidRequestError,
  429: AshRateLimitedError,
  501: AshNotOfferedError,
  502: AshUnavailableError,
  503: AshUnavailableError,
  504: AshUnavailableError,
};

/** The error of a status. */
export function apiError(problem: ApiProblem): AshApiError {
  return new (BY_STATUS[problem.statusCode] ?? AshApiError)(problem);
}

/** Makes an error of an answer that is not a success. Its body may be anything: there are proxies in between. */
export async function apiErrorOf(response: Response, request: string, now: number = Date.now()): Promise<AshApiError> {
  const body = parseObject(await response.text().catch(() => ""));
  const text = (name: string): string | undefined => {
    const value = body[name];
    return typeof value === "string" && value !== "" ? value : undefined;
  };
  const { status } = response;
  return apiError({
    statusCode: status,
    code: text("code") ?? `http_${status}`,
    // Other servers of this API put the sentence into `message`.
    message: (text("code") === undefined ? text("message") : undefined) ?? text("error") ?? `status ${status}, and not as an Ash server says it`,
    retryable: typeof body["retryable"] === "boolean" ? body["retryable"] : status === 429 || (status >= 502 && status <= 504),
    requestId: text("requestId") ?? response.headers.get("x-request-id") ?? undefined,
    retryAfterMs: retryAfter(response.headers.get("retry-after"), now),
    request,
  });
}

/** What `Retry-After` says, in milliseconds: seconds, or a date. */
export function retryAfter(value: string | null, now: number): number | undefined {
  if (value === null) return undefined;
  if (/^\s*\d+(\.\d+)?\s*$/.test(value)) return Number(value) * 1000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

function parseObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
