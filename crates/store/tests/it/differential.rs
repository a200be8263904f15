//! Whatever is done to a store, the one in memory and the one in a file give the same answers.

use std::fmt::Debug;

use ash_core::failure::Death;
use ash_core::number::{AgentVersion, Fence, Owner, Seq};
use ash_core::resume::IfLost;
use ash_core::session::{Fact, ReportBody, Request, Status};
use ash_store::memory::MemoryStore;
use ash_store::sqlite::SqliteStore;
use ash_store::{
    Commit, NewAgentVersion, NewLabel, PageRequest, Result, SessionFilter, Store, UsageFilter,
    VersionChange, VersionLabel,
};
use proptest::prelude::*;

use crate::support::{
    Conversation, add_them, agent_id, agent_version, at, json, name, outbox_id, reason, receipt,
    run_id, session_id, settings, task, them, us,
};

/// How many sessions, agents and tasks there are: few, so that operations meet.
const FEW: i64 = 3;

/// Something that is asked of both stores.
#[derive(Clone, Debug)]
enum Step {
    Deploy { agent: i64, id: i64, receipt: Option<i64> },
    Configure { agent: i64, at: i64 },
    DeleteAgent { agent: i64 },
    Version { agent: i64, number: u32, change: u8 },
    NextOwner,
    Create { session: i64, owner: u64, receipt: Option<i64> },
    Claim { session: i64, owner: u64 },
    Commit { session: i64, what: What, flaw: Flaw, extra: Extra },
    Lease { now: i64, limit: u32 },
    Finish { task: i64, attempt: u32 },
    PutBack { task: i64, attempt: u32, ready_at: i64 },
    Purge { before: i64 },
    PurgeSession { session: i64 },
    Prune { session: i64, keep: u32 },
    Look { session: i64, after: u64, limit: u32, status: Option<Status> },
}

/// What a commit decides.
#[derive(Clone, Copy, Debug)]
enum What {
    Started,
    Prompt,
    Message,
    Done,
    Freeze,
    Resume,
    Death,
    End,
}

/// What is wrong with a commit.
#[derive(Clone, Copy, Debug)]
enum Flaw {
    None,
    StaleFence,
    WrongEnd,
    MissingEntry,
    UnknownRun,
}

/// What else a commit brings.
#[derive(Clone, Debug)]
struct Extra {
    receipt: Option<i64>,
    task: Option<i64>,
    rename: bool,
    due_at: Option<i64>,
}

fn step() -> impl Strategy<Value = Step> {
    let few = 1..=FEW;
    let some = || prop::option::of(1..=FEW);
    let what = prop::sample::select(vec![
        What::Started,
        What::Started,
        What::Prompt,
        What::Prompt,
        What::Message,
        What::Done,
        What::Freeze,
        What::Resume,
        What::Death,
        What::End,
    ]);
    let flaw = prop_oneof![
        6 => Just(Flaw::None),
        1 => Just(Flaw::StaleFence),
        1 => Just(Flaw::WrongEnd),
        1 => Just(Flaw::MissingEntry),
        1 => Just(Flaw::UnknownRun),
    ];
    let extra = (prop::option::weighted(0.2, 1..=FEW), some(), any::<bool>(), some())
        .prop_map(|(receipt, task, rename, due_at)| Extra { receipt, task, rename, due_at });
    let owner = 1..=3u64;
    let status = prop::option::of(prop::sample::select(Status::ALL.to_vec()));
    prop_oneof![
        1 => (few.clone(), few.clone(), some()).prop_map(|(agent, id, receipt)| {
            Step::Deploy { agent, id, receipt }
        }),
        1 => (few.clone(), 0..8i64).prop_map(|(agent, at)| Step::Configure { agent, at }),
        1 => few.clone().prop_map(|agent| Step::DeleteAgent { agent }),
        2 => (few.clone(), 1..5u32, 0..4u8)
            .prop_map(|(agent, number, change)| Step::Version { agent, number, change }),
        1 => Just(Step::NextOwner),
        3 => (few.clone(), owner.clone(), some()).prop_map(|(session, owner, receipt)| {
            Step::Create { session, owner, receipt }
        }),
        3 => (few.clone(), owner).prop_map(|(session, owner)| Step::Claim { session, owner }),
        14 => (few.clone(), what, flaw, extra).prop_map(|(session, what, flaw, extra)| {
            Step::Commit { session, what, flaw, extra }
        }),
        2 => (0..8i64, 0..3u32).prop_map(|(now, limit)| Step::Lease { now, limit }),
        1 => (few.clone(), 0..3u32).prop_map(|(task, attempt)| Step::Finish { task, attempt }),
        1 => (few.clone(), 0..3u32, 0..8i64).prop_map(|(task, attempt, ready_at)| {
            Step::PutBack { task, attempt, ready_at }
        }),
        1 => (0..4i64).prop_map(|before| Step::Purge { before }),
        1 => few.clone().prop_map(|session| Step::PurgeSession { session }),
        1 => (few.clone(), 0..3u32).prop_map(|(session, keep)| Step::Prune { session, keep }),
        4 => (few, 0..6u64, 0..9u32, status).prop_map(|(session, after, limit, status)| {
            Step::Look { session, after, limit, status }
        }),
    ]
}

/// Both stores, and whoever writes them.
struct Both {
    memory: MemoryStore,
    sqlite: SqliteStore,
    /// What the owners believe, which may be out of date.
    owners: Vec<Option<Conversation>>,
    runs: i64,
}

/// Both said the same. Returns whether it went well.
#[track_caller]
fn same<T: PartialEq + Debug>(memory: &Result<T>, sqlite: &Result<T>) -> bool {
    match (memory, sqlite) {
        (Ok(memory), Ok(sqlite)) => assert_eq!(memory, sqlite),
        (Err(memory), Err(sqlite)) => assert_eq!(reason(memory), reason(sqlite)),
        (Ok(_), Err(_)) | (Err(_), Ok(_)) => panic!("{memory:?} in memory, {sqlite:?} in SQLite"),
    }
    memory.is_ok()
}

/// Asks both, compares, and says whether it went well.
macro_rules! both {
    ($both:expr, $store:ident => $ask:expr) => {{
        let memory = {
            let $store: &dyn Store = &$both.memory;
            $ask.await
        };
        let sqlite = {
            let $store: &dyn Store = &$both.sqlite;
            $ask.await
        };
        same(&memory, &sqlite)
    }};
}

impl Both {
    async fn take(&mut self, step: &Step) {
        match step {
            Step::Deploy { agent, id, receipt: key } => {
                let receipt = key.map(|key| receipt(&key.to_string(), key));
                let next = agent_version(*agent, "x");
                let label = NewLabel { is_draft: id % 2 == 0, ..NewLabel::default() };
                let version = NewAgentVersion { id: agent_id(*id), receipt, label, ..next };
                both!(self, store => store.deploy_agent(&version));
            }
            Step::Configure { agent, at: moment } => {
                let agent = name(&format!("agent-{agent}"));
                let settings = json(&format!("set at {moment}"));
                let moment = at(*moment);
                both!(self, store => store.configure_agent(&us(), &agent, &settings, moment));
            }
            Step::Version { agent, number, change } => {
                let agent = name(&format!("agent-{agent}"));
                let (number, label) = (AgentVersion::new(*number), VersionLabel::default());
                let change = match change {
                    0 => VersionChange::Activate,
                    1 => VersionChange::Delete,
                    2 => VersionChange::Amend { label, definition: None },
                    _ => VersionChange::Amend { label, definition: Some(json("amended")) },
                };
                both!(self, store => store.change_version(&us(), &agent, number, &change, at(9)));
            }
            Step::DeleteAgent { agent } => {
                let agent = name(&format!("agent-{agent}"));
                both!(self, store => store.delete_agent(&us(), &agent));
            }
            Step::NextOwner => {
                both!(self, store => store.next_owner());
            }
            Step::Create { session, owner: number, receipt: key } => {
                let (owner, mut new) = Conversation::draft(*session);
                new.owner = Owner::new(*number);
                new.receipt = key.map(|key| receipt(&key.to_string(), key));
                if both!(self, store => store.create_session(&new)) {
                    self.owners[slot(*session)] = Some(owner);
                }
            }
            Step::Claim { session, owner } => {
                let (id, owner) = (session_id(*session), Owner::new(*owner));
                let claimed = self.memory.claim_session(id, owner).await;
                same(&claimed, &self.sqlite.claim_session(id, owner).await);
                if let (Ok(claimed), Some(owner)) = (claimed, &mut self.owners[slot(*session)]) {
                    owner.session = claimed.session;
                    owner.fence = claimed.fence;
                }
            }
            Step::Commit { session, what, flaw, extra } => {
                self.commit(*session, *what, *flaw, extra).await;
            }
            Step::Lease { now, limit } => {
                let (now, until) = (at(*now), at(now + 2));
                both!(self, store => store.claim_outbox("topic", now, until, *limit));
            }
            Step::Finish { task, attempt } => {
                both!(self, store => store.finish_outbox(outbox_id(*task), *attempt));
            }
            Step::PutBack { task, attempt, ready_at } => {
                let ready_at = at(*ready_at);
                both!(self, store => store.retry_outbox(outbox_id(*task), *attempt, ready_at));
            }
            Step::Purge { before } => {
                both!(self, store => store.purge_receipts(at(*before)));
            }
            Step::PurgeSession { session } => {
                let Some(owner) = &self.owners[slot(*session)] else { return };
                let (id, fence) = (owner.id(), owner.fence);
                both!(self, store => store.purge_session(id, fence, &[]));
            }
            Step::Prune { session, keep } => {
                let id = session_id(*session);
                both!(self, store => store.prune_snapshots(id, *keep, &[]));
            }
            Step::Look { session, after, limit, status } => {
                self.look(*session, Seq::new(*after), *limit, *status).await;
            }
        }
    }

    async fn commit(&mut self, session: i64, what: What, flaw: Flaw, extra: &Extra) {
        let Some(owner) = &self.owners[slot(session)] else { return };
        let mut next = owner.clone();
        self.runs += 1;
        let Some(mut commit) = decide(&mut next, what, self.runs) else { return };
        commit.receipt = extra.receipt.map(|key| receipt(&key.to_string(), key));
        commit.outbox = extra.task.iter().map(|&number| task(number, "topic", number)).collect();
        commit.settings = extra.rename.then(|| settings(&format!("renamed {}", self.runs)));
        commit.due_at = extra.due_at.map(at);
        match flaw {
            Flaw::None => {}
            Flaw::StaleFence => commit.fence = Fence::new(commit.fence.get() - 1),
            Flaw::WrongEnd => commit.expected_seq = commit.expected_seq.next(),
            Flaw::MissingEntry => drop(commit.entries.pop()),
            Flaw::UnknownRun => commit.runs.reverse(),
        }
        if both!(self, store => store.commit(&commit)) {
            self.owners[slot(session)] = Some(next);
        }
    }

    /// Everything that can be read.
    async fn look(&self, session: i64, after: Seq, limit: u32, status: Option<Status>) {
        let id = session_id(session);
        both!(self, store => store.session(&us(), id));
        both!(self, store => store.session(&them(), id));
        both!(self, store => store.events_after(id, after, limit));
        both!(self, store => store.messages_after(id, after, limit));
        both!(self, store => store.runs(id, limit));
        both!(self, store => store.run(id, run_id(self.runs)));
        both!(self, store => store.prompt(id, run_id(self.runs)));
        both!(self, store => store.expected_incarnation(id));
        both!(self, store => store.due_sessions(at(2), limit));
        both!(self, store => store.unsettled_sessions(Some(id), limit));
        both!(self, store => store.unsettled_sessions(None, limit));
        both!(self, store => store.sandboxed_sessions(None, limit));
        both!(self, store => store.sandboxed_sessions(Some(id), limit));
        both!(self, store => store.abandoned_sessions(None, limit));
        both!(self, store => store.resting_sessions(None, limit));
        both!(self, store => store.resting_sessions(Some(id), limit));
        both!(self, store => store.receipt(&receipt(&session.to_string(), 1).key));
        let agent = Some(name(&format!("agent-{session}")));
        let filter = SessionFilter { agent: agent.clone(), status, id_prefix: None };
        let any = SessionFilter { agent: None, ..filter.clone() };
        let digits = usize::try_from(limit).unwrap() + 5;
        let id_prefix = Some(id.to_string()[..digits].to_owned());
        let some = SessionFilter { id_prefix, ..any.clone() };
        let page = PageRequest { after: Some(session_id(3)), offset: 1, limit };
        both!(self, store => store.sessions(&us(), &any, &page));
        both!(self, store => store.sessions(&us(), &some, &page));
        both!(self, store => store.count_sessions(&us(), &some));
        both!(self, store => store.count_sessions(&us(), &any));
        both!(self, store => store.count_sessions(&us(), &filter));
        both!(self, store => store.census());
        let their_name = name(&format!("agent-{session}"));
        both!(self, store => store.agent(&us(), &their_name));
        both!(self, store => store.agent_versions(&us(), &their_name));
        both!(self, store => store.agents(&us()));
        both!(self, store => store.agents(&them()));
        let usage = UsageFilter { session: None, agent, from: Some(at(1)), until: None };
        both!(self, store => store.usage(&us(), &usage));
        both!(self, store => store.usage(&us(), &UsageFilter::default()));
    }
}

fn slot(session: i64) -> usize {
    usize::try_from(session).unwrap() - 1
}

/// The decision, if the session takes it as it stands.
fn decide(owner: &mut Conversation, what: What, run: i64) -> Option<Commit> {
    let current = owner.session.current_run().map(|run| run.id);
    let incarnation = owner.session.incarnation();
    let said = |owner: &mut Conversation, body| {
        let number = (1..run).find(|&number| Some(run_id(number)) == current)?;
        Some(owner.report(number, body))
    };
    match what {
        What::Started => Some(owner.started()),
        What::Prompt => match owner.session.status() {
            Status::Ended => None,
            Status::Starting
            | Status::Active
            | Status::Paused
            | Status::Stopped
            | Status::Error => Some(owner.prompt(run, "hello")),
        },
        What::Message => said(owner, ReportBody::TextDelta("text".to_owned())),
        What::Done => {
            let number = (1..run).find(|&number| Some(run_id(number)) == current)?;
            let usage = ash_core::run::Usage { input_tokens: 5, ..Default::default() };
            Some(owner.done(number, usage))
        }
        What::Freeze => match owner.session.status() {
            Status::Active => Some(owner.freeze()[0].clone()),
            Status::Starting | Status::Paused | Status::Stopped | Status::Error | Status::Ended => {
                None
            }
        },
        What::Resume => match owner.session.status() {
            Status::Ended => None,
            Status::Starting
            | Status::Active
            | Status::Paused
            | Status::Stopped
            | Status::Error => Some(owner.request(Request::Resume(IfLost::default().into()))),
        },
        What::Death => {
            Some(owner.observe(Fact::SandboxGone { incarnation, death: Death::OutOfMemory }))
        }
        What::End => Some(owner.request(Request::End)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_sqlite_give_the_same_answers(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut both = Both {
                memory: MemoryStore::new(),
                sqlite: SqliteStore::open_alone(&directory.path().join("ash.db")).unwrap(),
                owners: vec![None; usize::try_from(FEW).unwrap()],
                runs: 0,
            };
            for store in [&both.memory as &dyn Store, &both.sqlite] {
                add_them(store).await;
                store.deploy_agent(&agent_version(1, "first")).await.unwrap();
            }
            for step in &steps {
                both.take(step).await;
            }
            for session in 1..=FEW {
                both.look(session, Seq::ZERO, 20, None).await;
            }
            assert_eq!(both.sqlite.check_integrity().await.unwrap(), Vec::<String>::new());
        });
    }
}
