"""What the original's TypeScript client asks for, method by method, as it asks for it.

That client is in no registry, so it cannot be installed here. What it sends is known, and so is what it reads: each
method in the modules beside this one sends the same request and looks for the same fields. A body of JSON is said to be
one only if there is a body, every answer but bytes and streams is read as JSON, and an error has its text in `error`.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable

METHODS: dict[str, "Call"] = {}


class Differs(Exception):
    """It is not what that client expects."""


class NotOffered(Exception):
    """The server says that it does not do this."""


def method(*names):
    """A function that does what these methods do."""

    def registered(function):
        METHODS.update(dict.fromkeys(names, function))
        return function

    return registered


class Client:
    """Sends what that client sends. `kept` is what one method leaves for the next."""

    def __init__(self, url, key, directory):
        self.url = url
        self.key = key
        self.directory = directory
        self.kept = {}

    def send(self, verb, path, body=None):
        headers = {"Authorization": f"Bearer {self.key}"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace")
            if error.code == 501:
                raise NotOffered(json.loads(said)["code"]) from error
            raise Differs(f"{error.code}: {json.loads(said)['error']}") from error

    def ask(self, verb, path, body=None):
        _, said = self.send(verb, path, body)
        try:
            return json.loads(said)
        except ValueError as error:
            raise Differs("the answer is no JSON, which that client needs") from error

    def stream(self, session, body):
        headers, said = self.send("POST", f"/api/sessions/{session}/messages", body)
        if "text/event-stream" not in headers["Content-Type"]:
            raise Differs("the answer is no stream")
        events, name = [], None
        for line in said.decode().split("\n"):
            if line.startswith("event: "):
                name = line[len("event: ") :].strip()
            elif line.startswith("data: ") and name:
                events.append((name, json.loads(line[len("data: ") :])))
        return events


Call = Callable[[Client], None]


def has(thing, fields):
    """The thing, if it has all that the client's types say."""
    missing = [field for field in fields.split() if field not in thing]
    if missing:
        raise Differs(f"`{'`, `'.join(missing)}` is missing")
    return thing


def same(found, wanted):
    if found != wanted:
        raise Differs(f"{found!r} instead of {wanted!r}")
