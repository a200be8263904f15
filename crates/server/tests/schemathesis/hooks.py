"""What the requests of schemathesis are changed to before they are sent.

Most of what is made at random would name things that are not there, and only show that 404 is answered
well. So some of it is led to what the test has prepared. What was made wrong on purpose stays wrong.
"""

import itertools
import os

import schemathesis
from schemathesis import GenerationMode
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import TestPhase

AGENT = os.environ["ASH_TEST_AGENT"]
# Talked to and looked at; put to rest and brought back; ended.
TALKING, RESTING, ENDED = os.environ["ASH_TEST_SESSIONS"].split(",")

requests = itertools.count()

RESTS = ("/pause", "/resume", "/stop", "/interrupt")


@schemathesis.serializer("application/x-tar")
def as_bundle(ctx, value):
    """A bundle is bytes; what is made at random is none."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def is_right(case, location):
    """Whether this part of the request is as the document wants it."""
    component = case.meta.components.get(location) if case.meta else None
    return component is None or component.mode is GenerationMode.POSITIVE


@schemathesis.hook
def before_call(context, case, kwargs):
    lead(case)
    protect(case)


def lead(case):
    """Leads what is right to what is prepared."""
    path, parameters, body = case.operation.path, case.path_parameters or {}, case.body
    headers = case.headers or {}
    if is_right(case, ParameterLocation.HEADER) and "Idempotency-Key" in headers:
        # One that was used for something else stops the request early: so it is mostly a new one.
        number = next(requests)
        if number % 4 != 0:
            headers["Idempotency-Key"] = f"{headers['Idempotency-Key'][:200]}{number}"
    # A story that was begun with something goes on with it.
    if is_right(case, ParameterLocation.PATH) and not in_a_story(case):
        if is_session(path) and leads(parameters.get("id")):
            parameters["id"] = session_for(case.method, path)
        if is_agent(path) and leads(parameters.get("name")):
            parameters["name"] = AGENT
    if not isinstance(body, dict) or not is_right(case, ParameterLocation.BODY):
        return
    if path == "/api/sessions":
        if leads(body.get("agent")):
            body["agent"] = AGENT
        # One that is not the caller's is refused, and no random one is.
        body.pop("credentialId", None)
    if path == "/api/agents" and leads(body.get("name")):
        # One of three, not any three.
        body.pop("path", None)
        body.pop("files", None)
        body["systemPrompt"] = "Be brief."
    if path.endswith("/messages") and isinstance(body.get("content"), str):
        body["wake"] = True


def protect(case):
    """Keeps what is prepared, and the machine, from harm."""
    path, parameters, body = case.operation.path, case.path_parameters or {}, case.body
    if is_agent(path) and case.method == "DELETE" and parameters.get("name") == AGENT:
        parameters["name"] = "nobody"
    if path == "/api/agents" and isinstance(body, dict) and body.get("name") == AGENT:
        body["name"] = AGENT + "-too"
    if is_session(path) and parameters.get("id") in (TALKING, RESTING):
        parameters["id"] = session_for(case.method, path)
    if path.endswith("/stream") and case.query is not None and "until" not in case.query:
        # A stream that is not told when to stop never does.
        case.query["until"] = "idle"
    if path.endswith("/exec") and isinstance(body, dict) and "command" in body:
        body["command"] = harmless(body["command"])


def is_session(path):
    return path.startswith("/api/sessions/{id}")


def is_agent(path):
    return path.startswith("/api/agents/{name}")


def in_a_story(case):
    return case.meta is not None and case.meta.phase.name is TestPhase.STATEFUL


def leads(value):
    """Three of four, and the same ones whenever the run is repeated."""
    return isinstance(value, str) and sum(value.encode("utf-8", "replace")) % 4 != 0


def session_for(method, path):
    if method == "DELETE":
        return ENDED
    return RESTING if path.endswith(RESTS) else TALKING


def harmless(command):
    """What is made at random is not run: it becomes a comment of the same length."""
    if not isinstance(command, str) or command == "" or "\0" in command:
        return command
    return "#" + command[1:].replace("\n", " ")
