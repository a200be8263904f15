"""Agents: what sessions talk to."""

from __future__ import annotations

from typing import Any

from .._method import operation
from .._wire import Call, Repeat, at, call, file_at, given, many, nothing, one
from ..content import FilesGiven, encoded
from ..schema import Agent, AgentFileContent, AgentFileInfo, AgentVersion


class AgentOperations:
    """Agents."""

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
        body = given(name=name, path=path, system_prompt=system_prompt, env=env)
        if files is not None:
            body["files"] = encoded(files)
        read = one(Agent, "agent")
        return call("POST", at("agents"), read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

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
        body = given(name=name, system_prompt=system_prompt, env=env)
        if files is not None:
            body["files"] = encoded(files)
        read = one(Agent, "agent")
        return call("POST", at("agents"), read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

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
    def list_agent_files(self, name: str) -> Call[list[AgentFileInfo]]:
        """Lists the files of an agent's latest version."""
        return call("GET", at("agents", name, "files"), many(AgentFileInfo, "files"))

    @operation
    def get_agent_file(self, name: str, path: str) -> Call[AgentFileContent]:
        """Reads a file of an agent."""
        return call("GET", file_at("agents", name, "files", file=path), one(AgentFileContent))

    @operation
    def list_agent_versions(self, name: str) -> Call[list[AgentVersion]]:
        """Lists the versions of an agent, newest first."""
        return call("GET", at("agents", name, "versions"), many(AgentVersion, "versions"))

    @operation
    def get_agent_version(self, name: str, version: int | str) -> Call[AgentVersion]:
        """Looks at a version of an agent."""
        return call("GET", at("agents", name, "versions", version), one(AgentVersion, "version"))
