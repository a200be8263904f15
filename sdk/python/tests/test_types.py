"""What is generated, and that nothing was forgotten."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from world import ROOT

from ash_sdk import AshClient, AshProtocolError, AsyncAshClient, schema
from ash_sdk._model import camel
from ash_sdk._operations import Operations

HERE = Path(__file__).resolve().parent.parent
DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text())

# What the original's client for Python can do, and the original's for TypeScript, in the spelling of this language.
ORIGINAL = """health deploy_agent list_agents get_agent delete_agent create_session list_sessions get_session
pause_session resume_session stop_session end_session fork_session send_message_stream asend_message_stream"""
TYPESCRIPT = """deploy_agent create_agent list_agents get_agent delete_agent update_agent list_agent_files
get_agent_file upload_agent_files delete_agent_file get_agent_config update_agent_config create_session list_sessions
list_sessions_with_total get_session send_message send_message_stream update_session_config stop_session fork_session
pause_session resume_session end_session exec list_messages list_session_events get_session_logs get_session_files
get_session_file download_session_file download_session_file_raw write_session_files delete_session_file
download_workspace upload_workspace store_credential store_bedrock_credential list_credentials delete_credential
upload_attachment list_attachments download_attachment delete_attachment enqueue list_queue_items get_queue_item
cancel_queue_item get_queue_stats list_usage_events get_usage_stats get_analytics health list_agent_versions
create_agent_version get_agent_version update_agent_version delete_agent_version activate_agent_version"""

# Which method makes which request, where a body is sent.
BODIES = {
    "CreateSession": "create_session",
    "SendMessage": "send_message_detached",
    "UpdateConfig": "update_session_config",
    "PauseSession": "pause_session",
    "ResumeSession": "resume_session",
    "ForkSession": "fork_session",
    "RewindSession": "rewind_session",
    "DecidePermission": "decide_permission",
    "DeployAgent": "deploy_agent",
    "UpdateAgent": "update_agent",
    "NewCredential": "store_credential",
    "NewApiKey": "create_api_key",
    "ExecCommand": "exec",
    "WriteFiles": "write_session_files",
    "UploadWorkspace": "upload_workspace",
    "WriteAgentFiles": "upload_agent_files",
    "NewAgentVersion": "create_agent_version",
    "UpdateAgentVersion": "update_agent_version",
    "NewQueueItem": "enqueue",
    "NewAttachment": "upload_attachment",
    "InterruptSession": "interrupt_session",
}


CLIENT = AshClient("http://127.0.0.1:1")
ASYNC_CLIENT = AsyncAshClient("http://127.0.0.1:1")


def parameters(method: str) -> set[str]:
    return {camel(name) for name in inspect.signature(getattr(CLIENT, method)).parameters}


def test_the_schema_is_what_the_document_says() -> None:
    subprocess.run([sys.executable, HERE / "generate.py", "--check"], check=True)


def test_drift_is_noticed(tmp_path: Path) -> None:
    changed = json.loads(json.dumps(DOCUMENT))
    changed["components"]["schemas"]["Session"]["properties"]["brandNew"] = {"type": "string"}
    (tmp_path / "openapi.json").write_text(json.dumps(changed))
    checked = subprocess.run([sys.executable, HERE / "generate.py", "--check", tmp_path / "openapi.json"], check=False)
    assert checked.returncode == 1


@pytest.mark.parametrize("name", sorted({*ORIGINAL.split(), *TYPESCRIPT.split()}))
def test_every_method_of_the_originals_clients_is_there(name: str) -> None:
    for client in (CLIENT, ASYNC_CLIENT):
        assert callable(getattr(client, name))
        assert getattr(client, name).__doc__


def test_every_body_of_the_document_can_be_sent_whole() -> None:
    bodies = set()
    for path, operations in DOCUMENT["paths"].items():
        if path.startswith("/api/internal/"):
            continue  # For whoever runs the server, with a secret of their own.
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            found = json.dumps(content.get("schema", {}))
            bodies |= {name for name in DOCUMENT["components"]["schemas"] if f'schemas/{name}"' in found}
    for name in bodies:
        wanted = set(DOCUMENT["components"]["schemas"][name]["properties"]) - {"detach"}
        method = BODIES.get(name)
        if method is None:
            pytest.fail(f"no method is known to send {name}")
        assert wanted <= parameters(method), (name, wanted - parameters(method))
    assert parameters("send_message_detached") <= parameters("send_message_stream") | {"detach"}


def test_every_query_of_the_document_can_be_asked() -> None:
    methods = {
        ("get", "/api/sessions"): "list_sessions",
        ("get", "/api/sessions/{id}/files"): "get_session_files",
        ("get", "/api/sessions/{id}/events"): "list_session_events",
        ("get", "/api/sessions/{id}/messages"): "list_messages",
        ("get", "/api/sessions/{id}/snapshots/{snapshot}/diff"): "diff_snapshot",
        ("get", "/api/usage"): "list_usage_events",
        ("get", "/api/queue"): "list_queue_items",
        ("get", "/api/analytics"): "get_analytics",
    }
    for (method, path), name in methods.items():
        wanted = {one["name"] for one in DOCUMENT["paths"][path][method]["parameters"] if one["in"] == "query"}
        assert wanted - {"includeTotal"} <= parameters(name), name


def test_what_is_new_survives_and_what_is_missing_is_told() -> None:
    found = schema.SessionSnapshot.from_json(
        {"id": "a", "seq": 1, "turn": 1, "at": "2026-01-02T03:04:05.678Z", "files": 1, "bytes": 2, "brandNew": [1]}
    )
    assert found["brandNew"] == [1]
    assert found.at == datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    with pytest.raises(AshProtocolError, match="SessionSnapshot has no `seq`"):
        schema.SessionSnapshot.from_json({"id": "a"})
    with pytest.raises(AshProtocolError, match="an object"):
        schema.SessionSnapshot.from_json([])


def test_a_value_that_is_not_known_yet_passes() -> None:
    found = schema.FileDiff.from_json({"path": "a", "change": "renamed", "sizeBefore": None, "sizeAfter": 3})
    change: str = found.change
    assert change == "renamed"


def test_methods_know_their_parameters_and_what_they_are_for() -> None:
    assert str(inspect.signature(CLIENT.get_run)) == "(session_id: 'Id', run_id: 'Id') -> 'Call[Run]'"
    assert CLIENT.get_run.__doc__ == "Looks at a run."
    every = [name for name, value in inspect.getmembers(Operations) if not name.startswith("_") and value.__doc__]
    assert len(every) > 70


def test_a_client_says_what_is_wrong_with_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="two names"):
        AshClient("http://a", server_url="http://b")
    with pytest.raises(TypeError, match="two names"):
        AshClient("http://a", token="k", api_key="k")
    with pytest.raises(ValueError, match="http"):
        AshClient("localhost:4100")
    with pytest.raises(ValueError, match="key") as odd:
        AshClient("http://a", "s3cret\nX-Other: 1")
    assert "s3cret" not in str(odd.value)
    monkeypatch.setenv("ASH_SERVER_URL", "http://from-the-environment/")
    monkeypatch.setenv("ASH_API_KEY", "s3cret")
    client: Any = AshClient()
    assert client.base_url == "http://from-the-environment"
    assert "s3cret" not in repr(client) + repr(client._settings)
