//! Small words for tests: numbered ids, and a conversation that decides with the real domain.

use std::collections::BTreeMap;
use std::fmt::Debug;

use ash_core::failure::Death;
use ash_core::id::{
    AgentId, AgentName, ApiKeyId, AttachmentId, CredentialId, OutboxId, QueueItemId, RunId,
    SessionId, TenantId,
};
use ash_core::json::Json;
use ash_core::number::{AgentVersion, Fence, Owner, Seq, SpoolPosition};
use ash_core::policy::{Context, Policy};
use ash_core::resume::Found;
use ash_core::run::{Completion, Usage};
use ash_core::session::{
    AgentEnding, Decision, Fact, IfBusy, IfRunning, NumberedReport, Prompt, Report, ReportBody,
    Request, Session, Wake,
};
use ash_core::time::Timestamp;
use ash_store::{
    Agent, Commit, NewAgentVersion, NewLabel, NewSession, OutboxItem, Receipt, ReceiptKey, Result,
    SessionRecord, Settings, Store, StoreError, Tenant,
};

/// A moment.
pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

macro_rules! numbered_ids {
    ($($function:ident -> $id:ident;)*) => {
        $(
            /// The id with that number; a higher number sorts later.
            pub(crate) fn $function(number: i64) -> $id {
                $id::from_parts(at(number), [7; 10])
            }
        )*
    };
}

numbered_ids! {
    session_id -> SessionId;
    run_id -> RunId;
    agent_id -> AgentId;
    key_id -> ApiKeyId;
    credential_id -> CredentialId;
    outbox_id -> OutboxId;
    queue_id -> QueueItemId;
    attachment_id -> AttachmentId;
}

pub(crate) fn us() -> TenantId {
    TenantId::default_tenant()
}

pub(crate) fn them() -> TenantId {
    "them".parse().unwrap()
}

pub(crate) fn name(text: &str) -> AgentName {
    text.parse().unwrap()
}

pub(crate) fn json(text: &str) -> Json {
    Json::of(text).unwrap()
}

/// What a refused operation was refused for; panics if it was not.
#[track_caller]
pub(crate) fn refusal<T: Debug>(result: Result<T>) -> String {
    match result {
        Ok(value) => panic!("this should have been refused, and gave {value:?}"),
        Err(error) => reason(&error),
    }
}

/// An error as far as two stores must agree on it.
pub(crate) fn reason(error: &StoreError) -> String {
    match error {
        StoreError::Damaged { what, .. } => format!("Damaged({what:?})"),
        StoreError::Full(_) => "Full".to_owned(),
        StoreError::Unavailable(_) => "Unavailable".to_owned(),
        StoreError::NotFound(_)
        | StoreError::Exists(_)
        | StoreError::InUse(_)
        | StoreError::Fenced { .. }
        | StoreError::Superseded(_)
        | StoreError::Conflict { .. }
        | StoreError::TooLarge { .. }
        | StoreError::TooNew { .. } => format!("{error:?}"),
    }
}

/// Adds the second tenant.
pub(crate) async fn add_them(store: &dyn Store) {
    store.create_tenant(&Tenant { id: them(), created_at: at(1) }).await.unwrap();
}

/// The next version of an agent of ours. Agent `number` is called `agent-<number>`.
pub(crate) fn agent_version(number: i64, definition: &str) -> NewAgentVersion {
    NewAgentVersion {
        settings: None,
        label: NewLabel::default(),
        id: agent_id(number),
        tenant: us(),
        name: name(&format!("agent-{number}")),
        definition: json(definition),
        at: at(number),
        receipt: None,
    }
}

pub(crate) async fn deploy(store: &dyn Store, number: i64) -> Agent {
    store.deploy_agent(&agent_version(number, "first")).await.unwrap()
}

pub(crate) fn receipt(key: &str, moment: i64) -> Receipt {
    Receipt {
        key: ReceiptKey { tenant: us(), route: "POST /prompt".to_owned(), key: key.to_owned() },
        body_digest: [3; 32],
        answer: json(key),
        at: at(moment),
    }
}

pub(crate) fn task(number: i64, topic: &str, ready_at: i64) -> OutboxItem {
    OutboxItem {
        id: outbox_id(number),
        topic: topic.to_owned(),
        payload: json(topic),
        ready_at: at(ready_at),
    }
}

pub(crate) fn settings(title: &str) -> Settings {
    Settings {
        title: Some(title.to_owned()),
        model: None,
        metadata: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
        config: json("options"),
    }
}

/// A session and whoever works on it: every step decides with the domain and gives the commit
/// that records it.
#[derive(Clone)]
pub(crate) struct Conversation {
    pub(crate) session: Session,
    pub(crate) fence: Fence,
    now: i64,
    policy: Policy,
}

impl Conversation {
    /// A new session of agent 1, which is there.
    pub(crate) fn draft(number: i64) -> (Self, NewSession) {
        let policy = Policy::default();
        let ctx = Context { now: at(number), policy: &policy };
        let (session, decision) = Session::create(&ctx, session_id(number), None);
        let record = SessionRecord {
            id: session_id(number),
            tenant: us(),
            agent: agent_id(1),
            agent_name: name("agent-1"),
            agent_version: AgentVersion::new(1),
            parent: None,
            created_at: at(number),
            settings: settings("untitled"),
        };
        let new = NewSession {
            record,
            session: session.clone(),
            due_at: session.next_deadline(&policy),
            entries: decision.entries,
            owner: Owner::new(1),
            receipt: None,
        };
        (Self { session, fence: Fence::new(1), now: number, policy }, new)
    }

    /// Creates the session in the store; agent 1 must be deployed.
    pub(crate) async fn begin(store: &dyn Store, number: i64) -> Self {
        let (conversation, new) = Self::draft(number);
        assert_eq!(store.create_session(&new).await.unwrap(), conversation.fence);
        conversation
    }

    /// Creates the session and brings its sandbox up.
    pub(crate) async fn active(store: &dyn Store, number: i64) -> Self {
        let mut conversation = Self::begin(store, number).await;
        let commit = conversation.started();
        store.commit(&commit).await.unwrap();
        conversation
    }

    pub(crate) fn id(&self) -> SessionId {
        self.session.id()
    }

    pub(crate) fn at_time(&mut self, now: i64) -> &mut Self {
        self.now = now;
        self
    }

    /// Takes the session over.
    pub(crate) async fn claim(&mut self, store: &dyn Store, owner: u64) {
        let claimed = store.claim_session(self.id(), Owner::new(owner)).await.unwrap();
        self.session = claimed.session;
        self.fence = claimed.fence;
    }

    pub(crate) fn request(&mut self, request: Request) -> Commit {
        let expected = self.session.last_seq();
        let policy = self.policy.clone();
        let ctx = Context { now: at(self.now), policy: &policy };
        let decision = self.session.request(&ctx, request).unwrap();
        self.record(expected, decision)
    }

    pub(crate) fn observe(&mut self, fact: Fact) -> Commit {
        let expected = self.session.last_seq();
        let policy = self.policy.clone();
        let ctx = Context { now: at(self.now), policy: &policy };
        let decision = self.session.observe(&ctx, fact);
        self.record(expected, decision)
    }

    fn record(&self, expected_seq: Seq, decision: Decision) -> Commit {
        Commit {
            fence: self.fence,
            expected_seq,
            session: self.session.clone(),
            due_at: self.session.next_deadline(&self.policy),
            entries: decision.entries,
            runs: decision.runs,
            settings: None,
            snapshots: decision.snapshots,
            outbox: Vec::new(),
            receipt: None,
        }
    }

    pub(crate) fn started(&mut self) -> Commit {
        let incarnation = self.session.incarnation();
        self.observe(Fact::SandboxStarted { incarnation, found: Found::NOTHING })
    }

    /// The sandbox is gone, as it was asked to be.
    pub(crate) fn gone(&mut self) -> Commit {
        let incarnation = self.session.incarnation();
        self.observe(Fact::SandboxGone { incarnation, death: Death::Stopped })
    }

    pub(crate) fn prompt(&mut self, run: i64, text: &str) -> Commit {
        self.request(Request::Prompt(Prompt {
            run: run_id(run),
            content: json(text),
            if_busy: IfBusy::Queue,
            wake: Wake::Any,
            timeout: None,
            asked_at: None,
        }))
    }

    pub(crate) fn report(&mut self, run: i64, body: ReportBody) -> Commit {
        self.reports(run, [body].into_iter())
    }

    /// Several at once.
    pub(crate) fn reports(&mut self, run: i64, bodies: impl Iterator<Item = ReportBody>) -> Commit {
        let first = self.session.spool().get() + 1;
        let numbered = |(number, body)| NumberedReport {
            position: SpoolPosition::new(number),
            report: Report { run: Some(run_id(run)), body },
        };
        let reports = (first..).zip(bodies).map(numbered).collect();
        self.observe(Fact::Reported { incarnation: self.session.incarnation(), reports })
    }

    /// The agent says something in one go.
    pub(crate) fn message(&mut self, run: i64, text: &str) -> Commit {
        self.report(run, ReportBody::Message(json(text)))
    }

    /// The agent is done.
    pub(crate) fn done(&mut self, run: i64, usage: Usage) -> Commit {
        let how = AgentEnding::Completed(Completion::EndTurn);
        self.report(run, ReportBody::Ended { how, usage })
    }

    /// The session is paused and its sandbox frozen: two commits.
    pub(crate) fn freeze(&mut self) -> [Commit; 2] {
        let pause = self.request(Request::Pause { if_running: IfRunning::Freeze });
        let (incarnation, asked) = (self.session.incarnation(), self.session.last_seq());
        [pause, self.observe(Fact::SandboxFrozen { incarnation, asked })]
    }
}
