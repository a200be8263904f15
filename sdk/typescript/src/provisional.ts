/**
 * Shapes of routes that the OpenAPI document does not have yet, by hand. When it has them, each becomes a name for a
 * generated one, in types.ts, and goes from here.
 */
import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** A numbered state of an agent. What is optional is said by some servers only. */
export type AgentVersion = Schemas["AgentVersion"] & {
  /** Its id. */
  id?: string;
  /** What people call it. */
  name?: string;
  /** What is new in it. */
  releaseNotes?: string | null;
  /** Its files of knowledge. */
  knowledgeFiles?: string[] | null;
};

/** A version to be made. */
export interface CreateAgentVersionInput {
  /** What people call it. */
  name?: string;
  /** The agent's instructions. */
  systemPrompt?: string;
  /** What is new in it. */
  releaseNotes?: string;
  /** Its files of knowledge, by path. */
  knowledgeFiles?: string[];
  /** The version it begins as a copy of: its number or its id. */
  cloneFrom?: number | string;
}

/** A change of a version. */
export type UpdateAgentVersionInput = Omit<CreateAgentVersionInput, "cloneFrom">;

/** Free settings of an agent. */
export type AgentConfig = Record<string, unknown>;

/** A file that was sent along with a conversation. */
export interface Attachment {
  /** Its id. */
  id: string;
  /** Whose it is. */
  tenantId?: string;
  /** The message it belongs to, or `unlinked`. */
  messageId: string;
  /** The session it belongs to. */
  sessionId: string;
  /** Its name. */
  filename: string;
  /** Its type. */
  mimeType: string;
  /** How many bytes it has. */
  size: number;
  /** When it was sent. */
  createdAt: string;
}

/** Where a queued prompt stands. */
export type QueueItemStatus = "pending" | "processing" | "completed" | "failed" | "cancelled";

/** A prompt that is worked on when there is time. */
export interface QueueItem {
  /** Its id. */
  id: string;
  /** Whose it is. */
  tenantId?: string;
  /** The session it is for, or was given. */
  sessionId: string | null;
  /** The agent. */
  agentName: string;
  /** What is said. */
  prompt: string;
  /** Where it stands. */
  status: QueueItemStatus;
  /** Higher goes first. */
  priority: number;
  /** How often it was tried again. */
  retryCount: number;
  /** How often it may be. */
  maxRetries: number;
  /** What went wrong last. */
  error: string | null;
  /** When it was queued. */
  createdAt: string;
  /** When work on it began. */
  startedAt: string | null;
  /** When it was over. */
  completedAt: string | null;
}

/** How many prompts stand where. */
export type QueueStats = Record<QueueItemStatus, number>;

/** Figures of everything that one may see. */
export interface Analytics {
  /** How many agents there are. */
  agents: { total: number };
  /** How many sessions there are, and where they stand. */
  sessions: { total: number; byStatus: Record<string, number> };
  /** What was consumed. */
  usage: Schemas["Stats"];
  /** Other servers say more, and later ones may. */
  [more: string]: unknown;
}
