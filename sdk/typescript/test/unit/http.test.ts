import assert from "node:assert/strict";
import { test } from "node:test";
import * as ash from "ash-sdk";
import { pause } from "#dist/backoff.js";
import { retryAfter } from "#dist/errors.js";
import { isSeen, placeOf } from "#dist/events.js";
import { answer, problem, saying } from "../harness/fake.js";

test("every status has its class, with the code", async () => {
  const classes: [number, new (problem: ash.ApiProblem) => ash.AshApiError][] = [
    [400, ash.AshInvalidRequestError],
    [401, ash.AshUnauthorizedError],
    [402, ash.AshBudgetError],
    [403, ash.AshForbiddenError],
    [404, ash.AshNotFoundError],
    [409, ash.AshConflictError],
    [410, ash.AshGoneError],
    [422, ash.AshInvalidRequestError],
    [429, ash.AshRateLimitedError],
    [500, ash.AshApiError],
    [501, ash.AshNotOfferedError],
    [503, ash.AshUnavailableError],
  ];
  for (const [status, kind] of classes) {
    await saying((_, response) => answer(response, status, problem("some_code", status)), async (client) => {
      await assert.rejects(client.getSession("s"), (error: unknown) => {
        assert.ok(error instanceof kind && error instanceof ash.AshApiError && error instanceof ash.AshError, String(status));
        assert.deepEqual([error.statusCode, error.code, error.requestId, error.message], [status, "some_code", "r-1", "A sentence"]);
        assert.equal(error.name, kind.name);
        return true;
      });
    });
  }
});

test("an error that is no JSON, and one of another server, are told, too", async () => {
  await saying((_, response) => answer(response, 418, "<html>"), async (client) => {
    await assert.rejects(client.health(), { code: "http_418", message: "status 418, and not as an Ash server says it", request: "GET /health" });
  });
  const other = { statusCode: 400, error: "Bad Request", message: "params/id must match" };
  await saying((_, response) => answer(response, 400, other), async (client) => {
    await assert.rejects(client.getSession("s"), { message: "params/id must match" });
  });
});

test("whoever says where the server is wrongly, or without a key, is told so at once", async () => {
  for (const serverUrl of ["localhost:4100", "127.0.0.1:4100", "", "ftp://a", undefined as unknown as string]) {
    assert.throws(() => new ash.AshClient({ serverUrl }), { name: "TypeError", message: /begins with http/ });
  }
  const secret = (error: unknown): boolean => error instanceof TypeError && !error.message.includes("s3cret");
  assert.throws(() => new ash.AshClient({ serverUrl: "http://a", apiKey: "s3cret\nX-Other: 1" }), secret);
  await saying((_, response) => answer(response, 200, "<html>"), async (client, asked) => {
    await assert.rejects(client.health(), { name: "AshConnectionError", message: /^GET http:.*\/health: the answer is no JSON; is this an Ash server/ });
    assert.equal(asked.length, 1);
  });
  await saying((_, response) => answer(response, 401, problem("unauthorized", 401)), async (client, asked) => {
    await assert.rejects(client.listAgents(), { message: "A sentence", request: "GET /api/agents" });
    await assert.rejects(client.with({ apiKey: "" }).listAgents(), { message: "A sentence: this client has no apiKey" });
    await client.with({ apiKey: " k2\n" }).listAgents().catch(() => undefined);
    assert.deepEqual(asked.map(({ headers }) => headers.authorization), ["Bearer k", undefined, "Bearer k2"]);
  });
  const away = new ash.AshClient({ serverUrl: "http://127.0.0.1:3", retry: { attempts: 1 } });
  await assert.rejects(away.health(), { message: /^GET http:\/\/127.0.0.1:3\/health: .*is the server running/ });
});

test("503 and 429 are waited for, with the same key", async () => {
  await saying(
    (_, response, count) => (count < 3 ? answer(response, count === 1 ? 503 : 429, problem("draining", 503, true), { "retry-after": "0" }) : answer(response, 201, { session: { id: "s" } })),
    async (client, asked) => {
      assert.equal((await client.createSession("a")).id, "s");
      const keys = asked.map(({ headers }) => headers["idempotency-key"]);
      assert.equal(asked.length, 3);
      assert.match(String(keys[0]), /^[0-9a-f]{8}-[0-9a-f]{4}-4/);
      assert.equal(new Set(keys).size, 1);
      assert.equal(asked[0]?.headers.authorization, "Bearer k");
    },
  );
});

test("a wait that is too long is the caller's, and so is one that does not end", async () => {
  await saying((_, response) => answer(response, 429, problem("rate_limited", 429, true), { "retry-after": "3600" }), async (client, asked) => {
    await assert.rejects(client.health(), { retryAfterMs: 3_600_000 });
    assert.equal(asked.length, 1);
  });
  await saying((_, response) => answer(response, 503, problem("draining", 503, true)), async (client, asked) => {
    await assert.rejects(client.health(), ash.AshUnavailableError);
    assert.equal(asked.length, 5);
  });
});

test("a connection that breaks is tried again, but not for what might be done twice", async () => {
  await saying(
    (_, response, count) => (count === 1 ? response.destroy() : answer(response, 200, { status: "ok" })),
    async (client, asked) => {
      assert.equal((await client.health()).status, "ok");
      assert.equal(asked.length, 2);
    },
  );
  await saying((_, response) => response.destroy(), async (client, asked) => {
    await assert.rejects(client.exec("s", "make"), ash.AshConnectionError);
    await assert.rejects(client.pauseSession("s"), ash.AshConnectionError);
    assert.equal(asked.length, 2);
  });
});

test("a body that breaks is asked for again", async () => {
  await saying(
    (_, response, count) => {
      if (count > 1) return answer(response, 200, { status: "ok" });
      response.writeHead(200, { "content-length": "100" }).write("{");
      setTimeout(() => response.destroy(), 20);
    },
    async (client) => assert.equal((await client.health()).status, "ok"),
  );
});

test("an answer that does not come is not waited for, and a signal ends all of a client", async () => {
  await saying(() => undefined, async (client) => {
    await assert.rejects(client.with({ timeoutMs: 30, retry: { attempts: 1 } }).health(), ash.AshConnectionError);
    const controller = new AbortController();
    const waiting = client.with({ signal: controller.signal }).health();
    controller.abort(new Error("enough"));
    await assert.rejects(waiting, { message: "enough" });
  });
});

test("names and paths are encoded, and cannot lead elsewhere", async () => {
  await saying((_, response) => answer(response, 200, {}), async (client, asked) => {
    await client.getSessionFile("s", "a b/ü?.txt");
    assert.equal(asked[0]?.url, "/api/sessions/s/files/a%20b/%C3%BC%3F.txt?format=json");
    for (const path of ["../x", "a/../b", "a//b", "", "."]) {
      await assert.rejects(client.getSessionFile("s", path), { code: "invalid_path" }, path);
    }
    await assert.rejects(client.getSession(".."), ash.AshInvalidRequestError);
    assert.equal(asked.length, 1);
  });
});

test("a stream that brings nothing is given up, and one that is none is told", async () => {
  const stream = { "content-type": "text/event-stream" };
  const follow = async (client: ash.AshClient): Promise<void> => {
    for await (const event of client.sendMessageStream("s", "hi")) assert.ok(event);
  };
  await saying((_, response) => response.writeHead(200, stream).write(": there\n"), async (client) => {
    // It is silent: not even that is said again.
    await assert.rejects(follow(client), (error: unknown) => error instanceof ash.AshStreamError && error.code === "gave_up");
  });
  await saying((_, response) => answer(response, 200, {}), async (client) => {
    await assert.rejects(follow(client), { code: "not_a_stream" });
  });
  await saying((_, response) => answer(response, 404, problem("not_found", 404)), async (client, asked) => {
    await assert.rejects(follow(client), ash.AshNotFoundError);
    assert.equal(asked.length, 1);
  });
});

test("pauses double, are bounded, and are half chance", () => {
  const options = { attempts: 9, firstPauseMs: 100, longestPauseMs: 1_000 };
  assert.deepEqual([1, 2, 3, 4, 5, 99].map((failures) => pause(options, failures, () => 1)), [100, 200, 400, 800, 1_000, 1_000]);
  assert.deepEqual([1, 2, 5].map((failures) => pause(options, failures, () => 0)), [50, 100, 500]);
});

test("Retry-After is seconds or a date", () => {
  assert.equal(retryAfter("2", 0), 2_000);
  assert.equal(retryAfter("Thu, 01 Jan 1970 00:00:05 GMT", 1_000), 4_000);
  assert.equal(retryAfter("soon", 0), undefined);
  assert.equal(retryAfter(null, 0), undefined);
});

test("places in a log", () => {
  const at = (text: string) => placeOf(text) ?? assert.fail(text);
  for (const bad of ["", "-", "x", "1-", "-1", "1-2-3"]) assert.equal(placeOf(bad), undefined, bad);
  assert.ok(isSeen(at("1-7"), at("1-7")) && isSeen(at("1-7"), at("1-6")));
  assert.ok(!isSeen(at("1-7"), at("1-8")) && !isSeen(at("1-7"), at("2-3")) && !isSeen(undefined, at("1-1")));
  assert.ok(isSeen(at("7"), at("1-7")) && !isSeen(at("7"), at("1-8")));
});

test("base64 of anything", () => {
  assert.equal(ash.toBase64("grün"), Buffer.from("grün").toString("base64"));
  const large = new Uint8Array(100_000).map((_, at) => at * 7);
  assert.equal(ash.toBase64(large), Buffer.from(large).toString("base64"));
});

test("a large body that the other end did not want is not sent again", async () => {
  for (const [length, times] of [[10, 3], [2 * 1024 * 1024, 1]] as const) {
    let sent = 0;
    const cut: typeof fetch = () => {
      sent += 1;
      return Promise.reject(new TypeError("fetch failed", { cause: Object.assign(new Error("write EPIPE"), { code: "EPIPE" }) }));
    };
    const client = new ash.AshClient({ serverUrl: "http://127.0.0.1:9", fetch: cut, retry: { attempts: 3, firstPauseMs: 1 } });
    await assert.rejects(client.importSession(new Uint8Array(length)), ash.AshConnectionError);
    assert.equal(sent, times, String(length));
  }
});
