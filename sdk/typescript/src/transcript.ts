/**
 * Events, folded into what a person wants to see: turns with their prompts, texts, thoughts and tools.
 *
 * What a `run_retry` takes back is taken out, what a `rewound` leaves behind is left out, and an event that comes twice
 * counts once. Nothing here talks to a server: it can be fed from a stream, from a log, or from a test.
 */
import { type AshContentBlock, type AshStreamEvent, type Place, type StopReason, isSeen, placeOf } from "./events.js";
import { AshRunError } from "./errors.js";
import type { Usage } from "./types.js";

/** A piece of an answer, or of a thought. */
export interface TranscriptText {
  kind: "text" | "thinking";
  /** All of it so far. */
  text: string;
}

/** A call of a tool. */
export interface TranscriptTool {
  kind: "tool";
  /** Its id. */
  id: string;
  /** Which tool. */
  name: string;
  /** What for. */
  input: unknown;
  /** What it gave, once it has. */
  result?: { content: unknown; isError: boolean };
}

/** Something in a turn, in the order of what happened. */
export type TranscriptItem = TranscriptText | TranscriptTool;

/** One message and what came of it. */
export interface TranscriptTurn {
  /** Its run; undefined, if the server does not say. */
  runId: string | undefined;
  /** Its number, once it has started. */
  turn: number | undefined;
  /** What was said to the agent, if the log was followed. */
  prompt: unknown;
  /** What the agent did. */
  items: TranscriptItem[];
  /** What it does now: `streaming_llm`, `executing_tools`, … */
  phase: string | undefined;
  /** Whether it is over. */
  isDone: boolean;
  /** Why it ended. */
  stopReason: StopReason | undefined;
  /** What went wrong, if something did. */
  error: { message: string; code: string | undefined } | undefined;
  /** What it consumed. */
  usage: Usage | undefined;
}

/** What an item is made of, with the places it came from: so that a part can be taken back. */
interface Piece {
  seq: number;
  undo: () => void;
}

interface Open {
  turn: TranscriptTurn;
  pieces: Piece[];
  /** Text came in pieces since the last whole message. */
  streamed: boolean;
  /** The next piece begins a new item. */
  closed: boolean;
}

/** Folds events. */
export class Transcript {
  /** The turns, in order. */
  readonly turns: TranscriptTurn[] = [];
  /** How often a part of the log was missing: what is here has a hole then. */
  gaps = 0;
  /** The place of the last event. */
  lastEventId: string | undefined;
  #place: Place | undefined;
  readonly #open = new Map<string | undefined, Open>();

  /** Folds all of them. */
  static of(events: Iterable<AshStreamEvent>): Transcript {
    const transcript = new Transcript();
    for (const event of events) transcript.apply(event);
    return transcript;
  }

  /** Takes the next event. An event that was taken before changes nothing. */
  apply(event: AshStreamEvent): this {
    const place = event.id === undefined ? undefined : placeOf(event.id);
    if (place !== undefined) {
      if (isSeen(this.#place, place)) return this;
      this.#place = place;
      this.lastEventId = event.id;
    }
    this.#take(event, event.seq ?? this.#place?.seq ?? 0);
    return this;
  }

  /** The turn that came last. */
  get last(): TranscriptTurn | undefined {
    return this.turns[this.turns.length - 1];
  }

  /** What the agent said in the last turn. */
  get text(): string {
    return textOf(this.last);
  }

  #take(event: AshStreamEvent, seq: number): void {
    switch (event.type) {
      case "gap":
        this.gaps += 1;
        this.#place = placeOf(event.data.to) ?? this.#place;
        return;
      case "rewound": {
        const { to } = event.data;
        const kept = this.turns.filter(({ turn }) => turn === undefined || turn <= to);
        this.turns.splice(0, this.turns.length, ...kept);
        return;
      }
      case "prompt":
        this.#of(event.data.runId).turn.prompt = event.data.content;
        return;
      case "run_started":
        this.#of(event.data.runId).turn.turn = event.data.turn;
        return;
      case "phase":
        this.#of(event.data.runId).turn.phase = event.data.phase;
        return;
      case "text_delta":
      case "thinking_delta":
        this.#say(event.type === "text_delta" ? "text" : "thinking", event.data.delta, seq, this.#of(event.data.runId));
        return;
      case "message":
        // A piece, told once more as the model's API tells it: see `includePartialMessages`.
        if (event.data.type === "stream_event") return;
        this.#message(event.data.type === "assistant" ? event.data.message?.content : undefined, seq, this.#of(event.data.runId));
        return;
      case "tool_use": {
        const { id, name, input, runId } = event.data;
        this.#add({ kind: "tool", id, name, input }, seq, this.#of(runId));
        return;
      }
      case "tool_result":
        this.#result(event.data.tool_use_id, { content: event.data.content, isError: event.data.is_error === true }, seq, this.#of(event.data.runId));
        return;
      case "run_retry":
        retract(this.#of(event.data.runId), event.data.discardAfterSeq);
        return;
      case "error":
        this.#of(event.data.runId).turn.error = { message: event.data.error, code: event.data.code };
        return;
      case "done": {
        const { turn } = this.#of(event.data.runId);
        turn.isDone = true;
        turn.phase = undefined;
        turn.stopReason = event.data.stopReason;
        turn.usage = event.data.usage;
        this.#open.delete(event.data.runId);
        return;
      }
      default:
    }
  }

  #of(runId: string | undefined): Open {
    const known = this.#open.get(runId);
    if (known !== undefined) return known;
    const turn: TranscriptTurn = {
      runId,
      turn: undefined,
      prompt: undefined,
      items: [],
      phase: undefined,
      isDone: false,
      stopReason: undefined,
      error: undefined,
      usage: undefined,
    };
    const open = { turn, pieces: [], streamed: false, closed: false };
    this.turns.push(turn);
    this.#open.set(runId, open);
    return open;
  }

  #say(kind: "text" | "thinking", delta: string, seq: number, open: Open): void {
    open.streamed = true;
    const last = open.turn.items[open.turn.items.length - 1];
    if (open.closed || last?.kind !== kind) {
      this.#add({ kind, text: delta }, seq, open);
      return;
    }
    const before = last.text.length;
    last.text += delta;
    open.pieces.push({ seq, undo: () => (last.text = last.text.slice(0, before)) });
  }

  /** A whole message. Its text is news only if it did not come in pieces. */
  #message(blocks: AshContentBlock[] | undefined, seq: number, open: Open): void {
    for (const block of open.streamed || !Array.isArray(blocks) ? [] : blocks) {
      if (block.type === "text" && typeof block.text === "string") this.#add({ kind: "text", text: block.text }, seq, open);
    }
    open.streamed = false;
    open.closed = true;
  }

  #add(item: TranscriptItem, seq: number, open: Open): void {
    const { items } = open.turn;
    items.push(item);
    open.closed = false;
    open.pieces.push({ seq, undo: () => void items.splice(items.indexOf(item), 1) });
  }

  #result(id: string, result: NonNullable<TranscriptTool["result"]>, seq: number, open: Open): void {
    const tool = open.turn.items.find((item): item is TranscriptTool => item.kind === "tool" && item.id === id);
    if (tool === undefined) return;
    tool.result = result;
    open.pieces.push({ seq, undo: () => delete tool.result });
  }
}

/** Takes back what came after a place, the last first. */
function retract(open: Open, after: number): void {
  for (let piece = open.pieces.pop(); piece !== undefined; piece = open.pieces.pop()) {
    if (piece.seq <= after) {
      open.pieces.push(piece);
      break;
    }
    piece.undo();
  }
  open.streamed = false;
  open.closed = true;
}

/** What the agent said in a turn. */
export function textOf(turn: TranscriptTurn | undefined): string {
  const texts = turn?.items.filter((item) => item.kind === "text") ?? [];
  return texts.map((item) => (item.kind === "text" ? item.text : "")).join("\n\n");
}

/** The turn, if it ended well; otherwise an error that says why it did not. */
export function answered(turn: TranscriptTurn | undefined): TranscriptTurn {
  const stopReason = turn?.stopReason ?? (turn?.error === undefined ? "end_turn" : "error");
  if (turn !== undefined && stopReason === "end_turn") return turn;
  const message = turn?.error?.message ?? `the run ended with ${stopReason}`;
  throw new AshRunError(message, { runId: turn?.runId, stopReason, code: turn?.error?.code });
}
