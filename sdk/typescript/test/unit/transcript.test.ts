import assert from "node:assert/strict";
import { test } from "node:test";
import { type AshEventMap, type AshStreamEvent, type KnownEventName, Transcript, type TranscriptItem } from "ash-sdk";

let seq = 0;
function event<Name extends KnownEventName>(type: Name, data: AshEventMap[Name]): AshStreamEvent {
  seq += 1;
  return { type, data, id: `1-${seq}`, seq } as AshStreamEvent;
}
const texts = (items: TranscriptItem[] | undefined): string[] => (items ?? []).map((item) => (item.kind === "tool" ? `<${item.name}>` : item.text));

test("pieces become texts, and tools have their results", () => {
  const transcript = Transcript.of([
    event("prompt", { runId: "r", content: "hi" }),
    event("run_started", { runId: "r", turn: 1, parentTurn: null }),
    event("thinking_delta", { runId: "r", delta: "hm" }),
    event("text_delta", { runId: "r", delta: "Let me " }),
    event("text_delta", { runId: "r", delta: "see." }),
    event("message", { runId: "r", type: "assistant", message: { role: "assistant", content: [{ type: "text", text: "Let me see." }] } }),
    event("tool_use", { runId: "r", id: "t", name: "bash", input: { command: "ls" } }),
    event("tool_result", { runId: "r", tool_use_id: "t", content: "a b", is_error: false }),
    event("text_delta", { runId: "r", delta: "Two." }),
    event("done", { runId: "r", sessionId: "s", stopReason: "end_turn" }),
  ]);
  const turn = transcript.last;
  assert.equal(turn?.prompt, "hi");
  assert.equal(turn.turn, 1);
  assert.deepEqual(turn.items, [
    { kind: "thinking", text: "hm" },
    { kind: "text", text: "Let me see." },
    { kind: "tool", id: "t", name: "bash", input: { command: "ls" }, result: { content: "a b", isError: false } },
    { kind: "text", text: "Two." },
  ]);
  assert.equal(transcript.text, "Let me see.\n\nTwo.");
  assert.ok(turn.isDone);
});

test("what a retry takes back is taken back, and no more", () => {
  const transcript = new Transcript();
  transcript.apply(event("text_delta", { runId: "r", delta: "kept" }));
  const kept = seq;
  transcript.apply(event("message", { runId: "r", type: "assistant" }));
  transcript.apply(event("text_delta", { runId: "other", delta: "theirs" }));
  transcript.apply(event("text_delta", { runId: "r", delta: "half an ans" }));
  transcript.apply(event("tool_use", { runId: "r", id: "t", name: "bash", input: {} }));
  transcript.apply(event("tool_result", { runId: "r", tool_use_id: "t", content: "x" }));
  transcript.apply(event("text_delta", { runId: "r", delta: "!" }));
  transcript.apply(event("run_retry", { runId: "r", round: 2, discardAfterSeq: kept }));
  assert.deepEqual(texts(transcript.turns[0]?.items), ["kept"]);
  transcript.apply(event("text_delta", { runId: "r", delta: "anew" }));
  assert.deepEqual(texts(transcript.turns[0]?.items), ["kept", "anew"]);
  assert.deepEqual(texts(transcript.turns[1]?.items), ["theirs"]);
});

test("a retry can cut within a text", () => {
  const transcript = new Transcript();
  transcript.apply(event("text_delta", { runId: "r", delta: "ab" }));
  const kept = seq;
  transcript.apply(event("text_delta", { runId: "r", delta: "cd" }));
  transcript.apply(event("run_retry", { runId: "r", round: 1, discardAfterSeq: kept }));
  assert.deepEqual(texts(transcript.last?.items), ["ab"]);
});

test("what comes twice counts once; what is of another history does not count as seen", () => {
  const first = event("text_delta", { runId: "r", delta: "a" });
  const second = event("text_delta", { runId: "r", delta: "b" });
  const transcript = Transcript.of([first, second, first, second, { ...first, id: `2-${first.seq ?? 0}` }]);
  assert.deepEqual(texts(transcript.last?.items), ["aba"]);
});

test("text that did not come in pieces comes from the whole message", () => {
  const content = [{ type: "text", text: "all at once" }];
  const transcript = Transcript.of([
    { type: "message", data: { type: "assistant", message: { role: "assistant", content } } },
    { type: "message", data: { type: "result", result: "all at once" } },
    { type: "done", data: { sessionId: "s" } },
  ]);
  assert.equal(transcript.text, "all at once");
});

test("a rewind leaves later turns behind, and a gap is counted", () => {
  const turn = (runId: string, number: number): AshStreamEvent[] => [
    event("run_started", { runId, turn: number, parentTurn: number - 1 }),
    event("text_delta", { runId, delta: runId }),
    event("done", { runId, sessionId: "s" }),
  ];
  const before = [...turn("a", 1), ...turn("b", 2), ...turn("c", 3)];
  const rewound = event("rewound", { from: 3, to: 1, snapshotId: null });
  const events = [...before, rewound, ...turn("d", 2)];
  const gap: AshStreamEvent = { type: "gap", data: { from: "1-3", to: "1-2", reason: "beyond_end" } };
  const transcript = Transcript.of([...events, gap]);
  assert.deepEqual(transcript.turns.map(({ runId }) => runId), ["a", "d"]);
  assert.equal(transcript.gaps, 1);
});
