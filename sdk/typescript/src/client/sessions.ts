/** Sessions: made, looked at, paused, resumed, stopped, ended. */
import { part } from "../http.js";
import type {
  Answer,
  CreateSessionOptions,
  Egress,
  ExecResult,
  ListSessionLogsResponse,
  ListSessionsOptions,
  ListSessionsResponse,
  ListSessionsWithTotalResponse,
  Message,
  PauseSessionOptions,
  Permission,
  PermissionAnswer,
  ResumeReceipt,
  ResumeSessionOptions,
  Run,
  Session,
  SessionConfigUpdate,
  SessionEvent,
  SessionEventType,
} from "../types.js";
import { AgentMethods } from "./agents.js";

/** A session that was brought back, and what came back with it. */
export type ResumedSession = Session & {
  /** The receipt: where the files came from, and whether the agent remembers. */
  resume: ResumeReceipt;
};

/** A part of a list that is numbered by the log. */
export interface PageOptions {
  /** How many at most. */
  limit?: number;
  /** Only what comes after this entry of the log. */
  afterSequence?: number;
}

/** How long a command may run if nothing is said, in milliseconds. */
const EXEC_TIMEOUT_MS = 30_000;

/** The path of a session, and of something below it. */
export const sessionPath = (id: string, below = ""): string => `/api/sessions/${part(id)}${below}`;

/** The part of the client that is about sessions. */
export class SessionMethods extends AgentMethods {
  /** Makes a session; its sandbox is up when this returns. */
  async createSession(agent: string, options: CreateSessionOptions = {}): Promise<Session> {
    const json = { agent, ...options };
    return (await this.http.json<Answer<"createSession">>({ method: "POST", path: "/api/sessions", json, key: true })).session;
  }

  /** Sessions, newest first: those of an agent, or those that the options say. */
  async listSessions(agentOrOptions?: string | ListSessionsOptions): Promise<Session[]> {
    return (await this.listSessionsPage(typeof agentOrOptions === "string" ? { agent: agentOrOptions } : agentOrOptions)).sessions;
  }

  /** A page of sessions, and how many there are. */
  async listSessionsWithTotal(options: ListSessionsOptions = {}): Promise<ListSessionsWithTotalResponse> {
    return this.http.json({ method: "GET", path: "/api/sessions", query: { ...options, includeTotal: true } });
  }

  /** A page of sessions; its `nextCursor` is the `cursor` of the next one. */
  async listSessionsPage(options: ListSessionsOptions = {}): Promise<ListSessionsResponse> {
    return this.http.json<Answer<"listSessions">>({ method: "GET", path: "/api/sessions", query: { ...options } });
  }

  /** Every session that the options say, page after page. */
  async *allSessions(options: Omit<ListSessionsOptions, "cursor" | "offset"> = {}): AsyncGenerator<Session, void, undefined> {
    let cursor: string | undefined;
    do {
      const page: ListSessionsResponse = await this.listSessionsPage({ ...options, ...(cursor === undefined ? {} : { cursor }) });
      yield* page.sessions;
      cursor = page.nextCursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** One session. */
  async getSession(id: string): Promise<Session> {
    return (await this.http.json<Answer<"getSession">>({ method: "GET", path: sessionPath(id) })).session;
  }

  /** Changes some of a session's options; they hold from the next message on. */
  async updateSessionConfig(id: string, updates: SessionConfigUpdate): Promise<Session> {
    const ask = { method: "PATCH", path: sessionPath(id, "/config"), json: updates, repeat: "always" } as const;
    return (await this.http.json<Answer<"configureSession">>(ask)).session;
  }

  /** Freezes a session where it is, also in the middle of a turn, and saves it. */
  async pauseSession(id: string, options: PauseSessionOptions = {}): Promise<Session> {
    const ask = { method: "POST", path: sessionPath(id, "/pause"), json: options } as const;
    return (await this.http.json<Answer<"pauseSession">>(ask)).session;
  }

  /** Brings a session back. The receipt, `resume`, says what came back with it. */
  async resumeSession(id: string, options: ResumeSessionOptions = {}): Promise<ResumedSession> {
    const ask = { method: "POST", path: sessionPath(id, "/resume"), json: options, repeat: "always" } as const;
    const { session, resume } = await this.http.json<Answer<"resumeSession">>(ask);
    return { ...session, resume };
  }

  /** Saves a session and gives its sandbox up. It can be resumed. */
  async stopSession(id: string): Promise<Session> {
    return (await this.http.json<Answer<"stopSession">>({ method: "POST", path: sessionPath(id, "/stop") })).session;
  }

  /** Ends a session for ever. Ending one that has ended changes nothing. */
  async endSession(id: string): Promise<Session> {
    return (await this.http.json<Answer<"endSession">>({ method: "DELETE", path: sessionPath(id) })).session;
  }

  /**
   * Ends the run that goes on; its stream ends with `done` and `stopReason: "interrupted"`. With `runId` that run, also if
   * it still waits.
   */
  async interrupt(id: string, options: { runId?: string } = {}): Promise<Run> {
    const ask = { method: "POST", path: sessionPath(id, "/interrupt"), json: options } as const;
    return (await this.http.json<Answer<"interruptSession">>(ask)).run;
  }

  /** Runs a shell command in the session's sandbox. */
  async exec(id: string, command: string, options: { timeout?: number } = {}): Promise<ExecResult> {
    const timeoutMs = Math.max((options.timeout ?? EXEC_TIMEOUT_MS) + 60_000, this.http.options.timeoutMs ?? 0);
    const ask = { method: "POST", path: sessionPath(id, "/exec"), json: { command, ...options }, timeoutMs } as const;
    return this.http.json<Answer<"execCommand">>(ask);
  }

  /** The runs of a session, newest first. */
  async listRuns(id: string, options: { limit?: number } = {}): Promise<Run[]> {
    return (await this.http.json<Answer<"listRuns">>({ method: "GET", path: sessionPath(id, "/runs"), query: options })).runs;
  }

  /** One run. */
  async getRun(id: string, runId: string): Promise<Run> {
    return (await this.http.json<Answer<"getRun">>({ method: "GET", path: sessionPath(id, `/runs/${part(runId)}`) })).run;
  }

  /** The messages of a conversation, in order. */
  async listMessages(id: string, options: PageOptions = {}): Promise<Message[]> {
    const query = { limit: options.limit, after: options.afterSequence };
    return (await this.http.json<Answer<"listMessages">>({ method: "GET", path: sessionPath(id, "/messages"), query })).messages;
  }

  /** The timeline of a session: its log, in order. */
  async listSessionEvents(id: string, options: PageOptions & { type?: SessionEventType } = {}): Promise<SessionEvent[]> {
    const query = { limit: options.limit, after: options.afterSequence, type: options.type };
    return (await this.http.json<Answer<"listEvents">>({ method: "GET", path: sessionPath(id, "/events"), query })).events;
  }

  /** What the sandbox wrote; with `after`, only what comes after that index. */
  async getSessionLogs(id: string, options: { after?: number } = {}): Promise<ListSessionLogsResponse> {
    return this.http.json<Answer<"listLogs">>({ method: "GET", path: sessionPath(id, "/logs"), query: options });
  }

  /** What went out of the sandbox through the proxy, and what was spent. */
  async listEgress(id: string, options: { limit?: number } = {}): Promise<Egress> {
    return this.http.json<Answer<"listEgress">>({ method: "GET", path: sessionPath(id, "/egress"), query: options });
  }

  /** The questions of the agent that are open. */
  async listPermissions(id: string): Promise<Permission[]> {
    return (await this.http.json<Answer<"listPermissions">>({ method: "GET", path: sessionPath(id, "/permissions") })).permissions;
  }

  /** Answers a question of the agent. The first answer counts; the same one again is fine. */
  async answerPermission(id: string, permissionId: string, answer: PermissionAnswer): Promise<Answer<"decidePermission">> {
    const path = sessionPath(id, `/permissions/${part(permissionId)}`);
    return this.http.json<Answer<"decidePermission">>({ method: "POST", path, json: answer, repeat: "always" });
  }
}
