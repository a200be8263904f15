#!/usr/bin/env python3
"""Starts a server, asks it for everything that the original's client for TypeScript asks for, and compares what came of
it with before.

usage: run.py [--update]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python" / "tests"))

import calls  # noqa: E402
from world import World  # noqa: E402

KNOWN = HERE / "results.json"


def result(client: calls.Client, function: calls.Call) -> dict[str, object]:
    """What came of one method."""
    try:
        function(client)
    except calls.NotOffered as refused:
        return {"works": False, "how": f"not offered: 501 [{refused}](errors/{refused}.md)"}
    except calls.Differs as difference:
        return {"works": False, "how": str(difference)}
    except (KeyError, TypeError) as missing:
        return {"works": False, "how": f"{missing} is missing"}
    return {"works": True}


def main(update: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="ash-compat-") as directory:
        agent = Path(directory) / "agent"
        agent.mkdir()
        (agent / "CLAUDE.md").write_text("You are asked for everything.\n")
        world = World(Path(directory))
        try:
            client = calls.Client(world.url, world.key, agent)
            methods = [{"method": name, **result(client, call)} for name, call in calls.METHODS.items()]
        finally:
            world.end()
    works = sum(bool(one["works"]) for one in methods)
    print(f"{works} of {len(methods)} work; " + "; ".join(f"{m['method']}: {m['how']}" for m in methods if "how" in m))
    text = json.dumps({"client": "The original's client for TypeScript", "methods": methods}, indent=2) + "\n"
    if update:
        KNOWN.write_text(text)
    elif not KNOWN.exists() or KNOWN.read_text() != text:
        print("this is not what is written down: look at it, then `make compat-typescript UPDATE=1`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--update" in sys.argv[1:]))
