"""Calls every public function of the original's client for Python, unmodified, and writes down what came of it.

It runs where `ash-ai-sdk` is installed: `calls.py URL KEY AGENT-DIRECTORY RESULTS`. A function that nobody here knows
how to call is a failure, so that none is forgotten.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import importlib
import inspect
import io
import json
import pkgutil
import re
import sys
import tarfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ash_sdk.api
from ash_sdk import AshClient, AuthenticatedClient, models
from ash_sdk.streaming import DoneEvent, MessageEvent, SessionStartEvent

URL, KEY, AGENT, RESULTS = sys.argv[1:]
WAYS = ("sync", "sync_detailed", "asyncio", "asyncio_detailed")
NOWHERE = uuid.UUID("00000000-0000-4000-8000-000000000000")

# Errors that are not the server's doing, by the function.
ITS_OWN = {
    "sessions.post_api_sessions_id_messages": (
        "JSONDecodeError",
        "the client takes the stream of events for JSON, whichever server sends it; `AshClient` does not",
    ),
}

client = AshClient(URL, token=KEY)


def low() -> AuthenticatedClient:
    """The client that is generated. Each call has its own, so that none suffers from another's connection."""
    return AuthenticatedClient(base_url=URL, token=KEY)


class Unlike(Exception):
    """It is not as the client expects it."""


def expect(held: bool, what: str) -> None:
    if not held:
        raise Unlike(what)


def tar_gz() -> str:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo("unpacked.txt")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"ok"))
    return base64.b64encode(packed.getvalue()).decode()


def session() -> uuid.UUID:
    """A session of its own for each call: what one does to it is not seen by the next."""
    found = client.create_session("compat")
    made.append(found.id)
    return found.id


made: list[uuid.UUID] = []


def agent() -> str:
    name = f"compat-{uuid.uuid4().hex[:8]}"
    client.deploy_agent(name, AGENT)
    agents.append(name)
    return name


agents: list[str] = []


def paused() -> uuid.UUID:
    one = session()
    client.pause_session(one)
    return one


def said() -> uuid.UUID:
    one = session()
    list(client.send_message_stream(one, "/say Hello."))
    return one


def attachment() -> uuid.UUID:
    module = importlib.import_module("ash_sdk.api.sessions.post_api_sessions_id_attachments")
    sent = module.sync(session(), client=low(), body=attachment_body())
    return sent.attachment.id if hasattr(sent, "attachment") else NOWHERE


def attachment_body() -> Any:
    return models.PostApiSessionsIdAttachmentsBody(filename="a.txt", content="aGk=", mime_type="text/plain")


def queue_body(**more: Any) -> Any:
    return models.PostApiQueueBody(**{"agent_name": "compat", "prompt": "/say Later.", **more})


def queued(**more: Any) -> uuid.UUID:
    module = importlib.import_module("ash_sdk.api.queue.post_api_queue")
    sent = module.sync(client=low(), body=queue_body(**more))
    return sent.item.id if hasattr(sent, "item") else NOWHERE


@functools.cache
def busy() -> uuid.UUID:
    """A session with an item that never comes to its end: of one session one item is worked on at a time."""
    one = session()
    queued(session_id=one, prompt="/hang", priority=1)
    return one


def item() -> uuid.UUID:
    """An item that waits until somebody takes it back."""
    return queued(session_id=busy())


def credential_body() -> Any:
    return models.PostApiCredentialsBody(type_="anthropic", key="sk-any", label="compat")


def credential() -> str:
    module = importlib.import_module("ash_sdk.api.credentials.post_api_credentials")
    return str(module.sync(client=low(), body=credential_body()).credential.id)


def config_body() -> Any:
    return models.PatchApiSessionsIdConfigBody(model="claude-sonnet-4-5", allowed_tools=["bash"])


def files_body() -> Any:
    item = models.PostApiSessionsIdFilesBodyFilesItem(path="a.txt", content="aGk=")
    return models.PostApiSessionsIdFilesBody(files=[item])


def agent_body() -> Any:
    name = f"compat-{uuid.uuid4().hex[:8]}"
    agents.append(name)
    return models.PostApiAgentsBody(name=name, system_prompt="You are small.")


# How each function is called; what is not named in a tuple is a keyword.
ARGUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "agents.delete_api_agents_name": lambda: {"name": agent()},
    "agents.get_api_agents": dict,
    "agents.get_api_agents_name": lambda: {"name": "compat"},
    "agents.get_api_agents_name_files": lambda: {"name": "compat"},
    "agents.post_api_agents": lambda: {"body": agent_body()},
    "attachments.delete_api_attachments_id": lambda: {"id": attachment()},
    "attachments.get_api_attachments_id": lambda: {"id": attachment()},
    "credentials.delete_api_credentials_id": lambda: {"id": credential()},
    "credentials.get_api_credentials": dict,
    "credentials.post_api_credentials": lambda: {"body": credential_body()},
    "default.get_api_internal_runners": dict,
    "default.post_api_internal_runners_deregister": dict,
    "default.post_api_internal_runners_heartbeat": dict,
    "default.post_api_internal_runners_register": dict,
    "health.get_health": dict,
    "queue.delete_api_queue_id": lambda: {"id": item()},
    "queue.get_api_queue": lambda: {"limit": 10},
    "queue.get_api_queue_id": lambda: {"id": item()},
    "queue.get_api_queue_stats": dict,
    "queue.post_api_queue": lambda: {"body": queue_body()},
    "sessions.delete_api_sessions_id": lambda: {"id": session()},
    "sessions.get_api_sessions": lambda: {"agent": "compat"},
    "sessions.get_api_sessions_id": lambda: {"id": session()},
    "sessions.get_api_sessions_id_attachments": lambda: {"id": session()},
    "sessions.get_api_sessions_id_events": lambda: {"id": said()},
    "sessions.get_api_sessions_id_files": lambda: {"id": session(), "include_hidden": "true"},
    "sessions.get_api_sessions_id_logs": lambda: {"id": said()},
    "sessions.get_api_sessions_id_messages": lambda: {"id": said()},
    "sessions.get_api_sessions_id_workspace": lambda: {"id": session()},
    "sessions.patch_api_sessions_id_config": lambda: {"id": session(), "body": config_body()},
    "sessions.post_api_sessions": lambda: {"body": models.PostApiSessionsBody(agent="compat")},
    "sessions.post_api_sessions_id_attachments": lambda: {"id": session(), "body": attachment_body()},
    "sessions.post_api_sessions_id_exec": lambda: {
        "id": session(),
        "body": models.PostApiSessionsIdExecBody(command="echo hi", timeout=20000.0),
    },
    "sessions.post_api_sessions_id_files": lambda: {"id": session(), "body": files_body()},
    "sessions.post_api_sessions_id_fork": lambda: {"id": session()},
    "sessions.post_api_sessions_id_messages": lambda: {
        "id": session(),
        "body": models.PostApiSessionsIdMessagesBody(content="/say Hello."),
    },
    "sessions.post_api_sessions_id_pause": lambda: {"id": session()},
    "sessions.post_api_sessions_id_resume": lambda: {"id": paused()},
    "sessions.post_api_sessions_id_stop": lambda: {"id": session()},
    "sessions.post_api_sessions_id_workspace": lambda: {
        "id": session(),
        "body": models.PostApiSessionsIdWorkspaceBody(bundle=tar_gz()),
    },
    "usage.get_api_usage": lambda: {"session_id": said()},
    "usage.get_api_usage_stats": lambda: {"session_id": said()},
}


def called(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):

        async def once() -> Any:
            async with low() as fresh:
                return await function(**arguments, client=fresh)

        return asyncio.run(once())
    with low() as fresh:
        return function(**arguments, client=fresh)


def refused(status: int, content: bytes) -> str:
    try:
        told = json.loads(content)
        return f"{status} `{told.get('code')}`"
    except ValueError:
        return str(status)


def low_level(module: Any) -> str:
    """What comes of a function of the generated client, in all the ways that it has."""
    name = module.__name__.removeprefix("ash_sdk.api.")
    ways = [way for way in WAYS if hasattr(module, way)]
    declared = sorted(map(int, re.findall(r"status_code == (\d+)", inspect.getsource(module._parse_response))))
    fine = [status for status in declared if 200 <= status < 300] or [200, 201]
    found = []
    for way in ways:
        try:
            answer = called(getattr(module, way), ARGUMENTS[name]())
            if way.endswith("_detailed"):
                status = int(answer.status_code)
                if not 200 <= status < 300:
                    raise Unlike(refused(status, answer.content))
                expect(status in fine, f"answers {status}, where the original says {fine[0]}")
                value = answer.parsed
            else:
                value = answer
            expect(not isinstance(value, models.ApiError), f"an error: {getattr(value, 'error', '')}")
        except Unlike as unlike:
            found.append(str(unlike))
        except Exception as error:
            found.append(
                f"the client fails: `{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}`"
            )
    if not found:
        return ""
    # The ways that show the status say it best.
    best = [one for one in found if not one.startswith("an error:")] or found
    error, reason = ITS_OWN.get(name, ("", ""))
    return reason if reason and error in best[0] else best[0]


def high_level() -> dict[str, Callable[[], None]]:
    """What is tried with each method of the client that is written by hand."""

    def health() -> None:
        expect(client.health()["status"] == "ok", "the status is not ok")

    def deploy_agent() -> None:
        expect(client.deploy_agent("compat", AGENT).name == "compat", "another agent came back")

    def list_agents() -> None:
        expect("compat" in [one.name for one in client.list_agents()], "the agent is not in the list")

    def get_agent() -> None:
        expect(client.get_agent("compat").version >= 1, "it has no version")

    def delete_agent() -> None:
        name = agent()
        client.delete_agent(name)
        expect(name not in [one.name for one in client.list_agents()], "it is still there")

    def create_session() -> None:
        one = client.create_session(
            "compat",
            extra_env={"A": "b"},
            model="claude-sonnet-4-5",
            system_prompt="Be short.",
            permission_mode="bypassPermissions",
            allowed_tools=["bash"],
            disallowed_tools=["edit_file"],
            betas=["some-beta"],
        )
        made.append(one.id)
        expect(str(one.status) == "active", f"its status is {one.status}")

    def list_sessions() -> None:
        one = session()
        expect(
            one in [two.id for two in client.list_sessions(agent="compat", status="active")], "it is not in the list"
        )

    def get_session() -> None:
        one = session()
        expect(client.get_session(one).id == one, "another session came back")

    def pause_session() -> None:
        expect(str(client.pause_session(session()).status) == "paused", "it is not paused")

    def resume_session() -> None:
        expect(str(client.resume_session(paused()).status) == "active", "it is not active")

    def stop_session() -> None:
        expect(str(client.stop_session(session()).status) == "stopped", "it is not stopped")

    def end_session() -> None:
        expect(str(client.end_session(session()).status) == "ended", "it has not ended")

    def fork_session() -> None:
        one = said()
        fork = client.fork_session(one)
        expect(str(fork.status) == "paused" and fork.parent_session_id == one, "it is not a paused child")
        client.resume_session(fork.id)
        answer = list(client.send_message_stream(fork.id, "What was said?\n/recall"))
        expect("Hello." in str(answer), "it does not remember")

    def told(events: list[Any]) -> None:
        expect(isinstance(events[0], SessionStartEvent), f"it begins with {events[0]}")
        expect(isinstance(events[-1], DoneEvent), f"it ends with {events[-1]}")
        expect(any(isinstance(event, MessageEvent) and "Hello." in str(event.data) for event in events), "no answer")

    def send_message_stream() -> None:
        options = {"include_partial_messages": True, "model": "claude-sonnet-4-5", "max_turns": 3, "effort": "low"}
        told(list(client.send_message_stream(session(), "/say Hello.", max_budget_usd=1.0, **options)))

    def asend_message_stream() -> None:
        async def heard() -> list[Any]:
            return [event async for event in client.asend_message_stream(session(), "/say Hello.")]

        told(asyncio.run(heard()))

    return {name: tried for name, tried in locals().items() if name != "told"}


def main() -> None:
    client.deploy_agent("compat", AGENT)
    methods = {}
    tried = high_level()
    public = {name for name, _ in inspect.getmembers(AshClient, inspect.isfunction) if not name.startswith("_")}
    modules = [
        importlib.import_module(one.name)
        for one in pkgutil.walk_packages(ash_sdk.api.__path__, "ash_sdk.api.")
        if not one.ispkg
    ]
    names = {module.__name__.removeprefix("ash_sdk.api.") for module in modules}
    unknown = (public ^ set(tried)) | (names ^ set(ARGUMENTS))
    if unknown:
        sys.exit(f"nobody knows how to call, or nobody has: {sorted(unknown)}")
    for name in sorted(public):
        try:
            tried[name]()
            methods[f"AshClient.{name}"] = ""
        except Exception as error:
            methods[f"AshClient.{name}"] = str(error).splitlines()[0]
    for module in modules:
        methods[module.__name__.removeprefix("ash_sdk.")] = low_level(module)
    for one in made:
        client.end_session(one)
    for name in agents:
        if name in [one.name for one in client.list_agents()]:
            client.delete_agent(name)
    rows = [{"method": name, "works": not how, **({"how": how} if how else {})} for name, how in methods.items()]
    results = {"client": "ash-ai-sdk 0.0.22 (Python)", "methods": rows}
    Path(RESULTS).write_text(json.dumps(results, indent=2) + "\n")


main()
