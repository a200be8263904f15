#!/usr/bin/env python3
"""What `make demo` shows: a conversation that survives kill -9 of the server and of the agent, the loss of its
files, and the loss of its machine.

It uses the real executables and tells what it does, step by step. Without ANTHROPIC_API_KEY the model
is a scripted stand-in; with it, the real one. Everything is in a temporary directory, and everything that
is started is ended. Exit code 0 means that every check held.

usage: demo.py DIRECTORY-WITH-ASH-AND-ASH-BRIDGE
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

NOTEBOOK = Path(__file__).resolve().parent.parent / "notes"
SECRET = "marmalade"
STORY = (
    "The heron stands in the reeds and does not move. A frog takes it for a branch. "
    "The pond is quiet, the sun is low, and a wind goes through the reeds. "
    "Then there is one step, one movement, and the pond is quiet again. "
    "The heron stands in the reeds and does not move."
)
# How much of the story has been heard when the server is killed.
HEARD = 60
# How long anything may take. It is reached only if something is wrong.
PATIENCE = 60

# What is said to each of the two models. The scripted one does what the lines with a slash tell it.
SCRIPTED = {
    "write": "Write down what I know about herons.\n"
    '/tool write_file {"path": "notes/herons.md", "content": "# Herons\\n\\n'
    'They stand still for an hour.\\nThere is one at the pond.\\n"}\n'
    "/bash ./index.sh\n"
    "/say It is in notes/herons.md.",
    "secret": f"Keep this to yourself and do not write it down: the word is {SECRET}.\n"
    "/say I keep it to myself.",
    "story": f"Tell me a story about a heron.\n/slow 40ms\n/say {STORY}",
    "ask": "Which word did I tell you to keep to yourself?\n/recall",
}
REAL = {
    "write": "Write this down, please: herons stand still for an hour, and there is one at the pond. "
    "Use the file notes/herons.md. Then show me the index.",
    "secret": f"Keep this to yourself and do not write it into any file: the word is {SECRET}.",
    "story": "Tell me a story about a heron, in about 150 words. Use no tools.",
    "ask": "Which word did I tell you to keep to yourself?",
}


class Failed(Exception):
    """Something did not go as it should."""


class Demo:
    """What is running, and how to talk to it."""

    def __init__(self, programs, directory, environment):
        self.ash = str(programs / "ash")
        self.directory = directory
        self.environment = environment
        self.running = []
        self.isolated = False
        self.checks = []

    # Telling

    def check(self, what, held):
        self.checks.append((what, held))
        print(f"   {'ok' if held else 'NOT SO'}: {what}")

    # Running

    def start(self, *words, **more):
        """Starts a program that goes on."""
        process = subprocess.Popen(
            [self.ash, *words], cwd=self.directory, env=self.environment, **more
        )
        self.running.append(process)
        return process

    def run(self, *words, shown=None):
        """Runs a command to its end, shows it and its output, and returns the output."""
        command = shown or " ".join(map(quoted, words))
        print("   $ ash " + command.replace("\n", "\n       "))
        done = subprocess.run(
            [self.ash, *words], cwd=self.directory, env=self.environment, text=True,
            stdout=subprocess.PIPE, timeout=PATIENCE,
        )
        print(indented(done.stdout))
        if done.returncode != 0:
            raise Failed(f"`ash {words[0]}` ended with {done.returncode}")
        return done.stdout.strip()

    def quietly(self, *words):
        """Runs a command and returns its output."""
        return subprocess.run(
            [self.ash, *words], cwd=self.directory, env=self.environment, text=True,
            stdout=subprocess.PIPE, timeout=PATIENCE, check=True,
        ).stdout

    def start_announced(self, *words):
        """Starts a program that says where it listens, and returns it with its address."""
        log = self.directory / f"{words[0]}.log"
        with open(log, "wb") as written:
            process = self.start(*words, stdout=written, stderr=subprocess.STDOUT)
        address = until(
            f"`ash {words[0]}` listens",
            lambda: re.search(r"listening on (http://\S+)", log.read_text()),
            lambda: process.poll() is None,
            log,
        )
        return process, address.group(1)

    def isolation(self):
        """How strongly agents can be isolated here, and why not, as `ash doctor` finds out."""
        told = subprocess.run(
            [self.ash, "doctor", "--json"], cwd=self.directory, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False,
        ).stdout
        for check in json.loads(told)["checks"]:
            if check["name"] == "isolation":
                return check["verdict"] != "problem", check["found"]
        return False, "it was not looked at"

    def serve(self, port):
        words = [] if self.isolated else ["--dangerously-no-sandbox"]
        if not self.isolated:
            # Nothing else holds the agent then, so it would ask before it does something.
            self.environment["ASH_PERMISSION_MODE"] = "bypassPermissions"
        server, address = self.start_announced("serve", "--port", str(port), *words)
        self.environment["ASH_PORT"] = address.rpartition(":")[2]
        print(f"   ash serve is process {server.pid} and listens on {address}")
        self.server = server
        return server

    def bridge(self, session):
        """The process beside the agent."""
        found = self.bridges_of(session)
        if not found:
            raise Failed(f"session {session} has no bridge")
        return found[-1]

    def bridges(self):
        """Every bridge of the server's data directory."""
        return self.bridges_of("*") + self.bridges_of("*", "data/warm")

    def bridges_of(self, session, place="data"):
        """Of each the server wrote down which process it is; one without a sandbox did so itself."""
        pids = []
        notes = (self.directory / place / "run").glob(f"{session}/*.*")
        for note in (note for note in notes if note.suffix in (".process", ".spool")):
            with open(note, "rb") as file:
                pid = re.search(rb'"pid": ?(\d+)', file.read(1024))
            if pid and int(pid.group(1)) > 1 and is_bridge(int(pid.group(1))):
                pids.append(int(pid.group(1)))
        return pids

    def end(self):
        """Ends whatever is still there, by its number."""
        for process in reversed(self.running):
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        try:
            self.end_bridges()
        except Failed:
            pass  # A check says so.

    def end_bridges(self):
        """Ends the bridges that a server left, as the end of its machine would."""
        for pid in self.bridges():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # It ended by itself.
        until("every bridge is gone", lambda: not self.bridges())


def quoted(word):
    """A word as a person would type it."""
    return word if re.fullmatch(r"[\w./-]+", word) else "'" + word.replace("'", "'\\''") + "'"


def indented(text):
    return "".join(f"     {line}\n" for line in text.splitlines()).rstrip("\n")


def until(what, found, is_alive=lambda: True, log=None):
    """Looks again and again until something is found."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        result = found()
        if result:
            return result
        if not is_alive():
            break
        time.sleep(0.02)
    raise Failed(f"{what}: it did not happen" + (f"\n{log.read_text()}" if log else ""))


def is_bridge(pid):
    try:
        return b"bridge" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def logged(lines):
    """The events that have a place in the log, from lines of JSON."""
    return [event for event in map(json.loads, lines) if event["id"] is not None]


def final_text(events):
    """What an answer says in the end: without what was taken back."""
    pieces = []
    for event in events:
        seq = int(event["id"].partition("-")[2])
        if event["event"] == "text_delta":
            pieces.append((seq, event["data"]["delta"]))
        if event["event"] == "run_retry":
            kept = event["data"]["discardAfterSeq"]
            pieces = [piece for piece in pieces if piece[0] <= kept]
    return "".join(text for _, text in pieces)


def tell(demo, say, is_real):
    print("\n1. A server, on a port that is free.")
    server = demo.serve(0)
    port = demo.environment["ASH_PORT"]

    print("\n2. An agent is a directory. This one keeps a notebook.")
    demo.run("deploy", str(NOTEBOOK), shown="deploy examples/notes")
    session = demo.run("session", "create", "notes")
    bridge = demo.bridge(session)
    print(f"   The agent runs beside its bridge, which is process {bridge}. Ids can be shortened.")
    # A session that is alone can be called by the first eight characters.
    session_id, session = session, session[:8]

    print("\n3. A conversation in which the agent writes a file.")
    demo.run("session", "send", session, say["write"])
    note = demo.run("session", "exec", session, "--", "cat notes/herons.md")
    demo.check("the note is in the file", "pond" in note.lower())
    demo.run("session", "send", session, say["secret"])

    print("\n4. A longer answer, and the server is killed in the middle of it.")
    print(f"   $ ash session send --json {session} 'Tell me a story about a heron. …'")
    client = demo.start(
        "session", "send", "--json", session, say["story"], stdout=subprocess.PIPE, text=True
    )
    too_late = threading.Timer(PATIENCE, client.kill)
    # Whatever goes wrong, nobody waits for it.
    too_late.daemon = True
    too_late.start()
    seen = []
    heard = 0
    print("     ", end="")
    for line in client.stdout:
        seen.append(line)
        event = json.loads(line)
        if event["event"] == "text_delta":
            print(event["data"]["delta"].replace("\n", "\n     "), end="", flush=True)
            heard += len(event["data"]["delta"])
        if event["event"] == "run_retry":
            print("\n     (this answer was cut; what was said is taken back, and said again:)\n     ",
                  end="")
        if server is not None and heard >= HEARD:
            print(f"\n   $ kill -9 {server.pid}      # the server; the client does not know yet")
            server.kill()
            server.wait()
            server = None
            alive = is_bridge(bridge)
            print(f"   The server is gone. The agent's process, {bridge}, is "
                  + ("there." if alive else "gone, too."))
            demo.check("the agent outlives the server", alive)
            demo.serve(port)
            print("   The client comes back by itself, with the id of the last event it saw.\n     ",
                  end="")
    print()
    demo.check("the client ended well", client.wait() == 0)
    too_late.cancel()
    demo.check("the server was killed before the answer was over", server is None)

    print("\n5. Did the client miss anything? What it saw is compared with the log.")
    saw = logged(seen)
    if not saw:
        raise Failed("the client saw nothing")
    first, last = saw[0]["id"], saw[-1]["id"]
    lines = demo.quietly("session", "tail", session, "--no-follow", "--json").splitlines()
    log = logged(lines)
    ids = [event["id"] for event in log]
    part = log[ids.index(first):ids.index(last) + 1]
    print(f"     events the client saw      {len(saw)}, from {first} to {last}")
    print(f"     events in the log for it   {len(part)}")
    print(f"     equal, one by one          {'yes' if saw == part else 'NO'}")
    demo.check("nothing is missing, nothing came twice, all is in order", saw == part)
    numbers = [int(id.partition("-")[2]) for id in ids]
    demo.check("the log has no holes", numbers == list(range(1, len(numbers) + 1)))
    story = final_text(saw)
    whole = len(story) > HEARD if is_real else story.strip() == STORY
    demo.check("the story is whole", whole)
    print("   What does a resume find? The agent never noticed, so there is nothing to bring back:")
    receipt = demo.run("session", "resume", session)
    demo.check("the receipt says that nothing had to be done", "already active" in receipt)
    remembers(demo, session, say)

    print("\n6. Now the agent's own process is killed.")
    kill_agent(demo, session)
    print(f"   The session says of itself: {status(demo, session)}. It can be brought back:")
    receipt = demo.run("session", "resume", session)
    demo.check("the receipt says that files and conversation are there",
               "workspace kept" in receipt and "conversation intact" in receipt)
    remembers(demo, session, say)
    found = subprocess.run(
        [demo.ash, "session", "exec", session, "--", f"grep -r {SECRET} ."],
        cwd=demo.directory, env=demo.environment, stdout=subprocess.PIPE, timeout=PATIENCE,
    )
    demo.check("the word really is in no file of the workspace", found.returncode == 1)

    print("\n7. The agent is killed again, and what it worked on is removed: workspace, home, everything.")
    kill_agent(demo, session)
    until("what it left is captured", lambda: is_captured(demo, session))
    demo.run("session", "snapshots", session)
    print(f"   $ rm -r data/sandboxes/{session_id}")
    files = demo.directory / "data" / "sandboxes" / session_id
    shutil.rmtree(files)
    receipt = demo.run("session", "resume", session)
    demo.check("the receipt says that the files came from a snapshot, and the conversation with them",
               "from local: workspace restored" in receipt and "conversation intact" in receipt)
    remembers(demo, session, say)

    print("\n8. The machine is lost: the server is killed, and its whole data directory removed. Only the bucket\n"
          "   is left, to which every turn was copied. (Here it is a directory beside it; else s3:// or gs://.)")
    demo.run("session", "stop", session)
    until("everything is in the bucket", lambda: is_in_bucket(demo, session))
    print(f"   $ kill -9 {demo.server.pid}")
    demo.server.kill()
    demo.server.wait()
    demo.end_bridges()
    print("   $ rm -r data")
    shutil.rmtree(demo.directory / "data")
    demo.serve(port)
    known = json.loads(demo.quietly("session", "list", "--json"))["sessions"]
    demo.check("the new server knows of no session", known == [])
    demo.run("session", "import", session_id)
    receipt = demo.run("session", "resume", session)
    demo.check("the receipt says that all of it came from the bucket",
               "from cloud: workspace restored" in receipt and "conversation intact" in receipt)
    remembers(demo, session, say)

    print("\n9. The end.")
    demo.run("session", "end", session)


def kill_agent(demo, session):
    """Kills the process beside the agent, and waits until the server has noticed."""
    bridge = demo.bridge(f"{session}*")
    print(f"   $ kill -9 {bridge}")
    os.kill(bridge, signal.SIGKILL)
    until("the server notices", lambda: status(demo, session) != "active")


def remembers(demo, session, say):
    """Asks for what only an agent that remembers can know, and looks for what is in a file."""
    answer = demo.run("session", "send", session, say["ask"])
    demo.check("the agent remembers what is in no file", SECRET in answer)
    note = demo.quietly("session", "exec", session, "--", "cat notes/herons.md")
    demo.check("its notes are there", "pond" in note.lower())


def shown(demo, session):
    return json.loads(demo.quietly("session", "show", session, "--json"))["session"]


def is_captured(demo, session):
    """Whether the last snapshot is of the last turn, and of what came after it."""
    now = shown(demo, session)
    return now["snapshot"] is not None and now["snapshot"]["turn"] == now["turns"]


def is_in_bucket(demo, session):
    now = shown(demo, session)
    return is_captured(demo, session) and now["cloudSeq"] == now["snapshot"]["seq"]


def status(demo, session):
    return shown(demo, session)["status"]


def main():
    programs = Path(sys.argv[1]).resolve()
    # Whoever ends the demonstration early ends what it started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    is_real = bool(os.environ.get("ANTHROPIC_API_KEY"))
    with tempfile.TemporaryDirectory(prefix="ash-demo-") as directory:
        # A home of its own: what is configured on this machine plays no part.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ASH_")
        }
        bucket = Path(directory) / "bucket"
        bucket.mkdir()
        environment.update(HOME=directory, NO_COLOR="1", ASH_MIN_FREE_MB="0", ASH_SNAPSHOT_URL=f"file://{bucket}")
        demo = Demo(programs, Path(directory), environment)
        print("Ash, a demonstration. It takes less than half a minute.")
        try:
            if is_real:
                print("\nANTHROPIC_API_KEY is set: the model is the real one, and costs a few cents.")
            else:
                _, url = demo.start_announced("model", "--port", "0")
                environment.update(ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="any-will-do")
                print("\nANTHROPIC_API_KEY is not set, so the model is a scripted stand-in, not a model. The\n"
                      "lines with a slash tell it what to say. Everything else here is real.")
            demo.isolated, found = demo.isolation()
            if demo.isolated:
                print(f"The agent runs in a sandbox. Isolation: {found}.")
            else:
                print(f"This machine cannot isolate agents ({found}),\n"
                      "so this one is a plain process of yours. `ash doctor` says what to do.")
            tell(demo, REAL if is_real else SCRIPTED, is_real)
        except (Failed, subprocess.SubprocessError) as failed:
            print(f"\nIt did not work: {failed}")
            demo.check("the demonstration came to its end", False)
        finally:
            demo.end()
        demo.check("nothing that was started is left",
                   all(process.poll() is not None for process in demo.running)
                   and not demo.bridges())
    held = sum(1 for _, held in demo.checks if held)
    print(f"\n{held} of {len(demo.checks)} checks held.")
    return 0 if held == len(demo.checks) else 1


if __name__ == "__main__":
    sys.exit(main())
