/** The package as others get it: packed, and installed from a directory that was never built. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { blocks, root } from "../harness/readme.js";

let directory: string;
let checkout: string;
before(() => {
  directory = mkdtempSync(join(tmpdir(), "ash-sdk-package-"));
  checkout = join(directory, "checkout");
  // As git has it.
  const made = ["node_modules", "dist", join("test", "build")].map((name) => join(root, name));
  cpSync(root, checkout, { recursive: true, filter: (path) => !made.includes(path) && !path.endsWith(".tgz") });
});
after(() => rmSync(directory, { recursive: true, force: true }));

const npm = (cwd: string, ...words: string[]): string => execFileSync("npm", [...words, "--no-audit", "--no-fund"], { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });

/** A project of somebody's who has nothing but this package. */
function project(name: string): string {
  const place = mkdtempSync(join(directory, `${name}-`));
  writeFileSync(join(place, "package.json"), JSON.stringify({ name, private: true, type: "module" }));
  return place;
}

function works(place: string): void {
  const script = 'import { AshClient, AshConnectionError } from "ash-sdk"; new AshClient({ serverUrl: "http://127.0.0.1:9", retry: { attempts: 1 } }).health().catch((error) => console.log(error instanceof AshConnectionError));';
  writeFileSync(join(place, "main.mjs"), script);
  assert.equal(execFileSync(process.execPath, ["main.mjs"], { cwd: place, encoding: "utf8" }), "true\n");
  // A project without Node's types, as of a web page: bytes are plain there.
  writeFileSync(join(place, "page.ts"), 'import { AshClient } from "ash-sdk";\nexport const bytes: Promise<Uint8Array> = new AshClient({ serverUrl: "" }).downloadWorkspace("x");\n');
  const flags = ["--noEmit", "--strict", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom"];
  execFileSync(process.execPath, [join(root, "node_modules", "typescript", "bin", "tsc"), ...flags, "page.ts"], { cwd: place, stdio: "inherit" });
}

test("it can be installed from a checkout that was never built", () => {
  assert.deepEqual(blocks("sh"), ["npm install /path/to/ash/sdk/typescript\n"]);
  const place = project("from-directory");
  npm(place, "install", checkout);
  works(place);
});

test("it can be packed and installed, and brings nothing else", () => {
  const [packed] = JSON.parse(npm(checkout, "pack", "--json", "--pack-destination", directory)) as { filename: string; files: { path: string }[] }[];
  assert.ok(packed !== undefined);
  const paths = packed.files.map(({ path }) => path);
  assert.ok(paths.includes("dist/index.js") && paths.includes("dist/index.d.ts") && paths.includes("README.md") && paths.includes("LICENSE"));
  assert.ok(!paths.some((path) => path.startsWith("test/") || path.startsWith("scripts/")), paths.join(" "));
  const place = project("from-archive");
  npm(place, "install", join(directory, packed.filename));
  assert.deepEqual(readdirSync(join(place, "node_modules")).filter((name) => !name.startsWith(".")), ["ash-sdk"]);
  works(place);
});

test("the lock file names no registry, and there is no dependency", () => {
  assert.doesNotMatch(readFileSync(join(root, "package-lock.json"), "utf8"), /"resolved": "http/);
  assert.equal((JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { dependencies?: unknown }).dependencies, undefined);
});
