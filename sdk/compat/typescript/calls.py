"""What the original's TypeScript client asks for, method by method, as it asks for it.

That client is in no registry, so it cannot be installed here. What it sends is known, and so is what it reads: each
method below sends the same request and looks for the same fields. A body of JSON is said to be one only if there is
a body, every answer but bytes and streams is read as JSON, and an error has its text in `error`.
"""

import base64
import io
import json
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable

SESSION = "id agentName sandboxId status createdAt lastActiveAt"
AGENT = "id name version path createdAt updatedAt"
VERSION = "id agentName versionNumber name systemPrompt releaseNotes isActive createdAt updatedAt"
QUEUED = "id agentName prompt status priority retryCount maxRetries createdAt"
CREDENTIAL = "id type label active createdAt"
ATTACHMENT = "id sessionId messageId filename mimeType size createdAt"

METHODS: dict[str, "Call"] = {}


class Differs(Exception):
    """It is not what that client expects."""


class NotOffered(Exception):
    """The server says that it does not do this."""


def method(*names):
    """A function that does what these methods do."""

    def registered(function):
        METHODS.update(dict.fromkeys(names, function))
        return function

    return registered


class Client:
    """Sends what that client sends. `kept` is what one method leaves for the next."""

    def __init__(self, url, key, directory):
        self.url = url
        self.key = key
        self.directory = directory
        self.kept = {}

    def send(self, verb, path, body=None):
        headers = {"Authorization": f"Bearer {self.key}"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers, method=verb)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace")
            if error.code == 501:
                raise NotOffered(json.loads(said)["code"]) from error
            raise Differs(f"{error.code}: {json.loads(said)['error']}") from error

    def ask(self, verb, path, body=None):
        _, said = self.send(verb, path, body)
        try:
            return json.loads(said)
        except ValueError as error:
            raise Differs("the answer is no JSON, which that client needs") from error

    def stream(self, session, body):
        headers, said = self.send("POST", f"/api/sessions/{session}/messages", body)
        if "text/event-stream" not in headers["Content-Type"]:
            raise Differs("the answer is no stream")
        events, name = [], None
        for line in said.decode().split("\n"):
            if line.startswith("event: "):
                name = line[len("event: ") :].strip()
            elif line.startswith("data: ") and name:
                events.append((name, json.loads(line[len("data: ") :])))
        return events


Call = Callable[[Client], None]


def has(thing, fields):
    """The thing, if it has all that the client's types say."""
    missing = [field for field in fields.split() if field not in thing]
    if missing:
        raise Differs(f"`{'`, `'.join(missing)}` is missing")
    return thing


def same(found, wanted):
    if found != wanted:
        raise Differs(f"{found!r} instead of {wanted!r}")


# Agents


@method("deployAgent")
def deploy_agent(client):
    body = {"name": "by-path", "path": str(client.directory)}
    has(client.ask("POST", "/api/agents", body)["agent"], AGENT)


@method("createAgent")
def create_agent(client):
    body = {"name": "compat", "systemPrompt": "You are helpful.", "env": {"COLOR": "blue"}}
    agent = has(client.ask("POST", "/api/agents", body)["agent"], AGENT)
    same(agent["version"], 1)


@method("listAgents")
def list_agents(client):
    for agent in client.ask("GET", "/api/agents")["agents"]:
        has(agent, AGENT)


@method("getAgent")
def get_agent(client):
    has(client.ask("GET", "/api/agents/compat")["agent"], AGENT)


@method("updateAgent")
def update_agent(client):
    has(client.ask("PATCH", "/api/agents/compat", {"env": {"COLOR": "red"}})["agent"], AGENT)


@method("listAgentFiles")
def list_agent_files(client):
    for file in client.ask("GET", "/api/agents/compat/files")["files"]:
        has(file, "path size")


@method("uploadAgentFiles")
def upload_agent_files(client):
    content = base64.b64encode(b"They stand still.\n").decode()
    client.ask("POST", "/api/agents/compat/files", {"files": [{"path": "herons.md", "content": content}]})


@method("getAgentFile")
def get_agent_file(client):
    file = has(client.ask("GET", "/api/agents/compat/files/herons.md?format=json"), "path content size")
    same(file["content"], "They stand still.\n")


@method("deleteAgentFile")
def delete_agent_file(client):
    same(client.ask("DELETE", "/api/agents/compat/files/herons.md")["deleted"], True)


@method("updateAgentConfig")
def update_agent_config(client):
    config = client.ask("PATCH", "/api/agents/compat/config", {"config": {"preWarmCount": 0}})["config"]
    same(config["preWarmCount"], 0)


@method("getAgentConfig")
def get_agent_config(client):
    same(client.ask("GET", "/api/agents/compat/config")["config"]["preWarmCount"], 0)


@method("createAgentVersion")
def create_version(client):
    body = {"name": "terse", "systemPrompt": "You are terse.", "releaseNotes": "shorter"}
    version = has(client.ask("POST", "/api/agents/compat/versions", body)["version"], VERSION)
    client.kept["version"] = version["versionNumber"]


@method("listAgentVersions")
def list_versions(client):
    for version in client.ask("GET", "/api/agents/compat/versions")["versions"]:
        has(version, VERSION)


@method("getAgentVersion")
def get_version(client):
    version = client.ask("GET", f"/api/agents/compat/versions/{client.kept['version']}")["version"]
    same(has(version, VERSION)["systemPrompt"], "You are terse.")


@method("updateAgentVersion")
def update_version(client):
    path = f"/api/agents/compat/versions/{client.kept['version']}"
    version = client.ask("PATCH", path, {"releaseNotes": "much shorter"})["version"]
    same(version["releaseNotes"], "much shorter")


@method("activateAgentVersion")
def activate_version(client):
    number = client.kept["version"]
    said = client.ask("POST", f"/api/agents/compat/versions/{number}/activate")
    same((said["activated"], said["versionNumber"]), (True, number))


@method("deleteAgentVersion")
def delete_version(client):
    body = {"name": "wordy", "systemPrompt": "You are wordy."}
    number = client.ask("POST", "/api/agents/compat/versions", body)["version"]["versionNumber"]
    client.ask("DELETE", f"/api/agents/compat/versions/{number}")


# Sessions


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


# The rest


@method("storeCredential")
def store_credential(client):
    body = {"type": "anthropic", "key": "sk-none", "label": "compat"}
    client.kept["credential"] = has(client.ask("POST", "/api/credentials", body)["credential"], CREDENTIAL)["id"]


@method("storeBedrockCredential")
def store_bedrock_credential(client):
    key = json.dumps({"accessKeyId": "a", "secretAccessKey": "b", "region": "us-east-1"})
    has(client.ask("POST", "/api/credentials", {"type": "bedrock", "key": key})["credential"], CREDENTIAL)


@method("listCredentials")
def list_credentials(client):
    for credential in client.ask("GET", "/api/credentials")["credentials"]:
        has(credential, CREDENTIAL)


@method("deleteCredential")
def delete_credential(client):
    client.ask("DELETE", f"/api/credentials/{client.kept['credential']}")


@method("enqueue")
def enqueue(client):
    body = {"agentName": "compat", "prompt": "Good evening.\n/say Good evening.", "priority": 1, "maxRetries": 0}
    client.kept["queued"] = has(client.ask("POST", "/api/queue", body)["item"], QUEUED)["id"]


@method("getQueueItem")
def get_queue_item(client):
    has(client.ask("GET", f"/api/queue/{client.kept['queued']}")["item"], QUEUED)


@method("listQueueItems")
def list_queue_items(client):
    for item in client.ask("GET", "/api/queue?limit=10")["items"]:
        has(item, QUEUED)


@method("getQueueStats")
def get_queue_stats(client):
    has(client.ask("GET", "/api/queue/stats")["stats"], "pending processing completed failed cancelled")


@method("cancelQueueItem")
def cancel_queue_item(client):
    # It may have been taken by then: the original answers the same.
    try:
        same(client.ask("DELETE", f"/api/queue/{client.kept['queued']}")["item"]["status"], "cancelled")
    except Differs as error:
        if "Cannot cancel item with status" not in str(error):
            raise


@method("listUsageEvents")
def list_usage_events(client):
    for event in client.ask("GET", "/api/usage?agentName=compat&limit=10")["events"]:
        has(event, "id sessionId agentName eventType value createdAt")


@method("getUsageStats")
def get_usage_stats(client):
    fields = "totalInputTokens totalOutputTokens totalCacheCreationTokens totalCacheReadTokens totalToolCalls"
    has(client.ask("GET", "/api/usage/stats?agentName=compat")["stats"], f"{fields} totalMessages totalComputeSeconds")


@method("getAnalytics")
def get_analytics(client):
    has(client.ask("GET", "/api/analytics"), "agents sessions usage")


@method("health")
def health(client):
    said = has(client.ask("GET", "/health"), "status activeSessions activeSandboxes uptime pool version")
    same(said["status"], "ok")
    has(said["pool"], "total cold warming warm waiting running maxCapacity resumeWarmHits resumeColdHits preWarmHits")


@method("deleteAgent")
def delete_agent(client):
    client.ask("DELETE", "/api/agents/compat")


@method("listEvalCases", "createEvalCase", "startEvalRun", "and the other methods of evals")
def evals(client):
    client.ask("GET", "/api/agents/by-path/eval-cases")


@method("listFiles", "uploadFile", "getFileUrl", "deleteFile")
def project_files(client):
    client.ask("GET", "/api/files")
