"""Routes that are not in the OpenAPI document of this version, by the shapes that the original gave them.

When the document has them, their types come from the schema, and what is here moves to the other files.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from .._method import operation
from .._model import Model
from .._wire import Answer, Call, Id, Repeat, at, call, content, file_at, given, many, nothing, one
from ..content import FilesGiven, encoded, media_type
from ..schema import AgentVersion

QueueStatus = Literal["pending", "processing", "completed", "failed", "cancelled"]


@dataclass(frozen=True, kw_only=True)
class Attachment(Model):
    """A file that was handed to a session."""

    id: str
    session_id: str
    filename: str
    mime_type: str
    size: int
    created_at: datetime
    tenant_id: str | None = None
    message_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class QueueItem(Model):
    """A prompt that is done when there is time."""

    id: str
    agent_name: str
    prompt: str
    status: QueueStatus
    priority: int
    retry_count: int
    max_retries: int
    created_at: datetime
    session_id: str | None = None
    tenant_id: str | None = None
    error: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class QueueStats(Model):
    """How many prompts are in which state."""

    pending: int
    processing: int
    completed: int
    failed: int
    cancelled: int


@dataclass(frozen=True, kw_only=True)
class Analytics(Model):
    """Agents, sessions and usage in numbers."""

    agents: dict[str, Any]
    sessions: dict[str, Any]
    usage: dict[str, Any]


def _config(answer: Answer) -> dict[str, Any]:
    config = answer.json().get("config")
    return config if isinstance(config, dict) else {}


def _json(answer: Answer) -> dict[str, Any]:
    found = answer.json()
    return found if isinstance(found, dict) else {}


class LaterOperations:
    """Agents' configuration, files and versions; attachments; the queue; analytics."""

    @operation
    def get_agent_config(self, name: str) -> Call[dict[str, Any]]:
        """The settings of an agent."""
        return call("GET", at("agents", name, "config"), _config)

    @operation
    def update_agent_config(self, name: str, config: dict[str, Any]) -> Call[dict[str, Any]]:
        """Changes settings of an agent. Those that are not named stay."""
        return call("PATCH", at("agents", name, "config"), _config, body=config)

    @operation
    def upload_agent_files(self, name: str, files: FilesGiven) -> Call[dict[str, Any]]:
        """Writes files of an agent."""
        body = {"files": encoded(files)}
        return call("POST", at("agents", name, "files"), _json, body=body, repeat=Repeat.SAFE)

    @operation
    def delete_agent_file(self, name: str, path: str) -> Call[None]:
        """Removes a file of an agent."""
        return call("DELETE", file_at("agents", name, "files", file=path), nothing)

    @operation
    def create_agent_version(
        self,
        agent: str,
        *,
        name: str | None = None,
        system_prompt: str | None = None,
        release_notes: str | None = None,
        knowledge_files: list[Any] | None = None,
        clone_from: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> Call[AgentVersion]:
        """Makes a version of an agent."""
        body = given(
            name=name,
            system_prompt=system_prompt,
            release_notes=release_notes,
            knowledge_files=knowledge_files,
            clone_from=clone_from,
        )
        path, read = at("agents", agent, "versions"), one(AgentVersion, "version")
        return call("POST", path, read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def update_agent_version(
        self,
        agent: str,
        version: int | str,
        *,
        name: str | None = None,
        system_prompt: str | None = None,
        release_notes: str | None = None,
        knowledge_files: list[Any] | None = None,
    ) -> Call[AgentVersion]:
        """Changes a version of an agent."""
        body = given(
            name=name,
            system_prompt=system_prompt,
            release_notes=release_notes,
            knowledge_files=knowledge_files,
        )
        path = at("agents", agent, "versions", version)
        return call("PATCH", path, one(AgentVersion, "version"), body=body)

    @operation
    def delete_agent_version(self, agent: str, version: int | str) -> Call[None]:
        """Deletes a version of an agent."""
        return call("DELETE", at("agents", agent, "versions", version), nothing)

    @operation
    def activate_agent_version(self, agent: str, version: int | str) -> Call[dict[str, Any]]:
        """Makes a version the one that new sessions begin with."""
        path = at("agents", agent, "versions", version, "activate")
        return call("POST", path, _json, repeat=Repeat.SAFE)

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

    @operation
    def enqueue(
        self,
        agent_name: str,
        prompt: str,
        *,
        session_id: Id | None = None,
        priority: int | None = None,
        max_retries: int | None = None,
        idempotency_key: str | None = None,
    ) -> Call[QueueItem]:
        """Has a prompt done when there is time."""
        body = given(
            agent_name=agent_name,
            prompt=prompt,
            session_id=None if session_id is None else str(session_id),
            priority=priority,
            max_retries=max_retries,
        )
        path, read = at("queue"), one(QueueItem, "item")
        return call("POST", path, read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def list_queue_items(self, *, status: QueueStatus | None = None, limit: int | None = None) -> Call[list[QueueItem]]:
        """Lists what is in the queue."""
        return call("GET", at("queue"), many(QueueItem, "items"), query=given(status=status, limit=limit))

    @operation
    def get_queue_item(self, item_id: Id) -> Call[QueueItem]:
        """Looks at something in the queue."""
        return call("GET", at("queue", item_id), one(QueueItem, "item"))

    @operation
    def cancel_queue_item(self, item_id: Id) -> Call[QueueItem]:
        """Takes something out of the queue, if it was not begun."""
        return call("DELETE", at("queue", item_id), one(QueueItem, "item"))

    @operation
    def get_queue_stats(self) -> Call[QueueStats]:
        """How many are in which state."""
        return call("GET", at("queue", "stats"), one(QueueStats, "stats"))

    @operation
    def get_analytics(self) -> Call[Analytics]:
        """Agents, sessions and usage in numbers."""
        return call("GET", at("analytics"), one(Analytics))
