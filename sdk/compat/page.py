#!/usr/bin/env python3
"""Writes `docs/compatibility.md` from what the original's clients were seen to do here.

Each directory beside this file has a `results.json`: `{"client": "…", "methods": [{"method", "works", "how"?}]}`.

usage: page.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "compatibility.md"

HEAD = """# Compatibility

The original's clients, pointed at this server: every public function of theirs was called against a real one, and this
is what came of it. The client for Python is the unmodified package. The one for TypeScript is in no registry: every
request of it is sent as it sends it, and the answers are read as it reads them; where only the request of a method is
known, it stands for its name. The page is made from those runs by `make compat`, and a check fails if a run gives
something else. [Coming from the original Ash](migration.md) says what else is different.
"""

# What works as a call, and yet has not the effect that it has with the original.
UNUSED = "is kept, and [no session can use it](egress.md#credentials)"
CUSTOM = "`custom` without `header` and `host`"
PIECES = (
    "text also comes in pieces (`text_delta`) without being asked for, "
    "so a loop that prints pieces and messages shows it twice"
)
NOTES = {
    "AshClient.asend_message_stream": PIECES,
    "AshClient.send_message_stream": PIECES,
    "sendMessageStream": PIECES,
    "api.credentials.post_api_credentials": f"one of type `openai` or `bedrock`, or {CUSTOM}, {UNUSED}",
    "storeCredential": f"one of type `openai`, or {CUSTOM}, {UNUSED}",
    "storeBedrockCredential": f"it {UNUSED}",
}


def row(one: dict) -> str:
    told = "works" if one["works"] else one["how"]
    note = NOTES.get(one["method"])
    return f"| `{one['method']}` | {told if note is None else f'{told}; {note}'} |"


def page() -> str:
    parts = [HEAD]
    for file in sorted(HERE.glob("*/results.json")):
        results = json.loads(file.read_text())
        methods = results["methods"]
        works = sum(one["works"] for one in methods)
        refused = sum(one.get("how", "").startswith("not offered") for one in methods)
        others = f", and {refused} are for what is not offered" if refused else ""
        rows = [row(one) for one in methods]
        parts.append(f"## {results['client']}\n\n{works} of {len(methods)} work{others}.\n")
        parts.append("\n".join(["| method | works, or how it differs |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def main(check: bool) -> int:
    if not check:
        PAGE.write_text(page())
    elif not PAGE.exists() or PAGE.read_text() != page():
        print(f"{PAGE.name} is not what the runs say: run `python3 sdk/compat/page.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
