"""Ash: conversations with coding agents that survive whatever ends processes."""

from __future__ import annotations

from . import content, events, schema
from ._async import AsyncEventStream
from ._operations.files import RawFile
from ._operations.sessions import ResumedSession
from ._retry import NO_RETRY, Retry
from ._sync import EventStream
from ._version import VERSION as __version__
from .client import AshClient, AsyncAshClient
from .content import directory
from .errors import (
    AshApiError,
    AshConnectionError,
    AshError,
    AshProtocolError,
    AshStreamError,
    AuthenticationError,
    ConflictError,
    GoneError,
    InvalidRequestError,
    NotFoundError,
    NotOfferedError,
    RateLimitError,
    ServerError,
    UnavailableError,
)
from .events import StreamEvent
from .schema import Agent, Analytics, Attachment, QueueItem, ResumeReceipt, Run, Session
from .schema import QueueCounts as QueueStats
from .transcript import AshRunError, Reply, ToolCall, Transcript, Turn

__all__ = [
    "NO_RETRY",
    "Agent",
    "Analytics",
    "AshApiError",
    "AshClient",
    "AshConnectionError",
    "AshError",
    "AshProtocolError",
    "AshRunError",
    "AshStreamError",
    "AsyncAshClient",
    "AsyncEventStream",
    "Attachment",
    "AuthenticationError",
    "ConflictError",
    "EventStream",
    "GoneError",
    "InvalidRequestError",
    "NotFoundError",
    "NotOfferedError",
    "QueueItem",
    "QueueStats",
    "RateLimitError",
    "RawFile",
    "Reply",
    "ResumeReceipt",
    "ResumedSession",
    "Retry",
    "Run",
    "ServerError",
    "Session",
    "StreamEvent",
    "ToolCall",
    "Transcript",
    "Turn",
    "UnavailableError",
    "__version__",
    "content",
    "directory",
    "events",
    "schema",
]
