// Compiles the package and its tests and runs those whose path has one of the words given; all, without words.
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const node = (...words) => {
  const { status } = spawnSync(process.execPath, words, { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
};
node("scripts/build.mjs");
rmSync(new URL("../test/build", import.meta.url), { recursive: true, force: true });
node("node_modules/typescript/bin/tsc", "-p", "test");

const wanted = process.argv.slice(2);
const files = readdirSync(new URL("../test/build", import.meta.url), { recursive: true })
  .filter((name) => name.endsWith(".test.js") && (wanted.length === 0 || wanted.some((word) => name.includes(word))))
  .map((name) => `test/build/${name}`)
  .sort();
if (files.length === 0) {
  console.error(`no test is called ${wanted.join(" or ")}`);
  process.exit(2);
}
// One after the other: most of them start servers.
const { status } = spawnSync(process.execPath, ["--test", "--test-concurrency=1", "--test-timeout=180000", "--test-reporter=spec", ...files], {
  cwd: root,
  stdio: "inherit",
});
process.exit(status ?? 1);
