"""What can go wrong, as classes.

Every refusal of the server is an `AshApiError`. Its `code` is stable and explained in `docs/errors`; the sentence is
for people. The subclasses are what programs do different things about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping


class AshError(Exception):
    """Everything that this package raises."""


class AshProtocolError(AshError):
    """The server sent what no Ash server sends."""


class AshConnectionError(AshError):
    """The server could not be reached, or not for long enough; what was safe to repeat was repeated."""


class AshStreamError(AshConnectionError):
    """A stream broke and could not be taken up again. `last_event_id` says how far it came."""

    def __init__(self, message: str, last_event_id: str | None = None) -> None:
        super().__init__(message)
        self.last_event_id = last_event_id


class AshApiError(AshError):
    """The server refused."""

    def __init__(
        self,
        message: str,
        *,
        status_code: int,
        code: str = "unknown",
        retryable: bool = False,
        request_id: str | None = None,
        retry_after: float | None = None,
        request: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status_code = status_code
        self.code = code
        self.retryable = retryable
        self.request_id = request_id
        self.retry_after = retry_after
        self.request = request

    def __str__(self) -> str:
        what = f": {self.request}" if self.request else ""
        return f"{self.message} ({self.status_code} {self.code}{what})"


class InvalidRequestError(AshApiError):
    """400, 413, 415, 422: asking again will not help."""


class AuthenticationError(AshApiError):
    """401, 403: the key is missing, not known, or may not do this."""


class NotFoundError(AshApiError):
    """404: there is no such thing, or it is another tenant's."""


class ConflictError(AshApiError):
    """409: something else is in the way, such as a run that goes on."""


class GoneError(AshApiError):
    """410: it was there once. A session that has ended does not come back."""


class RateLimitError(AshApiError):
    """429: too many requests; `retry_after` says when to come back."""


class ServerError(AshApiError):
    """500 and above: the server could not do it."""


class NotOfferedError(ServerError):
    """501: this server does not offer it."""


class UnavailableError(ServerError):
    """503: not now; `retry_after` says when to come back."""


_CLASSES: dict[int, type[AshApiError]] = {
    401: AuthenticationError,
    403: AuthenticationError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    429: RateLimitError,
    501: NotOfferedError,
    503: UnavailableError,
}


def refusal(status: int, headers: Mapping[str, str], body: bytes, request: str) -> AshApiError:
    """Makes an error of an answer that is one. `request` is what was asked, for people."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    told = told if isinstance(told, dict) else {}
    # The original has its sentence in `message` where it has one at all.
    message = told.get("message") or told.get("error") or f"status {status}, and not as an Ash server says it"
    kind = _CLASSES.get(status, ServerError if status >= 500 else InvalidRequestError)
    return kind(
        str(message),
        status_code=status,
        code=str(told.get("code") or "unknown"),
        retryable=bool(told.get("retryable", status in (429, 503))),
        request_id=told.get("requestId") or headers.get("x-request-id"),
        retry_after=_seconds(headers.get("retry-after")),
        request=request,
    )


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None
