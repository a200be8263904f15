"""Every operation, with both clients, against a real server."""

from __future__ import annotations

import io
import tarfile
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from world import World, eventually

from ash_sdk import (
    AshApiError,
    AshClient,
    AshConnectionError,
    AshRunError,
    AuthenticationError,
    ConflictError,
    GoneError,
    InvalidRequestError,
    NotFoundError,
    Retry,
    Session,
    directory,
)
from ash_sdk.content import text
from ash_sdk.events import PermissionRequestEvent, SessionResumedEvent

WRITE = 'Remember the heron.\n/tool write_file {"path": "a.txt", "content": "one\\n"}\n/say Done.'


def test_agents(client: AshClient, tmp_path: Path, kind: str) -> None:
    (tmp_path / "CLAUDE.md").write_text("You are small.\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    name = f"small-{kind}"
    made = client.deploy_agent(name, files=directory(tmp_path), env={"A": "b"})
    assert (made.name, made.version, made.files) == (name, 1, 2)
    assert client.deploy_agent(name, path=str(tmp_path)).version == 2
    assert client.create_agent(name, system_prompt="You are tiny.").version == 3
    assert name in [agent.name for agent in client.list_agents()]
    assert client.get_agent(name).version == 3
    assert client.update_agent(name, env={"C": "d"}).env.keys() == {"C"}
    assert [file.path for file in client.list_agent_files(name)] == ["CLAUDE.md"]
    assert client.get_agent_file(name, "CLAUDE.md").content.strip() == "You are tiny."
    assert [version.version_number for version in client.list_agent_versions(name)] == [3, 2, 1]
    assert client.get_agent_version(name, 1).agent_name == name
    assert client.update_agent_config(name, {"color": "green"})["color"] == "green"
    assert client.update_agent_config(name, {"size": 3}) == client.get_agent_config(name)
    assert client.get_agent_config(name)["color"] == "green"
    client.delete_agent(name)
    with pytest.raises(NotFoundError) as gone:
        client.get_agent(name)
    assert (gone.value.status_code, gone.value.code, gone.value.retryable) == (404, "not_found", False)
    assert gone.value.request_id


def test_files_and_versions_of_an_agent(client: AshClient, kind: str) -> None:
    name = f"changed-{kind}"
    client.create_agent(name, system_prompt="You are small.")
    written = client.upload_agent_files(name, {"more.md": "More."}, idempotency_key=f"files-of-{name}")
    assert (written.written, written.version) == (1, 2)
    again = client.upload_agent_files(name, {"more.md": "More."}, idempotency_key=f"files-of-{name}")
    assert again == written
    assert "more.md" in [file.path for file in client.list_agent_files(name)]
    client.delete_agent_file(name, "more.md")
    assert "more.md" not in [file.path for file in client.list_agent_files(name)]
    made = client.create_agent_version(name, name="tiny", system_prompt="You are tiny.", clone_from=1)
    assert (made.name, made.is_active) == ("tiny", False)
    number = made.version_number
    changed = client.update_agent_version(name, made.id, release_notes="Smaller.", knowledge_files=["CLAUDE.md"])
    assert (changed.release_notes, changed.knowledge_files) == ("Smaller.", ["CLAUDE.md"])
    assert client.get_agent_version(name, number).system_prompt.strip() == "You are tiny."
    assert client.activate_agent_version(name, number).version_number == number
    client.delete_agent_version(name, 1)
    assert 1 not in [version.version_number for version in client.list_agent_versions(name)]
    client.delete_agent(name)


def test_a_session_from_its_beginning_to_its_end(client: AshClient) -> None:
    session = client.create_session(
        "notes", title="a walk", metadata={"who": "me"}, idle_timeout_ms=600_000, ttl_ms=3_600_000, budget_usd=5.0
    )
    assert (session.status, session.title, session.metadata) == ("active", "a walk", {"who": "me"})
    assert session.expires_at is not None
    assert session.expires_at - session.created_at == timedelta(hours=1)
    assert client.get_session(uuid.UUID(session.id)).id == session.id
    assert session.id in [one.id for one in client.list_sessions("notes", status="active", limit=1000)]
    page = client.list_sessions_with_total(limit=1)
    assert page.total is not None
    assert page.total >= len(page.sessions) == 1
    changed = client.update_session_config(session.id, title="a run", model="claude-sonnet-4-5")
    assert (changed.title, changed.model) == ("a run", "claude-sonnet-4-5")
    paused = client.pause_session(session.id)
    assert (paused.status, paused.pause_reason) == ("paused", "requested")
    resumed = client.resume_session(session.id)
    assert (resumed.status, resumed.receipt.path, resumed.receipt.workspace) == ("active", "warm", "kept")
    assert client.resume_session(session.id).receipt.path == "noop"
    assert client.stop_session(session.id).status == "stopped"
    cold = client.resume_session(session.id, require_state=True)
    assert (cold.receipt.path, cold.receipt.source) == ("cold", "local")
    heard = [one for one in client.stream(session.id, until_idle=True) if isinstance(one, SessionResumedEvent)]
    assert heard[-1].receipt is not None
    assert heard[-1].receipt.path == "cold"
    assert client.end_session(session.id).status == "ended"
    assert client.end_session(session.id).status == "ended"
    with pytest.raises(GoneError) as over:
        client.resume_session(session.id)
    assert over.value.code == "session_ended"


def test_what_is_refused_has_a_class_and_a_code(client: AshClient, world: World, session: Session) -> None:
    with pytest.raises(InvalidRequestError) as invalid:
        client.create_session("notes", permission_mode="weird")  # type: ignore[arg-type]
    assert (invalid.value.status_code, invalid.value.code) == (400, "invalid_request")
    nobody = uuid.uuid4()
    with pytest.raises(NotFoundError, match=rf"\(404 not_found: GET /api/sessions/{nobody}\)"):
        client.get_session(nobody)
    with pytest.raises(InvalidRequestError, match="UUID") as no_id:
        client.get_session("../health")
    assert (no_id.value.status_code, no_id.value.code) == (400, "invalid_request")
    with AshClient(world.url, "wrong") as stranger, pytest.raises(AuthenticationError) as unknown:
        stranger.list_agents()
    assert unknown.value.code == "unauthorized"
    with AshClient(world.url) as nameless, pytest.raises(AuthenticationError, match="this client has no API key"):
        nameless.list_agents()
    with AshClient(world.url, world.key + "\n") as from_a_file:
        assert from_a_file.list_agents()
    client.end_session(client.create_session("notes", idempotency_key="k" + session.id).id)
    with pytest.raises(ConflictError) as conflict:
        client.create_session("notes", idempotency_key="k" + session.id, title="other")
    assert conflict.value.code == "idempotency_mismatch"
    with AshClient("http://127.0.0.1:1", retry=Retry(attempts=2, first_pause=0)) as nowhere:
        with pytest.raises(AshConnectionError, match=r"GET /health: no connection to http://127\.0\.0\.1:1 .*running"):
            nowhere.health()
        with pytest.raises(AshConnectionError):
            nowhere.pause_session(session.id)
        with pytest.raises(AshConnectionError, match=r"messages: no connection to http://127\.0\.0\.1:1 "):
            nowhere.send_message(session.id, "Is anybody there?")


def test_history(client: AshClient, session: Session, tmp_path: Path) -> None:
    client.send_message(session.id, WRITE)
    client.send_message(session.id, '/tool write_file {"path": "a.txt", "content": "two\\n"}\n/say Done.')

    def last() -> list[int] | None:
        turns = [snapshot.turn for snapshot in client.list_snapshots(session.id)]
        return turns if turns and turns[0] == 2 else None

    eventually(last)
    newest = client.list_snapshots(session.id)[0]
    diff = client.diff_snapshot(session.id, newest.id, path="a.txt")
    assert diff.changes.modified == 1
    assert diff.files[0].diff is not None
    assert "+two" in diff.files[0].diff
    fork = client.fork_session(session.id, turn=1)
    assert (fork.status, fork.parent_session_id) == ("paused", session.id)
    client.resume_session(fork.id)
    assert client.get_session_file(fork.id, "a.txt").content == "one\n"
    assert "heron" in client.send_message(fork.id, "What do you know?\n/recall").text
    client.end_session(fork.id)
    assert client.rewind_session(session.id, turn=1, dry_run=True).changes.modified == 1
    assert client.rewind_session(session.id, turn=1).changes.modified == 1
    assert client.get_session_file(session.id, "a.txt").content == "one\n"
    bundle = client.export_session(session.id)
    copy = client.import_session(bundle)
    assert copy.id != session.id
    assert client.resume_session(copy.id).receipt.conversation.native == "intact"
    assert client.get_session_file(copy.id, "a.txt").content == "one\n"
    client.end_session(copy.id)
    saved = client.save_session(session.id, tmp_path / "session.tar", history=True)
    assert saved.stat().st_size >= len(bundle)
    copy = client.import_session(saved)
    assert client.resume_session(copy.id).receipt.conversation.native == "intact"
    client.end_session(copy.id)
    with pytest.raises(AshApiError) as nowhere:
        client.list_cloud_sessions()
    assert nowhere.value.code == "no_cloud"
    with pytest.raises(AshApiError):
        client.import_cloud_session(session.id)


def test_files(client: AshClient, session: Session, tmp_path: Path) -> None:
    written = client.write_session_files(session.id, {"dir/ä b.txt": "grün\n", "raw.bin": b"\0\xff", "../no": "x"})
    assert [file.written for file in written] == [True, True, False]
    assert client.get_session_file(session.id, "dir/ä b.txt").content == "grün\n"
    assert client.download_session_file(session.id, "raw.bin") == b"\0\xff"
    raw = client.download_session_file_raw(session.id, "raw.bin")
    assert (raw.content, raw.source) == (b"\0\xff", "sandbox")
    listing = client.get_session_files(session.id, include_hidden=False)
    assert {"dir/ä b.txt", "raw.bin", "CLAUDE.md"} <= {file.path for file in listing.files}
    assert "dir/ä b.txt" in {file.path for file in client.list_session_files(session.id, path="dir")}
    with tarfile.open(fileobj=io.BytesIO(client.download_workspace(session.id))) as packed:
        assert any(name.endswith("raw.bin") for name in packed.getnames())
    with tarfile.open(client.save_workspace(session.id, tmp_path / "w.tar.gz")) as packed:
        assert any(name.endswith("raw.bin") for name in packed.getnames())
    assert client.save_session_file(session.id, "raw.bin", tmp_path / "raw.bin").read_bytes() == b"\0\xff"
    with pytest.raises(NotFoundError):
        client.save_session_file(session.id, "nowhere", tmp_path / "nowhere")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["raw.bin", "w.tar.gz"]
    bundle = io.BytesIO()
    with tarfile.open(fileobj=bundle, mode="w:gz") as packed:
        entry = tarfile.TarInfo("unpacked.txt")
        entry.size = 2
        packed.addfile(entry, io.BytesIO(b"ok"))
    client.upload_workspace(session.id, bundle.getvalue())
    assert client.exec(session.id, "cat unpacked.txt; exit 3", timeout=20_000).exit_code == 3
    assert client.delete_session_file(session.id, "dir", recursive=True).deleted
    with pytest.raises(NotFoundError):
        client.download_session_file(session.id, "dir/ä b.txt")


def test_what_leads_elsewhere_deletes_nothing(client: AshClient, session: Session, kind: str) -> None:
    agent = f"kept-{kind}"
    client.create_agent(agent, system_prompt="You are kept.")
    for part in ("..", ".", ""):
        for method, *parts in [
            ("delete_session_file", session.id, part),
            ("delete_session_file", session.id, f"a/../{part}"),
            ("delete_agent_version", agent, part),
            ("delete_agent_file", agent, part),
        ]:
            with pytest.raises(InvalidRequestError) as refused:
                getattr(client, method)(*parts)
            assert refused.value.code == "invalid_path"
    assert client.get_session(session.id).status == "active"
    assert client.get_agent(agent).version == 1
    client.delete_agent(agent)


def test_attachments(client: AshClient, session: Session) -> None:
    made = client.upload_attachment(session.id, "a.txt", b"hi")
    assert (made.filename, made.mime_type, made.size, made.session_id) == ("a.txt", "text/plain", 2, session.id)
    assert client.download_session_file(session.id, made.path) == b"hi"
    assert [one.id for one in client.list_attachments(session.id)] == [made.id]
    assert client.download_attachment(made.id) == b"hi"
    client.delete_attachment(made.id)
    assert client.list_attachments(session.id) == []


def test_what_was_said_can_be_read_in_every_way(client: AshClient, session: Session) -> None:
    reply = client.send_message(session.id, [text("Two parts."), text("/think Hm.\n/say Yes.")])
    assert (reply.text, reply.thinking, reply.stop_reason) == ("Yes.", "Hm.", "end_turn")
    assert reply.usage is not None
    assert reply.usage.input_tokens > 0
    assert reply.run_id is not None
    run = client.get_run(session.id, reply.run_id)
    assert (run.status, run.turn) == ("completed", 1)
    assert [one.id for one in client.list_runs(session.id, limit=5)] == [reply.run_id]
    messages = client.list_messages(session.id)
    assert [message.role for message in messages][:2] == ["user", "assistant"]
    assert client.list_messages(session.id, after=messages[0].sequence, limit=1) == messages[1:2]
    assert [event.type for event in client.list_session_events(session.id, type="reasoning")] == ["reasoning"]
    assert isinstance(client.get_session_logs(session.id), list)
    assert client.list_egress(session.id).spent.tokens > 0
    assert client.list_usage_events(session_id=session.id)
    assert client.get_usage_stats(session_id=session.id).total_input_tokens > 0
    later = datetime.now(UTC) + timedelta(days=1)
    assert client.list_usage_events(session_id=session.id, after=later) == []
    sent = client.send_message_detached(session.id, "/say Later.")
    after = list(client.stream(session.id, after=sent.seq, until_idle=True))
    assert {event.run_id for event in after if event.run_id} == {sent.run_id}
    assert after[0].seq == sent.seq + 1


def test_a_run_that_fails_is_an_error_with_a_code(client: AshClient, session: Session) -> None:
    with pytest.raises(AshRunError) as failed:
        client.send_message(session.id, "/error 400 message no such thing")
    assert failed.value.code
    assert failed.value.reply.stop_reason == "error"


def test_permissions(client: AshClient) -> None:
    session = client.create_session("notes", permission_mode="default", permission_timeout_ms=60_000)
    answers = iter([("allow", None), ("deny", "not today")])
    with client.send_message_stream(session.id, "/bash echo a > f\n/bash echo b > f\n/say Done.") as stream:
        for event in stream:
            if isinstance(event, PermissionRequestEvent):
                assert [one.id for one in client.list_permissions(session.id)] == [event.id]
                behavior, message = next(answers)
                decided = client.decide_permission(session.id, event.id, behavior, message=message)  # type: ignore[arg-type]
                assert decided.behavior == behavior
    first, second = stream.transcript.turns[-1].tools
    assert (first.is_error, second.is_error) == (False, True)
    assert client.get_session_file(session.id, "f").content == "a\n"
    client.end_session(session.id)


def test_credentials_keys_and_the_server_itself(client: AshClient, world: World) -> None:
    kept = client.store_credential("anthropic", "sk-secret", label="mine")
    assert "sk-secret" not in repr(kept) + repr(kept.raw)
    assert kept.id in [one.id for one in client.list_credentials()]
    client.delete_credential(kept.id)
    assert kept.id not in [one.id for one in client.list_credentials()]
    made = client.create_api_key("for a test")
    with AshClient(world.url, api_key=made.key) as other:
        assert "notes" in [agent.name for agent in other.list_agents()]
    assert made.id in [key.id for key in client.list_api_keys()]
    client.revoke_api_key(made.id)
    assert made.id not in [key.id for key in client.list_api_keys()]
    assert client.health().status == "ok"
    assert client.health()["status"] == "ok"
    assert client.ready().status
    assert "ash_up" in client.metrics()
