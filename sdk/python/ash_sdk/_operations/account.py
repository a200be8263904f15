"""Credentials, keys, what was used, and how the server is."""

from __future__ import annotations

import json
from datetime import datetime

from .._method import operation
from .._wire import Answer, Call, Id, Repeat, at, call, given, many, nothing, one
from ..schema import (
    Analytics,
    ApiKey,
    ApiKeyMade,
    Credential,
    CredentialType,
    Health,
    Ready,
    Stats,
    UsageEvent,
)

When = datetime | str | int


class AccountOperations:
    """All that is not about one session or agent."""

    @operation
    def health(self) -> Call[Health]:
        """How the server is. It needs no key."""
        return call("GET", "/health", one(Health))

    @operation
    def ready(self) -> Call[Ready]:
        """Whether the server takes new work; an `UnavailableError` if it does not."""
        return call("GET", "/health/ready", one(Ready))

    @operation
    def metrics(self) -> Call[str]:
        """The server's metrics, as Prometheus reads them."""
        return call("GET", "/metrics", _text)

    @operation
    def store_credential(
        self,
        type: CredentialType,
        key: str,
        *,
        label: str | None = None,
        header: str | None = None,
        host: str | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Credential]:
        """Keeps a credential. It is sealed, never shown again, and never seen by an agent."""
        body = given(type=type, key=key, label=label, header=header, host=host)
        path, read = at("credentials"), one(Credential, "credential")
        return call("POST", path, read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def store_bedrock_credential(
        self,
        access_key_id: str,
        secret_access_key: str,
        region: str,
        *,
        session_token: str | None = None,
        label: str | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Credential]:
        """Keeps the keys of an AWS account."""
        secret = given(
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            region=region,
            session_token=session_token,
        )
        body = given(type="bedrock", key=json.dumps(secret), label=label)
        path, read = at("credentials"), one(Credential, "credential")
        return call("POST", path, read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def list_credentials(self) -> Call[list[Credential]]:
        """Lists the credentials, without their secrets."""
        return call("GET", at("credentials"), many(Credential, "credentials"))

    @operation
    def delete_credential(self, credential_id: Id) -> Call[None]:
        """Forgets a credential."""
        return call("DELETE", at("credentials", credential_id), nothing)

    @operation
    def list_api_keys(self) -> Call[list[ApiKey]]:
        """Lists the API keys, without their secrets."""
        return call("GET", at("api-keys"), many(ApiKey, "keys"))

    @operation
    def create_api_key(
        self,
        label: str | None = None,
        *,
        tenant_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Call[ApiKeyMade]:
        """Makes an API key. Its secret is shown this once."""
        body = given(label=label, tenant_id=tenant_id)
        path, read = at("api-keys"), one(ApiKeyMade)
        return call("POST", path, read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def revoke_api_key(self, key_id: Id) -> Call[None]:
        """Takes an API key back."""
        return call("DELETE", at("api-keys", key_id), nothing)

    @operation
    def list_usage_events(
        self,
        *,
        session_id: Id | None = None,
        agent_name: str | None = None,
        after: When | None = None,
        before: When | None = None,
        limit: int | None = None,
    ) -> Call[list[UsageEvent]]:
        """Lists what was used, newest first."""
        query = _usage(session_id, agent_name, after, before, limit)
        return call("GET", at("usage"), many(UsageEvent, "events"), query=query)

    @operation
    def get_usage_stats(
        self,
        *,
        session_id: Id | None = None,
        agent_name: str | None = None,
        after: When | None = None,
        before: When | None = None,
    ) -> Call[Stats]:
        """What was used, all together."""
        query = _usage(session_id, agent_name, after, before, None)
        return call("GET", at("usage", "stats"), one(Stats, "stats"), query=query)

    @operation
    def get_analytics(self, *, after: When | None = None, before: When | None = None) -> Call[Analytics]:
        """Agents, sessions and usage in numbers."""
        return call("GET", at("analytics"), one(Analytics), query=_usage(None, None, after, before, None))


def _text(answer: Answer) -> str:
    return answer.body.decode("utf-8", "replace")


def _usage(
    session_id: Id | None, agent_name: str | None, after: When | None, before: When | None, limit: int | None
) -> dict[str, object]:
    times = given(after=_instant(after), before=_instant(before))
    return {**given(session_id=session_id, agent_name=agent_name, limit=limit), **times}


def _instant(when: When | None) -> str | int | None:
    return when.astimezone().isoformat() if isinstance(when, datetime) else when
