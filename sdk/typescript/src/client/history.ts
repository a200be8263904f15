/** What a session was: snapshots, forks, rewinds, bundles. */
import { type BytesInput, bytesOf, ownBytes } from "../bytes.js";
import { part } from "../http.js";
import type { Answer, Bytes, ChangeCounts, CloudSession, HistoryPoint, Session, Snapshot, SnapshotDiff } from "../types.js";
import { SessionMethods, sessionPath } from "./sessions.js";

/** The part of the client that is about history. */
export class HistoryMethods extends SessionMethods {
  /** Makes a session that goes on from another one, files and conversation: from now, or from a point in its history. */
  async forkSession(id: string, point?: HistoryPoint): Promise<Session> {
    const ask = { method: "POST", path: sessionPath(id, "/fork"), json: point ?? {}, key: true } as const;
    return (await this.http.json<Answer<"forkSession">>(ask)).session;
  }

  /** Takes a session back to a point in its history, files and conversation. It can itself be taken back. */
  async rewindSession(id: string, point: HistoryPoint & { dryRun?: boolean }): Promise<{ session: Session; changes: ChangeCounts }> {
    return this.http.json<Answer<"rewindSession">>({ method: "POST", path: sessionPath(id, "/rewind"), json: point });
  }

  /** The snapshots of a session, newest first. One is made after each turn, a moment after its `done`. */
  async listSnapshots(id: string, options: { limit?: number } = {}): Promise<Snapshot[]> {
    const ask = { method: "GET", path: sessionPath(id, "/snapshots"), query: options } as const;
    return (await this.http.json<Answer<"listSnapshots">>(ask)).snapshots;
  }

  /** What changed in a snapshot: against the one before, or another one; in all files, or below a path. */
  async diffSnapshots(id: string, snapshotId: string, options: { against?: string; path?: string } = {}): Promise<SnapshotDiff> {
    const path = sessionPath(id, `/snapshots/${part(snapshotId)}/diff`);
    return this.http.json<Answer<"diffSnapshots">>({ method: "GET", path, query: options });
  }

  /** A bundle with all of a session: log, conversation, files; with `history`, every snapshot that is kept. */
  async exportSession(id: string, options: { history?: boolean } = {}): Promise<Bytes> {
    return ownBytes((await this.http.bytes({ method: "GET", path: sessionPath(id, "/export"), query: options })).data);
  }

  /** The same as a `Response`, for bundles that are not to be held in memory. */
  async exportSessionRaw(id: string, options: { history?: boolean } = {}): Promise<Response> {
    return this.http.response({ method: "GET", path: sessionPath(id, "/export"), query: options });
  }

  /** Makes a session of a bundle. */
  async importSession(bundle: BytesInput): Promise<Session> {
    const bytes = { type: "application/x-tar", body: await bytesOf(bundle) };
    return (await this.http.json<Answer<"importSession">>({ method: "POST", path: "/api/sessions/import", bytes, key: true })).session;
  }

  /** The sessions that are in the cloud. */
  async listCloudSessions(options: { limit?: number } = {}): Promise<CloudSession[]> {
    const ask = { method: "GET", path: "/api/cloud/sessions", query: options } as const;
    return (await this.http.json<Answer<"listCloudSessions">>(ask)).sessions;
  }

  /** Brings a session here from the cloud. */
  async importCloudSession(id: string): Promise<Session> {
    const ask = { method: "POST", path: `/api/cloud/sessions/${part(id)}/import`, key: true } as const;
    return (await this.http.json<Answer<"importCloudSession">>(ask)).session;
  }
}
