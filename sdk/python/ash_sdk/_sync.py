"""Carries programs out by waiting."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from ._config import Saving, Settings
from ._program import Ended, Fetch, Open, Program, Read, Sleep, Step, Tell, carried_out
from ._streams import PATIENCE_AT_CANCEL, StreamState, Wanted
from ._wire import Answer, Call, Request
from .events import StreamEvent
from .transcript import Reply

if TYPE_CHECKING:
    from ._async import AsyncEventStream

T = TypeVar("T")


class SyncShell:
    """A connection to a server, and what its methods do with it."""

    def __init__(self, settings: Settings, http: httpx.Client | None) -> None:
        self._settings = settings
        self._owned = http is None
        self._http = http or httpx.Client(**settings.client_options())

    def _carry_out(self, call: Call[T]) -> T:
        running = Hands(self._http, self._settings).run(carried_out(call, self._settings.retry))
        try:
            while True:
                next(running)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _follow(self, wanted: Wanted) -> EventStream:
        return EventStream(wanted, Hands(self._http, self._settings))

    def _afollow(self, wanted: Wanted) -> AsyncEventStream:
        from ._async import AsyncEventStream, AsyncHands

        http = httpx.AsyncClient(**self._settings.client_options())
        return AsyncEventStream(wanted, AsyncHands(http, self._settings), owned=http)

    def _reply(self, wanted: Wanted) -> Reply:
        return self._follow(wanted).reply()

    def close(self) -> None:
        """Closes the connections. An httpx client that was handed in stays open."""
        if self._owned:
            self._http.close()


class Hands:
    """Does what a program says, one step after the other."""

    def __init__(self, http: httpx.Client, settings: Settings) -> None:
        self._http = http
        self._settings = settings
        self._open: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())

    def run(self, program: Program[T]) -> Generator[StreamEvent, None, T]:
        """Carries a program out to its end, and passes on what it tells."""
        proceed = self._settings.proceed
        step = proceed(program)
        while not isinstance(step, Ended):
            if isinstance(step, Tell):
                yield step.event
                step = proceed(program)
                continue
            try:
                came = self._do(step)
            except httpx.HTTPError as error:
                step = proceed(program, error=error)
            else:
                step = proceed(program, came)
        return step.value

    def _do(self, step: Step) -> Any:
        if isinstance(step, Fetch):
            return self._fetch(step.request)
        if isinstance(step, Open):
            self.close()
            request = self._settings.build(self._http, step.request, step.silence)
            opened = self._open = self._http.send(request, stream=True)
            body = b"" if opened.status_code == 200 else opened.read()
            self._pieces = iter(()) if body else opened.iter_raw()
            return Answer(opened.status_code, opened.headers, body)
        if isinstance(step, Read):
            return next(self._pieces, b"")
        if isinstance(step, Sleep):
            self.close()
            time.sleep(step.seconds)
        return None

    def _fetch(self, request: Request) -> Answer:
        answer = self._http.send(self._settings.build(self._http, request), stream=True)
        try:
            if request.save_to is not None and answer.is_success:
                with Saving(request.save_to) as file:
                    for piece in answer.iter_bytes():
                        file.write(piece)
                return Answer(answer.status_code, answer.headers, b"")
            return Answer(answer.status_code, answer.headers, answer.read())
        finally:
            answer.close()

    def close(self) -> None:
        """Closes what is open."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()


class EventStream(StreamState):
    """The events of a run or of a log, in order, each once.

    The request is made when the first event is asked for. Whoever stops listening before the end, by `close()`, by the
    end of a `with` block or by dropping it, lets the run go on. Ctrl-C ends it on the server, too, unless `on_cancel`
    is `detach`: while an event is waited for, and anywhere in a `with` block.
    """

    def __init__(self, wanted: Wanted, hands: Hands) -> None:
        super().__init__(wanted)
        self._events = _listen(wanted, hands)

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> StreamEvent:
        return self._heard(next(self._events))

    def __enter__(self) -> EventStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wanted.is_cancelled = kind is not None and issubclass(kind, KeyboardInterrupt)
        self.close()

    def close(self) -> None:
        """Stops listening. The run goes on."""
        self._events.close()

    def reply(self) -> Reply:
        """Listens to the end, and returns what was said. A run that failed is an `AshRunError`."""
        for _ in self:
            pass
        return self.transcript.reply(self.run_id)


# It knows nothing of the stream that it is in, so that it is closed as soon as that is dropped.
def _listen(wanted: Wanted, hands: Hands) -> Generator[StreamEvent, None, None]:
    try:
        yield from hands.run(wanted.following.events())
    except (GeneratorExit, KeyboardInterrupt) as left:
        hands.close()
        is_cancelled = wanted.is_cancelled or isinstance(left, KeyboardInterrupt)
        if is_cancelled and wanted.on_cancel == "interrupt":
            for _ in hands.run(wanted.following.interrupted(PATIENCE_AT_CANCEL)):
                pass
        raise
    finally:
        hands.close()
