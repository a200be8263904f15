/** What the original's client reads of messages. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type AshStreamEvent, type DisplayItem, extractDisplayItems, extractStreamDelta, extractTextFromEvent } from "ash-sdk";

const assistant = (...content: object[]): object => ({ type: "assistant", message: { role: "assistant", content } });
const results = (...content: object[]): object => ({ type: "user", message: { role: "user", content } });
const adding = (delta: object): object => ({ type: "stream_event", event: { type: "content_block_delta", index: 0, delta } });
const text = (said: string): object => ({ type: "text", text: said });
const bash = { type: "tool_use", id: "t", name: "bash", input: { command: "ls -l", timeout: 5, env: { A: "b" } } };
const used = { type: "tool_use", content: "bash", toolName: "bash", toolInput: 'command: ls -l, timeout: 5, env: {"A":"b"}' };

/** What nobody has anything to show of. */
const OTHERS: object[] = [
  {},
  { type: "result", result: "Done." },
  { type: "system", subtype: "init" },
  { type: "assistant" },
  { type: "assistant", message: { role: "assistant", content: null } },
  { type: "stream_event" },
  { type: "stream_event", event: { type: "message_start", message: { content: [] } } },
  { type: "user", message: { role: "user", content: "Typed by somebody." } },
  { type: "user", message: { role: "user", content: [text("Typed by somebody.")] } },
  { type: "text_delta", data: { delta: "a" } },
  { type: "tool_result", data: { tool_use_id: "t", content: "a" } },
  { type: "message", data: { text: "no JSON" } },
  assistant({ type: "thinking", thinking: "Hm." }),
  adding({ type: "input_json_delta", partial_json: "{" }),
  adding({ type: "thinking_delta", thinking: "Hm." }),
];

test("the text of an agent's message is all of its texts", () => {
  assert.equal(extractTextFromEvent(assistant(text("Let me "), { type: "thinking", thinking: "Hm." }, bash, text("see."))), "Let me see.");
  assert.equal(extractTextFromEvent({ type: "assistant", message: { content: "Whole." } }), "Whole.");
  for (const other of [...OTHERS, assistant(bash), assistant(text("")), adding({ type: "text_delta", text: "a" })]) {
    assert.equal(extractTextFromEvent(other), null, JSON.stringify(other));
  }
});

test("the delta of a stream event is the text that it adds", () => {
  assert.equal(extractStreamDelta(adding({ type: "text_delta", text: "Grü" })), "Grü");
  assert.equal(extractStreamDelta(adding({ type: "text_delta", text: "" })), "");
  for (const other of [...OTHERS, assistant(text("a"))]) assert.equal(extractStreamDelta(other), null, JSON.stringify(other));
});

test("what an agent's message has to show are its texts and its calls of tools, in order", () => {
  const items = extractDisplayItems(assistant(text("I look."), { type: "thinking", thinking: "Hm." }, bash, text("Now.")));
  assert.deepEqual(items, [{ type: "text", content: "I look." }, used, { type: "text", content: "Now." }]);
  const without = [{ type: "tool_use", name: "now" }, { type: "tool_use", name: "now", input: {} }];
  const nothing = { type: "tool_use", content: "now", toolName: "now", toolInput: "" };
  assert.deepEqual(extractDisplayItems(assistant(...without)), [nothing, nothing]);
  for (const other of [...OTHERS, adding({ type: "text_delta", text: "a" })]) assert.equal(extractDisplayItems(other), null, JSON.stringify(other));
});

test("what tools gave is shown as they printed it, or as the model was told it", () => {
  const shown = (message: object): string[] | undefined => extractDisplayItems(message)?.map(({ type, content }) => `${type}: ${content}`);
  const blocks = results({ type: "tool_result", content: "one" }, { type: "tool_result", content: [text("two"), { type: "image" }, text("three")] });
  assert.deepEqual(shown(blocks), ["tool_result: one", "tool_result: two\nthree"]);
  assert.deepEqual(shown({ ...blocks, tool_use_result: { stdout: "1\n2", stderr: "" } }), ["tool_result: 1\n2"]);
  assert.deepEqual(shown({ type: "user", tool_use_result: { stdout: "1", stderr: "oh" } }), ["tool_result: 1\noh"]);
  assert.deepEqual(shown({ ...blocks, tool_use_result: { file: "a" } }), ["tool_result: one", "tool_result: two\nthree"]);
  assert.equal(shown(results({ type: "tool_result", content: " \n" }, { type: "tool_result" })), undefined);
  assert.equal(shown({ type: "user", tool_use_result: { stdout: "\n", stderr: "" } }), undefined);
});

test("what is long is cut, and never within a character", () => {
  const only = (message: object): DisplayItem | undefined => extractDisplayItems(message)?.[0];
  const calling = (command: string): object => assistant({ ...bash, input: { command } });
  assert.equal(only(calling("x".repeat(191)))?.toolInput, `command: ${"x".repeat(191)}`);
  assert.equal(only(calling("x".repeat(192)))?.toolInput, `command: ${"x".repeat(191)}...`);
  assert.equal(only(calling(`${"x".repeat(190)}🦆`))?.toolInput, `command: ${"x".repeat(190)}...`);
  const giving = (content: string): string | undefined => only(results({ type: "tool_result", content }))?.content;
  assert.equal(giving("x".repeat(1000)), "x".repeat(1000));
  assert.equal(giving("x".repeat(1001)), `${"x".repeat(1000)}\n...`);
});

test("a whole event is read as what it says", () => {
  const event = (data: object): AshStreamEvent => ({ type: "message", data, id: "1-2", seq: 2 }) as AshStreamEvent;
  assert.equal(extractTextFromEvent(event(assistant(text("Hi.")))), "Hi.");
  assert.equal(extractStreamDelta(event(adding({ type: "text_delta", text: "Hi" }))), "Hi");
  assert.deepEqual(extractDisplayItems(event(assistant(bash))), [used]);
});
