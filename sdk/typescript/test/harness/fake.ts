/** A server that says what a test wants, for what a real one does not say when asked. */
import { once } from "node:events";
import { type IncomingHttpHeaders, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { AshClient } from "ash-sdk";

/** What it was asked. */
export interface Asked {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  body: unknown;
}

/** What it says. */
export type Handler = (request: Asked, response: ServerResponse, count: number) => void;

/** A server that says what it is told to say. */
export async function saying(handler: Handler, test: (client: AshClient, asked: Asked[]) => Promise<void>): Promise<void> {
  const asked: Asked[] = [];
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      const { method = "", url = "", headers } = request;
      const text = Buffer.concat(pieces).toString();
      const one = { method, url, headers, body: text === "" ? undefined : (JSON.parse(text) as unknown) };
      asked.push(one);
      handler(one, response, asked.length);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const serverUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const retry = { firstPauseMs: 1, longestPauseMs: 5 };
  try {
    await test(new AshClient({ serverUrl, apiKey: "k", retry, streamRetry: { ...retry, attempts: 4 }, heartbeatTimeoutMs: 200 }), asked);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}
/** Answers with JSON, or with a text. */
export const answer = (response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void => {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(typeof body === "string" ? body : JSON.stringify(body));
};
/** An error as the server tells it. */
export const problem = (code: string, statusCode: number, retryable = false) => ({ error: "A sentence", statusCode, code, retryable, requestId: "r-1" });
