/** Code as it was written for the original's client: it has to compile. It is never run. */
import { AshClient, type Agent, type AshStreamEvent, type Session, type SessionStatus } from "ash-sdk";

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
