/** Every example of the README is compiled strictly and run against a real server, in the order of the page. */
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { blocks, root } from "../harness/readme.js";
import { TestServer } from "../harness/server.js";

// Inside the package: there its own name is known.
const directory = join(root, "test", "build", "examples");
/** What the first example has made and the others go on with. */
const PRELUDE = `import { AshClient as Prelude } from "ash-sdk";
const client = new Prelude({ serverUrl: process.env["ASH_SERVER_URL"] ?? "", apiKey: process.env["ASH_API_KEY"] ?? "" });
const session = await client.createSession("helper");
`;
const examples = blocks("ts").map((text) => (text.includes("await client.createAgent(") ? text : PRELUDE + text));

let server: TestServer;
before(async () => {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  examples.forEach((text, index) => writeFileSync(join(directory, `example${index}.mts`), text));
  const compilerOptions = { types: ["node"], rootDir: ".", outDir: ".", declaration: false, declarationMap: false, sourceMap: false };
  const options = { extends: "../../../tsconfig.json", compilerOptions, include: ["*.mts"], exclude: [] };
  writeFileSync(join(directory, "tsconfig.json"), JSON.stringify(options));
  server = await TestServer.start();
});
after(() => server.end());

test("the examples compile", () => {
  assert.ok(examples.length >= 8, `${examples.length} examples`);
  const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
  const { stdout, status } = spawnSync(process.execPath, [compiler, "-p", directory], { encoding: "utf8" });
  assert.equal(status, 0, stdout);
});

examples.forEach((text, index) => {
  const name = text.replace(PRELUDE, "").split("\n").find((line) => line !== "" && !line.startsWith("import")) ?? "";
  test(`example ${index} runs: ${name}`, async () => {
    const env = { ...process.env, ASH_SERVER_URL: server.url, ASH_API_KEY: server.key };
    const child = spawn(process.execPath, [join(directory, `example${index}.mjs`)], { env, stdio: ["ignore", "pipe", "pipe"], timeout: 60_000 });
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (bytes: Buffer) => (output += bytes.toString()));
    const [code] = (await once(child, "close")) as [number | null];
    assert.equal(code, 0, output);
    if (index === 0) assert.match(output, /You said: "What can you do\?"[^]*warm kept intact/);
  });
});
