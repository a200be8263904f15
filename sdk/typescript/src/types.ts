/** The shapes of the API, under the names that people use. They are generated from the server's OpenAPI document. */
import type { components, operations } from "./schema.js";

type Schemas = components["schemas"];

/** What an operation answers when it succeeds. */
export type Answer<Operation extends keyof operations> = operations[Operation] extends { responses: infer Responses }
  ? JsonOf<Responses[keyof Responses]>
  : never;
type JsonOf<Response> = Response extends { content: { "application/json": infer Body } } ? Body : never;

/** Makes what may be null or absent simply optional, as people write it. */
type Options<Of, Left extends PropertyKey = never> = { [Key in keyof Of as Key extends Left ? never : Key]?: Exclude<Of[Key], null> | undefined };

/** One conversation with its workspace and its log. */
export type Session = Schemas["Session"];
/** Where a session stands. */
export type SessionStatus = Schemas["SessionStatus"];
/** What came back with a resume. */
export type ResumeReceipt = Schemas["ResumeReceipt"];
/** A deployed agent. */
export type Agent = Schemas["Agent"];
/** A change of an agent. */
export type AgentUpdate = Options<Schemas["UpdateAgent"]>;
/** A file of an agent to be deployed, in base64. */
export type AgentFile = Schemas["AgentFile"];
/** One version of an agent. */
export type AgentVersion = Schemas["AgentVersion"];
/** A version to be made. */
export type CreateAgentVersionInput = Options<Schemas["NewAgentVersion"]>;
/** A change of a version. */
export type UpdateAgentVersionInput = Options<Schemas["UpdateAgentVersion"]>;
/** Free settings of an agent. */
export type AgentConfig = Schemas["AgentConfig"]["config"];
/** The execution of one message. */
export type Run = Schemas["Run"];
/** What a run consumed. */
export type Usage = Schemas["Usage"];
/** A snapshot of what a session works on. */
export type Snapshot = Schemas["Snapshot"];
/** How the files of two snapshots differ. */
export type SnapshotDiff = Schemas["SnapshotDiff"];
/** How many files were added, modified and removed. */
export type ChangeCounts = Schemas["ChangeCounts"];
/** A question that an agent asks before it does something. */
export type Permission = Schemas["Permission"];
/** How tool calls are allowed. */
export type PermissionMode = Schemas["PermissionMode"];
/** A part of a message: text, a picture, a document. */
export type ContentBlock = Schemas["Block"];
/** What a message says. */
export type MessageContent = string | ContentBlock[];
/** An MCP server beside the agent's. */
export type McpServerConfig = Schemas["McpServer"];
/** A stored credential. Its secret is never shown. */
export type Credential = Schemas["Credential"];
/** Which service a credential is for. */
export type CredentialType = Schemas["CredentialType"];
/** What a command gave. */
export type ExecResult = Schemas["ExecOutcome"];
/** A file of a workspace. */
export type FileEntry = Schemas["FileInfo"];
/** The files of a workspace. */
export type ListFilesResponse = Schemas["Files"];
/** A file of a workspace as text. */
export type GetFileResponse = Schemas["FileContent"];
/** A file to be written, in base64. */
export type WriteFileInput = Options<Schemas["NewFile"], "path" | "content"> &
  Pick<Schemas["NewFile"], "path" | "content"> & {
    /** Taken for the original's sake, and not needed. */
    mimeType?: string;
  };
/** What became of files that were to be written. */
export type WriteSessionFilesResponse = Schemas["FilesWritten"];
/** What became of a file that was to be deleted. */
export type DeleteSessionFileResponse = Schemas["FileDeleted"];
/** The files of an agent. */
export type ListAgentFilesResponse = Schemas["AgentFiles"];
/** A file of an agent. */
export type GetAgentFileResponse = Schemas["AgentFileContent"];
/** A file that is attached to a session. */
export type Attachment = Schemas["Attachment"];
/** Where a prompt in the queue stands. */
export type QueueItemStatus = Schemas["QueueItemStatus"];
/** A prompt in the queue. */
export type QueueItem = Schemas["QueueItem"];
/** How many prompts stand where. */
export type QueueStats = Schemas["QueueCounts"];
/** An account in figures. */
export type Analytics = Schemas["Analytics"];
/** A line that something in the sandbox wrote. */
export type SandboxLogEntry = Schemas["Log"];
/** What the sandbox wrote. */
export type ListSessionLogsResponse = Schemas["Logs"];
/** Something that was consumed. */
export type UsageEvent = Schemas["UsageEvent"];
/** What was consumed in all. */
export type UsageStats = Schemas["Stats"];
/** What the server says of itself. */
export type HealthResponse = Schemas["Health"];
/** A page of sessions. */
export type ListSessionsResponse = Schemas["Sessions"];
/** A page of sessions, and how many there are. */
export type ListSessionsWithTotalResponse = Schemas["Sessions"] & { total: number };
/** An API key, without its secret. */
export type ApiKey = Schemas["ApiKey"];
/** A new API key. It is shown this once. */
export type ApiKeyMade = Schemas["ApiKeyMade"];
/** A session in the cloud. */
export type CloudSession = Schemas["CloudSession"];
/** What went out of a sandbox, and what was spent. */
export type Egress = Schemas["Egress"];
/** A message that was sent and is not watched. */
export type Sent = Schemas["Sent"];

/** One message of a conversation. `content` is a text of JSON. */
export type Message = Omit<Schemas["Message"], "role"> & { role: "user" | "assistant" | (string & {}) };
/** What kind of thing an entry of the timeline is. */
export type SessionEventType =
  | "text"
  | "tool_start"
  | "tool_result"
  | "reasoning"
  | "error"
  | "turn_complete"
  | "lifecycle"
  | "mcp_status"
  | (string & {});
/** One entry of a session's timeline. `data` is a text of JSON. */
export type SessionEvent = Omit<Schemas["Event"], "type"> & { type: SessionEventType };

/** How a session is made. */
export type CreateSessionOptions = Options<Schemas["CreateSession"], "agent">;
/** What of a session's options can be changed while it lives. */
export type SessionConfigUpdate = Options<Schemas["UpdateConfig"]>;
/** The options of one message that the server knows. */
export type MessageOptions = Options<Schemas["SendMessage"], "content" | "detach">;
/** Which sessions to list. */
export interface ListSessionsOptions {
  /** Only of this agent. */
  agent?: string;
  /** Only in this state. */
  status?: SessionStatus;
  /** Only those whose id begins so. */
  idPrefix?: string;
  /** How many at most. */
  limit?: number;
  /** How many to skip. */
  offset?: number;
  /** Where the last page ended: its `nextCursor`. */
  cursor?: string;
}

/** How a session is paused. */
export interface PauseSessionOptions {
  /** What becomes of a run that goes on: it is frozen (the default), interrupted, or the pause is refused with 409. */
  ifRunning?: NonNullable<Schemas["PauseSession"]["ifRunning"]>;
}

/** How a session is resumed. */
export interface ResumeSessionOptions {
  /** Refuse with 409 `no_saved_state` rather than start with a fresh workspace. */
  requireState?: boolean;
}

/** A point in a session's history: a snapshot, or the end of a turn. */
export type HistoryPoint = { snapshotId: string; turn?: never } | { turn: number; snapshotId?: never };

/** The answer to a question of an agent. */
export type PermissionAnswer =
  /** Yes; with another input, if one is given. */
  | { behavior: "allow"; input?: Record<string, unknown>; message?: never }
  /** No; the agent is told the message. */
  | { behavior: "deny"; message?: string; input?: never };

/** Bytes as they come back: a `Buffer` where there are buffers (Node), a `Uint8Array` elsewhere. */
export type Bytes = typeof globalThis extends { Buffer: { from(data: ArrayBuffer): infer Made } } ? Made : Uint8Array;
