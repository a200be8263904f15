//! Sessions.

use reqwest::Method;
use serde::Serialize;
use serde_json::json;
use uuid::Uuid;

use crate::api::{
    CloudSessions, CreateSession, DecidePermission, Egress, Event, Events, ExecCommand,
    ExecOutcome, ForkSession, ImportedSession, InterruptSession, Logs, Message, Messages,
    PauseSession, Permission, PermissionDecided, Permissions, ResumeSession, Resumed,
    RewindSession, Rewound, Run, RunBody, Runs, SendMessage, Sent, Session, SessionBody,
    SessionStatus, Sessions, Snapshot, SnapshotDiff, Snapshots, UpdateConfig,
};

use super::error::ClientError;
use super::request::{Ask, Client, Repeat, idempotency_key};
use super::stream::{Cursor, EventStream};

/// Which sessions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionQuery {
    /// Those of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Those that stand so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<SessionStatus>,
    /// Those whose id begins so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_prefix: Option<String>,
    /// At most so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The page that begins here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// How long a log is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until nothing is worked on.
    Idle,
    /// For ever.
    Dropped,
}

fn at(session: Uuid, rest: &str) -> String {
    format!("/api/sessions/{session}{rest}")
}

impl Client {
    /// Makes a session. It is ready when this returns.
    pub async fn create_session(&self, new: &CreateSession) -> Result<Session, ClientError> {
        let repeat = Repeat::Keyed(idempotency_key());
        let answer: SessionBody = self.ask(Ask::post("/api/sessions".into(), new, repeat)).await?;
        Ok(answer.session)
    }

    /// A page of sessions, newest first.
    pub async fn sessions(&self, query: &SessionQuery) -> Result<Sessions, ClientError> {
        let query = serde_urlencoded::to_string(query).expect("a query is a list of short texts");
        self.ask(Ask::get(format!("/api/sessions?{query}"))).await
    }

    /// One session.
    pub async fn session(&self, id: Uuid) -> Result<Session, ClientError> {
        let answer: SessionBody = self.ask(Ask::get(at(id, ""))).await?;
        Ok(answer.session)
    }

    /// Changes the options of a session.
    pub async fn configure(&self, id: Uuid, to: &UpdateConfig) -> Result<Session, ClientError> {
        let ask = Ask::send(Method::PATCH, at(id, "/config"), to, Repeat::Safe);
        let answer: SessionBody = self.ask(ask).await?;
        Ok(answer.session)
    }

    /// Sends a message and follows its run to the end, over broken connections. Needs a
    /// runtime: the message is on its way when this returns.
    pub fn send(&self, id: Uuid, message: &SendMessage) -> EventStream {
        let message = SendMessage { detach: false, ..message.clone() };
        let repeat = Repeat::Keyed(idempotency_key());
        EventStream::of_message(self.clone(), id, Ask::post(at(id, "/messages"), &message, repeat))
    }

    /// Sends a message, and returns once it is accepted.
    pub async fn send_detached(
        &self,
        id: Uuid,
        message: &SendMessage,
    ) -> Result<Sent, ClientError> {
        let message = SendMessage { detach: true, ..message.clone() };
        let repeat = Repeat::Keyed(idempotency_key());
        self.ask(Ask::post(at(id, "/messages"), &message, repeat)).await
    }

    /// Follows the log of a session: what is after `after`, then what comes. Needs a
    /// runtime.
    pub fn follow(&self, id: Uuid, after: Cursor, until: Until) -> EventStream {
        EventStream::of_log(self.clone(), id, after, until)
    }

    /// Stops a session: its sandbox goes, its workspace stays.
    pub async fn stop(&self, id: Uuid) -> Result<Session, ClientError> {
        let answer: SessionBody =
            self.ask(Ask::post(at(id, "/stop"), &json!({}), Repeat::Never)).await?;
        Ok(answer.session)
    }

    /// Puts a session to rest where it is.
    pub async fn pause(&self, id: Uuid, how: &PauseSession) -> Result<Session, ClientError> {
        let answer: SessionBody = self.ask(Ask::post(at(id, "/pause"), how, Repeat::Never)).await?;
        Ok(answer.session)
    }

    /// The snapshots of a session, newest first.
    pub async fn snapshots(&self, id: Uuid) -> Result<Vec<Snapshot>, ClientError> {
        let answer: Snapshots = self.ask(Ask::get(at(id, "/snapshots?limit=1000"))).await?;
        Ok(answer.snapshots)
    }

    /// What a session's sandbox asked of others, newest first.
    pub async fn egress(&self, id: Uuid) -> Result<Egress, ClientError> {
        self.ask(Ask::get(at(id, "/egress"))).await
    }

    /// Begins another session where one was.
    pub async fn fork(&self, id: Uuid, from: &ForkSession) -> Result<Session, ClientError> {
        let repeat = Repeat::Keyed(idempotency_key());
        let answer: SessionBody = self.ask(Ask::post(at(id, "/fork"), from, repeat)).await?;
        Ok(answer.session)
    }

    /// Puts a session back to where it was.
    pub async fn rewind(&self, id: Uuid, to: &RewindSession) -> Result<Rewound, ClientError> {
        let repeat = if to.dry_run { Repeat::Safe } else { Repeat::Never };
        self.ask(Ask::post(at(id, "/rewind"), to, repeat)).await
    }

    /// How the files of a snapshot differ from those of another one, of none, or of the last one: all of them, or
    /// those at or beneath a path.
    pub async fn diff(
        &self,
        id: Uuid,
        snapshot: Uuid,
        against: Option<&str>,
        path: Option<&str>,
    ) -> Result<SnapshotDiff, ClientError> {
        let query = serde_urlencoded::to_string([("against", against), ("path", path)])
            .expect("a query of ours can be written");
        self.ask(Ask::get(at(id, &format!("/snapshots/{snapshot}/diff?{query}")))).await
    }

    /// The sessions that are in the server's bucket, newest first.
    pub async fn cloud_sessions(&self) -> Result<CloudSessions, ClientError> {
        self.ask(Ask::get("/api/cloud/sessions?limit=1000".into())).await
    }

    /// Makes a session that is in the server's bucket one of the server.
    pub async fn import_cloud_session(&self, id: Uuid) -> Result<ImportedSession, ClientError> {
        let path = format!("/api/cloud/sessions/{id}/import");
        let repeat = Repeat::Keyed(idempotency_key());
        self.ask(Ask::post(path, &json!({}), repeat)).await
    }

    /// Brings a session back.
    pub async fn resume(&self, id: Uuid, how: &ResumeSession) -> Result<Resumed, ClientError> {
        self.ask(Ask::post(at(id, "/resume"), how, Repeat::Safe)).await
    }

    /// Ends a session for ever.
    pub async fn end(&self, id: Uuid) -> Result<Session, ClientError> {
        let answer: SessionBody = self.ask(Ask::delete(at(id, ""))).await?;
        Ok(answer.session)
    }

    /// Cuts that run, also if it still waits, or else the one that goes on.
    pub async fn interrupt(&self, id: Uuid, run: Option<Uuid>) -> Result<Run, ClientError> {
        let which = InterruptSession { run_id: run };
        let answer: RunBody =
            self.ask(Ask::post(at(id, "/interrupt"), &which, Repeat::Never)).await?;
        Ok(answer.run)
    }

    /// The permission questions of a session that are open.
    pub async fn permissions(&self, id: Uuid) -> Result<Vec<Permission>, ClientError> {
        let answer: Permissions = self.ask(Ask::get(at(id, "/permissions"))).await?;
        Ok(answer.permissions)
    }

    /// Answers a permission question.
    pub async fn decide(
        &self,
        id: Uuid,
        permission: Uuid,
        decision: &DecidePermission,
    ) -> Result<PermissionDecided, ClientError> {
        // The same answer twice is one.
        let path = at(id, &format!("/permissions/{permission}"));
        self.ask(Ask::post(path, decision, Repeat::Safe)).await
    }

    /// Runs a command beside the agent.
    pub async fn exec(&self, id: Uuid, command: &ExecCommand) -> Result<ExecOutcome, ClientError> {
        // A command that may have run is not run again.
        self.ask(Ask::post(at(id, "/exec"), command, Repeat::Never)).await
    }

    /// The runs of a session, newest first.
    pub async fn runs(&self, id: Uuid) -> Result<Vec<Run>, ClientError> {
        let answer: Runs = self.ask(Ask::get(at(id, "/runs"))).await?;
        Ok(answer.runs)
    }

    /// One run.
    pub async fn run(&self, id: Uuid, run: Uuid) -> Result<Run, ClientError> {
        let answer: RunBody = self.ask(Ask::get(at(id, &format!("/runs/{run}")))).await?;
        Ok(answer.run)
    }

    /// A part of the log, as a list.
    pub async fn events(
        &self,
        id: Uuid,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Event>, ClientError> {
        let path = at(id, &format!("/events?after={after}&limit={limit}&type=all"));
        let answer: Events = self.ask(Ask::get(path)).await?;
        Ok(answer.events)
    }

    /// A part of the conversation.
    pub async fn messages(
        &self,
        id: Uuid,
        after: u64,
        limit: u32,
    ) -> Result<Vec<Message>, ClientError> {
        let path = at(id, &format!("/messages?after={after}&limit={limit}"));
        let answer: Messages = self.ask(Ask::get(path)).await?;
        Ok(answer.messages)
    }

    /// What the sandbox says about itself, from the first line after `after` on.
    pub async fn logs(&self, id: Uuid, after: Option<u64>) -> Result<Logs, ClientError> {
        let after = after.map(|after| format!("?after={after}")).unwrap_or_default();
        self.ask(Ask::get(at(id, &format!("/logs{after}")))).await
    }
}
