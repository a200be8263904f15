"""How one function becomes a method of both clients.

An operation is written once, as a function that says what to send. These descriptors make a method of it that waits, on
`AshClient`, or one that is awaited, on `AsyncAshClient`. Type checkers see the difference, too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ._streams import Wanted
from ._wire import Call
from .transcript import Reply

if TYPE_CHECKING:
    from ._async import AsyncEventStream, AsyncShell
    from ._sync import EventStream, SyncShell

P = ParamSpec("P")
T = TypeVar("T")


class operation(Generic[P, T]):  # noqa: N801 (it is a decorator)
    """A request and its answer."""

    def __init__(self, build: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._build = build
        _dress(self, build)

    @overload
    def __get__(self, client: None, owner: Any) -> operation[P, T]: ...
    @overload
    def __get__(self, client: SyncShell, owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncShell, owner: Any) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        if client is None:
            return self
        return _bound(self._build, client, client._carry_out)


class streaming(Generic[P]):  # noqa: N801
    """A stream of events."""

    def __init__(self, build: Callable[Concatenate[Any, P], Wanted]) -> None:
        self._build = build
        _dress(self, build)

    @overload
    def __get__(self, client: None, owner: Any) -> streaming[P]: ...
    @overload
    def __get__(self, client: SyncShell, owner: Any) -> Callable[P, EventStream]: ...
    @overload
    def __get__(self, client: AsyncShell, owner: Any) -> Callable[P, AsyncEventStream]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        return self if client is None else _bound(self._build, client, client._follow)


class async_streaming(Generic[P]):  # noqa: N801
    """A stream of events for `async for`, on both clients: the original's client has both on one."""

    def __init__(self, build: Callable[Concatenate[Any, P], Wanted]) -> None:
        self._build = build
        _dress(self, build)

    @overload
    def __get__(self, client: None, owner: Any) -> async_streaming[P]: ...
    @overload
    def __get__(self, client: SyncShell | AsyncShell, owner: Any) -> Callable[P, AsyncEventStream]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        return self if client is None else _bound(self._build, client, client._afollow)


class replying(Generic[P]):  # noqa: N801
    """A stream of events, heard to its end."""

    def __init__(self, build: Callable[Concatenate[Any, P], Wanted]) -> None:
        self._build = build
        _dress(self, build)

    @overload
    def __get__(self, client: None, owner: Any) -> replying[P]: ...
    @overload
    def __get__(self, client: SyncShell, owner: Any) -> Callable[P, Reply]: ...
    @overload
    def __get__(self, client: AsyncShell, owner: Any) -> Callable[P, Coroutine[Any, Any, Reply]]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        return self if client is None else _bound(self._build, client, client._reply)


def _dress(method: Any, build: Callable[..., Any]) -> None:
    functools.update_wrapper(method, build)


def _bound(build: Callable[..., Any], client: Any, carry_out: Callable[[Any], Any]) -> Any:
    @functools.wraps(build)
    def method(*args: Any, **kwargs: Any) -> Any:
        return carry_out(build(client, *args, **kwargs))

    method.__signature__ = _without_self(build)  # type: ignore[attr-defined]
    return method


@functools.cache
def _without_self(build: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(build)
    return signature.replace(parameters=list(signature.parameters.values())[1:])
