/** Streams against a real server, by ways that break. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AshClient, type AshStreamEvent, Transcript, extractDisplayItems, extractStreamDelta, extractTextFromEvent } from "ash-sdk";
import { collect } from "../harness/events.js";
import { type Fate, type Proxy, breakingProxy, chance } from "../harness/proxy.js";
import { TestServer } from "../harness/server.js";

const FAST = { firstPauseMs: 1, longestPauseMs: 10, attempts: 200 };
const PROMPT = [
  "Look around.",
  "/think I should look first.",
  "/say Größe, 日本語 and a 🦆 before the tool is called.",
  "/bash echo one; echo two",
  "/say It has been seen, and this is said at some length so that there is something to be cut in the middle.",
].join("\n");

let server: TestServer;
before(async () => {
  server = await TestServer.start();
  await server.agent();
});
after(() => server.end());

/** What the log has of a run, and of the session as a whole while it ran. */
async function logOf(session: string, runId: string | undefined): Promise<AshStreamEvent[]> {
  const log = await collect(server.client().stream(session, { until: "idle" }));
  const of = (event: AshStreamEvent): unknown => (event.data as { runId?: string }).runId;
  const prompt = log.findIndex((event) => event.type === "prompt" && of(event) === runId);
  const done = log.findIndex((event) => event.type === "done" && of(event) === runId);
  assert.ok(runId !== undefined && prompt !== -1 && done > prompt, "the run is in the log");
  return log.slice(prompt + 1, done + 1).filter((event) => of(event) === undefined || of(event) === runId);
}

const logged = (events: AshStreamEvent[]): AshStreamEvent[] => events.filter(({ id }) => id !== undefined);

async function through<T>(fate: (connection: number) => Fate, use: (client: AshClient, proxy: Proxy) => Promise<T>): Promise<T> {
  const proxy = await breakingProxy(server.url, fate);
  try {
    return await use(server.client({ serverUrl: proxy.url, streamRetry: FAST, retry: FAST }), proxy);
  } finally {
    await proxy.end();
  }
}

test("a run is told from its start to its end, as the log has it", async () => {
  const client = server.client();
  const session = await client.createSession("tester");
  const stream = client.sendMessageStream(session.id, PROMPT);
  const events = await collect(stream);
  assert.equal(events[0]?.type, "session_start");
  assert.equal(events.at(-1)?.type, "done");
  assert.deepEqual(logged(events), await logOf(session.id, stream.runId));
  assert.equal(stream.lastEventId, events.at(-1)?.id);
  const transcript = Transcript.of(events);
  const tool = transcript.last?.items.find((item) => item.kind === "tool");
  assert.equal(tool?.kind === "tool" && tool.name, "bash");
  assert.match(JSON.stringify(tool), /one\\ntwo/);
  assert.match(transcript.text, /^Größe, 日本語 and a 🦆.*\n\nIt has been seen/s);
});

for (const bytes of [450, 700, 1_000, 1_777, 4_096]) {
  test(`nothing is missing and nothing comes twice if every connection is cut after ${bytes} bytes or so`, async () => {
    const session = await server.client().createSession("tester");
    const random = chance(bytes);
    // A frame that never fits would never come through: so a bit more, now and then.
    const fate = (): Fate => ({ answerBytes: bytes + Math.floor(random() * 600) });
    await through(fate, async (client, proxy) => {
      const notices: number[] = [];
      const stream = client.sendMessageStream(session.id, PROMPT, { onReconnect: ({ attempt }) => notices.push(attempt) });
      const events = await collect(stream);
      assert.ok(proxy.broken > 1 || bytes > 4_000, `only ${proxy.broken} connections were cut`);
      assert.ok(notices.length > 0 || bytes > 4_000);
      assert.equal(events.filter(({ type }) => type === "session_start").length, 1);
      assert.deepEqual(logged(events), await logOf(session.id, stream.runId));
      assert.equal((await server.client().listRuns(session.id)).length, 1, "the message was taken once");
    });
  });
}

test("a message is sent once, also if requests are cut before they arrive and answers before they begin", async () => {
  const session = await server.client().createSession("tester");
  const fates: Fate[] = [{ requestBytes: 10 }, { requestBytes: 200 }, { answerBytes: 1 }, { answerBytes: 30 }, { answerBytes: 300 }, {}];
  await through((connection) => fates[connection] ?? {}, async (client) => {
    const text = await client.sendMessageStream(session.id, "Again.\n/say Only once.").text();
    assert.equal(text, "Only once.");
    assert.equal((await server.client().listRuns(session.id)).length, 1);
  });
});

test("a session is made once, also if the answer is lost", async () => {
  await server.agent("once");
  const fates: Fate[] = [{ answerBytes: 1 }, { answerBytes: 100 }];
  await through((connection) => fates[connection] ?? {}, async (client) => {
    const session = await client.createSession("once");
    const all = await server.client().listSessions("once");
    assert.deepEqual(all.map(({ id }) => id), [session.id]);
  });
});

test("a connection that falls silent is given up and resumed", async () => {
  const session = await server.client().createSession("tester");
  await through((connection) => (connection < 2 ? { answerBytes: 900, how: "silence" } : {}), async (client, proxy) => {
    const stream = client.with({ heartbeatTimeoutMs: 1_500 }).sendMessageStream(session.id, PROMPT);
    const events = await collect(stream);
    assert.ok(proxy.broken >= 1);
    assert.deepEqual(logged(events), await logOf(session.id, stream.runId));
  });
});

test("a log is followed through cuts, and from a place in it", async () => {
  const session = await server.client().createSession("tester");
  await server.client().sendMessageStream(session.id, PROMPT).text();
  const log = await collect(server.client().stream(session.id, { until: "idle" }));
  assert.deepEqual(log.map(({ seq }) => seq), log.map((_, index) => index + 1));
  const random = chance(3);
  await through(() => ({ answerBytes: 600 + Math.floor(random() * 900) }), async (client) => {
    assert.deepEqual(await collect(client.stream(session.id, { until: "idle" })), log);
    const after = log[4]?.id;
    assert.deepEqual(await collect(client.stream(session.id, { after, until: "idle" })), log.slice(5));
    assert.deepEqual(await collect(client.stream(session.id, { after: 7, until: "idle" })), log.slice(7));
  });
});

test("a log that is followed ends with its session", async () => {
  const client = server.client();
  const session = await client.createSession("tester");
  const events = [];
  for await (const event of client.stream(session.id)) {
    events.push(event.type);
    if (event.type === "session_active") await client.endSession(session.id);
  }
  assert.equal(events.at(-1), "session_ended");
});

test("a place of another history is told as a gap, and the stream goes on", async () => {
  const client = server.client();
  const session = await client.createSession("tester");
  const [first, ...rest] = await collect(client.stream(session.id, { after: "99-5", until: "idle" }));
  assert.ok(first?.type === "gap" && first.data.reason === "other_epoch");
  const transcript = Transcript.of([first, ...rest]);
  assert.equal(transcript.gaps, 1);
});

test("what the model said before it was cut off is taken back", async () => {
  const client = server.client();
  const session = await client.createSession("tester");
  const events = await collect(client.sendMessageStream(session.id, "Tell me.\n/slow 100ms\n/cut after 3 times 1\n/say One two three four five six."));
  assert.ok(events.some(({ type }) => type === "run_retry"));
  const said = events.map((event) => (event.type === "text_delta" ? event.data.delta : "")).join("");
  assert.notEqual(said, "One two three four five six.");
  assert.equal(Transcript.of(events).text, "One two three four five six.");
});

test("events of other runs are not told, also after a cut", async () => {
  const direct = server.client();
  const session = await direct.createSession("tester");
  await through(() => ({ answerBytes: 1_200 }), async (client) => {
    const first = client.sendMessageStream(session.id, `${PROMPT}\n/slow 5ms\n/say The first.`);
    const second = client.sendMessageStream(session.id, "Another.\n/say The second.");
    const [one, two] = await Promise.all([collect(first), collect(second)]);
    assert.notEqual(first.runId, second.runId);
    assert.deepEqual(logged(one), await logOf(session.id, first.runId));
    assert.equal(Transcript.of(two).turns.length, 1);
    assert.match(Transcript.of(two).text, /The second/);
  });
});

test("the original's readers find what a real run says, and nothing twice", async () => {
  const client = server.client();
  const session = await client.createSession("tester");
  const events = await collect(client.sendMessageStream(session.id, PROMPT, { includePartialMessages: true }));
  const found = <T>(read: (event: AshStreamEvent) => T | null): T[] => events.flatMap((event) => read(event) ?? []);
  const said = Transcript.of(events).text;
  assert.equal(found(extractStreamDelta).join(""), said.replace("\n\n", ""));
  assert.equal(found(extractTextFromEvent).join("\n\n"), said);
  const items = found(extractDisplayItems).flat();
  assert.deepEqual(items.map(({ type }) => type), ["text", "tool_use", "tool_result", "text"]);
  assert.deepEqual(items.slice(1, 3), [
    { type: "tool_use", content: "bash", toolName: "bash", toolInput: "command: echo one; echo two" },
    { type: "tool_result", content: "one\ntwo" },
  ]);
});
