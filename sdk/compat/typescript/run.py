#!/usr/bin/env python3
"""Starts a server, asks it for everything that the original's client for TypeScript asks for, and compares what came of
it with before.

usage: run.py [--update]
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import calls  # noqa: E402
from record import served, settled  # noqa: E402


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
    with served() as (world, agent):
        client = calls.Client(world.url, world.key, agent)
        methods = [{"method": name, **result(client, call)} for name, call in calls.METHODS.items()]
    results = {"client": "The original's client for TypeScript", "methods": methods}
    return settled(HERE / "results.json", results, update=update)


if __name__ == "__main__":
    sys.exit(main("--update" in sys.argv[1:]))
