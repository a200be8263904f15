"""The files of a session, what is attached to it, and commands beside its agent."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from .._method import operation
from .._wire import Answer, Call, Id, Repeat, at, call, content, file_at, given, many, nothing, one, saved
from ..content import FilesGiven, encoded, media_type
from ..schema import (
    Attachment,
    Egress,
    ExecOutcome,
    FileContent,
    FileDeleted,
    FileInfo,
    Files,
    FileWritten,
    WorkspaceUploaded,
)


@dataclass(frozen=True)
class RawFile:
    """A file as it is, with what the server says about it."""

    content: bytes
    content_type: str | None
    source: str | None


def _raw(answer: Answer) -> RawFile:
    return RawFile(answer.body, answer.headers.get("content-type"), answer.headers.get("x-ash-source"))


class FileOperations:
    """Files."""

    @operation
    def exec(self, session_id: Id, command: str, *, timeout: int | None = None) -> Call[ExecOutcome]:
        """Runs a command beside the agent. `timeout` is in milliseconds."""
        body = given(command=command, timeout=timeout)
        patience = None if timeout is None else timeout / 1000 + 60
        path = at("sessions", session_id, "exec")
        return call("POST", path, one(ExecOutcome), body=body, timeout=patience)

    @operation
    def get_session_files(
        self,
        session_id: Id,
        *,
        include_hidden: bool | None = None,
        everything: bool | None = None,
        path: str | None = None,
        directories: bool | None = None,
    ) -> Call[Files]:
        """Lists the files of the workspace, and says whether they are those of the sandbox or of a snapshot."""
        query = given(include_hidden=include_hidden, everything=everything, path=path, directories=directories)
        return call("GET", at("sessions", session_id, "files"), one(Files), query=query)

    @operation
    def list_session_files(self, session_id: Id, *, path: str | None = None) -> Call[list[FileInfo]]:
        """Lists the files of the workspace."""
        where = at("sessions", session_id, "files")
        return call("GET", where, many(FileInfo, "files"), query=given(path=path))

    @operation
    def get_session_file(self, session_id: Id, path: str) -> Call[FileContent]:
        """Reads a file of text."""
        where = file_at("sessions", session_id, "files", file=path)
        return call("GET", where, one(FileContent), query={"format": "json"})

    @operation
    def download_session_file(self, session_id: Id, path: str) -> Call[bytes]:
        """Reads a file, whatever is in it."""
        where = file_at("sessions", session_id, "files", file=path)
        return call("GET", where, content, query={"format": "raw"})

    @operation
    def download_session_file_raw(self, session_id: Id, path: str) -> Call[RawFile]:
        """Reads a file, with its type and where it came from."""
        where = file_at("sessions", session_id, "files", file=path)
        return call("GET", where, _raw, query={"format": "raw"})

    @operation
    def write_session_files(
        self, session_id: Id, files: FilesGiven, *, target_path: str | None = None
    ) -> Call[list[FileWritten]]:
        """Writes files: `{"notes.md": "text", "picture.png": b"..."}`. Says for each whether it was written."""
        body = {"files": encoded(files), **given(target_path=target_path)}
        where = at("sessions", session_id, "files")
        return call("POST", where, many(FileWritten, "files"), body=body, repeat=Repeat.SAFE)

    @operation
    def delete_session_file(self, session_id: Id, path: str, *, recursive: bool | None = None) -> Call[FileDeleted]:
        """Removes a file; with `recursive`, also a directory and what is in it."""
        where = file_at("sessions", session_id, "files", file=path)
        return call("DELETE", where, one(FileDeleted), query=given(recursive=recursive))

    @operation
    def download_workspace(self, session_id: Id) -> Call[bytes]:
        """The workspace as a tar.gz."""
        return call("GET", at("sessions", session_id, "workspace"), content)

    @operation
    def save_workspace(self, session_id: Id, path: str | PathLike[str]) -> Call[Path]:
        """Saves the workspace as a tar.gz, which appears whole or not at all."""
        to = Path(path)
        return call("GET", at("sessions", session_id, "workspace"), saved(to), save_to=to)

    @operation
    def save_session_file(self, session_id: Id, path: str, to: str | PathLike[str]) -> Call[Path]:
        """Saves a file of the workspace on this machine; it appears whole or not at all."""
        where, target = file_at("sessions", session_id, "files", file=path), Path(to)
        return call("GET", where, saved(target), query={"format": "raw"}, save_to=target)

    @operation
    def upload_workspace(self, session_id: Id, bundle: bytes) -> Call[WorkspaceUploaded]:
        """Unpacks a tar.gz in the workspace."""
        body = {"bundle": base64.b64encode(bundle).decode()}
        where = at("sessions", session_id, "workspace")
        return call("POST", where, one(WorkspaceUploaded), body=body, repeat=Repeat.SAFE)

    @operation
    def list_egress(self, session_id: Id, *, limit: int | None = None) -> Call[Egress]:
        """What the sandbox asked of other hosts, and what the session has spent."""
        return call("GET", at("sessions", session_id, "egress"), one(Egress), query=given(limit=limit))

    @operation
    def upload_attachment(
        self,
        session_id: Id,
        filename: str,
        content: bytes,
        *,
        mime_type: str | None = None,
        message_id: Id | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Attachment]:
        """Hands a file to a session."""
        body = given(
            filename=filename,
            content=base64.b64encode(content).decode(),
            mime_type=mime_type or media_type(filename),
            message_id=None if message_id is None else str(message_id),
        )
        path, read = at("sessions", session_id, "attachments"), one(Attachment, "attachment")
        return call("POST", path, read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def list_attachments(self, session_id: Id) -> Call[list[Attachment]]:
        """Lists the files that were handed to a session."""
        return call("GET", at("sessions", session_id, "attachments"), many(Attachment, "attachments"))

    @operation
    def download_attachment(self, attachment_id: Id) -> Call[bytes]:
        """Reads a file that was handed to a session."""
        return call("GET", at("attachments", attachment_id), content)

    @operation
    def delete_attachment(self, attachment_id: Id) -> Call[None]:
        """Removes a file that was handed to a session."""
        return call("DELETE", at("attachments", attachment_id), nothing)
