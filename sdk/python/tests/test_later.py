"""Operations that not every server offers yet: they are as the original's, or there is no such route."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ash_sdk import AshApiError, AshClient, Session

T = TypeVar("T")


def offered(ask: Callable[[], T]) -> T | None:
    """What a server says that offers it; nothing, if it says that it does not."""
    try:
        return ask()
    except AshApiError as error:
        if error.code not in ("no_such_route", "method_not_allowed"):
            raise
        return None


def test_attachments(client: AshClient, session: Session) -> None:
    made = offered(lambda: client.upload_attachment(session.id, "a.txt", b"hi"))
    if made is None:
        return
    assert (made.filename, made.mime_type, made.size, made.session_id) == ("a.txt", "text/plain", 2, session.id)
    assert [one.id for one in client.list_attachments(session.id)] == [made.id]
    assert client.download_attachment(made.id) == b"hi"
    client.delete_attachment(made.id)
    assert client.list_attachments(session.id) == []


def test_the_queue(client: AshClient) -> None:
    made = offered(lambda: client.enqueue("notes", "/say Later.", priority=1, max_retries=2))
    if made is None:
        return
    assert (made.agent_name, made.prompt, made.priority, made.max_retries) == ("notes", "/say Later.", 1, 2)
    assert client.get_queue_item(made.id).id == made.id
    assert made.id in [one.id for one in client.list_queue_items(limit=500)]
    stats = client.get_queue_stats()
    assert stats.pending + stats.processing + stats.completed >= 1


def test_analytics(client: AshClient) -> None:
    found = offered(client.get_analytics)
    if found is not None:
        assert found.agents["total"] >= 1
        assert found.sessions["total"] >= 0


def test_the_configuration_of_an_agent(client: AshClient, kind: str) -> None:
    name = f"configured-{kind}"
    client.create_agent(name, system_prompt="You are small.")
    if offered(lambda: client.update_agent_config(name, {"color": "green"})) is not None:
        assert client.get_agent_config(name)["color"] == "green"
    client.delete_agent(name)


@pytest.mark.parametrize("route", ["files", "versions"])
def test_files_and_versions_of_an_agent(client: AshClient, kind: str, route: str, tmp_path: Path) -> None:
    name = f"changed-{route}-{kind}"
    client.create_agent(name, system_prompt="You are small.")
    if route == "files" and offered(lambda: client.upload_agent_files(name, {"more.md": "More."})) is not None:
        assert "more.md" in [file.path for file in client.list_agent_files(name)]
        client.delete_agent_file(name, "more.md")
        assert "more.md" not in [file.path for file in client.list_agent_files(name)]
    if route == "versions":
        made = offered(lambda: client.create_agent_version(name, name="tiny", system_prompt="You are tiny."))
        if made is not None:
            assert client.get_agent_version(name, made.version_number).system_prompt.strip() == "You are tiny."
            assert client.activate_agent_version(name, made.version_number)["activated"] is True
    client.delete_agent(name)
