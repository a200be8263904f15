/** The package in a real browser, from a page of another origin, by ways that break. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type Server, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { after, before, test } from "node:test";
import { type BrowserContext, type Page, chromium } from "playwright-core";
import type { AshStreamEvent } from "ash-sdk";
import { blocks } from "../harness/readme.js";
import { breakingProxy, chance } from "../harness/proxy.js";
import { TestServer } from "../harness/server.js";

const ROOT = new URL("../../..", import.meta.url).pathname;
// On a page of this machine's own everything is allowed: what is foreign needs a name.
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP elsewhere.test 127.0.0.1"];
const candidates = [process.env["ASH_TEST_CHROMIUM"], "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = candidates.find((path) => path !== undefined && existsSync(path));
const skip = executablePath === undefined && "THERE IS NO CHROMIUM: the SDK was not tried in a browser";
if (skip !== false) console.error(`\n!!! ${skip}\n!!! install it (apt-get install chromium), or name it in ASH_TEST_CHROMIUM\n`);

/** Serves the package and an empty page. */
async function pages(): Promise<{ server: Server; origin: string }> {
  const types: Record<string, string> = { ".js": "text/javascript", ".map": "application/json" };
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url ?? "/", "http://x").pathname);
    if (path === "/") return void response.writeHead(200, { "content-type": "text/html" }).end(shown);
    const file = join(ROOT, path);
    if (!path.startsWith("/dist/") || !existsSync(file)) return void response.writeHead(404).end();
    response.writeHead(200, { "content-type": types[extname(file)] ?? "text/plain" }).end(readFileSync(file));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

/** What is shown at the address that is not that of the package. */
let shown = "<!doctype html><title>SDK</title>";
let ash: TestServer;
let allowed: Awaited<ReturnType<typeof pages>>;
let foreign: Awaited<ReturnType<typeof pages>>;
let browser: BrowserContext;
let profile: string;

before(async () => {
  if (executablePath === undefined) return;
  allowed = await pages();
  foreign = await pages();
  ash = await TestServer.start({ ALLOWED_ORIGINS: allowed.origin });
  await ash.agent();
  profile = mkdtempSync(join(tmpdir(), "ash-sdk-chromium-"));
  browser = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args: FLAGS });
});
after(async () => {
  if (executablePath === undefined) return;
  await browser.close();
  for (const { server } of [allowed, foreign]) server.close().closeAllConnections();
  await ash.end();
  rmSync(profile, { recursive: true, force: true });
});

/** Runs a script in a page, with `sdk` and `client`; what it returns is JSON. */
async function inPage<T>(origin: string, serverUrl: string, script: string): Promise<T> {
  const page: Page = await browser.newPage();
  try {
    await page.goto(origin);
    const options = JSON.stringify({ serverUrl, apiKey: ash.key, streamRetry: { firstPauseMs: 1, longestPauseMs: 10, attempts: 300 } });
    const whole = `(async () => {
      const sdk = await import("/dist/index.js");
      const client = new sdk.AshClient(${options});
      ${script}
    })()`;
    return await page.evaluate<T>(whole);
  } finally {
    await page.close();
  }
}

test("a browser is told every event once, though its connections are cut", { skip }, async () => {
  const { id } = await ash.client().createSession("tester");
  const random = chance(11);
  const proxy = await breakingProxy(ash.url, () => ({ answerBytes: 800 + Math.floor(random() * 2_000) }));
  try {
    const prompt = "Look.\n/say Größe, 日本語 and a 🦆, said at some length.\n/bash echo one\n/say And after it something more, also at some length.";
    const script = `
      const stream = client.sendMessageStream(${JSON.stringify(id)}, ${JSON.stringify(prompt)});
      const events = [];
      for await (const event of stream) events.push(event);
      return { events, runId: stream.runId, text: sdk.Transcript.of(events).text };`;
    const seen = await inPage<{ events: AshStreamEvent[]; runId: string; text: string }>(allowed.origin, proxy.url, script);
    const log: AshStreamEvent[] = [];
    for await (const event of ash.client().stream(id, { until: "idle" })) log.push(event);
    const logged = seen.events.filter((event) => event.id !== undefined);
    const start = log.findIndex((event) => event.id === logged[0]?.id);
    assert.ok(proxy.broken > 1, `${proxy.broken} connections were cut`);
    assert.ok(logged.length > 5, JSON.stringify(seen.events));
    assert.deepEqual(logged, log.slice(start, start + logged.length));
    assert.equal(seen.events.at(-1)?.type, "done");
    assert.match(seen.text, /^Größe, 日本語 and a 🦆.*something more/s);
  } finally {
    await proxy.end();
  }
});

test("sessions, files, errors and aborts work in a browser", { skip }, async () => {
  const script = `
    const session = await client.createSession("tester", { title: "from a page" });
    await client.writeSessionFiles(session.id, [{ path: "a.txt", content: sdk.toBase64("grün") }]);
    const { buffer, source } = await client.downloadSessionFile(session.id, "a.txt");
    const missing = await client.getSession("00000000-0000-4000-8000-000000000000").catch((error) => error);
    const controller = new AbortController();
    const stream = client.sendMessageStream(session.id, "Go on.\\n/slow 20ms\\n/endless", { signal: controller.signal });
    let aborted;
    try {
      for await (const event of stream) if (event.type === "text_delta") controller.abort();
    } catch (error) {
      aborted = error.name;
    }
    for await (const event of client.stream(session.id, { until: "idle" })) void event;
    const run = await client.getRun(session.id, stream.runId);
    const paused = await client.pauseSession(session.id);
    const { resume } = await client.resumeSession(session.id);
    await client.endSession(session.id);
    return {
      text: new TextDecoder().decode(buffer), source, plain: buffer.constructor.name,
      missing: [missing instanceof sdk.AshNotFoundError, missing.code, typeof missing.requestId],
      aborted, run: run.stopReason, paused: paused.status, path: resume.path,
    };`;
  assert.deepEqual(await inPage(allowed.origin, ash.url, script), {
    text: "grün",
    source: "sandbox",
    plain: "Uint8Array",
    missing: [true, "not_found", "string"],
    aborted: "AbortError",
    run: "interrupted",
    paused: "paused",
    path: "warm",
  });
});

test("a page of an origin that is not allowed gets nothing", { skip }, async () => {
  const script = `return client.with({ retry: { attempts: 1 } }).listAgents().then(() => "let in", (error) => error.name);`;
  assert.equal(await inPage(foreign.origin.replace("127.0.0.1", "elsewhere.test"), ash.url, script), "AshConnectionError");
});

test("the page of the README works", { skip }, async () => {
  const [example = ""] = blocks("html");
  await ash.client().createAgent("helper", { systemPrompt: "Be brief." });
  const page = await browser.newPage();
  shown = example.replace("http://127.0.0.1:4100", ash.url).replace("YOUR_KEY", ash.key);
  await page.goto(allowed.origin);
  await page.waitForFunction('document.title === "done"');
  assert.match(await page.innerText("#answer"), /You said: "Hello from a page!"/);
  await page.close();
});
