"""The wire: what the API of Ash looks like to a client that only measures. Standard library alone, so that it runs anywhere.

Each request goes over a connection of its own or over a kept one, as the caller says, and every time is taken on this side.

A server may limit what an address asks for. Over loopback each connection has an address of its own, so that none asks for
too much.
"""

import http.client
import ipaddress
import itertools
import json
import socket
import time
from urllib.parse import urlsplit

# How long anything may take before the server counts as one that hangs.
PATIENCE = 300

# How many requests a connection makes from one address. It is few enough for some runs in a row, which use the same ones.
FROM_ONE = 200

# The addresses, in their order. The one that everybody has is none of them.
FIRST_SOURCE = ipaddress.IPv4Address("127.1.0.1")
SOURCES = 16_000_000


class Refused(Exception):
    """The server did not do what it was asked for."""

    def __init__(self, status, body):
        super().__init__(f"HTTP {status}: {body[:300]}")
        self.status = status


class Connection(http.client.HTTPConnection):
    """A connection that begins anew from the next address when it has asked for enough from its own."""

    def __init__(self, server):
        super().__init__(server.host, server.port, timeout=PATIENCE, source_address=server.source())
        self.server = server
        self.asked = 0

    def request(self, *words, **options):
        if self.source_address and self.asked == FROM_ONE:
            self.close()
            self.source_address = self.server.source()
            self.asked = 0
        self.asked += 1
        super().request(*words, **options)


def has_many_sources(host, port):
    """Whether a server is on loopback, and can be asked from each address there."""
    try:
        with socket.create_connection((host, port), PATIENCE, source_address=(str(FIRST_SOURCE), 0)) as probe:
            return ipaddress.ip_address(probe.getpeername()[0]).is_loopback
    except OSError:
        return False


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
        self.sources = itertools.count() if has_many_sources(self.host, self.port) else None

    def source(self):
        """The next address to ask from. None if it is not for us to say."""
        if self.sources is None:
            return None
        return str(FIRST_SOURCE + next(self.sources) % SOURCES), 0

    def connect(self):
        return Connection(self)

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
            if not 200 <= answer.status < 300:
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
            if not 200 <= answer.status < 300:
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
