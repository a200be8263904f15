"""Sessions: making them, looking at them, and bringing them to rest and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._method import operation
from .._wire import Answer, Call, Id, Repeat, at, call, given, many, one
from ..schema import (
    McpServer,
    PermissionMode,
    Resumed,
    ResumeReceipt,
    Session,
    Sessions,
    SessionStatus,
    WhenRunning,
)


@dataclass(frozen=True, kw_only=True)
class ResumedSession(Session):
    """A session that came back, and the receipt of what came back with it."""

    receipt: ResumeReceipt


def _resumed(answer: Answer) -> ResumedSession:
    both = Resumed.from_json(answer.json())
    fields = {name: getattr(both.session, name) for name in Session.__dataclass_fields__}
    return ResumedSession(**fields, receipt=both.resume)


class SessionOperations:
    """Sessions."""

    @operation
    def create_session(
        self,
        agent: str,
        *,
        credential_id: str | None = None,
        credential_ids: list[str] | None = None,
        extra_env: dict[str, str] | None = None,
        model: str | None = None,
        system_prompt: str | None = None,
        permission_mode: PermissionMode | None = None,
        permission_timeout_ms: int | None = None,
        allowed_tools: list[str] | None = None,
        disallowed_tools: list[str] | None = None,
        mcp_servers: dict[str, McpServer] | None = None,
        betas: list[str] | None = None,
        subagents: dict[str, Any] | None = None,
        initial_agent: str | None = None,
        title: str | None = None,
        metadata: dict[str, str] | None = None,
        idle_timeout_ms: int | None = None,
        ttl_ms: int | None = None,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Session]:
        """Makes a session with an agent. It is there, and can be talked to, when this returns."""
        body = given(
            agent=agent,
            credential_id=credential_id,
            credential_ids=credential_ids,
            extra_env=extra_env,
            model=model,
            system_prompt=system_prompt,
            permission_mode=permission_mode,
            permission_timeout_ms=permission_timeout_ms,
            allowed_tools=allowed_tools,
            disallowed_tools=disallowed_tools,
            mcp_servers=mcp_servers,
            betas=betas,
            subagents=subagents,
            initial_agent=initial_agent,
            title=title,
            metadata=metadata,
            idle_timeout_ms=idle_timeout_ms,
            ttl_ms=ttl_ms,
            budget_usd=budget_usd,
            budget_tokens=budget_tokens,
        )
        read = one(Session, "session")
        return call("POST", at("sessions"), read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def list_sessions(
        self,
        agent: str | None = None,
        *,
        status: SessionStatus | None = None,
        id_prefix: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
    ) -> Call[list[Session]]:
        """Lists sessions, newest first. `list_sessions_with_total` says whether there are more."""
        query = given(agent=agent, status=status, id_prefix=id_prefix, limit=limit, offset=offset, cursor=cursor)
        return call("GET", at("sessions"), many(Session, "sessions"), query=query)

    @operation
    def list_sessions_with_total(
        self,
        agent: str | None = None,
        *,
        status: SessionStatus | None = None,
        id_prefix: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        cursor: str | None = None,
    ) -> Call[Sessions]:
        """Lists sessions, with how many there are, and the cursor of the next page."""
        query = given(agent=agent, status=status, id_prefix=id_prefix, limit=limit, offset=offset, cursor=cursor)
        return call("GET", at("sessions"), one(Sessions), query={**query, "includeTotal": True})

    @operation
    def get_session(self, session_id: Id) -> Call[Session]:
        """Looks at a session."""
        return call("GET", at("sessions", session_id), one(Session, "session"))

    @operation
    def update_session_config(
        self,
        session_id: Id,
        *,
        model: str | None = None,
        permission_mode: PermissionMode | None = None,
        permission_timeout_ms: int | None = None,
        allowed_tools: list[str] | None = None,
        disallowed_tools: list[str] | None = None,
        betas: list[str] | None = None,
        subagents: dict[str, Any] | None = None,
        initial_agent: str | None = None,
        title: str | None = None,
        metadata: dict[str, str] | None = None,
    ) -> Call[Session]:
        """Changes options of a session. Those that are not named stay."""
        body = given(
            model=model,
            permission_mode=permission_mode,
            permission_timeout_ms=permission_timeout_ms,
            allowed_tools=allowed_tools,
            disallowed_tools=disallowed_tools,
            betas=betas,
            subagents=subagents,
            initial_agent=initial_agent,
            title=title,
            metadata=metadata,
        )
        return call("PATCH", at("sessions", session_id, "config"), one(Session, "session"), body=body)

    @operation
    def pause_session(self, session_id: Id, *, if_running: WhenRunning | None = None) -> Call[Session]:
        """Freezes a session where it is, also in mid-turn, and saves it."""
        body = given(if_running=if_running)
        return call("POST", at("sessions", session_id, "pause"), one(Session, "session"), body=body)

    @operation
    def resume_session(
        self, session_id: Id, *, require_state: bool | None = None, allow_fresh: bool | None = None
    ) -> Call[ResumedSession]:
        """Brings a session back. Its `receipt` says what came back: files, conversation, and from where."""
        body = given(require_state=require_state, allow_fresh=allow_fresh)
        # Bringing back what is back changes nothing.
        return call("POST", at("sessions", session_id, "resume"), _resumed, body=body, repeat=Repeat.SAFE)

    @operation
    def stop_session(self, session_id: Id) -> Call[Session]:
        """Saves a session and ends its sandbox. It can be resumed."""
        return call("POST", at("sessions", session_id, "stop"), one(Session, "session"))

    @operation
    def end_session(self, session_id: Id) -> Call[Session]:
        """Ends a session for ever. Ending one that has ended changes nothing."""
        return call("DELETE", at("sessions", session_id), one(Session, "session"))
