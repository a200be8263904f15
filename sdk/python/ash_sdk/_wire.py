"""Requests and answers as plain values: what to send, and what to make of the answer."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from ._model import Model, camel
from .errors import AshProtocolError, InvalidRequestError

T = TypeVar("T")
M = TypeVar("M", bound=Model)

Id = str | uuid.UUID


class Repeat(Enum):
    """What may be done about a request whose answer was lost."""

    SAFE = "it changes nothing, or the same again"
    KEYED = "the server knows it again by its idempotency key"
    ONCE = "it must not be sent again, unless it surely did not arrive"


@dataclass(frozen=True)
class Request:
    """What is sent."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    # What is in a file is sent piece by piece.
    body: bytes | Path | None = None
    repeat: Repeat = Repeat.SAFE
    # Seconds that an answer may take, if not as long as the client says.
    timeout: float | None = None
    # Where the answer goes, if it is a file that may be large.
    save_to: Path | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, as JSON."""
        try:
            return json.loads(self.body) if self.body else {}
        except ValueError as error:
            raise AshProtocolError(f"no JSON came, but {self.body[:80]!r}: is this an Ash server?") from error


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and what its answer means."""

    request: Request
    read: Callable[[Answer], T]


def call(
    method: str,
    path: str,
    read: Callable[[Answer], T],
    *,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    repeat: Repeat | None = None,
    key: str | None = None,
    content_type: str = "application/json",
    timeout: float | None = None,
    save_to: Path | None = None,
) -> Call[T]:
    """Puts a call together. What is `None` in the query is left out."""
    if repeat is None:
        repeat = Repeat.ONCE if method == "POST" else Repeat.SAFE
    headers: dict[str, str] = {}
    if repeat is Repeat.KEYED:
        headers["Idempotency-Key"] = key or str(uuid.uuid4())
    content: bytes | Path | None = None
    if body is not None:
        content = body if isinstance(body, bytes | Path) else json.dumps(body).encode()
        headers["Content-Type"] = content_type
    asked = {name: _word(value) for name, value in (query or {}).items() if value is not None}
    target = f"{path}?{urlencode(asked)}" if asked else path
    return Call(Request(method, target, headers, content, repeat, timeout, save_to), read)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def at(*parts: object) -> str:
    """A path of the API. Whatever the parts are, they stay parts."""
    return "/api/" + "/".join(_quoted(str(part)) for part in parts)


def file_at(*parts: object, file: str) -> str:
    """The path of a file; its slashes stay slashes."""
    return at(*parts, *file.split("/"))


def _quoted(part: str) -> str:
    # Addresses are made shorter before they are sent: these would lead elsewhere.
    if part in ("", ".", ".."):
        message = f'"{part}" can be neither a name, nor an id, nor a part of a path'
        raise InvalidRequestError(message, status_code=400, code="invalid_path")
    return quote(part, safe="")


def given(**options: Any) -> dict[str, Any]:
    """The options that were given, under the names of the wire."""
    return {camel(name): value for name, value in options.items() if value is not None}


def one(kind: type[M], name: str | None = None) -> Callable[[Answer], M]:
    """Reads one thing: the whole answer, or what it has under a name."""
    return lambda answer: kind.from_json(_part(answer, name) if name else answer.json())


def many(kind: type[M], name: str) -> Callable[[Answer], list[M]]:
    """Reads a list."""

    def read(answer: Answer) -> list[M]:
        found = _part(answer, name)
        if not isinstance(found, list):
            raise AshProtocolError(f"`{name}` of the answer is not a list")
        return [kind.from_json(item) for item in found]

    return read


def nothing(_answer: Answer) -> None:
    """The answer says nothing beyond that it is done."""


def content(answer: Answer) -> bytes:
    """The answer is a file."""
    return answer.body


def saved(path: Path) -> Callable[[Answer], Path]:
    """The answer was saved there."""
    return lambda _answer: path


def _part(answer: Answer, name: str) -> Any:
    found = answer.json()
    if not isinstance(found, dict) or name not in found:
        raise AshProtocolError(f"the answer has no `{name}`: is this an Ash server?")
    return found[name]
