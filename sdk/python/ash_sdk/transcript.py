"""Makes a conversation of events.

A stream tells what happens, piece by piece, and sometimes takes something back: after `run_retry` what the model said
since then does not count. A `Transcript` is what is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .errors import AshError
from .events import (
    DoneEvent,
    ErrorEvent,
    GapEvent,
    MessageEvent,
    PromptEvent,
    RewoundEvent,
    RunRetryEvent,
    RunStartedEvent,
    StreamEvent,
    TextDeltaEvent,
    ThinkingDeltaEvent,
    ToolResultEvent,
    ToolUseEvent,
)
from .schema import Usage


@dataclass
class ToolCall:
    """A tool that was called, and what it gave."""

    id: str
    name: str
    input: Any
    result: Any = None
    is_error: bool = False
    finished: bool = False


@dataclass
class _Piece:
    seq: int | None
    kind: str
    text: str = ""
    call: ToolCall | None = None
    # It is a part of an answer whose whole text is still to come.
    open: bool = False


@dataclass
class Turn:
    """One message and what became of it."""

    run_id: str | None
    prompt: Any = None
    turn: int | None = None
    parent_turn: int | None = None
    error: ErrorEvent | None = None
    done: DoneEvent | None = None
    _pieces: list[_Piece] = field(default_factory=list, repr=False)

    @property
    def text(self) -> str:
        """What the agent said, without what was taken back. What it said between tools is a paragraph of its own."""
        return self._joined("text")

    @property
    def thinking(self) -> str:
        """What the agent thought."""
        return self._joined("thinking")

    @property
    def tools(self) -> list[ToolCall]:
        """The tools that were called."""
        return [piece.call for piece in self._pieces if piece.call is not None]

    def _joined(self, kind: str) -> str:
        paragraphs: list[str] = []
        goes_on = False
        for piece in self._pieces:
            if piece.kind != kind:
                continue
            if goes_on and piece.open:
                paragraphs[-1] += piece.text
            else:
                paragraphs.append(piece.text)
            goes_on = piece.open
        return "\n\n".join(paragraphs)

    def _say(self, event: StreamEvent, kind: str, text: str) -> None:
        self._pieces.append(_Piece(event.seq, kind, text, open=True))

    def _whole(self, event: StreamEvent, kind: str, text: str) -> None:
        """A whole answer: it stands for the pieces that came before."""
        if text:
            self._pieces = [p for p in self._pieces if not (p.open and p.kind == kind)]
            self._pieces.append(_Piece(event.seq, kind, text))

    def _use(self, event: ToolUseEvent) -> None:
        call = ToolCall(event.id, event.name, event.input)
        self._pieces.append(_Piece(event.seq, "tool", call=call))

    def _gave(self, event: ToolResultEvent) -> None:
        for call in self.tools:
            if call.id == event.tool_use_id:
                call.result, call.is_error, call.finished = event.content, event.is_error, True

    def _discard(self, after: int) -> None:
        self._pieces = [p for p in self._pieces if p.seq is None or p.seq <= after]


@dataclass(frozen=True)
class Reply:
    """What became of a message."""

    text: str
    thinking: str
    tools: list[ToolCall]
    run_id: str | None
    stop_reason: str | None
    usage: Usage | None


class AshRunError(AshError):
    """A run failed. `code` is stable; `reply` is what was said before."""

    def __init__(self, message: str, code: str | None, reply: Reply) -> None:
        super().__init__(f"{message} ({code})" if code else message)
        self.message = message
        self.code = code
        self.reply = reply


class Transcript:
    """A conversation, as far as its events were heard."""

    def __init__(self, events: Iterable[StreamEvent] = ()) -> None:
        #: Every turn that was heard of, in the order in which they were begun.
        self.turns: list[Turn] = []
        #: Where something is missing.
        self.gaps: list[GapEvent] = []
        self._at: int | None = None
        for event in events:
            self.apply(event)

    def apply(self, event: StreamEvent) -> None:
        """Takes the next event into account."""
        if isinstance(event, GapEvent):
            self.gaps.append(event)
        elif isinstance(event, RewoundEvent):
            self._at = event.to
        elif event.run_id is not None:
            self._apply(self._turn(event.run_id), event)

    def _apply(self, turn: Turn, event: StreamEvent) -> None:
        if isinstance(event, PromptEvent):
            turn.prompt = event.content
        elif isinstance(event, RunStartedEvent):
            turn.turn, turn.parent_turn, self._at = event.turn, event.parent_turn, event.turn
        elif isinstance(event, TextDeltaEvent):
            turn._say(event, "text", event.delta)
        elif isinstance(event, ThinkingDeltaEvent):
            turn._say(event, "thinking", event.delta)
        elif isinstance(event, MessageEvent) and event.type == "assistant":
            turn._whole(event, "thinking", event.thinking)
            turn._whole(event, "text", event.text)
        elif isinstance(event, ToolUseEvent):
            turn._use(event)
        elif isinstance(event, ToolResultEvent):
            turn._gave(event)
        elif isinstance(event, RunRetryEvent):
            turn._discard(event.discard_after_seq)
        elif isinstance(event, ErrorEvent):
            turn.error = event
        elif isinstance(event, DoneEvent):
            turn.done = event

    def _turn(self, run_id: str) -> Turn:
        for turn in reversed(self.turns):
            if turn.run_id == run_id:
                return turn
        self.turns.append(Turn(run_id))
        return self.turns[-1]

    @property
    def text(self) -> str:
        """What the agent said in the last turn."""
        return self.turns[-1].text if self.turns else ""

    @property
    def current(self) -> list[Turn]:
        """The turns that the conversation consists of now: without those that a rewind went back behind."""
        by_number = {turn.turn: turn for turn in self.turns if turn.turn is not None}
        found: list[Turn] = []
        at = self._at
        while at is not None and at in by_number and by_number[at] not in found:
            found.append(by_number[at])
            at = by_number[at].parent_turn
        return found[::-1]

    def reply(self, run_id: str | None = None) -> Reply:
        """What became of a message: the one of that run, or the last one."""
        turn = self._turn(run_id) if run_id else (self.turns[-1] if self.turns else Turn(None))
        done = turn.done
        stop, usage = (done.stop_reason, done.usage) if done else (None, None)
        reply = Reply(turn.text, turn.thinking, turn.tools, turn.run_id, stop, usage)
        if turn.error is not None and stop in (None, "error"):
            raise AshRunError(turn.error.error, turn.error.code, reply)
        return reply
