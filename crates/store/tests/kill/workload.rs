//! What the writer writes: several tasks that claim the same few sessions from each other and
//! drive them with the real state machine.
//!
//! Every commit with entries carries a receipt named after the first of them, which says where the
//! last one is and what they hash to, and one outbox task of the same name. So the receipts of a
//! session tile its log: whoever reads it can tell from the store alone whether each commit is
//! there whole.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ash_core::id::{AgentId, AgentName, OutboxId, RunId, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Fence, Owner, Seq, SpoolPosition};
use ash_core::policy::{Context, Policy};
use ash_core::resume::{Found, IfLost};
use ash_core::run::{Completion, Phase, Usage};
use ash_core::session::{
    AgentEnding, Decision, Fact, IfBusy, IfRunning, LogEntry, NumberedReport, Prompt, Report,
    ReportBody, Request, Sandbox, Session, State, Wake,
};
use ash_core::time::Timestamp;
use ash_store::sqlite::SqliteStore;
use ash_store::{
    Commit, NewAgentVersion, NewSession, OutboxItem, Receipt, ReceiptKey, SessionRecord, Settings,
    Store, StoreError,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::random::Random;
use crate::{Fallible, database, say};

/// How many sessions the tasks fight over.
pub(crate) const SESSIONS: u8 = 8;
/// How many tasks write at once.
const TASKS: u64 = 6;
/// How many commits a task makes before it lets a session go, at the most.
const COMMITS_PER_CLAIM: u64 = 12;
/// The topic of every outbox task, and the route of every receipt.
pub(crate) const TOPIC: &str = "kill-test";
/// Time stands still: nothing here depends on it.
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) fn tenant() -> TenantId {
    TenantId::default_tenant()
}

pub(crate) fn session_id(slot: u8) -> SessionId {
    SessionId::from_parts(NOW, [slot; 10])
}

fn agent_id() -> AgentId {
    AgentId::from_parts(NOW, [0; 10])
}

fn agent_name() -> Fallible<AgentName> {
    Ok("victim".parse()?)
}

/// The name of the commit that begins at `first`.
pub(crate) fn commit_name(session: SessionId, first: Seq) -> String {
    format!("{session}/{first}")
}

pub(crate) fn receipt_key(session: SessionId, first: Seq) -> ReceiptKey {
    ReceiptKey { tenant: tenant(), route: TOPIC.to_owned(), key: commit_name(session, first) }
}

/// What the receipt of a commit says, and the line that the writer prints for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Acknowledged {
    pub(crate) session: SessionId,
    pub(crate) owner: Owner,
    pub(crate) fence: Fence,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// In hexadecimal digits.
    pub(crate) checksum: String,
}

/// What the content of some entries hashes to.
pub(crate) fn checksum(entries: &[LogEntry]) -> Fallible<String> {
    let mut hasher = DefaultHasher::new();
    for entry in entries {
        (entry.seq, entry.at).hash(&mut hasher);
        serde_json::to_string(&entry.entry)?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// Writes until the process is killed, and prints what was acknowledged.
pub(crate) async fn write_until_killed(directory: &Path, seed: u64) -> Fallible<()> {
    let store = Arc::new(SqliteStore::open(&database(directory))?);
    // All its tasks are one owner, and a later one than the process that was killed before. Were it
    // not, a claim would be refused, and a writer that ends by itself is a fault.
    let owner = store.next_owner().await?;
    deploy(&*store).await?;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut writer = Writer::new(owner, seed.wrapping_mul(TASKS).wrapping_add(task));
            loop {
                // Errors as text: only what is `Send` leaves a task.
                let acknowledged =
                    writer.write(&*store).await.map_err(|error| error.to_string())?;
                if let Some(acknowledged) = acknowledged {
                    print(&acknowledged).map_err(|error| error.to_string())?;
                }
            }
        });
    }
    let ended: Option<Result<Result<(), String>, _>> = tasks.join_next().await;
    match ended {
        Some(Ok(Err(error))) => Err(error.into()),
        Some(Err(panic)) => Err(panic.into()),
        Some(Ok(Ok(()))) | None => Err("a task that writes for ever has ended".into()),
    }
}

pub(crate) fn print(acknowledged: &Acknowledged) -> Fallible<()> {
    say(&serde_json::to_string(acknowledged)?)?;
    Ok(())
}

/// Sees to it that the agent is there.
pub(crate) async fn deploy(store: &dyn Store) -> Fallible<()> {
    match store.agent(&tenant(), &agent_name()?).await {
        Ok(_) => return Ok(()),
        Err(StoreError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let first = NewAgentVersion {
        id: agent_id(),
        tenant: tenant(),
        name: agent_name()?,
        definition: Json::of("nothing")?,
        at: NOW,
        receipt: None,
        settings: None,
        label: ash_store::NewLabel::default(),
    };
    store.deploy_agent(&first).await?;
    Ok(())
}

/// One task that writes: it holds at most one session at a time.
pub(crate) struct Writer {
    random: Random,
    policy: Policy,
    owner: Owner,
    held: Option<(Session, Fence)>,
    commits_left: u64,
}

impl Writer {
    pub(crate) fn new(owner: Owner, seed: u64) -> Self {
        let random = Random::new(seed);
        Self { random, policy: Policy::default(), owner, held: None, commits_left: 0 }
    }

    /// One write: of a session, or to get hold of one. Returns the commit if there was one with
    /// entries. After an error that is transient it knows nothing and claims again.
    pub(crate) async fn write(
        &mut self,
        store: &dyn Store,
    ) -> Result<Option<Acknowledged>, StoreError> {
        if self.commits_left == 0 {
            self.held = None;
        }
        let Some((session, fence)) = self.held.take() else {
            return self.take_up(store).await;
        };
        self.commits_left -= 1;
        let mut next = session.clone();
        let decision = self.decide(&mut next);
        let (commit, acknowledged) = self.commit_of(fence, session.last_seq(), &next, decision)?;
        match store.commit(&commit).await {
            Ok(()) => {
                self.held = Some((next, fence));
                Ok(acknowledged)
            }
            // Another task has it now.
            Err(StoreError::Fenced { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn take_up(&mut self, store: &dyn Store) -> Result<Option<Acknowledged>, StoreError> {
        let slot = u8::try_from(self.random.below(SESSIONS.into())).unwrap_or(0);
        let id = session_id(slot);
        self.commits_left = 1 + self.random.below(COMMITS_PER_CLAIM);
        match store.claim_session(id, self.owner).await {
            Ok(claimed) => {
                self.held = Some((claimed.session, claimed.fence));
                Ok(None)
            }
            Err(StoreError::NotFound(_)) => match self.create(store, id).await {
                // Another task was quicker.
                Err(StoreError::Exists(_)) => Ok(None),
                created => created,
            },
            Err(error) => Err(error),
        }
    }

    async fn create(
        &mut self,
        store: &dyn Store,
        id: SessionId,
    ) -> Result<Option<Acknowledged>, StoreError> {
        let ctx = Context { now: NOW, policy: &self.policy };
        let (session, decision) = Session::create(&ctx, id, None);
        let fence = Fence::new(1);
        let (commit, acknowledged) = self.commit_of(fence, Seq::ZERO, &session, decision)?;
        let record = SessionRecord {
            id,
            tenant: tenant(),
            agent: agent_id(),
            agent_name: agent_name().map_err(|error| broken(&error.to_string()))?,
            agent_version: AgentVersion::new(1),
            parent: None,
            created_at: NOW,
            settings: Settings {
                title: None,
                model: None,
                metadata: [].into(),
                config: json("options")?,
            },
        };
        let new = NewSession {
            record,
            session: commit.session,
            due_at: commit.due_at,
            entries: commit.entries,
            owner: self.owner,
            receipt: commit.receipt,
        };
        let fence = store.create_session(&new).await?;
        self.held = Some((session, fence));
        Ok(acknowledged)
    }

    /// The commit, and what is printed once it is acknowledged.
    fn commit_of(
        &mut self,
        fence: Fence,
        expected_seq: Seq,
        session: &Session,
        decision: Decision,
    ) -> Result<(Commit, Option<Acknowledged>), StoreError> {
        let mut commit = Commit {
            fence,
            expected_seq,
            session: session.clone(),
            due_at: session.next_deadline(&self.policy),
            entries: decision.entries,
            runs: decision.runs,
            settings: None,
            snapshots: Vec::new(),
            outbox: Vec::new(),
            receipt: None,
        };
        if commit.entries.is_empty() {
            return Ok((commit, None));
        }
        let first = expected_seq.next();
        let checksum = checksum(&commit.entries).map_err(|error| broken(&error.to_string()))?;
        let last = session.last_seq();
        let (id, owner) = (session.id(), self.owner);
        let acknowledged = Acknowledged { session: id, owner, fence, first, last, checksum };
        commit.receipt = Some(Receipt {
            key: receipt_key(session.id(), first),
            body_digest: [0; 32],
            answer: Json::of(&acknowledged).map_err(|error| broken(&error.to_string()))?,
            at: NOW,
        });
        if expected_seq != Seq::ZERO {
            commit.outbox.push(OutboxItem {
                id: OutboxId::from_parts(NOW, self.random.bytes()),
                topic: TOPIC.to_owned(),
                payload: json(&commit_name(session.id(), first))?,
                ready_at: NOW,
            });
        }
        Ok((commit, Some(acknowledged)))
    }

    /// Something that can happen to a session as it stands.
    fn decide(&mut self, session: &mut Session) -> Decision {
        let policy = self.policy.clone();
        let ctx = Context { now: NOW, policy: &policy };
        let incarnation = session.incarnation();
        match session.sandbox() {
            Sandbox::Starting { .. } => {
                return session
                    .observe(&ctx, Fact::SandboxStarted { incarnation, found: Found::NOTHING });
            }
            Sandbox::Freezing { asked, .. } => {
                return session.observe(&ctx, Fact::SandboxFrozen { incarnation, asked });
            }
            Sandbox::Thawing { asked, .. } => {
                return session.observe(&ctx, Fact::SandboxThawed { incarnation, asked });
            }
            Sandbox::None | Sandbox::Live | Sandbox::Frozen { .. } | Sandbox::Stopping { .. } => {}
        }
        let request = match (session.state(), session.current_run().map(|run| run.id)) {
            (State::Active, Some(run)) if self.random.below(8) > 0 => {
                let reports = self.reports(session, run);
                return session.observe(&ctx, Fact::Reported { incarnation, reports });
            }
            (State::Active, Some(_)) if self.random.below(2) == 0 => {
                Request::Pause { if_running: IfRunning::Freeze }
            }
            (State::Paused { .. }, _) => Request::Resume(IfLost::default().into()),
            _ => self.prompt(),
        };
        // A refusal changes nothing, and then the commit is one without entries.
        session.request(&ctx, request).unwrap_or_default()
    }

    fn prompt(&mut self) -> Request {
        Request::Prompt(Prompt {
            run: RunId::from_parts(NOW, self.random.bytes()),
            content: json(&self.text()).unwrap_or_else(|_| unreachable!("a text is JSON")),
            if_busy: IfBusy::Queue,
            wake: Wake::Any,
            timeout: Some(Duration::from_secs(60)),
            asked_at: None,
        })
    }

    fn reports(&mut self, session: &Session, run: RunId) -> Vec<NumberedReport> {
        let count = 1 + self.random.below(5);
        let mut position = session.spool().get();
        let mut reports = Vec::new();
        for _ in 0..count {
            position += 1;
            let body = self.report();
            let report = Report { run: Some(run), body };
            reports.push(NumberedReport { position: SpoolPosition::new(position), report });
        }
        reports
    }

    fn report(&mut self) -> ReportBody {
        match self.random.below(8) {
            0 => ReportBody::Ended {
                how: AgentEnding::Completed(Completion::EndTurn),
                usage: Usage { input_tokens: self.random.below(1000), ..Usage::default() },
            },
            1 | 2 => {
                let round = u32::try_from(self.random.below(20)).unwrap_or(0);
                ReportBody::Phase { phase: Phase::ExecutingTools, round }
            }
            3 | 4 => ReportBody::TextDelta(self.text()),
            _ => match json(&self.text()) {
                Ok(message) => ReportBody::Message(message),
                Err(_) => ReportBody::Begun,
            },
        }
    }

    /// Mostly short, now and then longer than a page of the database.
    fn text(&mut self) -> String {
        let longest = if self.random.below(10) == 0 { 12_000 } else { 300 };
        let length = self.random.below(longest);
        (0..length).map(|_| char::from(b'a' + (self.random.next() % 26) as u8)).collect()
    }
}

fn json(text: &str) -> Result<Json, StoreError> {
    Json::of(text).map_err(|error| broken(&error.to_string()))
}

/// The test itself went wrong; not the store.
fn broken(what: &str) -> StoreError {
    StoreError::Damaged { what: "kill test", source: what.into() }
}
