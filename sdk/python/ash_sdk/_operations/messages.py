"""Messages, the streams that answer them, and all that can be read about runs."""

from __future__ import annotations

from typing import Any

from .._method import async_streaming, operation, replying, streaming
from .._program import Following
from .._retry import Retry
from .._streams import OnCancel, Wanted
from .._wire import Call, Id, Repeat, at, call, given, many, nothing, one
from ..schema import (
    Behavior,
    Content,
    Effort,
    Event,
    IfBusy,
    Log,
    Message,
    OutputFormat,
    Permission,
    PermissionDecided,
    PermissionMode,
    Run,
    Sent,
    Thinking,
)


def _message(
    self: Any,
    session_id: Id,
    content: Content,
    *,
    include_partial_messages: bool | None = None,
    model: str | None = None,
    max_turns: int | None = None,
    max_budget_usd: float | None = None,
    effort: Effort | None = None,
    thinking: Thinking | None = None,
    output_format: OutputFormat | None = None,
    permission_mode: PermissionMode | None = None,
    permission_timeout_ms: int | None = None,
    allowed_tools: list[str] | None = None,
    disallowed_tools: list[str] | None = None,
    if_busy: IfBusy | None = None,
    wake: bool | None = None,
    timeout_ms: int | None = None,
    idempotency_key: str | None = None,
    on_cancel: OnCancel = "interrupt",
) -> Wanted:
    """Sends a message and follows the run that it makes.

    A connection that is lost is made anew, and the stream taken up where it broke: no event is missing, and none comes
    twice. If whoever listens stops before the end, the run goes on; Ctrl-C and a task that is cancelled interrupt it,
    unless `on_cancel` is `detach`.
    """
    body = given(
        content=content,
        include_partial_messages=include_partial_messages,
        model=model,
        max_turns=max_turns,
        max_budget_usd=max_budget_usd,
        effort=effort,
        thinking=thinking,
        output_format=output_format,
        permission_mode=permission_mode,
        permission_timeout_ms=permission_timeout_ms,
        allowed_tools=allowed_tools,
        disallowed_tools=disallowed_tools,
        if_busy=if_busy,
        wake=wake,
        timeout_ms=timeout_ms,
    )
    if on_cancel not in ("interrupt", "detach"):
        raise ValueError(f'on_cancel is "interrupt" or "detach", not {on_cancel!r}')
    path = at("sessions", session_id, "messages")
    sent = call("POST", path, nothing, body=body, repeat=Repeat.KEYED, key=idempotency_key)
    retry: Retry = self._settings.retry
    return Wanted(Following(str(session_id), retry, message=sent.request), on_cancel)


class MessageOperations:
    """Messages."""

    send_message_stream = streaming(_message)
    asend_message_stream = async_streaming(_message)
    send_message = replying(_message)

    @operation
    def send_message_detached(
        self,
        session_id: Id,
        content: Content,
        *,
        include_partial_messages: bool | None = None,
        model: str | None = None,
        max_turns: int | None = None,
        max_budget_usd: float | None = None,
        effort: Effort | None = None,
        thinking: Thinking | None = None,
        output_format: OutputFormat | None = None,
        permission_mode: PermissionMode | None = None,
        permission_timeout_ms: int | None = None,
        allowed_tools: list[str] | None = None,
        disallowed_tools: list[str] | None = None,
        if_busy: IfBusy | None = None,
        wake: bool | None = None,
        timeout_ms: int | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Sent]:
        """Sends a message and does not wait. `stream(session_id, after=sent.seq)` tells what becomes of it."""
        body = given(
            content=content,
            include_partial_messages=include_partial_messages,
            model=model,
            max_turns=max_turns,
            max_budget_usd=max_budget_usd,
            effort=effort,
            thinking=thinking,
            output_format=output_format,
            permission_mode=permission_mode,
            permission_timeout_ms=permission_timeout_ms,
            allowed_tools=allowed_tools,
            disallowed_tools=disallowed_tools,
            if_busy=if_busy,
            wake=wake,
            timeout_ms=timeout_ms,
            detach=True,
        )
        path = at("sessions", session_id, "messages")
        return call("POST", path, one(Sent), body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @streaming
    def stream(self: Any, session_id: Id, *, after: str | int | None = None, until_idle: bool = False) -> Wanted:
        """Follows the log of a session: what is there after a place in it, and then what comes.

        `after` is the `event_id` of an event, or a number; without it the log is told from its beginning. It goes on
        until the session has ended or, with `until_idle`, has nothing to do. Closing it does nothing to the session.
        """
        place = None if after is None else str(after)
        retry: Retry = self._settings.retry
        return Wanted(Following(str(session_id), retry, after=place, until_idle=until_idle))

    @operation
    def interrupt_session(self, session_id: Id, *, run_id: Id | None = None) -> Call[Run]:
        """Ends the run that goes on, or the one that is named, also if it still waits; returns it when it is over."""
        body = given(run_id=None if run_id is None else str(run_id))
        return call("POST", at("sessions", session_id, "interrupt"), one(Run, "run"), body=body)

    @operation
    def list_runs(self, session_id: Id, *, limit: int | None = None) -> Call[list[Run]]:
        """Lists the runs of a session, newest first."""
        return call("GET", at("sessions", session_id, "runs"), many(Run, "runs"), query=given(limit=limit))

    @operation
    def get_run(self, session_id: Id, run_id: Id) -> Call[Run]:
        """Looks at a run."""
        return call("GET", at("sessions", session_id, "runs", run_id), one(Run, "run"))

    @operation
    def list_messages(
        self, session_id: Id, *, limit: int | None = None, after: int | None = None
    ) -> Call[list[Message]]:
        """Lists what was said, by both sides, after a number in the log."""
        query = given(limit=limit, after=after)
        return call("GET", at("sessions", session_id, "messages"), many(Message, "messages"), query=query)

    @operation
    def list_session_events(
        self,
        session_id: Id,
        *,
        limit: int | None = None,
        after: int | None = None,
        type: str | None = None,
    ) -> Call[list[Event]]:
        """Lists what happened, after a number in the log; all of it, or what is of one type."""
        query = given(limit=limit, after=after, type=type)
        return call("GET", at("sessions", session_id, "events"), many(Event, "events"), query=query)

    @operation
    def get_session_logs(self, session_id: Id, *, after: int | None = None) -> Call[list[Log]]:
        """What the sandbox wrote beside the conversation."""
        return call("GET", at("sessions", session_id, "logs"), many(Log, "logs"), query=given(after=after))

    @operation
    def list_permissions(self, session_id: Id) -> Call[list[Permission]]:
        """Lists the questions that the agent waits for an answer to."""
        return call("GET", at("sessions", session_id, "permissions"), many(Permission, "permissions"))

    @operation
    def decide_permission(
        self,
        session_id: Id,
        permission_id: Id,
        behavior: Behavior,
        *,
        input: dict[str, Any] | None = None,
        message: str | None = None,
    ) -> Call[PermissionDecided]:
        """Answers a question: yes, yes with another input, or no with a reason."""
        body = given(behavior=behavior, input=input, message=message)
        path = at("sessions", session_id, "permissions", permission_id)
        # The same answer again is fine.
        return call("POST", path, one(PermissionDecided), body=body, repeat=Repeat.SAFE)
