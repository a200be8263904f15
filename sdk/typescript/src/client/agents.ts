/** Agents, their files, their settings and their versions. */
import { filePath, part } from "../http.js";
import type {
  Agent,
  AgentConfig,
  AgentFile,
  AgentUpdate,
  AgentVersion,
  Answer,
  CreateAgentVersionInput,
  GetAgentFileResponse,
  ListAgentFilesResponse,
  UpdateAgentVersionInput,
} from "../types.js";
import { BaseClient } from "./base.js";

/** What an agent is made of. */
export interface CreateAgentOptions {
  /** Its instructions: becomes `CLAUDE.md`. */
  systemPrompt?: string;
  /** Its files, in base64 (`toBase64`); one of them is `CLAUDE.md`, unless there are instructions. */
  files?: AgentFile[];
  /** Variables for its tools, by name. Their values are never shown again. */
  env?: Record<string, string>;
}

const agentPath = (name: string): string => `/api/agents/${part(name)}`;
const versionPath = (name: string, version: number | string): string => `${agentPath(name)}/versions/${part(String(version))}`;

/** The part of the client that is about agents. */
export class AgentMethods extends BaseClient {
  /** Deploys a directory of the server's machine. Under a name that is taken it becomes the next version. */
  async deployAgent(name: string, path: string, options: { env?: Record<string, string> } = {}): Promise<Agent> {
    return this.#deploy({ name, path, ...options });
  }

  /** Deploys an agent from instructions, or from files that are sent along. */
  async createAgent(name: string, options: CreateAgentOptions = {}): Promise<Agent> {
    return this.#deploy({ name, ...options });
  }

  async #deploy(json: unknown): Promise<Agent> {
    return (await this.http.json<Answer<"deployAgent">>({ method: "POST", path: "/api/agents", json, key: true })).agent;
  }

  /** Every agent, by name. */
  async listAgents(): Promise<Agent[]> {
    return (await this.http.json<Answer<"listAgents">>({ method: "GET", path: "/api/agents" })).agents;
  }

  /** One agent. */
  async getAgent(name: string): Promise<Agent> {
    return (await this.http.json<Answer<"getAgent">>({ method: "GET", path: agentPath(name) })).agent;
  }

  /** Deletes an agent. Its sessions are ended, and hidden at once. */
  async deleteAgent(name: string): Promise<void> {
    await this.http.json<unknown>({ method: "DELETE", path: agentPath(name), repeat: "refused" });
  }

  /** Changes an agent's variables and settings. Sandboxes that start from now on have them. */
  async updateAgent(name: string, updates: AgentUpdate): Promise<Agent> {
    const ask = { method: "PATCH", path: agentPath(name), json: updates, repeat: "always" } as const;
    return (await this.http.json<Answer<"updateAgent">>(ask)).agent;
  }

  /** The files of an agent's latest version. */
  async listAgentFiles(name: string): Promise<ListAgentFilesResponse> {
    return this.http.json<Answer<"listAgentFiles">>({ method: "GET", path: `${agentPath(name)}/files` });
  }

  /** A file of an agent, as text. */
  async getAgentFile(name: string, path: string): Promise<GetAgentFileResponse> {
    const ask = { method: "GET", path: `${agentPath(name)}/files/${filePath(path)}`, query: { format: "json" } } as const;
    return this.http.json<Answer<"getAgentFile">>(ask);
  }

  /** Writes files of an agent, in base64 (`toBase64`); says how many. It is the next version. */
  async uploadAgentFiles(name: string, files: AgentFile[]): Promise<Answer<"writeAgentFiles">> {
    return this.http.json({ method: "POST", path: `${agentPath(name)}/files`, json: { files }, key: true });
  }

  /** Deletes a file of an agent. */
  async deleteAgentFile(name: string, path: string): Promise<Answer<"deleteAgentFile">> {
    return this.http.json({ method: "DELETE", path: `${agentPath(name)}/files/${filePath(path)}`, repeat: "refused" });
  }

  /** The free settings of an agent. */
  async getAgentConfig(name: string): Promise<AgentConfig> {
    return (await this.http.json<Answer<"getAgentConfig">>({ method: "GET", path: `${agentPath(name)}/config` })).config;
  }

  /** Changes some of an agent's free settings; the others stay. */
  async updateAgentConfig(name: string, updates: AgentConfig): Promise<AgentConfig> {
    const ask = { method: "PATCH", path: `${agentPath(name)}/config`, json: updates, repeat: "always" } as const;
    return (await this.http.json<Answer<"updateAgentConfig">>(ask)).config;
  }

  /** The versions of an agent. */
  async listAgentVersions(name: string): Promise<AgentVersion[]> {
    return (await this.http.json<Answer<"listAgentVersions">>({ method: "GET", path: `${agentPath(name)}/versions` })).versions;
  }

  /** One version of an agent, by its number or its id. */
  async getAgentVersion(name: string, version: number | string): Promise<AgentVersion> {
    return (await this.http.json<Answer<"getAgentVersion">>({ method: "GET", path: versionPath(name, version) })).version;
  }

  /** Makes a version of an agent. It is not active yet. */
  async createAgentVersion(name: string, input: CreateAgentVersionInput): Promise<AgentVersion> {
    const ask = { method: "POST", path: `${agentPath(name)}/versions`, json: input, key: true } as const;
    return (await this.http.json<Answer<"createAgentVersion">>(ask)).version;
  }

  /** Changes a version of an agent. */
  async updateAgentVersion(name: string, version: number | string, updates: UpdateAgentVersionInput): Promise<AgentVersion> {
    const ask = { method: "PATCH", path: versionPath(name, version), json: updates, repeat: "always" } as const;
    return (await this.http.json<Answer<"updateAgentVersion">>(ask)).version;
  }

  /** Deletes a version of an agent. */
  async deleteAgentVersion(name: string, version: number | string): Promise<void> {
    await this.http.json<unknown>({ method: "DELETE", path: versionPath(name, version), repeat: "refused" });
  }

  /** Makes a version the one that new sessions begin with. */
  async activateAgentVersion(name: string, version: number | string): Promise<Answer<"activateAgentVersion">> {
    return this.http.json({ method: "POST", path: `${versionPath(name, version)}/activate`, repeat: "always" });
  }
}
