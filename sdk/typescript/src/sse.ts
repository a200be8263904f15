/**
 * Server-sent events, from bytes that are cut anywhere: within a character, between CR and LF, in the middle of a name.
 *
 * Lines end with LF, CR or CR LF. Everything is kept as bytes until a line is whole, so a character that is cut is no
 * special case. What is kept is bounded.
 */
import { AshStreamError } from "./errors.js";
import { type AshStreamEvent, eventOf } from "./events.js";

/** One frame of a stream. */
export interface SseFrame {
  /** Its id, if it has one of its own. */
  id: string | undefined;
  /** Its name; `message` if it has none. */
  event: string;
  /** Its lines of data, joined. */
  data: string;
}

/** The largest frame that is taken unless told otherwise. */
export const MAX_FRAME_BYTES = 64 * 1024 * 1024;

const LF = 10;
const CR = 13;

/** Takes bytes, gives frames. */
export class SseParser {
  readonly #maxBytes: number;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  /** Pieces of a line that is not whole. */
  #pieces: Uint8Array[] = [];
  #pieceBytes = 0;
  /** The last byte was a CR: an LF that comes next belongs to it. */
  #afterCr = false;
  #first = true;
  #id: string | undefined;
  #event: string | undefined;
  #data: string[] | undefined;
  #frameBytes = 0;
  /** How many comments came. A server that has nothing to say sends them to show that it is there. */
  comments = 0;

  constructor(maxFrameBytes: number = MAX_FRAME_BYTES) {
    this.#maxBytes = maxFrameBytes;
  }

  /**
   * The frames that are whole now, in order. What comes after the last blank line is kept for the next call, and
   * forgotten with the parser: a frame that was cut is no frame.
   */
  push(chunk: Uint8Array): SseFrame[] {
    const frames: SseFrame[] = [];
    let start = 0;
    if (this.#afterCr && chunk.length > 0) {
      if (chunk[0] === LF) start = 1;
      this.#afterCr = false;
    }
    for (let at = nextEnd(chunk, start); at !== -1; at = nextEnd(chunk, start)) {
      this.#keep(chunk.subarray(start, at));
      start = at + 1;
      if (chunk[at] === CR) {
        if (start === chunk.length) this.#afterCr = true;
        else if (chunk[start] === LF) start += 1;
      }
      const frame = this.#line(this.#takeLine());
      if (frame !== undefined) frames.push(frame);
    }
    // Copied: whoever gave it may use its memory again.
    this.#keep(chunk.slice(start));
    return frames;
  }

  #keep(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#pieces.push(bytes);
    this.#pieceBytes += bytes.length;
    if (this.#frameBytes + this.#pieceBytes > this.#maxBytes) {
      throw new AshStreamError("frame_too_large", `a frame of the stream has more than ${this.#maxBytes} bytes`);
    }
  }

  #takeLine(): string {
    const pieces = this.#pieces;
    this.#frameBytes += this.#pieceBytes;
    let bytes = pieces[0] ?? new Uint8Array();
    if (pieces.length > 1) {
      bytes = new Uint8Array(this.#pieceBytes);
      let at = 0;
      for (const piece of pieces) {
        bytes.set(piece, at);
        at += piece.length;
      }
    }
    this.#pieces = [];
    this.#pieceBytes = 0;
    const line = this.#decoder.decode(bytes);
    if (!this.#first) return line;
    this.#first = false;
    return line.startsWith("\uFEFF") ? line.slice(1) : line;
  }

  #line(line: string): SseFrame | undefined {
    if (line === "") return this.#frame();
    const colon = line.indexOf(":");
    if (colon === 0) {
      this.comments += 1;
      if (this.#data === undefined && this.#event === undefined && this.#id === undefined) this.#frameBytes = 0;
      return undefined;
    }
    const name = colon === -1 ? line : line.slice(0, colon);
    let value = colon === -1 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (name === "data") (this.#data ??= []).push(value);
    else if (name === "event") this.#event = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    return undefined;
  }

  #frame(): SseFrame | undefined {
    const frame =
      this.#data === undefined
        ? undefined
        : { id: this.#id || undefined, event: this.#event || "message", data: this.#data.join("\n") };
    this.#id = undefined;
    this.#event = undefined;
    this.#data = undefined;
    this.#frameBytes = 0;
    return frame;
  }
}

function nextEnd(chunk: Uint8Array, from: number): number {
  for (let at = from; at < chunk.length; at += 1) {
    if (chunk[at] === LF || chunk[at] === CR) return at;
  }
  return -1;
}

/**
 * Yields the events of one answer, such as that of `sendMessage`, without coming back when it breaks.
 *
 * Most code wants `sendMessageStream` instead.
 */
export async function* parseSSEStream(
  body: ReadableStream<Uint8Array>,
  options: { maxFrameBytes?: number } = {},
): AsyncGenerator<AshStreamEvent, void, undefined> {
  const parser = new SseParser(options.maxFrameBytes);
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const frame of parser.push(value)) yield eventOf(frame);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
