"""Agents: what sessions talk to."""

from __future__ import annotations

from typing import Any

from .._method import operation
from .._wire import Answer, Call, Repeat, at, call, file_at, given, many, nothing, one
from ..content import FilesGiven, encoded
from ..schema import (
    Agent,
    AgentConfig,
    AgentFileContent,
    AgentFileInfo,
    AgentFilesWritten,
    AgentVersion,
    VersionActivated,
)


def _config(answer: Answer) -> dict[str, Any]:
    return AgentConfig.from_json(answer.json()).config


def _deployed(files: FilesGiven | None, key: str | None, **options: Any) -> Call[Agent]:
    body = given(**options, files=None if files is None else encoded(files))
    return call("POST", at("agents"), one(Agent, "agent"), body=body, repeat=Repeat.KEYED, key=key)


class AgentOperations:
    """Agents, their settings, files and versions."""

    @operation
    def deploy_agent(
        self,
        name: str,
        path: str | None = None,
        *,
        files: FilesGiven | None = None,
        system_prompt: str | None = None,
        env: dict[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Agent]:
        """Deploys an agent: from a directory of the server's machine, from files, or from instructions alone.

        Under a name that is taken it is the next version. `files=directory("my-agent")` sends a directory of this
        machine.
        """
        return _deployed(files, idempotency_key, name=name, path=path, system_prompt=system_prompt, env=env)

    @operation
    def create_agent(
        self,
        name: str,
        *,
        system_prompt: str | None = None,
        files: FilesGiven | None = None,
        env: dict[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> Call[Agent]:
        """Deploys an agent from instructions, or from files."""
        return _deployed(files, idempotency_key, name=name, system_prompt=system_prompt, env=env)

    @operation
    def list_agents(self) -> Call[list[Agent]]:
        """Lists the agents."""
        return call("GET", at("agents"), many(Agent, "agents"))

    @operation
    def get_agent(self, name: str) -> Call[Agent]:
        """Looks at an agent."""
        return call("GET", at("agents", name), one(Agent, "agent"))

    @operation
    def update_agent(
        self, name: str, *, env: dict[str, str] | None = None, config: dict[str, Any] | None = None
    ) -> Call[Agent]:
        """Changes an agent's variables and settings. Sandboxes that start from now on have them."""
        return call("PATCH", at("agents", name), one(Agent, "agent"), body=given(env=env, config=config))

    @operation
    def delete_agent(self, name: str) -> Call[None]:
        """Deletes an agent. Its sessions are ended."""
        return call("DELETE", at("agents", name), nothing)

    @operation
    def get_agent_config(self, name: str) -> Call[dict[str, Any]]:
        """The settings of an agent."""
        return call("GET", at("agents", name, "config"), _config)

    @operation
    def update_agent_config(self, name: str, config: dict[str, Any]) -> Call[dict[str, Any]]:
        """Changes settings of an agent. Those that are not named stay."""
        return call("PATCH", at("agents", name, "config"), _config, body=config)

    @operation
    def list_agent_files(self, name: str) -> Call[list[AgentFileInfo]]:
        """Lists the files of an agent's latest version."""
        return call("GET", at("agents", name, "files"), many(AgentFileInfo, "files"))

    @operation
    def get_agent_file(self, name: str, path: str) -> Call[AgentFileContent]:
        """Reads a file of an agent."""
        return call("GET", file_at("agents", name, "files", file=path), one(AgentFileContent))

    @operation
    def upload_agent_files(
        self, name: str, files: FilesGiven, *, idempotency_key: str | None = None
    ) -> Call[AgentFilesWritten]:
        """Writes files of an agent. It is the next version."""
        path, read, body = at("agents", name, "files"), one(AgentFilesWritten), {"files": encoded(files)}
        return call("POST", path, read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def delete_agent_file(self, name: str, path: str) -> Call[None]:
        """Removes a file of an agent."""
        return call("DELETE", file_at("agents", name, "files", file=path), nothing)

    @operation
    def list_agent_versions(self, name: str) -> Call[list[AgentVersion]]:
        """Lists the versions of an agent, newest first."""
        return call("GET", at("agents", name, "versions"), many(AgentVersion, "versions"))

    @operation
    def get_agent_version(self, name: str, version: int | str) -> Call[AgentVersion]:
        """Looks at a version of an agent."""
        return call("GET", at("agents", name, "versions", version), one(AgentVersion, "version"))

    @operation
    def create_agent_version(
        self,
        agent: str,
        *,
        name: str | None = None,
        system_prompt: str | None = None,
        release_notes: str | None = None,
        knowledge_files: list[str] | None = None,
        clone_from: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> Call[AgentVersion]:
        """Makes a version of an agent."""
        body = given(
            name=name,
            system_prompt=system_prompt,
            release_notes=release_notes,
            knowledge_files=knowledge_files,
            clone_from=clone_from,
        )
        path, read = at("agents", agent, "versions"), one(AgentVersion, "version")
        return call("POST", path, read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def update_agent_version(
        self,
        agent: str,
        version: int | str,
        *,
        name: str | None = None,
        system_prompt: str | None = None,
        release_notes: str | None = None,
        knowledge_files: list[str] | None = None,
    ) -> Call[AgentVersion]:
        """Changes a version of an agent."""
        body = given(
            name=name,
            system_prompt=system_prompt,
            release_notes=release_notes,
            knowledge_files=knowledge_files,
        )
        path = at("agents", agent, "versions", version)
        return call("PATCH", path, one(AgentVersion, "version"), body=body)

    @operation
    def delete_agent_version(self, agent: str, version: int | str) -> Call[None]:
        """Deletes a version of an agent."""
        return call("DELETE", at("agents", agent, "versions", version), nothing)

    @operation
    def activate_agent_version(self, agent: str, version: int | str) -> Call[VersionActivated]:
        """Makes a version the one that new sessions begin with."""
        path = at("agents", agent, "versions", version, "activate")
        return call("POST", path, one(VersionActivated), repeat=Repeat.SAFE)
