/** Code as it was written for the original's client: it has to compile. It is never run. */
import { AshClient, type Agent, type AshStreamEvent, type Session, type SessionStatus, extractDisplayItems, extractStreamDelta, extractTextFromEvent } from "ash-sdk";
import type * as ash from "ash-sdk";

export async function asBefore(): Promise<unknown[]> {
  const client = new AshClient({ serverUrl: "http://localhost:4100", apiKey: "key" });
  const agent: Agent = await client.deployAgent("a", "/path");
  const session: Session = await client.createSession("a", { credentialId: "c", extraEnv: { A: "b" }, model: "m", mcpServers: { x: { url: "u" } } });
  const status: SessionStatus = session.status;
  const response: Response = await client.sendMessage(session.id, "hi", { includePartialMessages: true });
  const generator: AsyncGenerator<AshStreamEvent> = client.sendMessageStream(session.id, "hi", { maxTurns: 2, effort: "high" });
  for await (const event of generator) {
    if (event.type === "message") console.log(event.data.type, event.data.message?.content);
    else if (event.type === "text_delta") process.stdout.write(event.data.delta);
    else if (event.type === "error") console.error(event.data.error);
    else if (event.type === "done") console.log(event.data.sessionId);
    switch (event.type) {
      case "tool_use":
        console.log(event.data.name.length);
        break;
      case "text_delta":
        break;
      default:
        // Names that are not known yet are texts, too.
        console.log((event.type as string) === "something_new", event.data);
    }
  }
  const resumed: Session = await client.resumeSession(session.id);
  const { buffer } = await client.downloadSessionFile(session.id, "x.png");
  const text: string = buffer.toString("base64");
  const workspace: Buffer = await client.downloadWorkspace(session.id);
  await client.uploadWorkspace(session.id, workspace);
  await client.uploadAttachment(session.id, "a.txt", Buffer.from("x"), { mimeType: "text/plain" });
  const { exitCode } = await client.exec(session.id, "ls", { timeout: 5_000 });
  const item = await client.enqueue("a", "prompt", { priority: 1 });
  await client.storeBedrockCredential({ accessKeyId: "i", secretAccessKey: "s", region: "r" });
  const fork: Session = await client.forkSession(session.id);
  return [agent, status, response, resumed, text, exitCode, item.status, fork];
}

/** Narrowing is exact: a field of another event is no field of this one. */
export function exact(event: AshStreamEvent): string {
  // @ts-expect-error a `text_delta` has no `name`
  if (event.type === "text_delta") return event.data.name;
  return event.type;
}

/** The original's helpers, as they are called there. */
export async function shown(events: AsyncIterable<AshStreamEvent>): Promise<ash.DisplayItem[]> {
  const all: ash.DisplayItem[] = [];
  for await (const event of events) {
    if (event.type !== "message") continue;
    const text: string | null = extractTextFromEvent(event.data) ?? extractStreamDelta(event.data);
    if (text !== null) all.push({ type: "text" satisfies ash.DisplayItemType, content: text });
    const items = extractDisplayItems(event.data);
    for (const item of items ?? []) if (item.toolName !== undefined) all.push(item);
  }
  return all;
}

/** The bodies that the original names, with the fields that it has in them. */
export const bodies = (agent: Agent, session: Session, problem: ash.ApiError, counted: ash.UsageEvent) => {
  const kind: ash.UsageEventType = counted.eventType;
  return [
    { agent: "a", credentialId: "c", extraEnv: { A: "b" }, model: "m", systemPrompt: "s" } satisfies ash.CreateSessionRequest,
    { content: "hi", includePartialMessages: true, model: "m" } satisfies ash.SendMessageRequest,
    { name: "a", path: "/p" } satisfies ash.DeployAgentRequest,
    { agents: [agent] } satisfies ash.ListAgentsResponse,
    { messages: [], hasMore: false } satisfies ash.ListMessagesResponse,
    { events: [], hasMore: false } satisfies ash.ListSessionEventsResponse,
    { credentials: [] } satisfies ash.ListCredentialsResponse,
    { attachments: [] } satisfies ash.ListAttachmentsResponse,
    { events: [counted] } satisfies ash.ListUsageResponse,
    { items: [] } satisfies ash.ListQueueResponse,
    { sessions: [session], nextCursor: null } satisfies ash.ListSessionsResponse,
    [kind, problem.error, problem.statusCode] satisfies (string | number)[],
  ];
};
