"""Server-sent events, taken apart as the bytes come."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import AshProtocolError

# The longest line, and the most data of one event. The server takes messages of 24 MB and tells each as one event, with
# what JSON adds to it.
MAX_BYTES = 64 << 20

_END_OF_LINE = re.compile(rb"[\r\n]")


@dataclass(frozen=True)
class Frame:
    """One event of a stream, as it was sent."""

    event: str
    data: str
    id: str | None = None


class Parser:
    """Makes frames of bytes. However the bytes are cut, the same frames come out."""

    def __init__(self) -> None:
        self._line = bytearray()
        # The last byte was a CR: a LF right after it belongs to the same end of line.
        self._after_cr = False
        self._begun = False
        self._id: str | None = None
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def push(self, chunk: bytes) -> list[Frame]:
        """Takes the next bytes, and returns the frames that they complete."""
        frames: list[Frame] = []
        at = 0
        while at < len(chunk):
            if self._after_cr:
                self._after_cr = False
                if chunk[at] == 0x0A:
                    at += 1
                    continue
            end = _END_OF_LINE.search(chunk, at)
            stop = end.start() if end else len(chunk)
            self._size += stop - at
            if self._size > MAX_BYTES:
                raise AshProtocolError(f"more than {MAX_BYTES} bytes in one event")
            self._line += chunk[at:stop]
            at = stop
            if end:
                self._after_cr = chunk[at] == 0x0D
                at += 1
                frames.extend(self._end_of_line())
        return frames

    def _end_of_line(self) -> list[Frame]:
        # A line is whole here, so no character is ever cut.
        line = self._line.decode("utf-8", "replace")
        self._line.clear()
        if not self._begun:
            self._begun = True
            line = line.removeprefix("\ufeff")
        if not line:
            return self._end_of_event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif not name and not self._data:
            self._size = 0  # A comment: heartbeats go on for ever.
        return []

    def _end_of_event(self) -> list[Frame]:
        data, event, place = self._data, self._event, self._id
        self._data, self._event, self._id, self._size = [], "", None, 0
        return [Frame(event or "message", "\n".join(data), place)] if data else []
