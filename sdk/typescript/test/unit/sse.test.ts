import assert from "node:assert/strict";
import { test } from "node:test";
import { AshStreamError, SseParser, type SseFrame, parseSSEStream } from "ash-sdk";
import { chance } from "../harness/proxy.js";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function parse(text: string, cuts: number[] = []): SseFrame[] {
  const parser = new SseParser();
  const all = bytes(text);
  const ends = [...cuts, all.length];
  return ends.flatMap((end, index) => parser.push(all.subarray(ends[index - 1] ?? 0, end)));
}

test("a frame has an id, a name and data", () => {
  assert.deepEqual(parse("id: 1-17\nevent: text_delta\ndata: {}\n\n"), [{ id: "1-17", event: "text_delta", data: "{}" }]);
});

test("lines end with LF, CR or CR LF", () => {
  for (const end of ["\n", "\r", "\r\n"]) {
    const text = ["event: a", "data: 1", "", "data: 2", "data: 3", "", ""].join(end);
    // A CR at the very end may be half of an end: the next byte tells.
    assert.deepEqual(
      parse(`${text}: more${end}`).map(({ event, data }) => [event, data]),
      [["a", "1"], ["message", "2\n3"]],
      JSON.stringify(end),
    );
  }
});

test("comments are counted and are no frames", () => {
  const parser = new SseParser();
  assert.deepEqual(parser.push(bytes(":    \n\n: heartbeat\n\n")), []);
  assert.equal(parser.comments, 2);
});

test("a space after the colon is no part of the value, a second one is; fields without a colon are empty", () => {
  assert.deepEqual(parse("data:  x\ndata:y\ndata\nnonsense\nretry: 5\n\n"), [{ id: undefined, event: "message", data: " x\ny\n" }]);
});

test("what has no data is no frame, and what is not whole is none either", () => {
  assert.deepEqual(parse("event: a\nid: 1\n\ndata: whole\n\ndata: half\n"), [{ id: undefined, event: "message", data: "whole" }]);
});

test("a mark at the very beginning is skipped, and nowhere else", () => {
  assert.deepEqual(parse("\uFEFFdata: \uFEFFx\n\n"), [{ id: undefined, event: "message", data: "\uFEFFx" }]);
});

test("wherever the bytes are cut, the frames are the same", () => {
  const random = chance(7);
  const ends = ["\n", "\r\n", "\r"];
  for (let round = 0; round < 300; round += 1) {
    const end = () => ends[Math.floor(random() * 3)] ?? "\n";
    let text = "";
    const wanted: SseFrame[] = [];
    for (let frame = 0; frame < 6; frame += 1) {
      const lines = ["größe", "日本語 🦆", "", "{\"a\":\"b\"}", "x".repeat(Math.floor(random() * 50))].slice(0, 1 + Math.floor(random() * 5));
      const id = random() < 0.5 ? `1-${frame}` : undefined;
      if (random() < 0.3) text += `: ♥${end()}`;
      if (id !== undefined) text += `id: ${id}${end()}`;
      text += `event: é${frame}${end()}`;
      for (const line of lines) text += `data: ${line}${end()}`;
      // A bare CR and a blank line that ends with LF would be one end.
      text += text.endsWith("\r") ? "\r" : end();
      wanted.push({ id, event: `é${frame}`, data: lines.join("\n") });
    }
    text += ":\n";
    const length = bytes(text).length;
    const cuts = Array.from({ length: Math.floor(random() * 40) }, () => Math.floor(random() * length)).sort((a, b) => a - b);
    assert.deepEqual(parse(text, cuts), wanted, `round ${round}: ${JSON.stringify(text)} cut at ${cuts.join(" ")}`);
    assert.deepEqual(parse(text, Array.from({ length }, (_, at) => at)), wanted, `round ${round}, byte by byte`);
  }
});

test("a frame is bounded, on one line, on many, and without an end", () => {
  const refused = (error: unknown): boolean => error instanceof AshStreamError && error.code === "frame_too_large";
  assert.throws(() => new SseParser(100).push(bytes(`data: ${"x".repeat(200)}\n\n`)), refused);
  assert.throws(() => new SseParser(100).push(bytes("data: 0123456789\n".repeat(10))), refused);
  const parser = new SseParser(1000);
  assert.throws(() => {
    for (let at = 0; at < 200; at += 1) parser.push(bytes("0123456789"));
  }, refused);
  // Many small ones are fine, and so are many comments.
  const small = new SseParser(100);
  for (let at = 0; at < 100; at += 1) small.push(bytes("data: 0123456789\n\n:0123456789\n"));
});

test("the answer of sendMessage can be read by itself", async () => {
  const body = new Blob(["event: text_delta\ndata: {\"delta\":\"a\"}\n\nevent: odd\ndata: not json\n\n"]).stream();
  const events = [];
  for await (const event of parseSSEStream(body)) events.push(event);
  assert.deepEqual(events, [
    { type: "text_delta", data: { delta: "a" } },
    { type: "odd", data: { text: "not json" } },
  ]);
});
