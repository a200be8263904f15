/** Bytes and base64, in Node and in browsers. */
import type { Bytes } from "./types.js";

/** What can be sent as bytes. A text is sent in UTF-8. */
export type BytesInput = Uint8Array | ArrayBuffer | Blob | string;

/** How many bytes are turned into text at once: what a call can take as arguments, and a multiple of three. */
const PIECE = 0x6000;

/** Bytes of anything that is taken as such. */
export async function bytesOf(input: BytesInput): Promise<Uint8Array> {
  if (typeof input === "string") return new TextEncoder().encode(input);
  if (input instanceof Uint8Array) return input;
  if (input instanceof ArrayBuffer) return new Uint8Array(input);
  return new Uint8Array(await input.arrayBuffer());
}

/** Base64 of bytes, or of a text in UTF-8: what `writeSessionFiles` and `createAgent` take as `content`. */
export function toBase64(input: Uint8Array | string): string {
  const bytes = typeof input === "string" ? new TextEncoder().encode(input) : input;
  const pieces: string[] = [];
  for (let at = 0; at < bytes.length; at += PIECE) {
    pieces.push(btoa(String.fromCharCode(...bytes.subarray(at, at + PIECE))));
  }
  return pieces.join("");
}

/** Bytes as the caller's platform likes them. */
export function ownBytes(data: ArrayBuffer): Bytes {
  const { Buffer } = globalThis as { Buffer?: { from(data: ArrayBuffer): Uint8Array } };
  return (Buffer === undefined ? new Uint8Array(data) : Buffer.from(data)) as Bytes;
}

/** A random version 4 UUID, also on pages that browsers do not call secure. */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
