"""What a stream tells, as classes. `docs/events.md` has the table of all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ._sse import Frame
from .errors import AshProtocolError
from .schema import ResumeReceipt, Usage

StopReason = Literal["end_turn", "interrupted", "error", "budget", "quota", "timeout", "max_turns"]


@dataclass(frozen=True, kw_only=True)
class StreamEvent:
    """An event. The ones that are known have a class of their own; all others are this.

    `event` is its name and `data` all that it says. `event_id` is its place in the session's log, `<epoch>-<seq>`,
    by which a stream is taken up again; events that are not logged have none.
    """

    event: str
    data: Mapping[str, Any] = field(repr=False)
    event_id: str | None = None

    @property
    def seq(self) -> int | None:
        """Its number in the log."""
        return int(self.event_id.rpartition("-")[2]) if self.event_id else None

    @property
    def run_id(self) -> str | None:
        """The run that it belongs to, if it belongs to one."""
        run = self.data.get("runId")
        return run if isinstance(run, str) else None


@dataclass(frozen=True, kw_only=True)
class SessionStartEvent(StreamEvent):
    """The first event of a run that is told as it happens."""

    session_id: str
    version: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunQueuedEvent(StreamEvent):
    """Another run goes on; this one waits."""

    position: int


@dataclass(frozen=True, kw_only=True)
class PromptEvent(StreamEvent):
    """A message was accepted."""

    content: Any


@dataclass(frozen=True, kw_only=True)
class RunStartedEvent(StreamEvent):
    """The agent was given the message."""

    turn: int
    parent_turn: int | None = None


@dataclass(frozen=True, kw_only=True)
class PhaseEvent(StreamEvent):
    """The run does something else now."""

    phase: str
    round: int = 0


@dataclass(frozen=True, kw_only=True)
class RunRetryEvent(StreamEvent):
    """The model is asked again: what the run said after that place in the log does not count."""

    round: int
    discard_after_seq: int


@dataclass(frozen=True, kw_only=True)
class TextDeltaEvent(StreamEvent):
    """A piece of the answer."""

    delta: str


@dataclass(frozen=True, kw_only=True)
class ThinkingDeltaEvent(StreamEvent):
    """A piece of what the agent thinks."""

    delta: str


@dataclass(frozen=True, kw_only=True)
class ToolUseEvent(StreamEvent):
    """A tool is called."""

    id: str
    name: str
    input: Any = None


@dataclass(frozen=True, kw_only=True)
class ToolResultEvent(StreamEvent):
    """What a tool gave."""

    tool_use_id: str
    content: Any = None
    is_error: bool = False


@dataclass(frozen=True, kw_only=True)
class MessageEvent(StreamEvent):
    """A whole message of the agent, as it said it, in `data`."""

    type: str

    @property
    def text(self) -> str:
        """The text of an answer; nothing for other messages."""
        return _said(self.data, "text")

    @property
    def thinking(self) -> str:
        """What was thought, in an answer."""
        return _said(self.data, "thinking")


@dataclass(frozen=True, kw_only=True)
class TurnCompleteEvent(StreamEvent):
    """The agent is done with the turn."""

    num_turns: int | None = None
    result: str | None = None


@dataclass(frozen=True, kw_only=True)
class PermissionRequestEvent(StreamEvent):
    """The agent asks before it does something, and waits for `decide_permission`."""

    id: str
    tool: str
    input: Any = None


@dataclass(frozen=True, kw_only=True)
class PermissionResolvedEvent(StreamEvent):
    """A question is over."""

    id: str
    behavior: str
    how: str = ""


@dataclass(frozen=True, kw_only=True)
class SessionPausedEvent(StreamEvent):
    """The session came to rest."""

    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class SessionResumedEvent(StreamEvent):
    """The session came back."""

    path: str = ""

    @property
    def receipt(self) -> ResumeReceipt | None:
        """What came back, where the log has it."""
        return ResumeReceipt.from_json(self.data) if "conversation" in self.data else None


@dataclass(frozen=True, kw_only=True)
class ContextLostEvent(StreamEvent):
    """The agent does not know any more what the log says."""

    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class RewoundEvent(StreamEvent):
    """The conversation goes on from an earlier turn."""

    to: int


@dataclass(frozen=True, kw_only=True)
class GapEvent(StreamEvent):
    """Something is missing here: the log does not hold what came after the place where the stream broke."""

    from_id: str | None = None
    to_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ErrorEvent(StreamEvent):
    """Why a run could not be done; its `done` follows."""

    error: str
    code: str | None = None


@dataclass(frozen=True, kw_only=True)
class DoneEvent(StreamEvent):
    """The run is over."""

    session_id: str
    stop_reason: str | None = None
    status: str | None = None
    usage: Usage | None = None


_Data = Mapping[str, Any]
_KNOWN: dict[str, tuple[Callable[..., StreamEvent], Callable[[_Data], dict[str, Any]]]] = {
    "session_start": (
        SessionStartEvent,
        lambda d: {"session_id": d.get("sessionId", ""), "version": d.get("version")},
    ),
    "run_queued": (RunQueuedEvent, lambda d: {"position": d["position"]}),
    "prompt": (PromptEvent, lambda d: {"content": d.get("content")}),
    "run_started": (
        RunStartedEvent,
        lambda d: {"turn": d["turn"], "parent_turn": d.get("parentTurn")},
    ),
    "phase": (PhaseEvent, lambda d: {"phase": d["phase"], "round": d.get("round", 0)}),
    "run_retry": (
        RunRetryEvent,
        lambda d: {"round": d.get("round", 0), "discard_after_seq": d["discardAfterSeq"]},
    ),
    "text_delta": (TextDeltaEvent, lambda d: {"delta": d["delta"]}),
    "thinking_delta": (ThinkingDeltaEvent, lambda d: {"delta": d["delta"]}),
    "tool_use": (
        ToolUseEvent,
        lambda d: {"id": d["id"], "name": d["name"], "input": d.get("input")},
    ),
    "tool_result": (
        ToolResultEvent,
        lambda d: {
            "tool_use_id": d["tool_use_id"],
            "content": d.get("content"),
            "is_error": bool(d.get("is_error")),
        },
    ),
    "message": (MessageEvent, lambda d: {"type": d["type"]}),
    "turn_complete": (
        TurnCompleteEvent,
        lambda d: {"num_turns": d.get("numTurns"), "result": d.get("result")},
    ),
    "permission_request": (
        PermissionRequestEvent,
        lambda d: {"id": d["id"], "tool": d["tool"], "input": d.get("input")},
    ),
    "permission_resolved": (
        PermissionResolvedEvent,
        lambda d: {"id": d["id"], "behavior": d["behavior"], "how": d.get("how", "")},
    ),
    "session_paused": (SessionPausedEvent, lambda d: {"reason": d.get("reason", "")}),
    "session_resumed": (SessionResumedEvent, lambda d: {"path": d.get("path", "")}),
    "context_lost": (ContextLostEvent, lambda d: {"reason": d.get("reason", "")}),
    "rewound": (RewoundEvent, lambda d: {"to": d["to"]}),
    "gap": (
        GapEvent,
        lambda d: {"from_id": d.get("from"), "to_id": d.get("to"), "reason": d.get("reason", "")},
    ),
    "error": (ErrorEvent, lambda d: {"error": d.get("error", ""), "code": d.get("code")}),
    "done": (
        DoneEvent,
        lambda d: {
            "session_id": d.get("sessionId", ""),
            "stop_reason": d.get("stopReason"),
            "status": d.get("status"),
            "usage": Usage.from_json(d["usage"]) if d.get("usage") else None,
        },
    ),
}


def event_of(frame: Frame) -> StreamEvent:
    """Makes an event of a frame. What is not known, or not as it should be, is a plain `StreamEvent`."""
    try:
        data = json.loads(frame.data)
    except ValueError:
        data = frame.data
    if not isinstance(data, dict):
        data = {"value": data}
    return made(frame.event, data, frame.id or None)


def made(name: str, data: Mapping[str, Any], event_id: str | None) -> StreamEvent:
    """An event of that name, in the class that it has."""
    if name in _KNOWN:
        kind, values = _KNOWN[name]
        try:
            return kind(event=name, data=data, event_id=event_id, **values(data))
        except (KeyError, TypeError, ValueError, AshProtocolError):
            pass  # A newer server says it otherwise; whoever knows how can read `data`.
    return StreamEvent(event=name, data=data, event_id=event_id)


def _said(data: Mapping[str, Any], kind: str) -> str:
    message = data.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return ""
    blocks = [block for block in content if isinstance(block, dict) and block.get("type") == kind]
    return "".join(str(block.get(kind, "")) for block in blocks)
