"""What the clients do, without doing it.

A program is a generator. It yields what is to be done, is sent what came of it, and has thrown into it what went
wrong. So the order of things, the patience and the reconnecting are written once, and tested without a network; the two
clients are small loops that carry programs out, one by waiting and one by awaiting.
"""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from ._retry import Retry
from ._sse import Parser
from ._wire import Answer, Call, Repeat, Request, at, nothing
from .errors import AshApiError, AshConnectionError, AshProtocolError, AshStreamError, refusal
from .events import StreamEvent, event_of, made

T = TypeVar("T")

# The codes of refusals that do not say whether it happened all the same; `unknown` is a proxy's.
UNSURE = ("unavailable", "internal", "unknown")


class Lost(Exception):
    """A request came to nothing. `sent` is false if it surely did not arrive."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


@dataclass(frozen=True)
class Fetch:
    """Send this, and bring the whole answer."""

    request: Request


@dataclass(frozen=True)
class Open:
    """Send this, and bring the head of the answer; its body is read piece by piece. It is open until the next one."""

    request: Request
    silence: float


@dataclass(frozen=True)
class Read:
    """Bring the next bytes of what is open; none at all at its end."""


@dataclass(frozen=True)
class Sleep:
    """Wait."""

    seconds: float


@dataclass(frozen=True)
class Tell:
    """Give this to whoever listens."""

    event: StreamEvent


@dataclass(frozen=True)
class Ended(Generic[T]):
    """A program came to its end, with this."""

    value: T


Step = Fetch | Open | Read | Sleep | Tell
Program = Generator[Step, Any, T]


def proceed(program: Program[T], came: Any = None, lost: Lost | None = None) -> Step | Ended[T]:
    """Tells a program what came of its last step, and returns the next one."""
    try:
        return program.throw(lost) if lost is not None else program.send(came)
    except StopIteration as stop:
        return Ended(stop.value)


def carried_out(call: Call[T], retry: Retry) -> Program[T]:
    """One request, repeated as far as that is safe."""
    request, failures = call.request, 0
    while True:
        try:
            answer: Answer = yield Fetch(request)
        except Lost as lost:
            failures += 1
            if failures >= retry.attempts or (lost.sent and request.repeat is Repeat.ONCE):
                raise AshConnectionError(f"{request}: {lost}") from lost
            yield Sleep(retry.pause(failures, random.random()))
            continue
        if 200 <= answer.status < 300:
            return call.read(answer)
        error = refusal(answer.status, answer.headers, answer.body, str(request))
        if error.status_code == 404 and failures and request.method == "DELETE" and call.read is nothing:
            # The first request did it, and its answer was lost.
            return call.read(answer)
        failures += 1
        if failures >= retry.attempts or not _may_pass(error, request.repeat):
            raise error
        yield Sleep(retry.pause(failures, random.random(), error.retry_after))


def _may_pass(error: AshApiError, repeat: Repeat) -> bool:
    # `unavailable` says that it is not known whether it happened.
    unsure = error.code == "unavailable" and repeat is Repeat.ONCE
    # A proxy in front of a server that starts again answers in its place, and knows nothing of codes.
    in_place = error.status_code in (502, 504) and error.code == "unknown" and repeat is not Repeat.ONCE
    return in_place or (error.status_code in (429, 503) and error.retryable and not unsure)


class Following:
    """Follows a session's log, or the run that a message makes, through whatever happens to connections.

    Every event of the log has its place in it. A stream that broke is taken up after the last place that was seen, so
    nothing is missed, and what was seen already is dropped, so nothing comes twice. A message whose stream broke before
    any place was seen is sent again with the same idempotency key, which joins the run instead of starting another.
    """

    def __init__(
        self,
        session: str,
        retry: Retry,
        *,
        message: Request | None = None,
        after: str | None = None,
        until_idle: bool = False,
    ) -> None:
        self.session = session
        # Made here, so that what cannot be an id is refused when the call is made.
        self._path = at("sessions", session)
        self.retry = retry
        self.message = message
        self.last_event_id = after
        self.until_idle = until_idle
        self.run_id: str | None = None
        self.started = False
        self.finished = False
        # Somebody was there once: from then on, what fails is the connection.
        self._reached = False
        # A request was sent that may have been heard, whatever became of its answer.
        self._maybe_heard = False
        self._greeted = False
        self._queued_at: Any = None
        self._failures = 0

    def events(self) -> Program[None]:
        """Tells every event, each once and in order, until all is said."""
        while True:
            wanted: float | None = None
            reason: BaseException | None = None
            try:
                if (yield from self._connection()):
                    self.finished = True
                    return
            except Lost as lost:
                reason = lost
                self._reached = self._reached or lost.sent
                # Nobody was ever there: it is a request like any other.
                if not self._reached and self._failures + 1 >= self.retry.attempts:
                    raise AshConnectionError(f"{self._request()}: {lost}") from lost
            except AshApiError as error:
                # Before anything was heard it is an answer; after, the server may be starting again.
                if not _may_pass(error, Repeat.KEYED):
                    raise
                reason, wanted = error, error.retry_after
            self._failures += 1
            if self._failures > self.retry.reconnects:
                if isinstance(reason, AshApiError):
                    raise reason
                why = reason or "the server closed it again and again"
                text = f"the stream of session {self.session} broke: {why}"
                raise AshStreamError(text, self.last_event_id) from reason
            yield Sleep(self.retry.pause(self._failures, random.random(), wanted))

    def _request(self) -> Request:
        if self.message is not None and (self.last_event_id is None or self.run_id is None):
            if self._greeted and self.run_id is None:
                raise AshStreamError("the stream broke, and this server cannot take it up again")
            return self.message
        headers = {"Accept": "text/event-stream"}
        if self.last_event_id is not None:
            headers["Last-Event-ID"] = self.last_event_id
        until = "?until=idle" if self.until_idle or self.message is not None else ""
        return Request("GET", f"{self._path}/stream{until}", headers)

    def _connection(self) -> Program[bool]:
        """One connection, from its request to its end. True if all was said."""
        request = self._request()
        # Whoever is cancelled meanwhile does not come back here.
        before, self._maybe_heard = self._maybe_heard, True
        try:
            head: Answer = yield Open(request, self.retry.silence)
        except Lost as lost:
            self._maybe_heard = before or lost.sent
            raise
        self._reached = True
        if head.status != 200:
            error = refusal(head.status, head.headers, head.body, str(request))
            self._maybe_heard = before or error.code in UNSURE
            raise error
        kind = head.headers.get("content-type", "nothing")
        if not kind.startswith("text/event-stream"):
            raise AshProtocolError(f"a stream of events was expected, not {kind}")
        parser = Parser()
        while True:
            chunk: bytes = yield Read()
            if not chunk:
                is_over: bool = yield from self._closed()
                return is_over
            for frame in parser.push(chunk):
                event = event_of(frame)
                if event.event == "reconnect":
                    # The server is going, and another one is about to come.
                    return False
                if self._is_news(event):
                    self._failures = 0
                    is_last = self.message is not None and event.event == "done"
                    self.finished = is_last
                    yield Tell(event)
                    if is_last:
                        return True

    def _is_news(self, event: StreamEvent) -> bool:
        """Takes note of an event. False if it was seen, or belongs to somebody else's run."""
        if event.event == "gap":
            # What comes after a gap is new, wherever one stood before.
            to = event.data.get("to")
            self.last_event_id = str(to) if to is not None else self.last_event_id
        if event.event_id is not None:
            if covers(self.last_event_id, event.event_id):
                return False
            self.last_event_id = event.event_id
        if self.message is None:
            return True
        if event.event == "session_start":
            greeted, self._greeted = self._greeted, True
            self.run_id = self.run_id or event.run_id
            return not greeted
        self.run_id = self.run_id or event.run_id
        if event.run_id not in (None, self.run_id):
            return False
        if event.event == "run_queued":
            before, self._queued_at = self._queued_at, event.data.get("position")
            return bool(before != self._queued_at)
        self.started = self.started or event.event == "run_started"
        return True

    def _closed(self) -> Program[bool]:
        """The server closed the stream in good order."""
        if self.message is None:
            status, is_told = yield from self._standing()
            return is_told and (self.until_idle or status == "ended")
        if self.run_id is None:
            return False
        # The end of the run may have been in a gap, and will not come. Or it came while nobody listened.
        run: Mapping[str, Any] | None = yield from self._run()
        if run is None or run.get("endedAt") is None:
            return False
        _, is_told = yield from self._standing()
        if not is_told:
            return False
        usage, stop = run.get("usage"), run.get("stopReason")
        data = {"sessionId": self.session, "runId": self.run_id, "status": run.get("status")}
        yield Tell(made("done", {**data, "stopReason": stop, "usage": usage}, None))
        return True

    def _standing(self) -> Program[tuple[str | None, bool]]:
        """The status of the session, and whether everything that its log has was seen."""
        try:
            session = (yield from self._get("session", self._path)) or {}
        except AshApiError as error:
            # Its agent was deleted, and the session with it.
            if error.status_code == 404:
                return "ended", True
            raise
        last = session.get("lastSeq")
        is_told = not isinstance(last, int) or int((self.last_event_id or "0").rpartition("-")[2]) >= last
        return session.get("status"), is_told

    def _run(self) -> Program[Mapping[str, Any] | None]:
        return (yield from self._get("run", at("sessions", self.session, "runs", self.run_id)))

    def _get(self, name: str, path: str) -> Program[Mapping[str, Any] | None]:
        request = Request("GET", path)
        answer: Answer = yield Fetch(request)
        if answer.status != 200:
            raise refusal(answer.status, answer.headers, answer.body, str(request))
        found = answer.json().get(name)
        return found if isinstance(found, dict) else None

    def interrupted(self, seconds: float) -> Program[None]:
        """Ends the run on the server, also if it still waits. Nobody is told if that fails."""
        if self.message is None or self.finished:
            return
        try:
            self.run_id = self.run_id or (yield from self._run_of(self.message, seconds))
            if self.run_id is None:
                return
            # The run is named: whichever goes on by then may be somebody else's.
            body = json.dumps({"runId": self.run_id}).encode()
            headers = {"Content-Type": "application/json"}
            yield Fetch(Request("POST", f"{self._path}/interrupt", headers, body, Repeat.ONCE, seconds))
        except (Lost, AshApiError, AshProtocolError):
            return

    def _run_of(self, message: Request, seconds: float) -> Program[str | None]:
        """The run of a message that may have been taken, though nothing was heard of it.

        The message is sent once more with its key, which says which run it is. If it was not taken the first time, it
        makes a run now; better one that is ended at once than one that goes on and nobody knows of.
        """
        if self._greeted or not self._maybe_heard:
            return None
        headers = {**message.headers, "Prefer": "respond-async"}
        answer: Answer = yield Fetch(replace(message, headers=headers, timeout=seconds))
        found = answer.json() if 200 <= answer.status < 300 else None
        run = found.get("runId") if isinstance(found, dict) else None
        return run if isinstance(run, str) else None


def covers(seen: str | None, other: str) -> bool:
    """Whether one who stands at `seen` has seen the event at `other`."""
    if seen is None:
        return False
    epoch, _, seq = seen.rpartition("-")
    of, _, number = other.rpartition("-")
    try:
        return epoch in ("", of) and int(number) <= int(seq)
    except ValueError:
        return False
