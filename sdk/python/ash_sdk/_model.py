"""How JSON becomes what the schema declares."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from .errors import AshProtocolError

_M = TypeVar("_M", bound="Model")
_Decoder = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Model:
    """Something that the server sent.

    Its fields are attributes. Everything that came is in `raw`, also what this version of the package does not
    know, and `thing["fieldName"]` looks there.
    """

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls: type[_M], value: Any) -> _M:
        """Makes one of what the server sent. A field that is missing is an `AshProtocolError`."""
        if not isinstance(value, Mapping):
            raise AshProtocolError(f"{cls.__name__} should be an object, not {type(value).__name__}")
        known: dict[str, Any] = {}
        for name, wire, decode, required in _fields(cls):  # type: ignore[arg-type]
            if wire in value:
                known[name] = decode(value[wire])
            elif required:
                raise AshProtocolError(f"{cls.__name__} has no `{wire}`: is this an Ash server?")
        return cls(raw=value, **known)

    def __getitem__(self, name: str) -> Any:
        return self.raw[name]


def camel(name: str) -> str:
    """`last_active_at` as `lastActiveAt`."""
    return re.sub(r"_([a-z0-9])", lambda found: found.group(1).upper(), name.rstrip("_"))


@cache
def _fields(cls: type[Model]) -> list[tuple[str, str, _Decoder, bool]]:
    hints = typing.get_type_hints(cls)
    return [
        (one.name, camel(one.name), decoder(hints[one.name]), one.name in _required(cls))
        for one in fields(cls)
        if one.name != "raw"
    ]


def _required(cls: type[Model]) -> set[str]:
    return {one.name for one in fields(cls) if one.default is MISSING and one.default_factory is MISSING}


def decoder(kind: Any) -> _Decoder:
    """What makes a value of a type. Values that nobody foresaw are passed on as they are."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Model):
        return kind.from_json
    if kind is datetime:
        return datetime.fromisoformat
    if kind is float:
        return lambda value: float(value) if isinstance(value, int) else value
    if origin in (typing.Union, types.UnionType) and type(None) in inside:
        others = [decoder(one) for one in inside if one is not type(None)]
        one = others[0] if len(others) == 1 else _same
        return lambda value: None if value is None else one(value)
    if origin is list:
        item = decoder(inside[0])
        return lambda values: [item(value) for value in values]
    if origin is dict:
        item = decoder(inside[1])
        return lambda values: {name: item(value) for name, value in values.items()}
    return _same


def _same(value: Any) -> Any:
    return value
