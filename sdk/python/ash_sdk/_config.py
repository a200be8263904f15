"""Where the server is, and how requests to it are made."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import httpx

from ._program import Ended, Lost, Program, Step, proceed
from ._retry import Retry
from ._version import VERSION
from ._wire import Request
from .errors import AuthenticationError

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:4100"

# How much of a file is sent at once.
PIECE = 256 * 1024


@dataclass(frozen=True)
class Settings:
    """What a client was told."""

    base_url: str
    token: str | None = field(repr=False)
    timeout: float
    retry: Retry
    headers: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(
        cls,
        base_url: str | None,
        token: str | None,
        server_url: str | None,
        api_key: str | None,
        timeout: float,
        retry: Retry | None,
        headers: Mapping[str, str] | None,
    ) -> Settings:
        """Settings from the arguments of a client, the environment, and what is usual."""
        if base_url is not None and server_url is not None:
            raise TypeError("base_url and server_url are two names of one thing: give one")
        if token is not None and api_key is not None:
            raise TypeError("token and api_key are two names of one thing: give one")
        url = base_url or server_url or os.environ.get("ASH_SERVER_URL") or DEFAULT_URL
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"the server's address begins with http:// or https://, not like {url!r}")
        # One that was read from a file often has the end of its line with it.
        key = (token or api_key or os.environ.get("ASH_API_KEY") or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ValueError("the API key has characters that no key has")
        return cls(url.rstrip("/"), key or None, timeout, retry or Retry(), headers or {})

    def proceed(self, program: Program[T], came: Any = None, error: httpx.HTTPError | None = None) -> Step | Ended[T]:
        """Tells a program what came of its last step, and returns the next one."""
        try:
            return proceed(program, came, None if error is None else self._lost(error))
        except AuthenticationError as refused:
            if self.token is None:
                refused.message += ": this client has no API key, neither as `token` nor in `ASH_API_KEY`"
            raise

    def _lost(self, error: httpx.HTTPError) -> Lost:
        """What a failure of httpx means for a request."""
        unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
        reason = str(error) or type(error).__name__
        if unsent:
            return Lost(f"no connection to {self.base_url} ({reason}): is the server running there?", sent=False)
        return Lost(f"the connection to {self.base_url} broke ({reason})", sent=True)

    def build(
        self, http: httpx.Client | httpx.AsyncClient, request: Request, silence: float | None = None
    ) -> httpx.Request:
        """A request as httpx sends it. `silence` is for streams, which go on as long as something comes."""
        headers = {"User-Agent": f"ash-sdk-python/{VERSION}", "Accept": "application/json", **self.headers}
        if silence is not None:
            headers.update({"Accept": "text/event-stream", "Accept-Encoding": "identity"})
        headers.update(request.headers)
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        timeout = httpx.Timeout(request.timeout or self.timeout)
        if silence is not None:
            timeout = httpx.Timeout(self.timeout, read=silence)
        url = self.base_url + request.path
        content: Any = request.body
        if isinstance(request.body, Path):
            headers["Content-Length"] = str(request.body.stat().st_size)
            content = _pieces(request.body) if isinstance(http, httpx.Client) else _apieces(request.body)
        return http.build_request(request.method, url, headers=headers, content=content, timeout=timeout)

    def client_options(self) -> dict[str, Any]:
        """How a client of httpx is made, if none is handed in."""
        # As many streams as one likes: each has a connection of its own.
        return {"limits": httpx.Limits(max_connections=None, max_keepalive_connections=20)}


class Saving:
    """A file that appears whole, or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")

    def __enter__(self) -> BinaryIO:
        self._file = self._part.open("wb")
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        if kind is None:
            self._part.replace(self._path)
        else:
            self._part.unlink(missing_ok=True)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


async def _apieces(path: Path) -> AsyncIterator[bytes]:
    for piece in _pieces(path):
        yield piece
