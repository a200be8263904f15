"""What the runs of the original's clients have in common: a server to ask, and what is written down of them."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python" / "tests"))

from world import World


@contextmanager
def served() -> Iterator[tuple[World, Path]]:
    """A server, and a directory with an agent in it."""
    with tempfile.TemporaryDirectory(prefix="ash-compat-") as directory:
        agent = Path(directory) / "agent"
        agent.mkdir()
        (agent / "CLAUDE.md").write_text("You are asked for everything.\n")
        world = World(Path(directory))
        try:
            yield world, agent
        finally:
            world.end()


def settled(known: Path, results: dict[str, Any], *, update: bool) -> int:
    """Writes down what came of a run, or compares it with what is written down. Returns how the program ends."""
    methods = results["methods"]
    works = sum(bool(one["works"]) for one in methods)
    told = "; ".join(f"{one['method']}: {one['how']}" for one in methods if not one["works"])
    print(f"{works} of {len(methods)} work; {told}")
    text = json.dumps(results, indent=2) + "\n"
    if update:
        known.write_text(text)
    elif not known.exists() or known.read_text() != text:
        target = f"compat-{known.parent.name}"
        print(f"this is not what is written down: look at it, then `make {target} UPDATE=1`", file=sys.stderr)
        return 1
    return 0
