"""A real server with the scripted model, in a directory of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# How long anything may take. It is reached only if something is wrong.
PATIENCE = 60.0

ROOT = Path(__file__).resolve().parents[3]


def eventually(look: Callable[[], T | None]) -> T:
    """What somebody sees who looks until there is something."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def programs() -> Path:
    """Where `ash` and `ash-bridge` are."""
    found = Path(os.environ.get("ASH_TEST_BIN", ROOT / "target" / "debug")).resolve()
    if not (found / "ash").exists():
        raise RuntimeError(f"there is no `ash` in {found}: build it, or say where it is with ASH_TEST_BIN")
    return found


class World:
    """A server and a model, and how to end and start them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ash = programs() / "ash"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASH_", "ANTHROPIC_"))}
        self.environment = {**kept, "HOME": str(directory), "NO_COLOR": "1", "ASH_MIN_FREE_MB": "0"}
        self.model, url = self._announced("model", "--port", "0")
        self.environment.update(ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY="any-will-do")
        # A server that is told to go has followers that wait; they are not what is tested.
        self.environment["ASH_DRAIN_MS"] = "500"
        self.words = self._words()
        self.server, self.url = self._announced("serve", "--port", "0", *self.words)
        self.key = (directory / "data" / "initial-api-key").read_text().strip()

    def _words(self) -> list[str]:
        """Agents are isolated where that is possible."""
        told = subprocess.run(
            [self.ash, "doctor", "--json"],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        ).stdout
        checks = {check["name"]: check for check in json.loads(told)["checks"]}
        if checks["isolation"]["verdict"] != "problem":
            return []
        self.environment["ASH_PERMISSION_MODE"] = "bypassPermissions"
        return ["--dangerously-no-sandbox"]

    def _announced(self, *words: str) -> tuple[subprocess.Popen[bytes], str]:
        """Starts a program that says where it listens."""
        log = self.directory / f"{words[0]}.log"
        with log.open("wb") as written:
            process = subprocess.Popen(
                [self.ash, *words],
                cwd=self.directory,
                env=self.environment,
                stdout=written,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and process.poll() is None:
            found = re.search(r"listening on (http://\S+)", log.read_text())
            if found:
                return process, found.group(1)
            time.sleep(0.01)
        process.kill()
        process.wait()
        raise RuntimeError(f"`ash {words[0]}` does not listen:\n{log.read_text()}")

    def restart(self, *, kindly: bool) -> None:
        """Ends the server, with -9 or by asking it to go, and starts it again at the same place."""
        end(self.server, kindly=kindly)
        port = self.url.rpartition(":")[2]
        self.server, self.url = self._announced("serve", "--port", port, *self.words)

    def end(self) -> None:
        """Ends everything."""
        end(self.server, kindly=True)
        end(self.model, kindly=True)
        for bridge in self._bridges():
            # A server that goes leaves its agents running, for the next one.
            subprocess.run(["kill", "-9", str(bridge)], check=False)

    def _bridges(self) -> list[int]:
        found = []
        data = self.directory / "data"
        for note in [*data.glob("run/*/*.*"), *data.glob("warm/run/*/*.*")]:
            if note.suffix not in (".process", ".spool"):
                continue
            pid = re.search(rb'"pid": ?(\d+)', note.read_bytes()[:1024])
            if pid and b"bridge" in _command(int(pid.group(1))):
                found.append(int(pid.group(1)))
        return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def end(process: subprocess.Popen[bytes], *, kindly: bool) -> None:
    """Ends a process that was started here."""
    if process.poll() is not None:
        return
    if kindly:
        process.terminate()
        try:
            process.wait(20)
            return
        except subprocess.TimeoutExpired:
            pass
    process.kill()
    process.wait()
