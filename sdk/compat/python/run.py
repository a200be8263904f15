#!/usr/bin/env python3
"""Starts a server, has the original's client for Python call all of it, and compares what came of it with before.

usage: run.py PYTHON-WITH-THE-CLIENT [--update]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python" / "tests"))

from world import ROOT, World  # noqa: E402

KNOWN = HERE / "results.json"


def main(python: str, update: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="ash-compat-") as directory:
        found = Path(directory) / "results.json"
        agent = Path(directory) / "agent"
        agent.mkdir()
        (agent / "CLAUDE.md").write_text("You are asked for everything.\n")
        world = World(Path(directory))
        try:
            words = [python, str(HERE / "calls.py"), world.url, world.key, str(agent), str(found)]
            subprocess.run(words, check=True, cwd=ROOT)
        finally:
            world.end()
        text = found.read_text()
    results = json.loads(text)["methods"]
    works = sum(one["works"] for one in results)
    print(
        f"{works} of {len(results)} work; " + "; ".join(f"{r['method']}: {r['how']}" for r in results if not r["works"])
    )
    if update:
        KNOWN.write_text(text)
    elif not KNOWN.exists() or KNOWN.read_text() != text:
        print("this is not what is written down: look at it, then `make compat-python UPDATE=1`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--update" in sys.argv[2:]))
