"""What the streams of both clients have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ._program import Following
from .events import StreamEvent
from .transcript import Transcript

OnCancel = Literal["interrupt", "detach"]

# How long the end of a run is waited for, when whoever listened was cancelled.
PATIENCE_AT_CANCEL = 10.0


@dataclass
class Wanted:
    """What is to be followed, and what becomes of the run if whoever listens is cancelled."""

    following: Following
    on_cancel: OnCancel = "detach"
    is_cancelled: bool = False


class StreamState:
    """What a stream knows of itself."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        #: What was said so far in answer to a message, without what was taken back. A log that is followed may go on
        #: for ever, and leaves it empty: whoever wants one makes a `Transcript` of the events.
        self.transcript = Transcript()

    @property
    def run_id(self) -> str | None:
        """The run that is followed, once it is known."""
        return self._wanted.following.run_id

    @property
    def last_event_id(self) -> str | None:
        """How far the log was seen: `stream(session_id, after=last_event_id)` goes on from here."""
        return self._wanted.following.last_event_id

    def _heard(self, event: StreamEvent) -> StreamEvent:
        if self._wanted.following.message is not None:
            self.transcript.apply(event)
        return event
