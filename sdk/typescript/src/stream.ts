/**
 * A stream of events that comes back by itself.
 *
 * The log is the truth, and every logged event has its place in it as its id. A stream that is cut is asked for again
 * from the last place that was seen, so nothing is missed; what was seen already is dropped, so nothing comes twice. A
 * message whose stream is cut before anything logged came is sent again with the same idempotency key, which joins its
 * run instead of starting another.
 */
import { REQUEST_RETRY, STREAM_RETRY, type RetryOptions, pause, sleep, unlessAborted } from "./backoff.js";
import { AshApiError, AshConnectionError, AshStreamError } from "./errors.js";
import { type AshDoneEvent, type AshStreamEvent, type Place, eventOf, isSeen, placeOf } from "./events.js";
import { type Ask, type Transport, part, waitAfter } from "./http.js";
import { SseParser } from "./sse.js";
import type { Answer, Sent } from "./types.js";

/** A connection was lost, and is tried again. */
export interface ReconnectNotice {
  /** How many attempts in a row brought nothing new. */
  attempt: number;
  /** How long until the next one, in milliseconds. */
  delayMs: number;
  /** What broke; undefined if the server closed the stream in good order, as it does when it is restarted. */
  error: unknown;
}

/** How a stream is followed. */
export interface FollowOptions {
  /** Ends the stream: the iteration throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Is told each time that the connection is lost. */
  onReconnect?: ((notice: ReconnectNotice) => void) | undefined;
}

/** What is followed. */
export type Source =
  | { kind: "log"; session: string; after: string | undefined; until: "idle" | undefined }
  | { kind: "message"; session: string; body: unknown; key: string };

const HEARTBEAT_TIMEOUT_MS = 45_000;
/** How long the head of a stream may take: a session may have to be woken first. */
const HEAD_TIMEOUT_MS = 300_000;
/** How long a connection must last for a heartbeat to count as news. */
const SETTLED_MS = 5_000;
/** How long a request may be waited for that was sent when its caller gave up. */
const LAST_WAIT_MS = 15_000;

/** Follows something to its end. Not to be used twice. */
export class Follower {
  readonly #transport: Transport;
  readonly #source: Source;
  readonly #options: FollowOptions;
  readonly #retry: RetryOptions;
  #place: Place | undefined;
  #failures = 0;
  /** There was an answer once: from then on, what fails is the connection. */
  #reached = false;
  #greeted = false;
  #queuedAt: number | undefined;
  #connection = new AbortController();
  /** The message was taken: there is a run. */
  #accepted = false;
  /** A message was sent; settled when it is known what became of it. Never rejects. */
  #first: Promise<unknown> | undefined;

  /** The run that is followed, once it is known. */
  runId: string | undefined;
  /** The place of the last event that was seen. */
  lastEventId: string | undefined;

  constructor(transport: Transport, source: Source, options: FollowOptions) {
    this.#transport = transport;
    this.#source = source;
    this.#options = options;
    this.#retry = { ...STREAM_RETRY, ...transport.options.streamRetry };
    if (source.kind === "log" && source.after !== undefined) {
      this.#place = placeOf(source.after);
      if (this.#place === undefined) throw new TypeError(`${JSON.stringify(source.after)} is no place in a log`);
      this.lastEventId = source.after;
    }
  }

  /** The events, in order, each once. */
  async *events(): AsyncGenerator<AshStreamEvent, void, undefined> {
    const { signal } = this.#options;
    signal?.throwIfAborted();
    const abort = (): void => this.#connection.abort(signal?.reason);
    signal?.addEventListener("abort", abort, { once: true });
    try {
      for (;;) {
        let error: unknown;
        try {
          for await (const event of this.#connect()) {
            yield event;
            if (this.#isLast(event)) return;
          }
          const end = await this.#end();
          if (end === "over") return;
          if (end !== "broken") return yield end;
        } catch (thrown) {
          signal?.throwIfAborted();
          if (!this.#mayPass(thrown)) throw thrown;
          error = thrown;
        }
        await this.#rest(error);
      }
    } finally {
      signal?.removeEventListener("abort", abort);
      this.#connection.abort();
    }
  }

  /**
   * The run of a message whose caller has given up, if there is one. A request that was sent and not answered yet is
   * waited for. Whether one that broke was taken is not asked: to ask would be to send it.
   */
  async runAfterAbort(): Promise<string | undefined> {
    const enough = new AbortController();
    await Promise.race([this.#first, sleep(LAST_WAIT_MS, enough.signal).catch(() => undefined)]);
    enough.abort();
    if (this.runId === undefined && this.#accepted && this.#source.kind === "message") {
      const { session, body: json, key } = this.#source;
      const path = `/api/sessions/${part(session)}/messages`;
      const ask = { method: "POST", path, json, key, headers: { prefer: "respond-async" }, timeoutMs: LAST_WAIT_MS } as const;
      this.runId = (await this.#transport.json<Sent>(ask)).runId;
    }
    return this.runId;
  }

  /** One connection, from its request to its end. */
  async *#connect(): AsyncGenerator<AshStreamEvent, void, undefined> {
    const response = await this.#open();
    this.#reached = true;
    const kind = response.headers.get("content-type") ?? "";
    if (!kind.startsWith("text/event-stream") || response.body === null) {
      throw new AshStreamError("not_a_stream", `a stream of events was expected, not ${kind === "" ? "this" : kind}`);
    }
    const parser = new SseParser(this.#transport.options.maxFrameBytes);
    const reader = response.body.getReader();
    const opened = Date.now();
    const stop = (): void => void reader.cancel().catch(() => undefined);
    const { signal } = this.#connection;
    signal.addEventListener("abort", stop, { once: true });
    try {
      for (;;) {
        const before = parser.comments;
        const value = await this.#read(reader, stop);
        signal.throwIfAborted();
        if (value === undefined) return;
        for (const frame of parser.push(value)) {
          const event = eventOf(frame);
          if ((event.type as string) === "reconnect") return;
          if (!this.#isNew(event)) continue;
          this.#failures = 0;
          yield event;
        }
        // Somebody is there, and has nothing to say. What comes with the head of an answer proves little.
        if (parser.comments > before && Date.now() - opened > SETTLED_MS) this.#failures = 0;
      }
    } finally {
      signal.removeEventListener("abort", stop);
      stop();
    }
  }

  async #open(): Promise<Response> {
    const source = this.#source;
    const { session } = source;
    const signal = this.#connection.signal;
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (source.kind === "message" && (this.#place === undefined || this.runId === undefined)) {
      // Not ended by the signal: whether there is a run has to be known, so that it can be interrupted.
      const ask: Ask = { method: "POST", path: `/api/sessions/${part(session)}/messages`, json: source.body, headers };
      const sent = this.#send({ ...ask, timeoutMs: HEAD_TIMEOUT_MS }, source.key);
      this.#first = sent.then((response) => {
        this.#accepted = true;
        // Nobody will read it.
        if (signal.aborted) return response.body?.cancel();
      }).catch(() => undefined);
      return unlessAborted(sent, signal);
    }
    const until = source.kind === "message" ? "idle" : source.until;
    if (this.lastEventId !== undefined && this.#place?.epoch !== undefined) headers["last-event-id"] = this.lastEventId;
    const query = { after: this.lastEventId, until };
    return this.#send({ method: "GET", path: `/api/sessions/${part(session)}/stream`, query, headers, signal, timeoutMs: HEAD_TIMEOUT_MS }, undefined);
  }

  async #send(ask: Ask, key: string | undefined): Promise<Response> {
    const { response, arrived } = await this.#transport.once(ask, key);
    arrived();
    return response;
  }

  /** Some bytes; nothing at the end. A connection that is silent for too long is broken. */
  async #read(reader: ReadableStreamDefaultReader<Uint8Array>, stop: () => void): Promise<Uint8Array | undefined> {
    const milliseconds = this.#transport.options.heartbeatTimeoutMs ?? HEARTBEAT_TIMEOUT_MS;
    let silent = false;
    const timer = setTimeout(() => {
      silent = true;
      stop();
    }, milliseconds);
    try {
      const { value } = await reader.read();
      if (!silent) return value;
    } catch (cause) {
      if (!silent) throw new AshConnectionError("the stream broke", { cause });
    } finally {
      clearTimeout(timer);
    }
    throw new AshConnectionError(`nothing came for ${milliseconds} ms, not even a heartbeat`);
  }

  /** Takes note of an event; whether it is one to be told. */
  #isNew(event: AshStreamEvent): boolean {
    const place = event.id === undefined ? undefined : placeOf(event.id);
    if (event.type === "gap") this.#move(event.data.to);
    if (place !== undefined) {
      if (isSeen(this.#place, place)) return false;
      this.#move(event.id);
    }
    if (this.#source.kind === "log") return true;
    const of = event.data["runId" as keyof typeof event.data] as string | undefined;
    this.runId ??= of;
    // Somebody else's run, told by the log.
    if (of !== undefined && of !== this.runId) return false;
    if (event.type === "session_start") {
      if (this.#greeted) return false;
      this.#greeted = true;
    } else if (event.type === "run_queued") {
      if (this.#queuedAt === event.data.position) return false;
      this.#queuedAt = event.data.position;
    }
    return true;
  }

  #move(to: string | undefined): void {
    const place = to === undefined ? undefined : placeOf(to);
    if (place === undefined) return;
    this.#place = place;
    this.lastEventId = to;
  }

  #isLast(event: AshStreamEvent): boolean {
    return this.#source.kind === "message" && event.type === "done";
  }

  /** What it means that the server closed the stream in good order. */
  async #end(): Promise<"over" | "broken" | AshDoneEvent> {
    if (this.#source.kind === "message") {
      if (this.runId === undefined) return "broken";
      // Its end may have been in a gap, and will not come. Or it came while nobody listened, and is in the log.
      const path = `/api/sessions/${part(this.#source.session)}/runs/${part(this.runId)}`;
      const { run } = await this.#transport.json<Answer<"getRun">>({ method: "GET", path, signal: this.#connection.signal });
      if (run.endedAt === null || !(await this.#standing()).isTold) return "broken";
      const { id: runId, sessionId, status, stopReason, usage } = run;
      return { type: "done", data: { sessionId, runId, status, usage, ...(stopReason === null ? {} : { stopReason }) } };
    }
    try {
      const { status, isTold } = await this.#standing();
      return isTold && (status === "ended" || this.#source.until === "idle") ? "over" : "broken";
    } catch (error) {
      // Its agent was deleted, and the session with it.
      if (error instanceof AshApiError && error.statusCode === 404) return "over";
      throw error;
    }
  }

  /** The session as it is now, and whether everything that its log has was seen. */
  async #standing(): Promise<{ status: string; isTold: boolean }> {
    const path = `/api/sessions/${part(this.#source.session)}`;
    const { session } = await this.#transport.json<Answer<"getSession">>({ method: "GET", path, signal: this.#connection.signal });
    return { status: session.status, isTold: (this.#place?.seq ?? 0) >= session.lastSeq };
  }

  /** Whether the next attempt may go better. */
  #mayPass(error: unknown): boolean {
    if (error instanceof AshConnectionError) return !error.bodyUnwanted;
    if (!(error instanceof AshApiError)) return false;
    // At first it is an answer like any other; later, it means that the server starts again.
    return waitAfter(error, "always", 0) !== undefined || (this.#reached && error.statusCode >= 500);
  }

  async #rest(error: unknown): Promise<void> {
    this.#failures += 1;
    // Before the first answer it is a request like any other.
    const { attempts } = this.#reached ? this.#retry : { ...REQUEST_RETRY, ...this.#transport.options.retry };
    if (this.#failures >= attempts) {
      if (error !== undefined && !this.#reached) throw error;
      const message = `the stream broke ${attempts} times in a row and nothing new came`;
      throw new AshStreamError("gave_up", message, { lastEventId: this.lastEventId, cause: error });
    }
    const own = pause(this.#retry, this.#failures);
    const delayMs = waitAfter(error, "always", own) ?? own;
    this.#options.onReconnect?.({ attempt: this.#failures, delayMs, error });
    await sleep(delayMs, this.#options.signal);
  }
}
