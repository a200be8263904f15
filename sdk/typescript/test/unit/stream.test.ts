/** What a real server says only by bad luck. */
import assert from "node:assert/strict";
import type { ServerResponse } from "node:http";
import { test } from "node:test";
import { collect } from "../harness/events.js";
import { answer, problem, saying } from "../harness/fake.js";

const RUN = { id: "r", sessionId: "s", status: "running", stopReason: null, endedAt: null, usage: { outputTokens: 1 } };
const ENDED = { ...RUN, status: "completed", stopReason: "end_turn", endedAt: "now" };
const frame = (type: string, data: unknown, id?: string): string => `${id === undefined ? "" : `id: ${id}\n`}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
const start = (response: ServerResponse): ServerResponse => response.writeHead(200, { "content-type": "text/event-stream" });
const START = frame("session_start", { sessionId: "s", runId: "r" });

for (const isOver of [false, true]) {
  test(`an abort between the head of an answer and its first frame; the run is ${isOver ? "over" : "not over"}`, async () => {
    const controller = new AbortController();
    await saying(
      ({ method, url, headers }, response) => {
        if (url.endsWith("/messages")) {
          if (headers["prefer"] === "respond-async") return answer(response, 202, { runId: "r", seq: 1 });
          start(response).flushHeaders();
          setTimeout(() => controller.abort(), 30);
        } else if (url.endsWith("/interrupt")) answer(response, isOver ? 404 : 200, isOver ? problem("no_such_run", 404) : { run: RUN });
        else answer(response, 404, problem(`${method} ${url}`, 404));
      },
      async (client, asked) => {
        await assert.rejects(client.sendMessageStream("s", "hi", { signal: controller.signal }).text(), { name: "AbortError" });
        const [first, second, ...rest] = asked;
        assert.equal(first?.headers["idempotency-key"], second?.headers["idempotency-key"]);
        assert.deepEqual(first?.body, second?.body);
        // Named, so that whichever run goes on by then is not ended in its place.
        assert.deepEqual(rest.map(({ url, body }) => [url, body]), [["/api/sessions/s/interrupt", { runId: "r" }]]);
      },
    );
  });
}

test("a run that cannot be interrupted is told", async () => {
  const controller = new AbortController();
  await saying(
    ({ url }, response) => {
      if (!url.endsWith("/messages")) return answer(response, 500, problem("internal", 500));
      start(response).write(START);
      setTimeout(() => controller.abort(), 30);
    },
    async (client) => {
      const stream = client.sendMessageStream("s", "hi", { signal: controller.signal });
      await assert.rejects(collect(stream), { name: "AshStreamError", code: "not_interrupted" });
    },
  );
});

test("the end of a run that was in a gap is made up from the run", async () => {
  await saying(
    ({ url }, response, count) => {
      if (count === 1) start(response).end(START + frame("text_delta", { delta: "a", runId: "r" }, "1-5") + frame("reconnect", { reason: "draining" }));
      else if (url.includes("/stream")) start(response).end(frame("gap", { from: "1-5", to: "2-9", reason: "other_epoch" }));
      else if (url.endsWith("/runs/r")) answer(response, 200, { run: count === 2 ? RUN : ENDED });
      else answer(response, 200, { session: { lastSeq: 9 } });
    },
    async (client, asked) => {
      const events = await collect(client.sendMessageStream("s", "hi"));
      assert.deepEqual(events.map(({ type }) => type), ["session_start", "text_delta", "gap", "done"]);
      const last = events.at(-1);
      assert.ok(last?.type === "done" && last.data.stopReason === "end_turn" && last.data.usage?.outputTokens === 1 && last.id === undefined);
      const followed = asked.filter(({ url }) => url.includes("/stream"));
      assert.deepEqual(followed.map(({ url, headers }) => [url, headers["last-event-id"]])[0], ["/api/sessions/s/stream?after=1-5&until=idle", "1-5"]);
    },
  );
});

test("what a run said while its stream was closed is told before its end", async () => {
  const done = frame("done", { sessionId: "s", runId: "r", stopReason: "end_turn" }, "1-7");
  const said = (seq: number): string => frame("text_delta", { delta: String(seq), runId: "r" }, `1-${seq}`);
  await saying(
    ({ url }, response, count) => {
      if (count === 1) start(response).end(START + said(5) + frame("reconnect", { reason: "draining" }));
      else if (url.includes("/stream")) start(response).end(said(6) + done);
      else if (url.endsWith("/runs/r")) answer(response, 200, { run: ENDED });
      else answer(response, 200, { session: { lastSeq: 7 } });
    },
    async (client) => {
      const events = await collect(client.sendMessageStream("s", "hi"));
      assert.deepEqual(events.map(({ type, id }) => [type, id]), [["session_start", undefined], ["text_delta", "1-5"], ["text_delta", "1-6"], ["done", "1-7"]]);
    },
  );
});

test("what was seen is not told again, whatever a server repeats", async () => {
  const delta = (seq: number): string => frame("text_delta", { delta: String(seq), runId: "r" }, `1-${seq}`);
  await saying(
    (_, response, count) => {
      if (count === 1) {
        start(response).write(START + frame("run_queued", { position: 1, runId: "r" }));
        setTimeout(() => response.destroy(), 20);
      } else if (count === 2) {
        start(response).write(START + frame("run_queued", { position: 1, runId: "r" }) + delta(1) + delta(2));
        setTimeout(() => response.destroy(), 20);
      } else {
        const theirs = frame("text_delta", { delta: "theirs", runId: "other" }, "1-4");
        start(response).end(delta(1) + delta(2) + delta(3) + theirs + frame("done", { sessionId: "s", runId: "r" }, "1-5"));
      }
    },
    async (client, asked) => {
      const events = await collect(client.sendMessageStream("s", "hi"));
      assert.deepEqual(events.map(({ type, seq }) => (seq === undefined ? type : seq)), ["session_start", "run_queued", 1, 2, 3, 5]);
      assert.deepEqual(asked.map(({ method }) => method), ["POST", "POST", "GET"]);
    },
  );
});

test("a server that has no room at first is asked again, but not for long", async () => {
  await saying((_, response) => answer(response, 503, problem("sandbox_capacity", 503, true)), async (client, asked) => {
    await assert.rejects(collect(client.sendMessageStream("s", "hi")), { code: "sandbox_capacity" });
    assert.equal(asked.length, 5);
  });
});

test("heartbeats keep a connection that has nothing to say", async () => {
  await saying(
    (_, response) => {
      start(response).write(START);
      let beats = 0;
      const timer = setInterval(() => {
        beats += 1;
        if (beats < 12) return void response.write(":        \n\n");
        clearInterval(timer);
        response.end(frame("done", { sessionId: "s", runId: "r" }, "1-1"));
      }, 50);
    },
    async (client, asked) => {
      // It would be given up after 200 ms of silence, and this takes three times as long.
      const events = await collect(client.sendMessageStream("s", "hi"));
      assert.deepEqual(events.map(({ type }) => type), ["session_start", "done"]);
      assert.equal(asked.length, 1);
    },
  );
});

test("a frame that is too large ends a stream, and is not asked for again", async () => {
  await saying((_, response) => start(response).write(frame("text_delta", { delta: "x".repeat(5_000) })), async (client, asked) => {
    await assert.rejects(collect(client.with({ maxFrameBytes: 1_000 }).sendMessageStream("s", "hi")), { code: "frame_too_large" });
    assert.equal(asked.length, 1);
  });
});
