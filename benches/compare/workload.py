"""The workload: what is done to each server, and what is measured of it. Servers take turns, so that whatever else the
machine does meets both.

Every measurement is a list of milliseconds for each server, unless its unit says otherwise. What a server cannot do, or
refuses, is told in its place, and the others go on.
"""

import base64
import os
import threading
import time
from contextlib import contextmanager

import memory
from wire import Refused

AGENT = "bench-compare"
INSTRUCTIONS = "You answer in one short sentence. Use no tools."
QUESTION = "Say good morning."


class Workload:
    """Plays the same against some servers, and keeps what was measured."""

    def __init__(self, servers, rounds, sizes):
        self.servers = servers
        self.rounds = rounds
        self.sizes = sizes
        self.figures = {}
        self.refusals = {}

    def note(self, what, server, *values, unit="ms"):
        taken = self.figures.setdefault(what, {"unit": unit, "of": {}})
        taken["of"].setdefault(server.name, []).extend(values)

    @contextmanager
    def part(self, what, server):
        """What is refused in a part ends that part for that server, and is told."""
        try:
            yield
        except (Refused, OSError) as error:
            self.refusals.setdefault((what, server.name), str(error))

    def begin(self, server):
        """A session of its own."""
        answer = server.request("POST", "/api/sessions", {"agent": AGENT})
        return answer["session"]["id"]

    def end(self, server, session):
        try:
            server.request("DELETE", f"/api/sessions/{session}")
        except (Refused, OSError):
            pass

    def play(self, tell):
        """All of it. `tell` is called with what is begun."""
        for server in self.servers:
            server.request("POST", "/api/agents", {"name": AGENT, "systemPrompt": INSTRUCTIONS})
        try:
            for step in (self.create, self.turns, self.rest, self.persist, self.memory, self.throughput):
                tell(step.__doc__.split("\n")[0])
                step()
        finally:
            # A server that goes on keeps nothing of it.
            for server in self.servers:
                with self.part("clean up", server):
                    server.request("DELETE", f"/api/agents/{AGENT}")

    def create(self):
        """create and end a session"""
        for _ in range(self.rounds):
            for server in self.servers:
                with self.part("create", server):
                    answer, taken = server.timed("POST", "/api/sessions", {"agent": AGENT})
                    self.note("create a session", server, taken)
                    session = answer["session"]["id"]
                    _, taken = server.timed("DELETE", f"/api/sessions/{session}")
                    self.note("end it", server, taken)

    def turns(self):
        """messages to a session that waits"""
        for server, session in self.in_turn():
            with self.part("message", server):
                came = server.message(session, QUESTION)
                self.note("message: the stream begins", server, came["session_start"])
                if "message" in came:
                    self.note("message: first answer", server, came["message"])
                self.note("message: done", server, came["done"])

    def rest(self):
        """pause, warm resume, stop, cold resume"""
        for server, session in self.in_turn():
            with self.part("pause and resume", server):
                for what, action in (
                    ("pause", "pause"), ("resume, warm", "resume"),
                    ("stop", "stop"), ("resume, cold", "resume"),
                ):
                    _, taken = server.timed("POST", f"/api/sessions/{session}/{action}")
                    self.note(what, server, taken)

    def persist(self):
        """turns in workspaces of several sizes, with a look at another request meanwhile"""
        for files, size in self.sizes:
            label = f"{files:,} files, {files * size // 1_000_000} MB"
            sessions = self.session_each()
            for server, session in list(sessions.items()):
                with self.part(label, server):
                    self.fill(server, session, files, size)
                    server.message(session, QUESTION)
                    continue
                sessions.pop(server)
                self.end(server, session)
            for turn in range(max(3, self.rounds // 3)):
                for server, session in sessions.items():
                    with self.part(label, server):
                        one = [(f"data/changed-{turn}.bin", os.urandom(1000))]
                        self.write(server, session, one)
                        with Stall(server) as stall:
                            came = server.message(session, QUESTION)
                            self.note(f"{label}: a turn, to done", server, came["done"])
                            again = server.message(session, QUESTION)
                        self.note(f"{label}: the next, begins", server, again["session_start"])
                        with self.part(f"{label}: another request", server):
                            self.note(f"{label}: another request, longest", server, stall.told())
                        _, taken = server.timed("POST", f"/api/sessions/{session}/pause")
                        self.note(f"{label}: pause", server, taken)
                        server.request("POST", f"/api/sessions/{session}/resume")
            for server, session in sessions.items():
                self.end(server, session)

    def fill(self, server, session, files, size):
        batch = []
        for number in range(files):
            batch.append((f"data/{number // 100:04}/{number:06}.bin", os.urandom(size)))
            if len(batch) * size > 8_000_000 or len(batch) == 500:
                self.write(server, session, batch)
                batch = []
        if batch:
            self.write(server, session, batch)

    def write(self, server, session, files):
        sent = [
            {"path": path, "content": base64.b64encode(content).decode()} for path, content in files
        ]
        answer = server.request("POST", f"/api/sessions/{session}/files", {"files": sent})
        refused = [file for file in answer["files"] if not file.get("written")]
        if refused:
            raise Refused(200, f"not written: {refused[0]}")

    def memory(self):
        """what idle sessions take"""
        count = max(4, self.rounds)
        for server in self.servers:
            with self.part("memory", server):
                pid = memory.listener(server.port) if server.host in ("127.0.0.1", "localhost") else None
                sessions = []
                before = memory.at_rest()
                try:
                    for _ in range(count):
                        sessions.append(self.begin(server))
                    settle()
                    if pid is not None:
                        used = memory.taken(before, memory.at_rest())
                        self.note("memory of the machine, each idle session", server, used / count, unit="MB")
                        self.note("memory of the server's own process", server, memory.resident(pid), unit="MB")
                finally:
                    for session in sessions:
                        self.end(server, session)
                    settle()

    def throughput(self):
        """requests and messages at once"""
        sessions = self.session_each()
        for server, session in sessions.items():
            for clients in (1, 16):
                with self.part(f"GET with {clients}", server):
                    rate = self.requests(server, f"/api/sessions/{session}", clients, seconds=2.0)
                    self.note(f"GET a session, {clients} at once", server, rate, unit="/s")
            self.end(server, session)
        crowd = max(4, min(16, self.rounds))
        for server in self.servers:
            with self.part("messages at once", server):
                many = [self.begin(server) for _ in range(crowd)]
                begun = time.perf_counter()
                everyone([lambda s=session: server.message(s, QUESTION) for session in many])
                taken = time.perf_counter() - begun
                self.note(f"messages, {crowd} sessions at once", server, crowd / taken, unit="/s")
                for session in many:
                    self.end(server, session)

    def requests(self, server, path, clients, seconds):
        counts = [0] * clients
        until = time.perf_counter() + seconds

        def client(number):
            connection = server.connect()
            while time.perf_counter() < until:
                server.request("GET", path, connection=connection)
                counts[number] += 1
            connection.close()

        begun = time.perf_counter()
        everyone([lambda n=number: client(n) for number in range(clients)])
        return sum(counts) / (time.perf_counter() - begun)

    def session_each(self):
        """A session of each server that gives one."""
        sessions = {}
        for server in self.servers:
            with self.part("begin", server):
                sessions[server] = self.begin(server)
        return sessions

    def in_turn(self):
        """A session of each server, one server after the other, in every round. They are ended in the end."""
        sessions = self.session_each()
        for _ in range(self.rounds):
            yield from sessions.items()
        for server, session in sessions.items():
            self.end(server, session)


class Stall:
    """Asks a server the same small question again and again, and knows the longest that it took."""

    def __init__(self, server):
        self.server = server
        self.longest = 0.0
        self.failure = None
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.ask)

    def ask(self):
        connection = self.server.connect()
        try:
            while not self.over.wait(0.005):
                _, taken = self.server.timed("GET", "/health", connection=connection)
                self.longest = max(self.longest, taken)
        except (Refused, OSError) as error:
            self.failure = error
        finally:
            connection.close()

    def told(self):
        """The longest, if each was answered."""
        if self.failure:
            raise self.failure
        return self.longest

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def settle():
    """Lets memory come to rest: what is given back is given back a moment later."""
    time.sleep(1)


def everyone(tasks):
    """Does all of it at once, and raises what went wrong with one."""
    wrong = []

    def run(task):
        try:
            task()
        except (Refused, OSError) as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]
