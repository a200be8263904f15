from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from both import client_of
from proxy import Proxy
from world import ROOT, World

from ash_sdk import AshClient, Retry, Session, directory

# What is started in the background has Ctrl-C ignored, and some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Fast, and as patient as a busy machine needs.
BRISK = Retry(reconnects=20, first_pause=0.01, longest_pause=0.2)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server for all tests that do not end it."""
    started = World(tmp_path_factory.mktemp("world"))
    try:
        with AshClient(started.url, started.key) as client:
            client.deploy_agent("notes", files=directory(ROOT / "examples" / "notes"))
        yield started
    finally:
        started.end()


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(world: World, kind: str) -> Iterator[AshClient]:
    """Either client; the asynchronous one is waited for."""
    made = client_of(kind, world.url, world.key, retry=BRISK)
    yield made
    made.close()


@pytest.fixture
def session(client: AshClient) -> Iterator[Session]:
    made = client.create_session("notes")
    yield made
    client.end_session(made.id)


@pytest.fixture
def through(world: World, kind: str) -> Iterator[Callable[..., tuple[AshClient, Proxy]]]:
    """Clients that are behind a wire that is cut, or holds back what comes first."""
    made: list[tuple[AshClient, Proxy]] = []

    def make(
        limit: Callable[[int], int | None] = lambda number: None, *, holds: bool = False, **options: Any
    ) -> tuple[AshClient, Proxy]:
        proxy = Proxy(world.url, limit, holds=holds)
        one = client_of(kind, proxy.url, world.key, **{"retry": BRISK, **options})
        made.append((one, proxy))
        return one, proxy

    yield make
    for one, proxy in made:
        one.close()
        proxy.close()
