//! What crosses the wire between a client and the server: bodies, query strings and event names.
//!
//! The types serve three readers: the HTTP handlers, the command line's client, and the OpenAPI
//! document that is generated from them. Field names are camelCase, times are RFC 3339 in UTC with
//! milliseconds, ids are UUIDs. A field that was ever answered keeps its name and its meaning.

mod account;
mod agent;
mod attachment;
mod cloud;
mod egress;
mod event;
mod file;
mod history;
mod message;
mod object;
mod permission;
mod problem;
mod queue;
mod run;
pub(crate) mod schema;
mod session;
mod snapshot;

pub use account::{
    Analytics, AnalyticsAgents, AnalyticsEvals, AnalyticsSessions, ApiKey, ApiKeyMade, ApiKeys,
    Credential, CredentialBody, CredentialType, Credentials, Done, NewApiKey, NewCredential,
    NewTenantKey, Runners, Stats, UsageEvent, UsageEvents, UsageStats,
};
pub use agent::{
    Agent, AgentBody, AgentConfig, AgentDeleted, AgentFile, AgentFileContent, AgentFileDeleted,
    AgentFileInfo, AgentFiles, AgentFilesWritten, AgentVersion, AgentVersionBody, AgentVersions,
    Agents, CloneFrom, DeployAgent, NewAgentVersion, UpdateAgent, UpdateAgentVersion,
    VersionActivated, VersionDeleted, WriteAgentFiles,
};
pub use ash_core::rfc3339::{from_rfc3339, rfc3339};
pub use attachment::{Attachment, AttachmentBody, Attachments, NewAttachment};
pub use cloud::{CloudSession, CloudSessions, ImportedSession};
pub use egress::{Egress, EgressRequest, Spent};
pub use event::{Event, Events, Frame, Log, LogGap, LogGapReason, Logs, Message, Messages};
pub use file::{
    FileContent, FileDeleted, FileInfo, FileSource, FileWritten, Files, FilesWritten, NewFile,
    UploadWorkspace, WorkspaceUploaded, WriteFiles,
};
pub use history::{
    ChangeCounts, FileChange, FileDiff, ForkSession, Omitted, RewindSession, Rewound, SnapshotDiff,
};
pub use message::{
    Block, Content, Effort, ExecCommand, ExecOutcome, IfBusy, MAX_BLOCKS, MAX_TEXT_CHARS,
    OutputFormat, SendMessage, Sent, Thinking,
};
pub(crate) use object::Object;
pub use permission::{Behavior, DecidePermission, Permission, PermissionDecided, Permissions};
pub use problem::Problem;
pub use queue::{
    NewQueueItem, QueueCounts, QueueItem, QueueItemBody, QueueItemStatus, QueueItems, QueueStats,
};
pub use run::{Run, RunBody, RunError, Runs, Usage};
pub use session::{
    Activity, CloudFailure, ConversationReceipt, CreateSession, InterruptSession, McpServer,
    PauseSession, PermissionMode, ResumeReceipt, ResumeSession, Resumed, Session, SessionBody,
    SessionError, SessionStatus, Sessions, UpdateConfig, WhenRunning,
};
pub use snapshot::{SessionSnapshot, Snapshot, SnapshotFailure, SnapshotLocation, Snapshots};
