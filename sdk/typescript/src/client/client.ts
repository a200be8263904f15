/** The client, with what is not about one session. */
import type { AshClientOptions } from "../http.js";
import { part } from "../http.js";
import type {
  Analytics,
  Answer,
  ApiKey,
  ApiKeyMade,
  Credential,
  CredentialType,
  HealthResponse,
  QueueItem,
  QueueItemStatus,
  QueueStats,
  UsageEvent,
  UsageStats,
} from "../types.js";
import { FileMethods } from "./files.js";

/** Keys of Amazon Bedrock. */
export interface BedrockCredential {
  /** The id of the access key. */
  accessKeyId: string;
  /** Its secret. */
  secretAccessKey: string;
  /** The region. */
  region: string;
  /** Of temporary keys. */
  sessionToken?: string;
  /** What its owner calls it. */
  label?: string;
}

/** What usage is asked about. */
export interface UsageOptions {
  /** Only of this session. */
  sessionId?: string;
  /** Only of this agent. */
  agentName?: string;
  /** Only after this time. */
  after?: string;
  /** Only before this time. */
  before?: string;
}

/**
 * A client of an Ash server.
 *
 * Requests that are safe to repeat are repeated when the connection breaks, or when the server says that it has no
 * room; streams come back by themselves. What is refused is an `AshApiError`.
 */
export class AshClient extends FileMethods {
  readonly #options: AshClientOptions;

  /** Talks to a server. Nothing is sent before something is asked. */
  constructor(options: AshClientOptions) {
    super(options);
    this.#options = options;
  }

  /** The same client with some options changed, such as a `signal` for all that it is asked. */
  with(options: Partial<AshClientOptions>): AshClient {
    return new AshClient({ ...this.#options, ...options });
  }

  /** What the server says of itself. It needs no key. */
  async health(): Promise<HealthResponse> {
    return this.http.json<Answer<"getHealth">>({ method: "GET", path: "/health" });
  }

  /** Stores a credential. Its secret is never shown again. `header` and `host` are of a `custom` one. */
  async storeCredential(
    type: CredentialType | (string & {}),
    key: string,
    label?: string,
    custom: { header?: string; host?: string } = {},
  ): Promise<Credential> {
    const json = { type, key, ...(label === undefined ? {} : { label }), ...custom };
    const ask = { method: "POST", path: "/api/credentials", json, key: true } as const;
    return (await this.http.json<Answer<"createCredential">>(ask)).credential;
  }

  /** Stores keys of Amazon Bedrock. */
  async storeBedrockCredential(credential: BedrockCredential): Promise<Credential> {
    const { label, ...key } = credential;
    return this.storeCredential("bedrock", JSON.stringify(key), label);
  }

  /** The credentials, without their secrets. */
  async listCredentials(): Promise<Credential[]> {
    return (await this.http.json<Answer<"listCredentials">>({ method: "GET", path: "/api/credentials" })).credentials;
  }

  /** Deletes a credential. */
  async deleteCredential(id: string): Promise<void> {
    await this.http.json<unknown>({ method: "DELETE", path: `/api/credentials/${part(id)}`, repeat: "refused" });
  }

  /** Queues a prompt: it is worked on when there is time, in a session of its own or in the one that is named. */
  async enqueue(
    agentName: string,
    prompt: string,
    options: { sessionId?: string; priority?: number; maxRetries?: number } = {},
  ): Promise<QueueItem> {
    const ask = { method: "POST", path: "/api/queue", json: { agentName, prompt, ...options }, key: true } as const;
    return (await this.http.json<Answer<"enqueue">>(ask)).item;
  }

  /** Queued prompts, newest first. The `id` of the last one is the `cursor` of the next page. */
  async listQueueItems(options: { status?: QueueItemStatus; limit?: number; cursor?: string } = {}): Promise<QueueItem[]> {
    return (await this.http.json<Answer<"listQueueItems">>({ method: "GET", path: "/api/queue", query: options })).items;
  }

  /** One queued prompt. */
  async getQueueItem(id: string): Promise<QueueItem> {
    return (await this.http.json<Answer<"getQueueItem">>({ method: "GET", path: `/api/queue/${part(id)}` })).item;
  }

  /** Takes a prompt out of the queue, if work on it has not begun. */
  async cancelQueueItem(id: string): Promise<QueueItem> {
    const ask = { method: "DELETE", path: `/api/queue/${part(id)}`, repeat: "refused" } as const;
    return (await this.http.json<Answer<"cancelQueueItem">>(ask)).item;
  }

  /** How many prompts stand where. */
  async getQueueStats(): Promise<QueueStats> {
    return (await this.http.json<Answer<"getQueueStats">>({ method: "GET", path: "/api/queue/stats" })).stats;
  }

  /** What was consumed, newest first. */
  async listUsageEvents(options: UsageOptions & { limit?: number } = {}): Promise<UsageEvent[]> {
    return (await this.http.json<Answer<"listUsage">>({ method: "GET", path: "/api/usage", query: { ...options } })).events;
  }

  /** What was consumed in all. */
  async getUsageStats(options: UsageOptions = {}): Promise<UsageStats> {
    return (await this.http.json<Answer<"getUsageStats">>({ method: "GET", path: "/api/usage/stats", query: { ...options } })).stats;
  }

  /** An account in figures; what was consumed, after and before some time. */
  async getAnalytics(options: Pick<UsageOptions, "after" | "before"> = {}): Promise<Analytics> {
    return this.http.json<Answer<"getAnalytics">>({ method: "GET", path: "/api/analytics", query: { ...options } });
  }

  /** The API keys, without their secrets. */
  async listApiKeys(): Promise<ApiKey[]> {
    return (await this.http.json<Answer<"listApiKeys">>({ method: "GET", path: "/api/api-keys" })).keys;
  }

  /** Makes an API key. It is shown this once. */
  async createApiKey(label: string): Promise<ApiKeyMade> {
    return this.http.json<Answer<"createApiKey">>({ method: "POST", path: "/api/api-keys", json: { label }, key: true });
  }

  /** Revokes an API key: what was opened with it is closed. */
  async revokeApiKey(id: string): Promise<void> {
    await this.http.json<unknown>({ method: "DELETE", path: `/api/api-keys/${part(id)}`, repeat: "refused" });
  }
}
