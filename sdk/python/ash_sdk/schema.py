"""What the server sends and takes. Made from `docs/openapi.json` by `generate.py`: do not edit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict, Union

from ._model import Model

__all__ = [
    "Activity",
    "Agent",
    "AgentBody",
    "AgentConfig",
    "AgentDeleted",
    "AgentFile",
    "AgentFileContent",
    "AgentFileDeleted",
    "AgentFileInfo",
    "AgentFiles",
    "AgentFilesWritten",
    "AgentVersion",
    "AgentVersionBody",
    "AgentVersions",
    "Agents",
    "Analytics",
    "AnalyticsAgents",
    "AnalyticsEvals",
    "AnalyticsSessions",
    "ApiKey",
    "ApiKeyMade",
    "ApiKeys",
    "Attachment",
    "AttachmentBody",
    "Attachments",
    "Behavior",
    "Block",
    "ChangeCounts",
    "CloneFrom",
    "CloudFailure",
    "CloudSession",
    "CloudSessions",
    "Content",
    "ConversationReceipt",
    "CreateSession",
    "Credential",
    "CredentialBody",
    "CredentialType",
    "Credentials",
    "DecidePermission",
    "DeployAgent",
    "Done",
    "Effort",
    "Egress",
    "EgressRequest",
    "Event",
    "Events",
    "ExecCommand",
    "ExecOutcome",
    "FileChange",
    "FileContent",
    "FileDeleted",
    "FileDiff",
    "FileInfo",
    "FileSource",
    "FileWritten",
    "Files",
    "FilesWritten",
    "ForkSession",
    "Frame",
    "Health",
    "IfBusy",
    "ImportedSession",
    "InterruptSession",
    "Log",
    "LogGap",
    "LogGapReason",
    "Logs",
    "McpServer",
    "Message",
    "Messages",
    "NewAgentVersion",
    "NewApiKey",
    "NewAttachment",
    "NewCredential",
    "NewFile",
    "NewQueueItem",
    "NewTenantKey",
    "Omitted",
    "OutputFormat",
    "OutputKind",
    "PauseSession",
    "Permission",
    "PermissionDecided",
    "PermissionMode",
    "Permissions",
    "Pool",
    "Problem",
    "QueueCounts",
    "QueueItem",
    "QueueItemBody",
    "QueueItemStatus",
    "QueueItems",
    "QueueStats",
    "Ready",
    "ResumeReceipt",
    "ResumeSession",
    "Resumed",
    "RewindSession",
    "Rewound",
    "Run",
    "RunBody",
    "RunError",
    "Runners",
    "Runs",
    "RuntimeHealth",
    "SendMessage",
    "Sent",
    "Session",
    "SessionBody",
    "SessionError",
    "SessionSnapshot",
    "SessionStatus",
    "Sessions",
    "Snapshot",
    "SnapshotDiff",
    "SnapshotFailure",
    "SnapshotLocation",
    "Snapshots",
    "Spent",
    "Stats",
    "Thinking",
    "UpdateAgent",
    "UpdateAgentVersion",
    "UpdateConfig",
    "UploadWorkspace",
    "Usage",
    "UsageEvent",
    "UsageEvents",
    "UsageStats",
    "VersionActivated",
    "VersionDeleted",
    "WhenRunning",
    "WorkspaceUploaded",
    "WriteAgentFiles",
    "WriteFiles",
]

Activity = Literal["idle", "running", "frozen", "rewinding"]
Behavior = Literal["allow", "deny"]
CredentialType = Literal["anthropic", "openai", "bedrock", "custom"]
Effort = Literal["low", "medium", "high", "xhigh", "max"]
FileChange = Literal["added", "modified", "removed"]
FileSource = Literal["sandbox", "snapshot"]
IfBusy = Literal["queue", "reject"]
LogGapReason = Literal["left_out", "other_epoch", "beyond_end"]
Omitted = Literal["binary", "too_large"]
OutputKind = Literal["json_schema"]
PermissionMode = Literal["bypassPermissions", "permissionsByAgent", "default", "acceptEdits", "plan"]
QueueItemStatus = Literal["pending", "processing", "completed", "failed", "cancelled"]
SessionStatus = Literal["starting", "active", "paused", "stopped", "ended", "error"]
WhenRunning = Literal["freeze", "interrupt", "reject"]


@dataclass(frozen=True, kw_only=True)
class Agent(Model):
    """A deployed agent."""

    id: str
    name: str
    tenant_id: str
    version: int
    path: str
    env: dict[str, str]
    runtime: str
    model: str | None
    files: int
    bytes: int
    created_at: datetime
    updated_at: datetime
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class AgentBody(Model):
    """One agent."""

    agent: Agent


@dataclass(frozen=True, kw_only=True)
class AgentConfig(Model):
    """The free settings of an agent."""

    config: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class AgentDeleted(Model):
    """An agent that is gone."""

    ok: bool


@dataclass(frozen=True, kw_only=True)
class AgentFileContent(Model):
    """A file of an agent, with its content."""

    path: str
    content: str
    size: int


@dataclass(frozen=True, kw_only=True)
class AgentFileDeleted(Model):
    """A file that is not in an agent any more."""

    path: str
    deleted: bool
    version: int


@dataclass(frozen=True, kw_only=True)
class AgentFileInfo(Model):
    """A file of an agent."""

    path: str
    size: int
    modified_at: datetime


@dataclass(frozen=True, kw_only=True)
class AgentFiles(Model):
    """The files of an agent."""

    files: list[AgentFileInfo]


@dataclass(frozen=True, kw_only=True)
class AgentFilesWritten(Model):
    """Files that were put into an agent."""

    written: int
    version: int


@dataclass(frozen=True, kw_only=True)
class AgentVersion(Model):
    """One version of an agent. Sessions keep what they were made with, whatever becomes of it."""

    id: str
    tenant_id: str
    version_number: int
    name: str
    agent_name: str
    is_active: bool
    release_notes: str | None
    knowledge_files: list[str] | None
    created_by: str | None
    agent_version: int
    digest: str
    system_prompt: str
    files: int
    bytes: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, kw_only=True)
class AgentVersionBody(Model):
    """One version."""

    version: AgentVersion


@dataclass(frozen=True, kw_only=True)
class AgentVersions(Model):
    """The versions of an agent, newest first."""

    versions: list[AgentVersion]


@dataclass(frozen=True, kw_only=True)
class Agents(Model):
    """A tenant's agents, by name."""

    agents: list[Agent]


@dataclass(frozen=True, kw_only=True)
class Analytics(Model):
    """A tenant's account in figures."""

    agents: AnalyticsAgents
    sessions: AnalyticsSessions
    usage: Stats
    evals: AnalyticsEvals


@dataclass(frozen=True, kw_only=True)
class AnalyticsAgents(Model):
    """Agents in figures."""

    total: int


@dataclass(frozen=True, kw_only=True)
class AnalyticsEvals(Model):
    """Evaluations in figures."""

    total_runs: int
    by_status: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class AnalyticsSessions(Model):
    """Sessions in figures."""

    total: int
    by_status: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class ApiKey(Model):
    """An API key, without its secret."""

    id: str
    label: str
    key_prefix: str
    created_at: str


@dataclass(frozen=True, kw_only=True)
class ApiKeyMade(Model):
    """A new API key. Its secret is shown this once."""

    id: str
    key: str
    tenant_id: str


@dataclass(frozen=True, kw_only=True)
class ApiKeys(Model):
    """A tenant's API keys."""

    keys: list[ApiKey]


@dataclass(frozen=True, kw_only=True)
class Attachment(Model):
    """A file that is attached to a session."""

    id: str
    tenant_id: str
    message_id: str
    session_id: str
    filename: str
    mime_type: str
    size: int
    path: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class AttachmentBody(Model):
    """A file that is attached to a session."""

    attachment: Attachment


@dataclass(frozen=True, kw_only=True)
class Attachments(Model):
    """The files that are attached to a session, oldest first."""

    attachments: list[Attachment]


@dataclass(frozen=True, kw_only=True)
class ChangeCounts(Model):
    """How many files differ."""

    added: int
    modified: int
    removed: int


@dataclass(frozen=True, kw_only=True)
class CloudFailure(Model):
    """Why a session is not in the cloud as it is."""

    message: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class CloudSession(Model):
    """A session that is in the cloud."""

    session_id: str
    agent_name: str
    title: str | None
    turns: int
    status: str | None
    seq: int
    snapshot_id: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class CloudSessions(Model):
    """Sessions that are in the cloud."""

    url: str
    sessions: list[CloudSession]
    unreadable: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class ConversationReceipt(Model):
    """What an agent itself remembers."""

    native: str
    turns: int
    turns_in_log: int


@dataclass(frozen=True, kw_only=True)
class Credential(Model):
    """A credential, without its secret."""

    id: str
    type: CredentialType
    label: str
    active: bool
    created_at: datetime
    last_used_at: datetime | None
    header: str | None = None
    host: str | None = None
    unusable: str | None = None


@dataclass(frozen=True, kw_only=True)
class CredentialBody(Model):
    """One credential."""

    credential: Credential


@dataclass(frozen=True, kw_only=True)
class Credentials(Model):
    """A tenant's credentials."""

    credentials: list[Credential]


@dataclass(frozen=True, kw_only=True)
class Done(Model):
    """Something is done, and there is nothing to tell about it."""

    ok: bool


@dataclass(frozen=True, kw_only=True)
class Egress(Model):
    """What a session's sandbox asked of others."""

    requests: list[EgressRequest]
    spent: Spent


@dataclass(frozen=True, kw_only=True)
class EgressRequest(Model):
    """A request of a sandbox. Its body, its headers and its query are not kept."""

    at: datetime
    kind: str
    method: str
    host: str
    path: str | None
    status: int | None
    refusal: str | None
    bytes_up: int
    bytes_down: int
    first_byte_ms: float | None
    total_ms: float


@dataclass(frozen=True, kw_only=True)
class Event(Model):
    """One entry of a session's log."""

    id: str
    cursor: str
    session_id: str
    tenant_id: str
    type: str
    data: str | None
    sequence: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Events(Model):
    """A part of a session's log."""

    events: list[Event]
    has_more: bool


@dataclass(frozen=True, kw_only=True)
class ExecOutcome(Model):
    """What became of a command."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool
    omitted_bytes: int


@dataclass(frozen=True, kw_only=True)
class FileContent(Model):
    """A file of a session, with its content."""

    path: str
    content: str
    size: int
    source: FileSource
    lossy: bool | None = None


@dataclass(frozen=True, kw_only=True)
class FileDeleted(Model):
    """A file that is gone."""

    path: str
    deleted: bool


@dataclass(frozen=True, kw_only=True)
class FileDiff(Model):
    """A file that differs."""

    path: str
    change: FileChange
    size_before: int | None
    size_after: int | None
    diff: str | None = None
    omitted: Omitted | None = None


@dataclass(frozen=True, kw_only=True)
class FileInfo(Model):
    """A file of a session."""

    path: str
    size: int
    modified_at: datetime
    executable: bool | None = None
    encoded_path: str | None = None


@dataclass(frozen=True, kw_only=True)
class FileWritten(Model):
    """What became of a file."""

    path: str
    written: bool
    size: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Files(Model):
    """The files of a session."""

    files: list[FileInfo]
    source: FileSource
    directories: list[str] | None = None
    truncated: bool | None = None


@dataclass(frozen=True, kw_only=True)
class FilesWritten(Model):
    """What became of each file, in the order they were sent."""

    files: list[FileWritten]


@dataclass(frozen=True, kw_only=True)
class Frame(Model):
    """One frame of an event stream. `docs/events.md` tells which there are."""

    event: str
    data: str
    id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Health(Model):
    """How the server is."""

    status: str
    version: str
    uptime: int
    isolation: str
    disk: str
    disk_pressure: bool
    can_record: bool
    active_sessions: int
    active_sandboxes: int
    pool: Pool
    runtimes: list[RuntimeHealth]
    coordinator_id: str
    remote_runners: int


@dataclass(frozen=True, kw_only=True)
class ImportedSession(Model):
    """A session that was in the cloud and is one of this server now."""

    session: Session
    warnings: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Log(Model):
    """A line of what a sandbox says about itself."""

    index: int
    level: str
    text: str
    ts: datetime


@dataclass(frozen=True, kw_only=True)
class LogGap(Model):
    """That lines are missing before the first one."""

    after: int
    next: int
    reason: LogGapReason


@dataclass(frozen=True, kw_only=True)
class Logs(Model):
    """What a sandbox says about itself."""

    logs: list[Log]
    source: str
    gap: LogGap | None = None


@dataclass(frozen=True, kw_only=True)
class Message(Model):
    """One message of a conversation."""

    id: str
    cursor: str
    session_id: str
    tenant_id: str
    role: str
    content: str
    sequence: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Messages(Model):
    """A part of a conversation."""

    messages: list[Message]
    has_more: bool


@dataclass(frozen=True, kw_only=True)
class Permission(Model):
    """A question that an agent asks before it does something."""

    id: str
    run_id: str
    seq: int
    tool: str
    input: Any
    asked_at: datetime
    decided: Behavior | None


@dataclass(frozen=True, kw_only=True)
class PermissionDecided(Model):
    """An answer that is kept."""

    id: str
    behavior: Behavior


@dataclass(frozen=True, kw_only=True)
class Permissions(Model):
    """The questions of a session that are open."""

    permissions: list[Permission]


@dataclass(frozen=True, kw_only=True)
class Pool(Model):
    """The sandboxes by what they do."""

    total: int
    cold: int
    warming: int
    warm: int
    pre_warmed: int
    waiting: int
    running: int
    max_capacity: int
    resume_warm_hits: int
    resume_cold_hits: int
    pre_warm_hits: int


@dataclass(frozen=True, kw_only=True)
class Problem(Model):
    """An error. `error` and `statusCode` are for everybody; `code` never changes and has a page of its own in
    the documentation."""

    error: str
    status_code: int
    code: str
    retryable: bool
    request_id: str


@dataclass(frozen=True, kw_only=True)
class QueueCounts(Model):
    """How many items stand how."""

    pending: int
    processing: int
    completed: int
    failed: int
    cancelled: int


@dataclass(frozen=True, kw_only=True)
class QueueItem(Model):
    """A prompt in the queue."""

    id: str
    tenant_id: str
    agent_name: str
    prompt: str
    status: QueueItemStatus
    priority: int
    retry_count: int
    max_retries: int
    created_at: datetime
    session_id: str | None = None
    error: str | None = None
    error_code: str | None = None
    run_id: str | None = None
    result: str | None = None
    stop_reason: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class QueueItemBody(Model):
    """A prompt in the queue."""

    item: QueueItem


@dataclass(frozen=True, kw_only=True)
class QueueItems(Model):
    """A page of the queue, newest first."""

    items: list[QueueItem]
    next_cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class QueueStats(Model):
    """How many items stand how."""

    stats: QueueCounts


@dataclass(frozen=True, kw_only=True)
class Ready(Model):
    """Whether the server takes work."""

    status: str


@dataclass(frozen=True, kw_only=True)
class ResumeReceipt(Model):
    """What came back."""

    path: str
    source: str | None
    workspace: str
    snapshot_id: str | None
    snapshot_seq: int | None
    last_seq: int
    files: int | None
    bytes: int | None
    conversation: ConversationReceipt
    interrupted_run: str | None
    duration_ms: float
    outdated: bool | None = None
    left_out: int | None = None
    unverified: int | None = None


@dataclass(frozen=True, kw_only=True)
class Resumed(Model):
    """A session that was brought back, and what of it came back."""

    session: Session
    resume: ResumeReceipt


@dataclass(frozen=True, kw_only=True)
class Rewound(Model):
    """A session that went back, and what became of its files."""

    session: Session
    changes: ChangeCounts
    unverified: int | None = None


@dataclass(frozen=True, kw_only=True)
class Run(Model):
    """The execution of one prompt."""

    id: str
    session_id: str
    status: str
    phase: str | None
    round: int
    turn: int | None
    parent_turn: int | None
    stop_reason: str | None
    error: RunError | None
    usage: Usage
    prompt_seq: int
    accepted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class RunBody(Model):
    """One run."""

    run: Run


@dataclass(frozen=True, kw_only=True)
class RunError(Model):
    """Why a run was cut or could not be done."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Runners(Model):
    """The machines that run sandboxes."""

    runners: list[str]
    count: int
    has_local: bool


@dataclass(frozen=True, kw_only=True)
class Runs(Model):
    """A session's runs, newest first."""

    runs: list[Run]


@dataclass(frozen=True, kw_only=True)
class RuntimeHealth(Model):
    """Something that can run agents."""

    name: str
    source: str
    version: str | None = None
    verified: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Sent(Model):
    """A message that was accepted, and is worked on without anybody watching."""

    run_id: str
    seq: int


@dataclass(frozen=True, kw_only=True)
class Session(Model):
    """One conversation with its workspace and its log."""

    id: str
    tenant_id: str
    agent_name: str
    agent_version: int
    sandbox_id: str
    status: SessionStatus
    created_at: datetime
    last_active_at: datetime
    runner_id: str | None
    parent_session_id: str | None
    model: str | None
    config: dict[str, Any]
    title: str | None
    metadata: dict[str, str]
    activity: Activity | None
    incarnation: int
    pause_reason: str | None
    error: SessionError | None
    last_seq: int
    log_epoch: int
    turns: int
    queued: int
    open_permissions: int
    expires_at: datetime | None
    snapshot: SessionSnapshot | None
    snapshot_pending: bool
    snapshot_error: SnapshotFailure | None
    cloud_seq: int | None
    cloud_error: CloudFailure | None
    isolation: str


@dataclass(frozen=True, kw_only=True)
class SessionBody(Model):
    """One session."""

    session: Session


@dataclass(frozen=True, kw_only=True)
class SessionError(Model):
    """What went wrong with a session."""

    code: str
    message: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class SessionSnapshot(Model):
    """The last snapshot of a session."""

    id: str
    seq: int
    turn: int
    at: datetime
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Sessions(Model):
    """A page of sessions, newest first."""

    sessions: list[Session]
    next_cursor: str | None
    total: int | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot(Model):
    """A snapshot of what a session works on."""

    id: str
    seq: int
    turn: int
    created_at: datetime
    files: int
    bytes: int
    new_bytes: int
    unfrozen: int
    unstable: int
    location: SnapshotLocation
    unverified: int | None = None


@dataclass(frozen=True, kw_only=True)
class SnapshotDiff(Model):
    """How the files of two snapshots differ."""

    snapshot_id: str
    against: str | None
    changes: ChangeCounts
    files: list[FileDiff]
    left_out: int


@dataclass(frozen=True, kw_only=True)
class SnapshotFailure(Model):
    """Why files were not captured."""

    message: str
    attempts: int
    at: datetime


@dataclass(frozen=True, kw_only=True)
class SnapshotLocation(Model):
    """Where a snapshot lies."""

    local: bool
    cloud: bool


@dataclass(frozen=True, kw_only=True)
class Snapshots(Model):
    """A session's snapshots, newest first."""

    snapshots: list[Snapshot]


@dataclass(frozen=True, kw_only=True)
class Spent(Model):
    """What a session has spent."""

    cost_usd: float
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Stats(Model):
    """What runs consumed together."""

    total_input_tokens: int
    total_output_tokens: int
    total_cache_creation_tokens: int
    total_cache_read_tokens: int
    total_tool_calls: int
    total_messages: int
    total_compute_seconds: int
    total_cost_usd: float


@dataclass(frozen=True, kw_only=True)
class Usage(Model):
    """What a run consumed."""

    input_tokens: int
    output_tokens: int
    cache_creation_tokens: int
    cache_read_tokens: int
    tool_calls: int
    cost_usd: float


@dataclass(frozen=True, kw_only=True)
class UsageEvent(Model):
    """One figure of one run."""

    id: str
    session_id: str
    agent_name: str
    tenant_id: str
    event_type: str
    value: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class UsageEvents(Model):
    """What runs consumed, newest first."""

    events: list[UsageEvent]


@dataclass(frozen=True, kw_only=True)
class UsageStats(Model):
    """The sum."""

    stats: Stats


@dataclass(frozen=True, kw_only=True)
class VersionActivated(Model):
    """A version that new sessions get from now on."""

    activated: bool
    version_number: int


@dataclass(frozen=True, kw_only=True)
class VersionDeleted(Model):
    """A version that is gone."""

    deleted: bool
    version_number: int


@dataclass(frozen=True, kw_only=True)
class WorkspaceUploaded(Model):
    """What became of a workspace."""

    message: str
    files: int
    bytes: int


class AgentFile(TypedDict):
    """A file of an agent, sent along."""

    path: str
    content: str
    executable: NotRequired[bool | None]


class TextBlock(TypedDict):
    """Text."""

    text: str
    type: Literal["text"]


class ImageBlock(TypedDict):
    """A picture."""

    source: dict[str, Any]
    type: Literal["image"]


class DocumentBlock(TypedDict):
    """A document."""

    source: dict[str, Any]
    type: Literal["document"]


class CreateSession(TypedDict):
    """A session to be made."""

    agent: str
    credentialId: NotRequired[str | None]
    credentialIds: NotRequired[list[str]]
    extraEnv: NotRequired[dict[str, str] | None]
    model: NotRequired[str | None]
    mcpServers: NotRequired[dict[str, McpServer] | None]
    systemPrompt: NotRequired[str | None]
    permissionMode: NotRequired[PermissionMode | None]
    permissionTimeoutMs: NotRequired[int | None]
    allowedTools: NotRequired[list[str] | None]
    disallowedTools: NotRequired[list[str] | None]
    betas: NotRequired[list[str] | None]
    subagents: NotRequired[dict[str, Any] | None]
    initialAgent: NotRequired[str | None]
    title: NotRequired[str | None]
    metadata: NotRequired[dict[str, str] | None]
    idleTimeoutMs: NotRequired[int | None]
    ttlMs: NotRequired[int | None]
    budgetUsd: NotRequired[float | None]
    budgetTokens: NotRequired[int | None]


class DecidePermission(TypedDict):
    """An answer to a question."""

    behavior: Behavior
    input: NotRequired[dict[str, Any] | None]
    message: NotRequired[str | None]


class DeployAgent(TypedDict):
    """An agent to be deployed: from a directory of the server's machine, from files that are sent along, or
    from instructions alone. One of the three."""

    name: str
    path: NotRequired[str | None]
    files: NotRequired[list[AgentFile] | None]
    systemPrompt: NotRequired[str | None]
    env: NotRequired[dict[str, str] | None]


class ExecCommand(TypedDict):
    """A command to be run beside the agent."""

    command: str
    timeout: NotRequired[int | None]


class ForkSession(TypedDict):
    """Where a new session begins. Without anything, where the other one is now."""

    snapshotId: NotRequired[str | None]
    turn: NotRequired[int | None]


class InterruptSession(TypedDict):
    """What to interrupt."""

    runId: NotRequired[str | None]


class McpServer(TypedDict):
    """An MCP server."""

    url: NotRequired[str | None]
    command: NotRequired[str | None]
    args: NotRequired[list[str] | None]
    env: NotRequired[dict[str, str] | None]


class NewAgentVersion(TypedDict):
    """A version of an agent to be added. New sessions get it once it is activated."""

    name: NotRequired[str | None]
    systemPrompt: NotRequired[str | None]
    releaseNotes: NotRequired[str | None]
    knowledgeFiles: NotRequired[list[str] | None]
    cloneFrom: NotRequired[CloneFrom | None]


class NewApiKey(TypedDict):
    """An API key to be made."""

    label: NotRequired[str]
    tenantId: NotRequired[str | None]


class NewAttachment(TypedDict):
    """A file to be attached to a session."""

    filename: str
    mimeType: NotRequired[str | None]
    content: str
    messageId: NotRequired[str | None]


class NewCredential(TypedDict):
    """A credential to be kept."""

    type: CredentialType
    key: str
    label: NotRequired[str | None]
    header: NotRequired[str | None]
    host: NotRequired[str | None]


class NewFile(TypedDict):
    """A file to be written."""

    path: str
    content: str
    executable: NotRequired[bool | None]


class NewQueueItem(TypedDict):
    """A prompt to be worked on when there is room."""

    agentName: str
    prompt: str
    sessionId: NotRequired[str | None]
    priority: NotRequired[int | None]
    maxRetries: NotRequired[int | None]


class NewTenantKey(TypedDict):
    """A key to be made for a tenant by whoever runs the server."""

    tenantId: str
    label: NotRequired[str | None]


class OutputFormat(TypedDict):
    """The shape of an answer."""

    type: OutputKind
    schema: dict[str, Any]


class PauseSession(TypedDict):
    """How to pause."""

    ifRunning: NotRequired[WhenRunning]


class ResumeSession(TypedDict):
    """How to bring a session back."""

    requireState: NotRequired[bool]
    allowFresh: NotRequired[bool]


class RewindSession(TypedDict):
    """Where a session goes back to: one of the first two."""

    snapshotId: NotRequired[str | None]
    turn: NotRequired[int | None]
    dryRun: NotRequired[bool]


class SendMessage(TypedDict):
    """A message to a session."""

    content: Content
    includePartialMessages: NotRequired[bool | None]
    model: NotRequired[str | None]
    maxTurns: NotRequired[int | None]
    maxBudgetUsd: NotRequired[float | None]
    effort: NotRequired[Effort | None]
    thinking: NotRequired[Thinking | None]
    outputFormat: NotRequired[OutputFormat | None]
    permissionMode: NotRequired[PermissionMode | None]
    permissionTimeoutMs: NotRequired[int | None]
    allowedTools: NotRequired[list[str] | None]
    disallowedTools: NotRequired[list[str] | None]
    detach: NotRequired[bool]
    ifBusy: NotRequired[IfBusy]
    wake: NotRequired[bool]
    timeoutMs: NotRequired[int | None]


class EnabledThinking(TypedDict):
    """It does, for this many tokens."""

    budgetTokens: NotRequired[int | None]
    type: Literal["enabled"]


class AdaptiveThinking(TypedDict):
    """It does, as it finds right."""

    type: Literal["adaptive"]


class DisabledThinking(TypedDict):
    """It does not."""

    type: Literal["disabled"]


class UpdateAgent(TypedDict):
    """What to change about an agent. What is not named stays."""

    env: NotRequired[dict[str, str] | None]
    config: NotRequired[dict[str, Any] | None]


class UpdateAgentVersion(TypedDict):
    """What to change about a version. What is not named stays."""

    name: NotRequired[str | None]
    systemPrompt: NotRequired[str | None]
    releaseNotes: NotRequired[str | None]
    knowledgeFiles: NotRequired[list[str] | None]


class UpdateConfig(TypedDict):
    """Options of a session that can be changed. Those that are not named stay."""

    model: NotRequired[str | None]
    permissionMode: NotRequired[PermissionMode | None]
    permissionTimeoutMs: NotRequired[int | None]
    allowedTools: NotRequired[list[str] | None]
    disallowedTools: NotRequired[list[str] | None]
    betas: NotRequired[list[str] | None]
    subagents: NotRequired[dict[str, Any] | None]
    initialAgent: NotRequired[str | None]
    title: NotRequired[str | None]
    metadata: NotRequired[dict[str, str] | None]


class UploadWorkspace(TypedDict):
    """A workspace to be unpacked."""

    bundle: str


class WriteAgentFiles(TypedDict):
    """Files to be put into an agent."""

    files: list[AgentFile]


class WriteFiles(TypedDict):
    """Files to be written: each whole or not at all."""

    files: list[NewFile]
    targetPath: NotRequired[str | None]


Block = Union[TextBlock, ImageBlock, DocumentBlock]
CloneFrom = Union[int, str]
Content = Union[str, list[Block]]
Thinking = Union[EnabledThinking, AdaptiveThinking, DisabledThinking]
