"""The wire: what the API of Ash looks like to a client that only measures. Standard library alone, so that it runs anywhere.

Each request goes over a connection of its own or over a kept one, as the caller says, and every time is taken on this side.
"""

import http.client
import json
import time
from urllib.parse import urlsplit

# How long anything may take before the server counts as one that hangs.
PATIENCE = 300


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status, body):
        super().__init__(f"HTTP {status}: {body[:300]}")
        self.status = status


class Server:
    """One of the servers that are compared."""

    def __init__(self, name, url, key):
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url!r} is not an address such as http://127.0.0.1:4100")
        self.name = name
        self.url = url.rstrip("/")
        self.host = parts.hostname
        self.port = parts.port or 80
        self.key = key

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def request(self, method, path, body=None, connection=None):
        """Asks, reads the whole answer, and returns what it says, as JSON if it is that."""
        kept = connection is not None
        connection = connection or self.connect()
        try:
            headers = {"Authorization": f"Bearer {self.key}"}
            sent = None
            if body is not None:
                headers["Content-Type"] = "application/json"
                sent = json.dumps(body)
            connection.request(method, path, body=sent, headers=headers)
            answer = connection.getresponse()
            said = answer.read()
            if answer.status >= 400:
                raise Refused(answer.status, said.decode("utf-8", "replace"))
            is_json = "json" in (answer.headers.get("Content-Type") or "")
            return json.loads(said) if is_json and said else said
        finally:
            if not kept:
                connection.close()

    def timed(self, method, path, body=None, connection=None):
        """The answer, and how many milliseconds it took."""
        begun = time.perf_counter()
        answer = self.request(method, path, body, connection)
        return answer, (time.perf_counter() - begun) * 1000

    def message(self, session, text):
        """Sends a message and reads its stream to the end. Returns when what came, in milliseconds."""
        connection = self.connect()
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        begun = time.perf_counter()
        try:
            path = f"/api/sessions/{session}/messages"
            connection.request("POST", path, body=json.dumps({"content": text}), headers=headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise Refused(answer.status, answer.read().decode("utf-8", "replace"))
            came = {}
            name = None
            while True:
                line = answer.readline()
                now = (time.perf_counter() - begun) * 1000
                if not line:
                    break
                if line.startswith(b"event:"):
                    name = line[6:].strip().decode()
                elif line.startswith(b"data:") and name:
                    came.setdefault(name, now)
                    if name == "error":
                        raise Refused(200, line.decode("utf-8", "replace"))
                    if name == "done":
                        break
            if "done" not in came:
                raise Refused(200, "the stream ended without `done`")
            return came
        finally:
            connection.close()
