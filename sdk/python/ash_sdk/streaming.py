"""The events under the name of the module that the original's client has them in."""

from __future__ import annotations

from .events import *  # noqa: F403
from .events import StreamEvent

AshEvent = StreamEvent
