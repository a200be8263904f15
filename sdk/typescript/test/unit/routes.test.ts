/** What methods send, to the letter, and what they make of the answer. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { AshClient } from "ash-sdk";
import { answer, saying } from "../harness/fake.js";

type Case = [call: (client: AshClient) => Promise<unknown>, sent: [string, string, unknown?], said: unknown, result: unknown];

const item = { id: "q", status: "pending" };
const attachment = { id: "at", filename: "a.txt" };
const version = { versionNumber: 2 };
const stats = { pending: 1, processing: 0, completed: 0, failed: 0, cancelled: 0 };
const files = [{ path: "a.md", content: "eA==" }];

const CASES: Case[] = [
  [(c) => c.uploadAgentFiles("a", files), ["POST", "/api/agents/a/files", { files }], { written: 1 }, { written: 1 }],
  [(c) => c.deleteAgentFile("a", "d/x y.md"), ["DELETE", "/api/agents/a/files/d/x%20y.md"], { deleted: true }, { deleted: true }],
  [(c) => c.getAgentConfig("a"), ["GET", "/api/agents/a/config"], { config: { x: 1 } }, { x: 1 }],
  [(c) => c.updateAgentConfig("a", { x: 2 }), ["PATCH", "/api/agents/a/config", { x: 2 }], { config: { x: 2 } }, { x: 2 }],
  [(c) => c.createAgentVersion("a", { systemPrompt: "p", cloneFrom: 1 }), ["POST", "/api/agents/a/versions", { systemPrompt: "p", cloneFrom: 1 }], { version }, version],
  [(c) => c.updateAgentVersion("a", 2, { name: "n" }), ["PATCH", "/api/agents/a/versions/2", { name: "n" }], { version }, version],
  [(c) => c.deleteAgentVersion("a", 2), ["DELETE", "/api/agents/a/versions/2"], "", undefined],
  [(c) => c.activateAgentVersion("a", 2), ["POST", "/api/agents/a/versions/2/activate"], { activated: true, versionNumber: 2 }, { activated: true, versionNumber: 2 }],
  [(c) => c.uploadAttachment("s", "a.txt", "x", { mimeType: "text/plain" }), ["POST", "/api/sessions/s/attachments", { filename: "a.txt", content: "eA==", mimeType: "text/plain" }], { attachment }, attachment],
  [(c) => c.listAttachments("s"), ["GET", "/api/sessions/s/attachments"], { attachments: [attachment] }, [attachment]],
  [(c) => c.downloadAttachment("at"), ["GET", "/api/attachments/at"], "bytes", Buffer.from("bytes")],
  [(c) => c.deleteAttachment("at"), ["DELETE", "/api/attachments/at"], "", undefined],
  [(c) => c.enqueue("a", "p", { priority: 2 }), ["POST", "/api/queue", { agentName: "a", prompt: "p", priority: 2 }], { item }, item],
  [(c) => c.listQueueItems({ status: "pending", limit: 5, cursor: "q" }), ["GET", "/api/queue?status=pending&limit=5&cursor=q"], { items: [item] }, [item]],
  [(c) => c.getQueueItem("q"), ["GET", "/api/queue/q"], { item }, item],
  [(c) => c.cancelQueueItem("q"), ["DELETE", "/api/queue/q"], { item }, item],
  [(c) => c.getQueueStats(), ["GET", "/api/queue/stats"], { stats }, stats],
  [(c) => c.getAnalytics({ after: "2026-01-02T03:04:05Z" }), ["GET", "/api/analytics?after=2026-01-02T03%3A04%3A05Z"], { agents: { total: 1 } }, { agents: { total: 1 } }],
];

test("they send what the route takes, and return what it says", async () => {
  for (const [call, [method, url, body], said, result] of CASES) {
    await saying(
      (_, response) => (said === "" ? response.writeHead(204).end() : answer(response, 200, said)),
      async (client, asked) => {
        assert.deepEqual(await call(client), result, url);
        assert.deepEqual(asked.map((one) => [one.method, one.url, one.body]), [[method, url, body]]);
        const keyed = method === "POST" && !url.endsWith("/activate");
        assert.equal(asked[0]?.headers["idempotency-key"] !== undefined, keyed, url);
      },
    );
  }
});

test("keys of Amazon Bedrock are stored as one secret", async () => {
  await saying((_, response) => answer(response, 201, { credential: { id: "c" } }), async (client, asked) => {
    await client.storeBedrockCredential({ accessKeyId: "i", secretAccessKey: "s", region: "r", label: "l" });
    const key = JSON.stringify({ accessKeyId: "i", secretAccessKey: "s", region: "r" });
    assert.deepEqual(asked[0]?.body, { type: "bedrock", key, label: "l" });
  });
});
