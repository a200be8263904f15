"""Agents, their files, their settings and their versions."""

import base64

from client import has, method, same

AGENT = "id name version path createdAt updatedAt"
VERSION = "id agentName versionNumber name systemPrompt releaseNotes isActive createdAt updatedAt"


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
