/** Messages, and the events that come of them. */
import { randomId } from "../bytes.js";
import { AshApiError, AshStreamError } from "../errors.js";
import type { AshStreamEvent } from "../events.js";
import { Transport } from "../http.js";
import { type FollowOptions, Follower } from "../stream.js";
import { Transcript, type TranscriptTurn, answered, textOf } from "../transcript.js";
import type { MessageContent, MessageOptions, Sent } from "../types.js";
import { HistoryMethods } from "./history.js";
import { sessionPath } from "./sessions.js";

/** How a message is sent. */
export interface SendMessageOptions extends MessageOptions {
  /** Makes the message one that is taken once, however often it is sent: a text of your own, for repeats of your own. */
  idempotencyKey?: string;
}

/** How a message is sent and its run followed. */
export interface SendMessageStreamOptions extends SendMessageOptions, FollowOptions {
  /** What an abort of the signal does: it ends the run on the server, also if it waits (the default), or leaves it alone. */
  onAbort?: "interrupt" | "detach";
}

/** How a log is followed. */
export interface StreamOptions extends FollowOptions {
  /** Only what comes after this: an event's `id`, or a sequence. The whole log, if nothing is said. */
  after?: string | number | undefined;
  /** When to stop: when the session has nothing to do. Never, or when it ends, if nothing is said. */
  until?: "idle" | undefined;
}

/**
 * Events, in order, each once; it comes back by itself when the connection breaks. Nothing is sent before it is
 * iterated. Leaving the iteration (`break`) closes the connection, and the run goes on.
 */
export interface EventStream extends AsyncGenerator<AshStreamEvent, void, undefined> {
  /** The run, once it is known. */
  readonly runId: string | undefined;
  /** The place of the last event that was seen: where a later `stream` can begin. */
  readonly lastEventId: string | undefined;
}

/** The events of one message. */
export interface MessageStream extends EventStream {
  /** Follows it to its end and returns what the agent said; an `AshRunError` if there is no answer. */
  text(): Promise<string>;
  /** Follows it to its end and returns all of it, folded: what was taken back is not in it. */
  turn(): Promise<TranscriptTurn>;
}

/** The part of the client that is about messages. */
export class MessageMethods extends HistoryMethods {
  /**
   * Sends a message and follows its run to `done`.
   *
   * A connection that breaks, also before the answer, does no harm: the message is taken once, and no event is missed
   * or comes twice.
   */
  sendMessageStream(sessionId: string, content: MessageContent, options: SendMessageStreamOptions = {}): MessageStream {
    const { idempotencyKey, onAbort, onReconnect, signal, ...rest } = options;
    const source = { kind: "message", session: sessionId, body: { content, ...rest }, key: idempotencyKey ?? randomId() } as const;
    const { transport, either } = this.#unstoppable(signal);
    const follower = new Follower(transport, source, { onReconnect, signal: either });
    const interrupt = onAbort === "detach" ? undefined : () => interruptRun(transport, sessionId, follower);
    const events = interruptible(follower, either, interrupt);
    const turn = async (): Promise<TranscriptTurn> => {
      const transcript = new Transcript();
      for await (const event of events) transcript.apply(event);
      return answered(transcript.last);
    };
    return Object.assign(known(events, follower), { turn, text: async () => textOf(await turn()) });
  }

  /**
   * Sends a message and returns the answer as it is, for those who pass it on; `parseSSEStream` reads it. It does not
   * come back when it breaks.
   */
  async sendMessage(sessionId: string, content: MessageContent, options: SendMessageOptions & { signal?: AbortSignal } = {}): Promise<Response> {
    const { idempotencyKey, signal, ...rest } = options;
    const headers = { accept: "text/event-stream" };
    const ask = { method: "POST", path: sessionPath(sessionId, "/messages"), json: { content, ...rest }, headers, signal } as const;
    return this.http.response({ ...ask, key: idempotencyKey ?? true });
  }

  /** Sends a message that nobody watches, and returns at once. `getRun` says what becomes of it. */
  async postMessage(sessionId: string, content: MessageContent, options: SendMessageOptions = {}): Promise<Sent> {
    const { idempotencyKey, ...rest } = options;
    const json = { content, ...rest, detach: true };
    return this.http.json({ method: "POST", path: sessionPath(sessionId, "/messages"), json, key: idempotencyKey ?? true });
  }

  /** Follows a session's log: what was, then what comes. */
  stream(sessionId: string, options: StreamOptions = {}): EventStream {
    const { after, until, onReconnect, signal } = options;
    const source = { kind: "log", session: sessionId, after: after?.toString(), until } as const;
    const { transport, either } = this.#unstoppable(signal);
    const follower = new Follower(transport, source, { onReconnect, signal: either });
    return known(follower.events(), follower);
  }

  /** What sends requests also when the caller has given up, and what tells that. */
  #unstoppable(signal: AbortSignal | undefined): { transport: Transport; either: AbortSignal | undefined } {
    const { signal: own, ...options } = this.http.options;
    const either = signal !== undefined && own !== undefined ? AbortSignal.any([signal, own]) : (signal ?? own);
    return { transport: own === undefined ? this.http : new Transport(options), either };
  }
}

async function* interruptible(
  follower: Follower,
  signal: AbortSignal | undefined,
  interrupt: (() => Promise<void>) | undefined,
): AsyncGenerator<AshStreamEvent, void, undefined> {
  try {
    yield* follower.events();
  } catch (error) {
    if (isAborted(signal)) await interrupt?.();
    throw error;
  }
}

/** Ends the run of a message, also if it still waits. It is named: whichever run goes on by then may be somebody else's. */
async function interruptRun(transport: Transport, session: string, follower: Follower): Promise<void> {
  let runId: string | undefined;
  try {
    runId = await follower.runAfterAbort();
    if (runId === undefined) return;
    const path = sessionPath(session, "/interrupt");
    await transport.json({ method: "POST", path, json: { runId }, repeat: "always" });
  } catch (cause) {
    // It came to its end before.
    if (cause instanceof AshApiError && cause.code === "no_such_run") return;
    const message = `the run ${runId ?? "of the message"} could not be interrupted and may go on`;
    throw new AshStreamError("not_interrupted", message, { lastEventId: follower.lastEventId, cause });
  }
}

function isAborted(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}

/** The events, with what is known of them. */
function known(events: AsyncGenerator<AshStreamEvent, void, undefined>, follower: Follower): EventStream {
  return Object.defineProperties(events, {
    runId: { get: () => follower.runId, enumerable: true },
    lastEventId: { get: () => follower.lastEventId, enumerable: true },
  }) as EventStream;
}
