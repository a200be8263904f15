"""What goes to the server: files and parts of messages."""

from __future__ import annotations

import base64
import mimetypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .schema import AgentFile, DocumentBlock, ImageBlock, NewFile, TextBlock

#: Files by their path, or as the API takes them, with their content in base64.
FilesGiven = Mapping[str, str | bytes] | Sequence[AgentFile] | Sequence[NewFile]


def encoded(files: FilesGiven) -> list[dict[str, Any]]:
    """Files as the API takes them."""
    if isinstance(files, Mapping):
        return [{"path": path, "content": _base64(content)} for path, content in files.items()]
    return [dict(file) for file in files]


def directory(path: str | os.PathLike[str]) -> list[AgentFile]:
    """The files of a directory of this machine, for `deploy_agent(name, files=directory("my-agent"))`.

    Links are followed only within it. What git and package managers keep for themselves is left out.
    """
    root = Path(path).resolve()
    if not root.is_dir():
        raise NotADirectoryError(f"{path} is not a directory")
    files: list[AgentFile] = []
    for file in sorted(root.rglob("*")):
        inside = file.relative_to(root)
        if {".git", "node_modules", "__pycache__"} & set(inside.parts) or not file.is_file():
            continue
        if not file.resolve().is_relative_to(root):
            raise ValueError(f"{file} leads out of the directory")
        entry: AgentFile = {"path": inside.as_posix(), "content": _base64(file.read_bytes())}
        if os.access(file, os.X_OK):
            entry["executable"] = True
        files.append(entry)
    return files


def text(said: str) -> TextBlock:
    """A part of a message that is text."""
    return {"type": "text", "text": said}


def image(content: bytes, media_type: str) -> ImageBlock:
    """A part of a message that is a picture."""
    return {"type": "image", "source": _source(content, media_type)}


def document(content: bytes, media_type: str = "application/pdf") -> DocumentBlock:
    """A part of a message that is a document."""
    return {"type": "document", "source": _source(content, media_type)}


def media_type(filename: str) -> str:
    """What a file of that name probably is."""
    return mimetypes.guess_type(filename)[0] or "application/octet-stream"


def _source(content: bytes, media_type: str) -> dict[str, Any]:
    return {"type": "base64", "media_type": media_type, "data": _base64(content)}


def _base64(content: str | bytes) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()
