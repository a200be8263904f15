"""Snapshots, and going to points of a session's history; sessions that come from elsewhere."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from .._method import operation
from .._wire import Call, Id, Repeat, at, call, content, given, many, one, saved
from ..schema import CloudSession, Rewound, Session, Snapshot, SnapshotDiff


class HistoryOperations:
    """History."""

    @operation
    def fork_session(
        self,
        session_id: Id,
        *,
        turn: int | None = None,
        snapshot_id: Id | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Session]:
        """Makes a session of another one, as that is now, or as it was after a turn or at a snapshot. It is paused."""
        body = given(turn=turn, snapshot_id=_text(snapshot_id))
        path, read = at("sessions", session_id, "fork"), one(Session, "session")
        return call("POST", path, read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def rewind_session(
        self,
        session_id: Id,
        *,
        turn: int | None = None,
        snapshot_id: Id | None = None,
        dry_run: bool | None = None,
    ) -> Call[Rewound]:
        """Goes back to an earlier turn, conversation and files. Nothing is forgotten: a rewind can be rewound."""
        body = given(turn=turn, snapshot_id=_text(snapshot_id), dry_run=dry_run)
        return call("POST", at("sessions", session_id, "rewind"), one(Rewound), body=body)

    @operation
    def list_snapshots(self, session_id: Id, *, limit: int | None = None) -> Call[list[Snapshot]]:
        """Lists the snapshots of a session, newest first."""
        path = at("sessions", session_id, "snapshots")
        return call("GET", path, many(Snapshot, "snapshots"), query=given(limit=limit))

    @operation
    def diff_snapshot(
        self, session_id: Id, snapshot_id: Id, *, against: Id | None = None, path: str | None = None
    ) -> Call[SnapshotDiff]:
        """What changed: against the snapshot before, or another one, `"empty"`, or `"current"`."""
        query = given(against=_text(against), path=path)
        where = at("sessions", session_id, "snapshots", snapshot_id, "diff")
        return call("GET", where, one(SnapshotDiff), query=query)

    @operation
    def export_session(self, session_id: Id, *, history: bool | None = None) -> Call[bytes]:
        """A session in one file: log, conversation and workspace; with `history`, all snapshots."""
        path = at("sessions", session_id, "export")
        return call("GET", path, content, query=given(history=history))

    @operation
    def save_session(self, session_id: Id, path: str | PathLike[str], *, history: bool | None = None) -> Call[Path]:
        """Exports a session to a file, which appears whole or not at all. It may be larger than the memory."""
        to, where = Path(path), at("sessions", session_id, "export")
        return call("GET", where, saved(to), query=given(history=history), save_to=to)

    @operation
    def import_session(self, bundle: bytes | PathLike[str], *, idempotency_key: str | None = None) -> Call[Session]:
        """Makes a session of an exported one: of its bytes, or of the file that it is in."""
        return call(
            "POST",
            at("sessions", "import"),
            one(Session, "session"),
            body=bundle if isinstance(bundle, bytes) else Path(bundle),
            repeat=Repeat.KEYED,
            key=idempotency_key,
            content_type="application/x-tar",
        )

    @operation
    def list_cloud_sessions(self, *, limit: int | None = None) -> Call[list[CloudSession]]:
        """Lists the sessions that are in the server's bucket, whichever server brought them there."""
        query = given(limit=limit)
        return call("GET", at("cloud", "sessions"), many(CloudSession, "sessions"), query=query)

    @operation
    def import_cloud_session(self, session_id: Id, *, idempotency_key: str | None = None) -> Call[Session]:
        """Brings a session from the bucket to this server."""
        path, read = at("cloud", "sessions", session_id, "import"), one(Session, "session")
        return call("POST", path, read, repeat=Repeat.KEYED, key=idempotency_key)


def _text(value: Id | None) -> str | None:
    return None if value is None else str(value)
