/** Every method of the client that the server has a route for. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import * as ash from "ash-sdk";
import { TestServer } from "../harness/server.js";

let server: TestServer;
let client: ash.AshClient;
before(async () => {
  server = await TestServer.start();
  client = server.client();
  await server.agent();
});
after(() => server.end());

const session = (options?: ash.CreateSessionOptions): Promise<ash.Session> => client.createSession("tester", options);

test("agents", async () => {
  const agent = await client.createAgent("made", { systemPrompt: "Be kind.", env: { A: "b" } });
  assert.equal(agent.version, 1);
  assert.deepEqual((await client.listAgents()).map(({ name }) => name), ["made", "tester"]);
  assert.equal((await client.getAgent("made")).id, agent.id);
  assert.ok((await client.listAgentFiles("made")).files.some(({ path }) => path === "CLAUDE.md"));
  assert.match((await client.getAgentFile("made", "CLAUDE.md")).content, /Be kind/);
  assert.equal((await client.updateAgent("made", { env: { C: "d" } })).name, "made");
  const versions = await client.listAgentVersions("made");
  assert.equal((await client.getAgentVersion("made", 1)).versionNumber, versions[0]?.versionNumber);
  await client.deleteAgent("made");
  await assert.rejects(client.getAgent("made"), ash.AshNotFoundError);
  await assert.rejects(client.deployAgent("nowhere", "/nonexistent"), ash.AshApiError);
});

test("files, settings and versions of an agent", async () => {
  await client.createAgent("changed", { systemPrompt: "Be kind." });
  const written = await client.uploadAgentFiles("changed", [{ path: "more.md", content: ash.toBase64("More.") }]);
  assert.deepEqual([written.written, written.version], [1, 2]);
  assert.equal((await client.deleteAgentFile("changed", "more.md")).deleted, true);
  await client.updateAgentConfig("changed", { color: "green" });
  const config: ash.AgentConfig = await client.updateAgentConfig("changed", { size: 3 });
  assert.deepEqual(await client.getAgentConfig("changed"), config);
  assert.equal(config["color"], "green");
  const input: ash.CreateAgentVersionInput = { name: "tiny", systemPrompt: "Be tiny.", cloneFrom: 1 };
  const made: ash.AgentVersion = await client.createAgentVersion("changed", input);
  assert.deepEqual([made.name, made.isActive], ["tiny", false]);
  assert.equal((await client.updateAgentVersion("changed", made.id, { releaseNotes: "Smaller." })).releaseNotes, "Smaller.");
  assert.equal((await client.activateAgentVersion("changed", made.versionNumber)).versionNumber, made.versionNumber);
  await client.deleteAgentVersion("changed", 1);
  assert.ok((await client.listAgentVersions("changed")).every(({ versionNumber }) => versionNumber !== 1));
  await client.deleteAgent("changed");
});

test("sessions are made with all options, listed, paged and ended", async () => {
  const made = await session({ title: "A title", metadata: { team: "x" }, model: "other", ttlMs: 600_000, budgetUsd: 1 });
  assert.deepEqual([made.title, made.metadata, made.model, made.status], ["A title", { team: "x" }, "other", "active"]);
  assert.equal((await client.getSession(made.id)).id, made.id);
  const second = await session();
  const { total, sessions } = await client.listSessionsWithTotal({ agent: "tester", limit: 1 });
  assert.equal(sessions.length, 1);
  assert.ok(total >= 2);
  const all = [];
  for await (const one of client.allSessions({ agent: "tester", limit: 1 })) all.push(one.id);
  assert.ok(all.includes(made.id) && all.includes(second.id));
  assert.equal((await client.listSessions("tester")).length, total);
  assert.equal((await client.updateSessionConfig(made.id, { title: "Another" })).title, "Another");
  assert.equal((await client.endSession(made.id)).status, "ended");
  assert.equal((await client.endSession(made.id)).status, "ended");
  await assert.rejects(client.resumeSession(made.id), ash.AshGoneError);
  await assert.rejects(client.sendMessageStream(made.id, "hi").text(), ash.AshInvalidRequestError);
  await client.endSession(second.id);
});

test("pause, resume with the receipt, stop", async () => {
  const { id } = await session();
  await client.sendMessageStream(id, "Remember the word marmalade.\n/say I do.").text();
  assert.equal((await client.pauseSession(id, { ifRunning: "interrupt" })).status, "paused");
  await assert.rejects(client.pauseSession(id), ash.AshInvalidRequestError);
  const warm = await client.resumeSession(id);
  assert.deepEqual([warm.status, warm.resume.path, warm.resume.conversation.native], ["active", "warm", "intact"]);
  assert.equal((await client.resumeSession(id)).resume.path, "noop");
  assert.equal((await client.stopSession(id)).status, "stopped");
  const cold = await client.resumeSession(id, { requireState: true });
  assert.deepEqual([cold.resume.path, cold.resume.source], ["cold", "local"]);
  assert.match(await client.sendMessageStream(id, "Which word?\n/recall").text(), /marmalade/);
  await client.endSession(id);
});

test("messages: typed, whole, posted, and refused while busy", async () => {
  const { id } = await session();
  const blocks = await client.sendMessageStream(id, [{ type: "text", text: "Two blocks." }, { type: "text", text: "/say Both." }]).text();
  assert.equal(blocks, "Both.");
  const response = await client.sendMessage(id, "Raw.\n/say As it is.", { includePartialMessages: true, maxTurns: 3 });
  assert.ok(response.body);
  const events = [];
  for await (const event of ash.parseSSEStream(response.body)) events.push(event);
  assert.equal(ash.Transcript.of(events).text, "As it is.");
  const { runId } = await client.postMessage(id, "Go on.\n/slow 20ms\n/endless");
  await assert.rejects(client.sendMessageStream(id, "Me first!", { ifBusy: "reject" }).text(), ash.AshConflictError);
  await client.interrupt(id);
  for await (const event of client.stream(id, { until: "idle" })) assert.ok(event);
  const run = await client.getRun(id, runId);
  assert.deepEqual([run.status, run.stopReason], ["cancelled", "interrupted"]);
  assert.equal((await client.listRuns(id)).length, 3);
  const messages = await client.listMessages(id, { limit: 2 });
  assert.equal(messages[0]?.role, "user");
  const later = await client.listMessages(id, { afterSequence: messages[1]?.sequence ?? 0 });
  assert.ok(later.every(({ sequence }) => sequence > (messages[1]?.sequence ?? 0)));
  assert.ok((await client.listSessionEvents(id, { type: "lifecycle" })).every(({ type }) => type === "lifecycle"));
  assert.ok(Array.isArray((await client.getSessionLogs(id)).logs));
  assert.ok((await client.listEgress(id)).requests.length > 0);
  const key = { idempotencyKey: "mine" };
  const once = await client.postMessage(id, "Once.\n/say Once.", key);
  assert.equal((await client.postMessage(id, "Once.\n/say Once.", key)).runId, once.runId);
  await assert.rejects(client.postMessage(id, "Another.", key), { code: "idempotency_mismatch" });
  await client.endSession(id);
});

test("permissions are asked and answered", async () => {
  const { id } = await session({ permissionMode: "default" });
  for (const behavior of ["allow", "deny"] as const) {
    let open: ash.Permission[] = [];
    const turn = new ash.Transcript();
    for await (const event of client.sendMessageStream(id, `Please ${behavior}.\n/bash echo done it\n/results`)) {
      turn.apply(event);
      if (event.type !== "permission_request") continue;
      assert.equal(event.data.tool, "bash");
      open = await client.listPermissions(id);
      assert.deepEqual(open.map((one) => one.id), [event.data.id]);
      const answer: ash.PermissionAnswer = behavior === "allow" ? { behavior } : { behavior, message: "rather not" };
      assert.equal((await client.answerPermission(id, event.data.id, answer)).behavior, behavior);
    }
    assert.equal(open.length, 1);
    assert.match(turn.text, behavior === "allow" ? /done it/ : /rather not/);
  }
  await client.endSession(id);
});

test("files and workspaces", async () => {
  const { id } = await session();
  const content = "grüße\n";
  const written = await client.writeSessionFiles(id, [{ path: "a b/ü.txt", content: ash.toBase64(content) }, { path: "../no", content: "" }], "sub");
  assert.deepEqual(written.files.map((file) => file.written), [true, false]);
  const { files, source } = await client.getSessionFiles(id);
  assert.ok(files.some(({ path }) => path === "sub/a b/ü.txt") && source === "sandbox");
  assert.equal((await client.getSessionFile(id, "sub/a b/ü.txt")).content, content);
  const { buffer, mimeType } = await client.downloadSessionFile(id, "sub/a b/ü.txt");
  assert.ok(Buffer.isBuffer(buffer) && buffer.toString("utf8") === content && mimeType.startsWith("text/"));
  assert.equal(await (await client.downloadSessionFileRaw(id, "sub/a b/ü.txt")).text(), content);
  const { exitCode, stdout, stderr } = await client.exec(id, "cat 'sub/a b/ü.txt'; exit 3");
  assert.deepEqual([exitCode, stdout, stderr], [3, content, ""]);
  const bundle = await client.downloadWorkspace(id);
  assert.equal((await client.deleteSessionFile(id, "sub/a b/ü.txt")).deleted, true);
  await assert.rejects(client.getSessionFile(id, "sub/a b/ü.txt"), ash.AshNotFoundError);
  await client.uploadWorkspace(id, bundle);
  assert.equal((await client.getSessionFile(id, "sub/a b/ü.txt")).content, content);
  await client.endSession(id);
});

test("attachments", async () => {
  const { id } = await session();
  const made: ash.Attachment = await client.uploadAttachment(id, "a.txt", "hi", { mimeType: "text/plain" });
  assert.deepEqual([made.filename, made.mimeType, made.size, made.sessionId], ["a.txt", "text/plain", 2, id]);
  assert.equal((await client.getSessionFile(id, made.path)).content, "hi");
  assert.deepEqual((await client.listAttachments(id)).map((one) => one.id), [made.id]);
  assert.equal((await client.downloadAttachment(made.id)).toString(), "hi");
  await client.deleteAttachment(made.id);
  assert.deepEqual(await client.listAttachments(id), []);
  await client.endSession(id);
});

test("the queue: an item that is done, and one that is taken back", async () => {
  const over = async (queued: ash.QueueItem): Promise<ash.QueueItem> => {
    let item = queued;
    for (let look = 0; look < 600 && !item.completedAt; look += 1) {
      item = await client.getQueueItem(queued.id);
      await setTimeout(50);
    }
    return item;
  };
  const done = await over(await client.enqueue("tester", "/say Later.", { priority: 1, maxRetries: 2 }));
  assert.deepEqual([done.status, done.result], ["completed", "Later."]);
  // Of one session one item is worked on at a time, and the first one never comes to its end by itself.
  const { id } = await session();
  const first = await client.enqueue("tester", "/hang", { sessionId: id, priority: 1 });
  const second = await client.enqueue("tester", "/say Never.", { sessionId: id });
  assert.deepEqual((await client.listQueueItems({ limit: 1 })).map((item) => item.id), [second.id]);
  assert.deepEqual((await client.listQueueItems({ limit: 1, cursor: second.id })).map((item) => item.id), [first.id]);
  assert.equal((await client.cancelQueueItem(second.id)).status, "cancelled");
  await assert.rejects(client.cancelQueueItem(second.id), { code: "not_pending" });
  const stats: ash.QueueStats = await client.getQueueStats();
  assert.ok(stats.cancelled >= 1 && stats.pending + stats.processing >= 1);
  await client.endSession(id);
  assert.ok(["failed", "cancelled"].includes((await over(first)).status));
  const figures: ash.Analytics = await client.getAnalytics();
  assert.ok(figures.agents.total >= 1 && figures.sessions.total >= 1);
});

test("history: snapshots, diff, fork at a turn, rewind, export and import", async () => {
  const { id } = await session();
  for (const turn of [1, 2]) await client.sendMessageStream(id, `Turn ${turn}.\n/bash echo ${turn} > turn.txt\n/say Done ${turn}.`).text();
  await client.stopSession(id);
  let snapshots: ash.Snapshot[] = [];
  for (let look = 0; look < 600 && snapshots[0]?.turn !== 2; look += 1) {
    snapshots = await client.listSnapshots(id);
    await setTimeout(50);
  }
  const [first, second] = [1, 2].map((wanted) => snapshots.find(({ turn }) => turn === wanted));
  assert.ok(first !== undefined && second !== undefined);
  const diff = await client.diffSnapshots(id, second.id, { against: first.id });
  assert.ok(diff.files.some(({ path }) => path === "turn.txt"));
  const fork = await client.forkSession(id, { turn: 1 });
  assert.equal(fork.parentSessionId, id);
  assert.equal((await client.getSessionFile(fork.id, "turn.txt")).content, "1\n");
  assert.equal((await client.rewindSession(id, { turn: 1, dryRun: true })).changes.modified, 1);
  await client.rewindSession(id, { turn: 1 });
  await client.resumeSession(id);
  assert.equal((await client.getSessionFile(id, "turn.txt")).content, "1\n");
  await client.stopSession(id);
  const bundle = await client.exportSession(id);
  assert.equal((await (await client.exportSessionRaw(id)).arrayBuffer()).byteLength > 0, bundle.length > 0);
  const imported = await client.importSession(bundle);
  assert.notEqual(imported.id, id);
  await client.resumeSession(imported.id);
  assert.match(await client.sendMessageStream(imported.id, "What was it?\n/recall").text(), /Turn 1/);
  await assert.rejects(client.listCloudSessions(), { code: "no_cloud" });
  for (const one of [id, fork.id, imported.id]) await client.endSession(one);
});

test("credentials, keys, usage, health", async () => {
  const stored = await client.storeCredential("custom", "secret", "a label", { header: "x-key", host: "example.com" });
  assert.equal(stored.label, "a label");
  assert.deepEqual((await client.listCredentials()).map(({ id }) => id), [stored.id]);
  await client.deleteCredential(stored.id);
  assert.deepEqual(await client.listCredentials(), []);
  const made = await client.createApiKey("for a test");
  const other = client.with({ apiKey: made.key });
  assert.ok((await other.listAgents()).length > 0);
  assert.ok((await client.listApiKeys()).some(({ id }) => id === made.id));
  await client.revokeApiKey(made.id);
  await assert.rejects(other.listAgents(), ash.AshUnauthorizedError);
  const usage = await client.listUsageEvents({ agentName: "tester", limit: 5 });
  assert.ok(usage.length > 0 && usage.length <= 5);
  assert.ok((await client.getUsageStats({ agentName: "tester" })).totalMessages > 0);
  assert.equal((await new ash.AshClient({ serverUrl: server.url }).health()).status, "ok");
});

test("refusals have their classes", async () => {
  const nobody = "00000000-0000-4000-8000-000000000000";
  await assert.rejects(client.getSession(nobody), (error: unknown) => error instanceof ash.AshNotFoundError && error.code === "not_found" && error.requestId !== undefined);
  await assert.rejects(client.getSession("no-uuid"), (error: unknown) => error instanceof ash.AshInvalidRequestError && error.statusCode === 400 && error.code === "invalid_request");
  await assert.rejects(client.createSession("tester", { idleTimeoutMs: -1 }), ash.AshInvalidRequestError);
  await assert.rejects(client.with({ apiKey: "wrong" }).listSessions(), ash.AshUnauthorizedError);
  await assert.rejects(client.createSession("ghost"), ash.AshNotFoundError);
  const away = client.with({ serverUrl: "http://127.0.0.1:9", retry: { attempts: 2, firstPauseMs: 1 } });
  await assert.rejects(away.health(), ash.AshConnectionError);
});

test("a body that is too large is refused once, whatever it is sent with", async () => {
  let sent = 0;
  const counting: typeof fetch = (...request) => {
    sent += 1;
    return fetch(...request);
  };
  const { id } = await session();
  const large = "x".repeat(60 * 1024 * 1024);
  await assert.rejects(client.with({ fetch: counting }).sendMessageStream(id, large).text(), { statusCode: 413, code: "too_large" });
  await assert.rejects(client.with({ fetch: counting }).enqueue("tester", large), { statusCode: 413, code: "too_large" });
  assert.equal(sent, 2);
  await client.endSession(id);
});
