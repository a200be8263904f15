"""The two clients."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

import httpx

from ._async import AsyncShell
from ._config import Settings
from ._operations import Operations
from ._retry import Retry
from ._sync import SyncShell


class AshClient(Operations, SyncShell):
    """Talks to an Ash server, and waits for its answers.

    `base_url` and `token` are the names of the original's Python client, `server_url` and `api_key` those of the
    TypeScript one. Without them `ASH_SERVER_URL` and `ASH_API_KEY` of the environment count. `timeout` is how many
    seconds an answer may take. One client can be used by many threads, and keeps its connections.
    """

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        server_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 300.0,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        http_client: httpx.Client | None = None,
    ) -> None:
        settings = Settings.of(base_url, token, server_url, api_key, timeout, retry, headers)
        super().__init__(settings, http_client)

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._settings.base_url

    def __repr__(self) -> str:
        return f"AshClient({self.base_url!r})"

    def __enter__(self) -> AshClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncAshClient(Operations, AsyncShell):
    """Talks to an Ash server; every method is to be awaited. The arguments are those of `AshClient`."""

    def __init__(
        self,
        base_url: str | None = None,
        token: str | None = None,
        *,
        server_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 300.0,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        settings = Settings.of(base_url, token, server_url, api_key, timeout, retry, headers)
        super().__init__(settings, http_client)

    @property
    def base_url(self) -> str:
        """Where the server is."""
        return self._settings.base_url

    def __repr__(self) -> str:
        return f"AsyncAshClient({self.base_url!r})"

    async def __aenter__(self) -> AsyncAshClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
