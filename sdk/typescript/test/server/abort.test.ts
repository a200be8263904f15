/** Giving up, and servers that go away. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AshRunError, type AshStreamEvent, Transcript } from "ash-sdk";
import { TestServer } from "../harness/server.js";

const ENDLESS = "Go on.\n/slow 20ms\n/endless";
let server: TestServer;
before(async () => {
  server = await TestServer.start();
  await server.agent();
});
after(() => server.end());

async function ended(session: string, runId: string): Promise<string> {
  for await (const event of server.client().stream(session)) {
    if (event.type === "done" && event.data.runId === runId) return event.data.stopReason ?? "";
  }
  return "never";
}

test("an abort ends the run on the server", async () => {
  const client = server.client();
  const { id } = await client.createSession("tester");
  const controller = new AbortController();
  const stream = client.sendMessageStream(id, ENDLESS, { signal: controller.signal });
  const reading = (async () => {
    for await (const event of stream) if (event.type === "text_delta") controller.abort(new Error("enough"));
  })();
  await assert.rejects(reading, { message: "enough" });
  assert.ok(stream.runId);
  assert.equal(await ended(id, stream.runId), "interrupted");
});

test("an abort before anything was answered ends the run, too", async () => {
  const client = server.client();
  const { id } = await client.createSession("tester");
  const controller = new AbortController();
  const reading = client.sendMessageStream(id, ENDLESS, { signal: controller.signal }).text();
  queueMicrotask(() => controller.abort());
  await assert.rejects(reading, { name: "AbortError" });
  for (const run of await client.listRuns(id)) {
    if (run.status === "running") assert.equal(await ended(id, run.id), "interrupted");
  }
});

test("an abort of a message that waits withdraws it, and nothing else", async () => {
  const client = server.client();
  const { id } = await client.createSession("tester");
  const theirs = await client.postMessage(id, ENDLESS);
  const controller = new AbortController();
  const stream = client.sendMessageStream(id, "/say Never.", { signal: controller.signal });
  const reading = (async () => {
    for await (const event of stream) if (event.type === "run_queued") controller.abort();
  })();
  await assert.rejects(reading, { name: "AbortError" });
  assert.equal((await client.getRun(id, String(stream.runId))).status, "cancelled");
  assert.equal((await client.getRun(id, theirs.runId)).status, "running");
  const mine = await client.postMessage(id, "/say Never.");
  assert.equal((await client.interrupt(id, { runId: mine.runId })).status, "cancelled");
  assert.equal((await client.getRun(id, theirs.runId)).status, "running");
  await client.endSession(id);
});

test("a client's signal does the same, and one that is aborted sends nothing", async () => {
  const { id } = await server.client().createSession("tester");
  const controller = new AbortController();
  const stream = server.client({ signal: controller.signal }).sendMessageStream(id, ENDLESS);
  const reading = (async () => {
    for await (const event of stream) if (event.type === "text_delta") controller.abort();
  })();
  await assert.rejects(reading, { name: "AbortError" });
  assert.equal(await ended(id, String(stream.runId)), "interrupted");
  await assert.rejects(server.client().sendMessageStream(id, "hi", { signal: AbortSignal.abort() }).text(), { name: "AbortError" });
  assert.equal((await server.client().listRuns(id)).length, 1);
});

test("detached, and left by a break, the run goes on", async () => {
  const client = server.client();
  const { id } = await client.createSession("tester");
  const controller = new AbortController();
  const prompt = "Slowly.\n/slow 10ms\n/say one two three four five six seven eight nine ten.";
  const detached = client.sendMessageStream(id, prompt, { signal: controller.signal, onAbort: "detach" });
  await assert.rejects(async () => {
    for await (const event of detached) if (event.type === "text_delta") controller.abort();
  });
  assert.equal(await ended(id, String(detached.runId)), "end_turn");
  const left = client.sendMessageStream(id, prompt);
  for await (const event of left) if (event.type === "text_delta") break;
  assert.equal(await ended(id, String(left.runId)), "end_turn");
  const rest: AshStreamEvent[] = [];
  for await (const event of client.stream(id, { after: left.lastEventId, until: "idle" })) rest.push(event);
  assert.equal(rest.at(-1)?.type, "done");
});

test("an interrupt from elsewhere is an error for who waits for the answer", async () => {
  const client = server.client();
  const { id } = await client.createSession("tester");
  const stream = client.sendMessageStream(id, ENDLESS);
  const events = (async () => {
    for await (const event of stream) if (event.type === "text_delta") break;
    return client.interrupt(id);
  })();
  assert.equal((await events).id, stream.runId);
  const failing = client.sendMessageStream(id, "Fail.\n/error 400 message no");
  await assert.rejects(failing.turn(), (error: unknown) => error instanceof AshRunError && error.stopReason === "error" && error.runId === failing.runId);
});

for (const signal of ["SIGTERM", "SIGKILL"] as const) {
  test(`a run is followed through a restart of the server by ${signal}`, async () => {
    const client = server.client();
    const { id } = await client.createSession("tester");
    const words = Array.from({ length: 60 }, (_, index) => `word${index}`).join(" ");
    const stream = client.sendMessageStream(id, `Slowly.\n/slow 20ms\n/say ${words}`);
    const transcript = new Transcript();
    let restarted: Promise<void> | undefined;
    const seen: AshStreamEvent[] = [];
    for await (const event of stream) {
      seen.push(event);
      transcript.apply(event);
      if (event.type === "text_delta") restarted ??= server.stopServer(signal).then(() => server.serve());
    }
    await restarted;
    assert.equal(transcript.text, words);
    const ids = seen.flatMap(({ id: place }) => place ?? []);
    assert.equal(new Set(ids).size, ids.length);
    const log: (string | undefined)[] = [];
    for await (const event of client.stream(id, { until: "idle" })) log.push(event.id);
    const start = log.indexOf(ids[0]);
    assert.deepEqual(ids, log.slice(start, log.indexOf(ids.at(-1)) + 1));
  });
}
