#!/usr/bin/env python3
"""Makes `ash_sdk/schema.py` from the OpenAPI document of the server.

What the server sends becomes a frozen dataclass, with the names that Python has for things. What it is sent becomes
a TypedDict, with the names of the wire, because it is sent as it is. Enumerations become literals.

usage: generate.py [--check] [OPENAPI-DOCUMENT]
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent.parent / "docs" / "openapi.json"
WRITTEN = HERE / "ash_sdk" / "schema.py"
WIDTH = 110

HEAD = '''"""What the server sends and takes. Made from `docs/openapi.json` by `generate.py`: do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict, Union

from ._model import Model

__all__ = [
'''

Schema = dict[str, Any]


class Generator:
    """Writes the types of one document."""

    def __init__(self, document: Schema) -> None:
        self.schemas: dict[str, Schema] = document["components"]["schemas"]
        self.sent = self.reached(bodies(document, "responses"))
        self.taken = self.reached(bodies(document, "requestBody"))

    def reached(self, roots: list[Any]) -> set[str]:
        """The names of all schemas that can be reached from some."""
        found: set[str] = set()
        left = list(roots)
        while left:
            node = left.pop()
            if isinstance(node, list):
                left.extend(node)
            elif isinstance(node, dict):
                name = named(node)
                if name and name not in found:
                    found.add(name)
                    left.append(self.schemas[name])
                left.extend(value for key, value in node.items() if key != "$ref")
        return found

    def write(self) -> str:
        """The text of the module."""
        literals, models, dicts, unions = [], [], [], []
        names: list[str] = []
        for name, schema in sorted(self.schemas.items()):
            if name not in self.sent | self.taken:
                continue
            if "enum" in schema:
                literals.append(self.literal(name, schema))
                names.append(name)
            elif "oneOf" in schema:
                pieces, union = self.union(name, schema)
                dicts.extend(pieces)
                unions.append(union)
                names.append(name)
            else:
                if name in self.sent:
                    models.append(self.model(name, schema))
                    names.append(name)
                if name in self.taken:
                    called = self.input_name(name)
                    dicts.append(self.typed_dict(called, schema))
                    names.append(called)
        listed = "".join(f'    "{name}",\n' for name in sorted(names))
        parts = [HEAD + listed + "]\n", "\n".join(literals) + "\n"]
        parts += ["\n" + part for part in models + dicts]
        parts.append("\n" + "\n".join(unions) + "\n")
        return "\n".join(parts)

    def input_name(self, name: str) -> str:
        """What a schema is called as something that is sent to the server."""
        return f"{name}Input" if name in self.sent and "enum" not in self.schemas[name] else name

    def literal(self, name: str, schema: Schema) -> str:
        return f"{name} = {self.values(schema)}"

    def values(self, schema: Schema) -> str:
        return f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"

    def model(self, name: str, schema: Schema) -> str:
        """A class for what the server sends."""
        lines = ["@dataclass(frozen=True, kw_only=True)", f"class {name}(Model):", doc(schema)]
        required = set(schema.get("required", []))
        properties = schema.get("properties", {})
        for field, kind in sorted(properties.items(), key=lambda item: item[0] not in required):
            written = self.type(kind, dicts=False)
            if field in required:
                lines.append(f"    {snake(field)}: {written}")
            else:
                lines.append(f"    {snake(field)}: {optional(written)} = None")
        return "\n".join(lines) + "\n"

    def typed_dict(self, name: str, schema: Schema) -> str:
        """A class for what the server takes."""
        lines = [f"class {name}(TypedDict):", doc(schema)]
        required = set(schema.get("required", []))
        for field, kind in schema.get("properties", {}).items():
            written = self.type(kind, dicts=True)
            lines.append(f"    {field}: {written if field in required else f'NotRequired[{written}]'}")
        return "\n".join(lines) + "\n"

    def union(self, name: str, schema: Schema) -> tuple[list[str], str]:
        """One of several shapes, each with a name of its own."""
        pieces, members = [], []
        for one in schema["oneOf"]:
            tag = one.get("properties", {}).get("type", {}).get("enum")
            if tag is None:
                members.append(self.type(one, dicts=True))
                continue
            called = tag[0].capitalize() + name
            pieces.append(self.typed_dict(called, one))
            members.append(called)
        return pieces, f"{name} = Union[{', '.join(members)}]"

    def type(self, schema: Schema, *, dicts: bool) -> str:
        """How Python writes the type of a value."""
        name = named(schema)
        if name:
            return self.input_name(name) if dicts else name
        if "oneOf" in schema:
            kinds = [self.type(one, dicts=dicts) for one in schema["oneOf"]]
            return " | ".join(dict.fromkeys(sorted(kinds, key=lambda kind: kind == "None")))
        if "enum" in schema:
            return self.values(schema)
        kinds = schema.get("type", [])
        kinds = kinds if isinstance(kinds, list) else [kinds]
        written = [self.plain(kind, schema, dicts=dicts) for kind in kinds]
        return " | ".join(sorted(written, key=lambda kind: kind == "None")) or "Any"

    def plain(self, kind: str, schema: Schema, *, dicts: bool) -> str:
        if kind == "array":
            return f"list[{self.type(schema.get('items', {}), dicts=dicts)}]"
        if kind == "object":
            values = schema.get("additionalProperties")
            return f"dict[str, {self.type(values, dicts=dicts) if isinstance(values, dict) else 'Any'}]"
        if kind == "string" and schema.get("format") == "date-time" and not dicts:
            return "datetime"
        return {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}[kind]


def bodies(document: Schema, part: str) -> list[Any]:
    """The schemas of everything that is sent, or of everything that is taken."""
    return [
        operation[part]
        for path in document["paths"].values()
        for operation in path.values()
        if isinstance(operation, dict) and part in operation
    ]


def named(schema: Any) -> str | None:
    reference = schema.get("$ref") if isinstance(schema, dict) else None
    return reference.rpartition("/")[2] if isinstance(reference, str) else None


def snake(name: str) -> str:
    """`lastActiveAt` as `last_active_at`."""
    word = re.sub(r"(?<=[a-z0-9])([A-Z])", lambda found: "_" + found.group(1).lower(), name)
    return word + "_" if keyword.iskeyword(word) else word


def optional(written: str) -> str:
    return written if written == "Any" or written.endswith("| None") else f"{written} | None"


def doc(schema: Schema) -> str:
    text = " ".join(schema.get("description", "").split())
    lines = textwrap.wrap(f'"""{text}"""', WIDTH - 4)
    return "\n".join("    " + line for line in lines) + "\n"


def main(arguments: list[str]) -> int:
    paths = [argument for argument in arguments if argument != "--check"]
    document = json.loads(Path(paths[0] if paths else DOCUMENT).read_text(encoding="utf-8"))
    text = Generator(document).write()
    if "--check" not in arguments:
        WRITTEN.write_text(text, encoding="utf-8")
    elif not WRITTEN.exists() or WRITTEN.read_text(encoding="utf-8") != text:
        print(f"{WRITTEN.name} is not what the OpenAPI document says: run `make sdk-python-schema`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
