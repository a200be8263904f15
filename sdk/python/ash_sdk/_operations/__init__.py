"""The operations of the API, written once for both clients."""

from __future__ import annotations

from .account import AccountOperations
from .agents import AgentOperations
from .files import FileOperations
from .history import HistoryOperations
from .messages import MessageOperations
from .queue import QueueOperations
from .sessions import SessionOperations


class Operations(
    SessionOperations,
    MessageOperations,
    HistoryOperations,
    FileOperations,
    AgentOperations,
    QueueOperations,
    AccountOperations,
):
    """All of them."""


__all__ = ["Operations"]
