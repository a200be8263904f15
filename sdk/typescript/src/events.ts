/**
 * What a session tells: one type for each name, told apart by `type`.
 *
 * Servers learn new names. An event that is not known here is an `AshUnknownEvent`: it is passed on as it came, and
 * `switch (event.type)` still narrows every known one.
 */
import type { ResumeReceipt, Usage } from "./types.js";
import type { SseFrame } from "./sse.js";

/** What every event has. */
export interface AshEventBase<Name extends string, Data> {
  /** Its name. */
  type: Name;
  /** Its fields. */
  data: Data;
  /** Its place in the session's log, `<epoch>-<seq>`: what a later stream can begin after. Absent if it is not logged. */
  id?: string;
  /** Its sequence in the log. Absent if it is not logged. */
  seq?: number;
}

/** Fields of an event of a run. Further fields may come with later servers. */
interface OfRun {
  /** Which run. Servers before this one do not say. */
  runId?: string;
}

interface OfSession {
  /** Which session. */
  sessionId: string;
}

/** A block of a model's message; unknown kinds are passed on. */
export interface AshContentBlock {
  /** `text`, `thinking`, `tool_use`, `tool_result`, … */
  type: string;
  /** Of a text. */
  text?: string;
  [field: string]: unknown;
}

/** A whole message of an agent, as it sent it: `assistant`, `result`, or something else. */
export interface AshMessageData extends OfRun {
  /** What kind of message. */
  type: string;
  /** Of an `assistant` message: what the model said. */
  message?: { role: string; content: AshContentBlock[]; [field: string]: unknown };
  /** Of a `result`: what was said last. */
  result?: string;
  /** Of a `result`: whether the turn failed. */
  is_error?: boolean;
  /** The session. */
  session_id?: string;
  [field: string]: unknown;
}

/** Why a run ended. */
export type StopReason = "end_turn" | "interrupted" | "error" | "budget" | "quota" | "timeout" | "max_turns" | (string & {});

/** The fields of every event that is known, by its name. */
export interface AshEventMap {
  /** The first event of a run that is told as it happens. Not logged. */
  session_start: OfSession & OfRun & { version?: string };
  /** Another run goes on; this one waits, in this place. Not logged. */
  run_queued: OfRun & { position: number };
  /** The log does not hold what comes after your place; the stream goes on after `to`. Not logged. */
  gap: { from: string; to: string; reason: "other_epoch" | "beyond_end" | (string & {}) };

  session_created: OfSession;
  session_active: OfSession & { incarnation: number };
  session_paused: OfSession & { reason: string };
  session_waking: OfSession;
  /** The session came back: the receipt. */
  session_resumed: OfSession & { incarnation: number; path: string } & Partial<Omit<ResumeReceipt, "path">>;
  /** The agent does not know any more what the log says. */
  context_lost: OfSession & { turnsInLog: number; reason: string };
  session_stopped: OfSession;
  session_failed: OfSession & { code: string; error: string };
  session_ended: OfSession & { by?: string };
  session_forked: OfSession & { parentSessionId: string; turn: number; snapshotId: string | null };
  session_imported: OfSession & { from: string; turn: number; snapshotId: string | null };
  /** The conversation goes on from an earlier turn. */
  rewound: { from: number; to: number; snapshotId: string | null };

  /** A message was accepted. */
  prompt: OfRun & { content: unknown };
  run_started: OfRun & { turn: number; parentTurn: number | null };
  phase: OfRun & { phase: "streaming_llm" | "executing_tools" | "delegating_coder" | (string & {}); round: number };
  /** The model is asked again: what the run said after `discardAfterSeq` does not count. `Transcript` takes it back. */
  run_retry: OfRun & { round: number; discardAfterSeq: number };
  run_cancelling: OfRun;
  /** A piece of the answer. */
  text_delta: OfRun & { delta: string };
  /** A piece of what the agent thinks. */
  thinking_delta: OfRun & { delta: string };
  /** A whole message. */
  message: AshMessageData;
  /** Something that the agent said of its own accord, without a run, after a turn. `name` is `message` for a whole message. */
  aside: { turn: number; name: string; body?: unknown; bytes?: number };
  /** A tool is called. */
  tool_use: OfRun & { id: string; name: string; input: unknown };
  /** What it gave. */
  tool_result: OfRun & { tool_use_id: string; content: unknown; is_error?: boolean };
  /** The turn is over for the agent; `done` follows. */
  turn_complete: OfRun & { numTurns?: number; result?: string };
  /** The agent asks before it does something: answer with `answerPermission`. */
  permission_request: OfRun & { id: string; tool: string; input: unknown };
  permission_decided: OfRun & { id: string; behavior: "allow" | "deny"; input?: unknown; message?: string };
  permission_resolved: OfRun & { id: string; behavior: string; how: string; code: string | null };
  /** What the agent keeps in mind has changed. */
  working_memory: OfRun & { scope?: string; [field: string]: unknown };
  /** Something that a person may want to know. */
  notice: OfRun & { text?: string; message?: string };
  /** The sandbox skipped numbers: what it reported under them is lost. */
  reports_lost: { missing: unknown };
  /** Of other servers of this API. */
  session_end: { sessionId: string };
  /** Why a run could not be done; its `done` follows. */
  error: OfRun & { error: string; code?: string };
  /** The run is over. */
  done: OfSession & OfRun & { stopReason?: StopReason; status?: string; usage?: Usage };
}

/** The names of the events that are known. */
export type KnownEventName = keyof AshEventMap;

/**
 * The type of a name that is not known here: a text, and equal to none of the known names. It is a type only; to compare
 * such a name, write `(event.type as string) === "…"`.
 */
export declare enum UnknownEventName {
  /** Stands for all of them. */
  Unknown = "",
}

/** An event whose name is not known here, as it came. */
export type AshUnknownEvent = AshEventBase<UnknownEventName, Record<string, unknown>>;

/** An event of a name. */
export type AshEvent<Name extends KnownEventName> = AshEventBase<Name, AshEventMap[Name]>;

/** Any event of a session. */
export type AshStreamEvent = { [Name in KnownEventName]: AshEvent<Name> }[KnownEventName] | AshUnknownEvent;

/** `message` */
export type AshMessageEvent = AshEvent<"message">;
/** `error` */
export type AshErrorEvent = AshEvent<"error">;
/** `done` */
export type AshDoneEvent = AshEvent<"done">;
/** `text_delta` */
export type AshTextDeltaEvent = AshEvent<"text_delta">;
/** `thinking_delta` */
export type AshThinkingDeltaEvent = AshEvent<"thinking_delta">;
/** `tool_use` */
export type AshToolUseEvent = AshEvent<"tool_use">;
/** `tool_result` */
export type AshToolResultEvent = AshEvent<"tool_result">;
/** `turn_complete` */
export type AshTurnCompleteEvent = AshEvent<"turn_complete">;
/** `session_start` */
export type AshSessionStartEvent = AshEvent<"session_start">;
/** Every name that an event can have. */
export type AshSSEEventType = KnownEventName | (string & {});

/** The event of a frame. Data that is no object of JSON is under `text`. */
export function eventOf(frame: SseFrame): AshStreamEvent {
  // The names and their fields are the server's promise; what it says under others is not looked at.
  const event: AshUnknownEvent = { type: frame.event as UnknownEventName, data: fieldsOf(frame.data) };
  if (frame.id !== undefined) {
    event.id = frame.id;
    const seq = placeOf(frame.id)?.seq;
    if (seq !== undefined) event.seq = seq;
  }
  return event;
}

/** A place in a session's log. */
export interface Place {
  /** Which history of the log; undefined, if a person named the place. */
  epoch: number | undefined;
  /** How far. */
  seq: number;
}

/** Reads `<epoch>-<seq>`, or a sequence alone. */
export function placeOf(text: string): Place | undefined {
  const match = /^(?:(\d{1,15})-)?(\d{1,15})$/.exec(text);
  if (match === null) return undefined;
  return { epoch: match[1] === undefined ? undefined : Number(match[1]), seq: Number(match[2]) };
}

/** Whether an event at `other` was already seen by one who stands at `seen`. */
export function isSeen(seen: Place | undefined, other: Place): boolean {
  return seen !== undefined && (seen.epoch === undefined || seen.epoch === other.epoch) && other.seq <= seen.seq;
}

function fieldsOf(data: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(data);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch {
    // Not JSON: it is passed on as text.
  }
  return { text: data };
}
