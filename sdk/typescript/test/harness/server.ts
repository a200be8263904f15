/** A real server with a scripted model, in a directory of its own, on ports that are free. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { AshClient, type AshClientOptions, toBase64 } from "ash-sdk";

const KEY = "a-key-for-tests";
const PATIENCE_MS = 60_000;

/** Where the programs are. */
export function programs(): string {
  const directory = process.env["ASH_TEST_BIN"];
  if (directory === undefined || !existsSync(join(directory, "ash"))) {
    throw new Error("ASH_TEST_BIN must name the directory with `ash` and `ash-bridge`");
  }
  return directory;
}

/** A server that can be killed and started again. */
export class TestServer {
  readonly key = KEY;
  url = "";
  #model: ChildProcess | undefined;
  #server: ChildProcess | undefined;
  #said: string[] = [];
  readonly #environment: Record<string, string>;
  readonly #isolated: boolean;

  private constructor(
    readonly directory: string,
    environment: Record<string, string>,
  ) {
    const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("ASH_") && !name.startsWith("ANTHROPIC_"));
    const own = { HOME: directory, NO_COLOR: "1", ASH_MIN_FREE_MB: "0", ASH_API_KEY: KEY, ...environment };
    this.#environment = { ...(Object.fromEntries(inherited) as Record<string, string>), ...own };
    this.#isolated = this.#canIsolate();
  }

  /** Starts a model and a server. */
  static async start(environment: Record<string, string> = {}): Promise<TestServer> {
    const server = new TestServer(mkdtempSync(join(tmpdir(), "ash-sdk-")), environment);
    const [model, address] = await server.#announced("model", "--port", "0");
    server.#model = model;
    Object.assign(server.#environment, { ANTHROPIC_BASE_URL: address, ANTHROPIC_API_KEY: "any-will-do" });
    await server.serve(0);
    return server;
  }

  /** Starts the server; on the port it had, if it had one. */
  async serve(port: number = Number(new URL(this.url).port)): Promise<void> {
    const words = this.#isolated ? [] : ["--dangerously-no-sandbox"];
    if (!this.#isolated) this.#environment["ASH_PERMISSION_MODE"] = "bypassPermissions";
    const [server, address] = await this.#announced("serve", "--port", String(port), ...words);
    this.#server = server;
    this.url = address;
  }

  /** Ends the server in good order, or not. */
  async stopServer(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    await ended(this.#server, signal);
    this.#server = undefined;
  }

  /** A client; by way of another address, if one is given. */
  client(options: Partial<AshClientOptions> = {}): AshClient {
    return new AshClient({ serverUrl: this.url, apiKey: this.key, ...options });
  }

  /** Deploys an agent that needs nothing but the model. */
  async agent(name = "tester"): Promise<string> {
    const toml = 'runtime = "builtin"\nmodel = "scripted"\nprewarm = 0\n';
    const files = [
      { path: "CLAUDE.md", content: toBase64("Do as you are told.\n") },
      { path: "ash.toml", content: toBase64(toml) },
    ];
    await this.client().createAgent(name, { files });
    return name;
  }

  /** Ends all that was started and removes all that was written. */
  async end(): Promise<void> {
    if (this.#server !== undefined) {
      const client = this.client({ retry: { attempts: 1 } });
      for (const { id, status } of await client.listSessions().catch(() => [])) {
        if (status !== "ended") await client.endSession(id).catch(() => undefined);
      }
      await this.stopServer();
    }
    await ended(this.#model, "SIGTERM");
    for (const pid of this.#bridges()) process.kill(pid, "SIGKILL");
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 10 });
  }

  /** What the programs have written, for when something went wrong. */
  get output(): string {
    return this.#said.slice(-50).join("\n");
  }

  #canIsolate(): boolean {
    // It ends with an error if it finds a problem, and says which.
    const { stdout } = spawnSync(join(programs(), "ash"), ["doctor", "--json"], { cwd: this.directory, env: this.#environment, encoding: "utf8" });
    const { checks = [] } = JSON.parse(stdout) as { checks?: { name: string; verdict: string }[] };
    return checks.some(({ name, verdict }) => name === "isolation" && verdict !== "problem");
  }

  async #announced(...words: string[]): Promise<[ChildProcess, string]> {
    const process = spawn(join(programs(), "ash"), words, { cwd: this.directory, env: this.#environment, stdio: ["ignore", "pipe", "pipe"] });
    const address = new Promise<string>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`ash ${words[0]} said not where it listens:\n${this.output}`)), PATIENCE_MS);
      const hear = (line: string): void => {
        this.#said.push(line);
        const found = /listening on (http:\/\/\S+)/.exec(line)?.[1];
        if (found === undefined) return;
        clearTimeout(timer);
        resolve(found);
      };
      createInterface(process.stdout).on("line", hear);
      createInterface(process.stderr).on("line", hear);
      process.once("exit", () => {
        clearTimeout(timer);
        reject(new Error(`ash ${words[0]} ended:\n${this.output}`));
      });
    });
    return [process, await address];
  }

  /** The processes beside agents that a server left: it wrote down which they are. */
  #bridges(): number[] {
    const run = join(this.directory, "data", "run");
    if (!existsSync(run)) return [];
    const notes = readdirSync(run, { recursive: true, encoding: "utf8" }).filter((name) => /\.(process|spool)$/.test(name));
    const pids = notes.map((name) => Number(/"pid": ?(\d+)/.exec(readFileSync(join(run, name), "latin1").slice(0, 1024))?.[1] ?? 0));
    return pids.filter((pid) => pid > 1 && isBridge(pid));
  }
}

function isBridge(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "latin1").includes("bridge");
  } catch {
    return false;
  }
}

async function ended(process: ChildProcess | undefined, signal: NodeJS.Signals): Promise<void> {
  if (process === undefined || process.exitCode !== null || process.signalCode !== null) return;
  const exit = once(process, "exit");
  process.kill(signal);
  const timer = setTimeout(() => process.kill("SIGKILL"), 20_000);
  await exit;
  clearTimeout(timer);
}
