/**
 * What the original's client has beside its methods: readers of whole messages, and names of bodies.
 *
 * The readers take what a `message` event says, its `data`, as they always did, or the event itself. Whatever else they
 * are given is not for them, and they return null: other events say by themselves what they are about.
 */
import type { CreateAgentOptions } from "./client/agents.js";
import type { components } from "./schema.js";
import type { CreateSessionOptions, Message, MessageContent, MessageOptions, SessionEvent } from "./types.js";

type Schemas = components["schemas"];

/** What can be shown of a message. */
export type DisplayItemType = "text" | "tool_use" | "tool_result";

/** A piece of a message, made short enough to be shown. */
export interface DisplayItem {
  /** What it is. */
  type: DisplayItemType;
  /** The text; of a `tool_use`, the name of the tool; of a `tool_result`, what it gave. */
  content: string;
  /** Of a `tool_use`: the name of the tool. */
  toolName?: string;
  /** Of a `tool_use`: what the tool was called with. */
  toolInput?: string;
}

const LONGEST_INPUT = 200;
const LONGEST_RESULT = 1000;

/** The text of a message of the agent; null if it has none, or is something else. */
export function extractTextFromEvent(event: object): string | null {
  const message = messageOf(event);
  if (message["type"] !== "assistant") return null;
  const content = contentOf(message);
  return (typeof content === "string" ? content : textsOf(content).join("")) || null;
}

/**
 * The text that a `message` of the type `stream_event` adds; null, if it adds none. They come with `includePartialMessages`
 * only. A `text_delta` event beside it says the same in its `delta`, and is null here: else it would count twice.
 */
export function extractStreamDelta(event: object): string | null {
  const message = messageOf(event);
  const told = message["event"];
  if (message["type"] !== "stream_event" || !isRecord(told) || told["type"] !== "content_block_delta") return null;
  const { delta } = told;
  return isRecord(delta) && delta["type"] === "text_delta" && typeof delta["text"] === "string" ? delta["text"] : null;
}

/** What a message of the agent, or one with results of its tools, has to show; null if that is nothing. */
export function extractDisplayItems(event: object): DisplayItem[] | null {
  const message = messageOf(event);
  const items = message["type"] === "assistant" ? saidItems(message) : message["type"] === "user" ? resultItems(message) : [];
  return items.length === 0 ? null : items;
}

function saidItems(message: Fields): DisplayItem[] {
  return blocksOf(contentOf(message)).flatMap((block): DisplayItem[] => {
    if (block["type"] === "text") return [{ type: "text", content: String(block["text"] ?? "") }];
    if (block["type"] !== "tool_use") return [];
    const name = String(block["name"] ?? "");
    return [{ type: "tool_use", content: name, toolName: name, toolInput: shortened(inputText(block["input"]), LONGEST_INPUT, "...") }];
  });
}

/** An agent that is a program of its own says what a tool printed; every agent sends the model the results as blocks. */
function resultItems(message: Fields): DisplayItem[] {
  const printed = printedText(message["tool_use_result"]);
  const results = blocksOf(contentOf(message)).filter(({ type }) => type === "tool_result");
  const outputs = printed.trim() === "" ? results.map(({ content }) => resultText(content)) : [printed];
  const shown = outputs.filter((output) => output.trim() !== "");
  return shown.map((output) => ({ type: "tool_result", content: shortened(output, LONGEST_RESULT, "\n...") }));
}

function printedText(result: unknown): string {
  if (!isRecord(result)) return "";
  const { stdout, stderr } = result;
  return [stdout, stderr].filter((text) => typeof text === "string" && text !== "").join("\n");
}

function resultText(content: unknown): string {
  return typeof content === "string" ? content : textsOf(content).join("\n");
}

function inputText(input: unknown): string {
  if (!isRecord(input)) return input === undefined || input === null ? "" : plain(input);
  return Object.entries(input).map(([name, value]) => `${name}: ${plain(value)}`).join(", ");
}

function plain(value: unknown): string {
  return typeof value === "string" ? value : String(JSON.stringify(value));
}

function shortened(text: string, longest: number, mark: string): string {
  // Half a character is none.
  return text.length <= longest ? text : text.slice(0, longest).replace(/[\uD800-\uDBFF]$/, "") + mark;
}

type Fields = Record<string, unknown>;

function isRecord(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What a `message` event says, or what is already that. */
function messageOf(event: object): Fields {
  const fields = event as Fields;
  return fields["type"] === "message" && isRecord(fields["data"]) ? fields["data"] : fields;
}

function contentOf(message: Fields): unknown {
  return isRecord(message["message"]) ? message["message"]["content"] : undefined;
}

function blocksOf(content: unknown): Fields[] {
  return Array.isArray(content) ? content.filter(isRecord) : [];
}

function textsOf(content: unknown): string[] {
  return blocksOf(content).flatMap(({ type, text }) => (type === "text" && typeof text === "string" ? [text] : []));
}

/** How a session is made, with the agent that it is with. */
export type CreateSessionRequest = Pick<Schemas["CreateSession"], "agent"> & CreateSessionOptions;
/** A message, and how it is answered. */
export type SendMessageRequest = MessageOptions & {
  /** What is said. */
  content: MessageContent;
  /** Answer at once, with the run alone. */
  detach?: boolean | undefined;
};
/** An agent to be deployed: a directory of the server's machine, or what it is made of. */
export type DeployAgentRequest = Pick<Schemas["DeployAgent"], "name"> & CreateAgentOptions & {
  /** The directory. */
  path?: string | undefined;
};
/** The agents. */
export type ListAgentsResponse = Schemas["Agents"];
/** Messages of a session, and whether there are more. */
export type ListMessagesResponse = Omit<Schemas["Messages"], "messages"> & { messages: Message[] };
/** Entries of a session's timeline, and whether there are more. */
export type ListSessionEventsResponse = Omit<Schemas["Events"], "events"> & { events: SessionEvent[] };
/** The credentials. */
export type ListCredentialsResponse = Schemas["Credentials"];
/** What is attached to a session. */
export type ListAttachmentsResponse = Schemas["Attachments"];
/** What runs consumed. */
export type ListUsageResponse = Schemas["UsageEvents"];
/** A page of the queue. */
export type ListQueueResponse = Schemas["QueueItems"];
/** What is counted. */
export type UsageEventType =
  | "message"
  | "input_tokens"
  | "output_tokens"
  | "cache_creation_tokens"
  | "cache_read_tokens"
  | "tool_call"
  | "compute_seconds"
  | (string & {});
/** What the server answers when it says no; thrown as an `AshApiError`. */
export type ApiError = Schemas["Problem"];
