"""Sessions: what is said in them, their files, and their lives."""

import base64
import io
import json
import tarfile

from client import Differs, has, method, same

SESSION = "id agentName sandboxId status createdAt lastActiveAt"
ATTACHMENT = "id sessionId messageId filename mimeType size createdAt"


@method("createSession")
def create_session(client):
    body = {
        "agent": "compat",
        "extraEnv": {"COLOR": "green"},
        "model": "claude-sonnet-4-5",
        "systemPrompt": "You are kind.",
        "permissionMode": "bypassPermissions",
        "allowedTools": ["bash"],
    }
    session = has(client.ask("POST", "/api/sessions", body)["session"], SESSION)
    same(session["status"], "active")
    client.kept["session"] = session["id"]


@method("listSessions")
def list_sessions(client):
    listed = client.ask("GET", "/api/sessions?agent=compat&status=active&limit=10")["sessions"]
    same([has(session, SESSION)["id"] for session in listed], [client.kept["session"]])


@method("listSessionsWithTotal")
def list_sessions_with_total(client):
    same(client.ask("GET", "/api/sessions?agent=compat&includeTotal=true")["total"], 1)


@method("getSession")
def get_session(client):
    has(client.ask("GET", f"/api/sessions/{client.kept['session']}")["session"], SESSION)


@method("updateSessionConfig")
def update_session_config(client):
    path = f"/api/sessions/{client.kept['session']}/config"
    has(
        client.ask("PATCH", path, {"model": "claude-opus-4-5", "allowedTools": ["bash", "read_file"]})["session"],
        SESSION,
    )


@method("sendMessage")
def send_message(client):
    events = client.stream(client.kept["session"], {"content": "Good morning.\n/say Good morning."})
    names = [name for name, _ in events]
    same((names[0], names[-1]), ("session_start", "done"))
    first = next(data for name, data in events if name == "message")
    same(first["type"], "assistant")
    same(first["message"]["content"], [{"type": "text", "text": "Good morning."}])
    same(events[-1][1]["sessionId"], client.kept["session"])
    for wanted in ("turn_complete", "message"):
        if wanted not in names:
            raise Differs(f"there is no event `{wanted}`")


@method("sendMessageStream")
def send_message_stream(client):
    body = {
        "content": [{"type": "text", "text": "Again.\n/bash echo hello\n/say Once more."}],
        "includePartialMessages": True,
        "maxTurns": 5,
    }
    events = client.stream(client.kept["session"], body)
    told = dict(events)
    for wanted in ("text_delta", "tool_use", "tool_result", "turn_complete", "done"):
        if wanted not in told:
            raise Differs(f"there is no event `{wanted}`")
    has(told["tool_use"], "id name input")
    has(told["tool_result"], "tool_use_id content is_error")
    partial = [data for name, data in events if name == "message" and data.get("type") == "stream_event"]
    if not partial:
        raise Differs("`includePartialMessages` brings `text_delta` and no raw `stream_event`")


@method("listMessages")
def list_messages(client):
    messages = client.ask("GET", f"/api/sessions/{client.kept['session']}/messages?limit=10")["messages"]
    for message in messages:
        has(message, "id sessionId role content sequence createdAt")
        json.loads(message["content"])
    same(messages[0]["role"], "user")
    after = messages[0]["sequence"]
    rest = client.ask("GET", f"/api/sessions/{client.kept['session']}/messages?after={after}")["messages"]
    same(len(rest), len(messages) - 1)


@method("listSessionEvents")
def list_session_events(client):
    path = f"/api/sessions/{client.kept['session']}/events"
    for event in client.ask("GET", f"{path}?limit=1000")["events"]:
        has(event, "id sessionId type data sequence createdAt")
    for kind in ("text", "tool_start", "tool_result", "turn_complete", "lifecycle"):
        if not client.ask("GET", f"{path}?type={kind}")["events"]:
            raise Differs(f"there is no event of type `{kind}`")


@method("getSessionLogs")
def get_session_logs(client):
    logs = has(client.ask("GET", f"/api/sessions/{client.kept['session']}/logs?after=-1"), "logs source")["logs"]
    for line in logs:
        has(line, "index level text ts")


@method("exec")
def run_command(client):
    path = f"/api/sessions/{client.kept['session']}/exec"
    said = client.ask("POST", path, {"command": "echo out; echo err >&2; exit 3", "timeout": 20000})
    same(said, {**said, "exitCode": 3, "stdout": "out\n", "stderr": "err\n"})


@method("writeSessionFiles")
def write_session_files(client):
    content = base64.b64encode(b"one\n").decode()
    body = {"files": [{"path": "a.txt", "content": content}, {"path": "../b", "content": content}]}
    written = client.ask("POST", f"/api/sessions/{client.kept['session']}/files", body)["files"]
    same([file["written"] for file in written], [True, False])


@method("getSessionFiles")
def get_session_files(client):
    listed = has(client.ask("GET", f"/api/sessions/{client.kept['session']}/files"), "files source")
    for file in listed["files"]:
        has(file, "path size modifiedAt")


@method("getSessionFile")
def get_session_file(client):
    path = f"/api/sessions/{client.kept['session']}/files/a.txt?format=json"
    same(has(client.ask("GET", path), "path content size source")["content"], "one\n")


@method("downloadSessionFile", "downloadSessionFileRaw")
def download_session_file(client):
    headers, said = client.send("GET", f"/api/sessions/{client.kept['session']}/files/a.txt")
    same((said, headers["X-Ash-Source"]), (b"one\n", "sandbox"))


@method("deleteSessionFile")
def delete_session_file(client):
    same(client.ask("DELETE", f"/api/sessions/{client.kept['session']}/files/a.txt")["deleted"], True)


@method("downloadWorkspace")
def download_workspace(client):
    _, said = client.send("GET", f"/api/sessions/{client.kept['session']}/workspace")
    with tarfile.open(fileobj=io.BytesIO(said), mode="r:gz") as bundle:
        if not any(name.endswith("CLAUDE.md") for name in bundle.getnames()):
            raise Differs("CLAUDE.md is not in it")


@method("uploadWorkspace")
def upload_workspace(client):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as bundle:
        entry = tarfile.TarInfo("from-a-bundle.txt")
        entry.size = 4
        bundle.addfile(entry, io.BytesIO(b"two\n"))
    body = {"bundle": base64.b64encode(packed.getvalue()).decode()}
    client.ask("POST", f"/api/sessions/{client.kept['session']}/workspace", body)


@method("uploadAttachment")
def upload_attachment(client):
    body = {"filename": "note.txt", "content": base64.b64encode(b"three\n").decode(), "mimeType": "text/plain"}
    said = client.ask("POST", f"/api/sessions/{client.kept['session']}/attachments", body)["attachment"]
    client.kept["attachment"] = has(said, ATTACHMENT)["id"]


@method("listAttachments")
def list_attachments(client):
    said = client.ask("GET", f"/api/sessions/{client.kept['session']}/attachments")["attachments"]
    same([has(attachment, ATTACHMENT)["id"] for attachment in said], [client.kept["attachment"]])


@method("downloadAttachment")
def download_attachment(client):
    same(client.send("GET", f"/api/attachments/{client.kept['attachment']}")[1], b"three\n")


@method("deleteAttachment")
def delete_attachment(client):
    client.ask("DELETE", f"/api/attachments/{client.kept['attachment']}")


@method("pauseSession")
def pause_session(client):
    same(client.ask("POST", f"/api/sessions/{client.kept['session']}/pause")["session"]["status"], "paused")


@method("resumeSession")
def resume_session(client):
    same(client.ask("POST", f"/api/sessions/{client.kept['session']}/resume")["session"]["status"], "active")


@method("forkSession")
def fork_session(client):
    forked = has(client.ask("POST", f"/api/sessions/{client.kept['session']}/fork")["session"], SESSION)
    same((forked["status"], forked["parentSessionId"]), ("paused", client.kept["session"]))


@method("stopSession")
def stop_session(client):
    same(client.ask("POST", f"/api/sessions/{client.kept['session']}/stop")["session"]["status"], "stopped")


@method("endSession")
def end_session(client):
    same(client.ask("DELETE", f"/api/sessions/{client.kept['session']}")["session"]["status"], "ended")
