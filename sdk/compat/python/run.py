#!/usr/bin/env python3
"""Starts a server, has the original's client for Python call all of it, and compares what came of it with before.

usage: run.py PYTHON-WITH-THE-CLIENT [--update]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from record import served, settled  # noqa: E402


def main(python: str, update: bool) -> int:
    with served() as (world, agent):
        found = world.directory / "results.json"
        words = [python, str(HERE / "calls.py"), world.url, world.key, str(agent), str(found)]
        subprocess.run(words, check=True)
        results = json.loads(found.read_text())
    return settled(HERE / "results.json", results, update=update)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--update" in sys.argv[2:]))
