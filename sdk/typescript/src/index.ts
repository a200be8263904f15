/** Ash: durable sessions with AI coding agents. Begin with {@link AshClient}. */
export { AshClient, type BedrockCredential, type UsageOptions } from "./client/client.js";
export type { CreateAgentOptions } from "./client/agents.js";
export type { DownloadedFile, ListFilesOptions } from "./client/files.js";
export type { EventStream, MessageStream, SendMessageOptions, SendMessageStreamOptions, StreamOptions } from "./client/messages.js";
export type { PageOptions, ResumedSession } from "./client/sessions.js";
export type { AshClientOptions } from "./http.js";
export type { RetryOptions } from "./backoff.js";
export type { FollowOptions, ReconnectNotice } from "./stream.js";
export { type BytesInput, toBase64 } from "./bytes.js";
export { SseParser, type SseFrame, parseSSEStream } from "./sse.js";
export {
  Transcript,
  textOf,
  type TranscriptItem,
  type TranscriptText,
  type TranscriptTool,
  type TranscriptTurn,
} from "./transcript.js";
export * from "./original.js";
export * from "./errors.js";
export type * from "./events.js";
export type * from "./types.js";
export type { components, operations } from "./schema.js";
