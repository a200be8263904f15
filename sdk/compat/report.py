#!/usr/bin/env python3
"""Makes docs/compatibility.md: plays every method of the original's clients against a server, and writes down what came of it.

usage: report.py PROGRAMS [--check]

With --check nothing is written, and the exit code is 1 if the page says something else.
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "benches" / "compare"))

import typescript  # noqa: E402
from compare import Ours  # noqa: E402

PAGE = ROOT / "docs" / "compatibility.md"

HEAD = """# Compatibility

<!-- Made by `make docs` from a test run. Do not edit it. -->

What the clients of the original Ash can do here, method by method. Each was played against a real server; what is in the column is what came of
it. [Coming from the original Ash](migration.md) says what else is different.

## TypeScript

The original's TypeScript client, by the requests that it sends and what it reads of the answers.

| method | here |
|---|---|
"""


def play(server, directory):
    """What came of each method of the TypeScript client."""
    client = typescript.Client(server.url, server.key, directory)
    for name, function in typescript.METHODS.items():
        try:
            function(client)
            yield name, "works"
        except typescript.NotOffered as refused:
            yield name, f"not offered: 501 [{refused}](errors/{refused}.md)"
        except typescript.Differs as difference:
            yield name, f"differs: {difference}"
        except (KeyError, TypeError) as missing:
            yield name, f"differs: {missing} is missing"


def main():
    programs, check = Path(sys.argv[1]), "--check" in sys.argv[2:]
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "CLAUDE.md").write_text("You are helpful.\n")
        started = Ours(programs)
        try:
            rows = list(play(started.__enter__(), directory))
        finally:
            started.__exit__()
    page = HEAD + "".join(f"| `{name}` | {said} |\n" for name, said in rows)
    works = sum(said == "works" for _, said in rows)
    print(f"{works} of {len(rows)} methods work")
    if check:
        if PAGE.read_text() != page:
            print(f"{PAGE} says something else: make docs", *rows, sep="\n")
            return 1
        return 0
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
