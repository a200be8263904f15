/** Files of sessions: one by one, as bundles, as attachments. */
import { type BytesInput, bytesOf, ownBytes, toBase64 } from "../bytes.js";
import { filePath, part } from "../http.js";
import type {
  Answer,
  Attachment,
  Bytes,
  DeleteSessionFileResponse,
  GetFileResponse,
  ListFilesResponse,
  WriteFileInput,
  WriteSessionFilesResponse,
} from "../types.js";
import { MessageMethods } from "./messages.js";
import { sessionPath } from "./sessions.js";

/** Which files to list. */
export interface ListFilesOptions {
  /** Whether caches and the like are among them; they are, unless told otherwise. */
  includeHidden?: boolean;
  /** Whether really all are, `node_modules` and `.git` too. */
  everything?: boolean;
  /** Only below this directory. */
  path?: string;
}

/** A file as it is. */
export interface DownloadedFile {
  /** Its bytes. */
  buffer: Bytes;
  /** Its type, by its name. */
  mimeType: string;
  /** Where it was read: `sandbox`, or `snapshot`. */
  source: string;
}

const fileAt = (id: string, path: string): string => sessionPath(id, `/files/${filePath(path)}`);

/** The part of the client that is about files. */
export class FileMethods extends MessageMethods {
  /** The files of a session's workspace, whatever its state. */
  async getSessionFiles(id: string, options: ListFilesOptions = {}): Promise<ListFilesResponse> {
    const query = { includeHidden: true, ...options };
    return this.http.json<Answer<"listFiles">>({ method: "GET", path: sessionPath(id, "/files"), query });
  }

  /** A file of a workspace as text, up to 1 MB. */
  async getSessionFile(id: string, path: string): Promise<GetFileResponse> {
    return this.http.json<GetFileResponse>({ method: "GET", path: fileAt(id, path), query: { format: "json" } });
  }

  /** A file of a workspace as bytes. */
  async downloadSessionFile(id: string, path: string): Promise<DownloadedFile> {
    const { data, headers } = await this.http.bytes({ method: "GET", path: fileAt(id, path) });
    const mimeType = headers.get("content-type") ?? "application/octet-stream";
    return { buffer: ownBytes(data), mimeType, source: headers.get("x-ash-source") ?? "unknown" };
  }

  /** A file of a workspace as a `Response`, to be streamed or passed on. */
  async downloadSessionFileRaw(id: string, path: string): Promise<Response> {
    return this.http.response({ method: "GET", path: fileAt(id, path) });
  }

  /** Writes files into a workspace, in base64 (`toBase64`): each whole or not at all. */
  async writeSessionFiles(id: string, files: WriteFileInput[], targetPath?: string): Promise<WriteSessionFilesResponse> {
    const json = { files, ...(targetPath === undefined ? {} : { targetPath }) };
    return this.http.json<Answer<"writeFiles">>({ method: "POST", path: sessionPath(id, "/files"), json, repeat: "always" });
  }

  /** Deletes a file of a workspace; a directory with what is in it, if `recursive`. */
  async deleteSessionFile(id: string, path: string, options: { recursive?: boolean } = {}): Promise<DeleteSessionFileResponse> {
    const ask = { method: "DELETE", path: fileAt(id, path), query: options, repeat: "refused" } as const;
    return this.http.json<Answer<"deleteFile">>(ask);
  }

  /** A workspace as a `.tar.gz`. */
  async downloadWorkspace(id: string): Promise<Bytes> {
    return ownBytes((await this.http.bytes({ method: "GET", path: sessionPath(id, "/workspace") })).data);
  }

  /** Replaces a workspace by what is in a `.tar.gz`. */
  async uploadWorkspace(id: string, bundle: BytesInput): Promise<void> {
    const json = { bundle: toBase64(await bytesOf(bundle)) };
    await this.http.json<unknown>({ method: "POST", path: sessionPath(id, "/workspace"), json, repeat: "always" });
  }

  /** Sends a file along with a conversation. The agent finds it at its `path`. */
  async uploadAttachment(
    id: string,
    filename: string,
    content: BytesInput,
    options: { mimeType?: string; messageId?: string } = {},
  ): Promise<Attachment> {
    const json = { filename, content: toBase64(await bytesOf(content)), ...options };
    const ask = { method: "POST", path: sessionPath(id, "/attachments"), json, key: true } as const;
    return (await this.http.json<Answer<"attachFile">>(ask)).attachment;
  }

  /** The files that were sent along. */
  async listAttachments(id: string): Promise<Attachment[]> {
    const ask = { method: "GET", path: sessionPath(id, "/attachments") } as const;
    return (await this.http.json<Answer<"listAttachments">>(ask)).attachments;
  }

  /** The bytes of a file that was sent along. */
  async downloadAttachment(id: string): Promise<Bytes> {
    return ownBytes((await this.http.bytes({ method: "GET", path: `/api/attachments/${part(id)}` })).data);
  }

  /** Deletes a file that was sent along. */
  async deleteAttachment(id: string): Promise<void> {
    await this.http.json<unknown>({ method: "DELETE", path: `/api/attachments/${part(id)}`, repeat: "refused" });
  }
}
