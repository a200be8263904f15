//! The session: a state machine with two doors.
//!
//! [`Session::request`] decides what a caller wants and may refuse, changing nothing.
//! [`Session::observe`] absorbs what has already happened and never refuses: a late fact is cleaned
//! up after, not rejected. [`Session::recover`] gives what the state is still owed after a restart.
//! All three are pure. What they return, a [`Decision`], is committed together with the session in
//! one transaction; only then are its effects performed, and their outcomes come back as facts.
//!
//! # What a person sees
//!
//! ```text
//!              create
//!                │              resume (cold)
//!                ▼        ┌──────────┬──────────┐
//!           ┌ starting ◄──┤          │          │
//!  could    │    │ up     │          │          │
//!  not start│    ▼        │          │          │        end, from anywhere
//!           │  active ──► paused   stopped    error ───► ended
//!           │    │  ▲       │          ▲        ▲
//!           │    │  └───────┘ resume   │        │
//!           │    │            (warm)   │        │
//!           │    ├─────────── stop ────┘        │
//!           └────┴─────────── sandbox died ─────┘
//! ```
//!
//! # What the world owes
//!
//! Beside its [`State`] a session has one [`Sandbox`] slot: what is, or may be, running for it.
//! They are apart because they end at different times: a session is `ended` the moment the decision
//! is durable, its sandbox is gone when the host says so. Only these go together:
//!
//! | state | sandbox |
//! |---|---|
//! | starting | `Starting`, or `Stopping` while the old one must go first |
//! | active | `Live`, `Thawing` |
//! | paused | `Freezing`, `Frozen` (warm), `Stopping`, `None` (cold) |
//! | stopped, error, ended | `Stopping`, `None` |
//!
//! A new sandbox is asked for only when the slot is `None`, under the next [`Incarnation`]; whatever
//! reports from any other incarnation is told to stop. So no sandbox is leaked, and none is adopted
//! twice. Every slot that is not at rest has a deadline, and every deadline leads out: see
//! [`Session::next_deadline`] and [`Fact::TimePassed`]. A sandbox that is gone, or does not answer,
//! when it is thawed makes a warm resume a cold one.
//!
//! Whatever becomes of a sandbox, the run in it ends. Prompts that only waited have not begun: they
//! stay in the queue of a session that is paused, and the next sandbox takes them. Where a session is
//! stopped, broken or over they end with it, so that whoever waits for them is told.

mod aside;
mod decision;
mod history;
mod keep;
mod lost;
mod message;
mod observe;
mod persist;
mod question;
mod recover;
mod request;
mod rewind;
mod state;
mod step;
#[cfg(test)]
mod test;

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::entry::Entry;
use crate::id::{RunId, SessionId};
use crate::lineage::Lineage;
use crate::number::{Incarnation, LogEpoch, Seq, SpoolPosition};
use crate::policy::{Context, Policy};
use crate::resume::{Conversation, IfLost, Native, Transcript};
use crate::run::{CurrentRun, Delivery, QueuedRun};
use crate::time::Timestamp;

pub use decision::{Decision, Effect, LogEntry, RunChange};
pub use history::{BrokenHistory, History, Origin};
pub use keep::{AwayOutcome, FilesPlace, Keeping};
pub use lost::Lost;
pub use message::{
    AgentEnding, Fact, IfBusy, IfRunning, NumberedReport, Prompt, Report, ReportBody, Request,
    Resuming, Wake,
};
pub use persist::{PersistFailed, Persistence};
pub use question::{ClosedQuestion, OpenQuestion, Questions};
pub use rewind::Rewinding;
pub use state::{PauseReason, Sandbox, StartWhy, State, Status};

/// One conversation: where it stands, what runs for it, and what it still has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    id: SessionId,
    state: State,
    sandbox: Sandbox,
    /// Of the sandbox in the slot, or of the last one if the slot is empty.
    incarnation: Incarnation,
    /// The last report of this incarnation that is in the log.
    spool: SpoolPosition,
    current: Option<CurrentRun>,
    /// What the agent asks, and has asked lately.
    #[serde(default, skip_serializing_if = "Questions::is_untouched")]
    questions: Questions,
    queue: VecDeque<QueuedRun>,
    lineage: Lineage,
    log_epoch: LogEpoch,
    last_seq: Seq,
    last_active: Timestamp,
    /// When a prompt was last accepted, or answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_message_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    /// How long it was to live when it began here: a fork lives as long. It began elsewhere if it was imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_to_live: Option<Duration>,
    /// What the agent knew of the conversation when its sandbox was last started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recalled: Option<Conversation>,
    /// What becomes of it if its files cannot be brought back, as whoever resumed it last wants.
    #[serde(default, skip_serializing_if = "IfLost::is_usual")]
    if_lost: IfLost,
    /// How long it may do nothing, if not as long as the policy says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idle_timeout: Option<Duration>,
    /// The agent's own record of the conversation at the end of its last turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transcript: Option<Transcript>,
    /// The run that was cut since the last resume, unless a later one has completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interrupted_run: Option<RunId>,
    #[serde(default, skip_serializing_if = "is_zero")]
    completed_runs: u32,
    #[serde(default, skip_serializing_if = "Persistence::is_untouched")]
    persistence: Persistence,
    #[serde(default, skip_serializing_if = "Keeping::is_untouched")]
    keeping: Keeping,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<Lost>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rewinding: Option<Rewinding>,
    /// How often files were to be put back.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    put_backs: u64,
    /// The entry of the last rewind, or of the fork that it began with; zero, if there was none. A prompt from before
    /// it of which no turn came is no part of the conversation.
    #[serde(default, skip_serializing_if = "is_nowhere")]
    branched_at: Seq,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_nowhere(seq: &Seq) -> bool {
    *seq == Seq::ZERO
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none_yet(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Session {
    /// A new session, and what to do for it: its first sandbox is asked for at once.
    pub fn create(
        ctx: &Context<'_>,
        id: SessionId,
        time_to_live: Option<Duration>,
    ) -> (Self, Decision) {
        let mut session = Self {
            id,
            state: State::Starting { why: StartWhy::Created, since: Some(ctx.now) },
            sandbox: Sandbox::None,
            incarnation: Incarnation::ZERO,
            spool: SpoolPosition::ZERO,
            current: None,
            questions: Questions::default(),
            queue: VecDeque::new(),
            lineage: Lineage::default(),
            log_epoch: LogEpoch::new(1),
            last_seq: Seq::ZERO,
            last_active: ctx.now,
            last_message_at: None,
            expires_at: time_to_live.map(|ttl| ctx.now.plus(ttl)),
            time_to_live,
            recalled: None,
            if_lost: IfLost::default(),
            idle_timeout: None,
            transcript: None,
            interrupted_run: None,
            completed_runs: 0,
            persistence: Persistence::default(),
            lost: None,
            rewinding: None,
            put_backs: 0,
            branched_at: Seq::ZERO,
            keeping: Keeping::default(),
        };
        let mut out = Decision::default();
        session.log(ctx, &mut out, Entry::SessionCreated);
        session.start_sandbox(ctx, &mut out);
        (session, out)
    }

    /// The same session, paused after another time without use than others are. It is longer than
    /// zero.
    #[must_use]
    pub fn with_idle_timeout(self, idle_timeout: Option<Duration>) -> Self {
        Self { idle_timeout, ..self }
    }

    /// After how long without use it is paused, if not after as long as others.
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.idle_timeout
    }

    /// When a session that does nothing is paused.
    fn idle_until(&self, policy: &Policy) -> Timestamp {
        self.last_active.plus(self.idle_timeout.unwrap_or(policy.idle_timeout))
    }

    /// What the agent knows of the conversation, if its sandbox is alive: what it knew when that was started, and
    /// every turn since.
    pub fn conversation(&self) -> Conversation {
        let turns_in_log = self.lineage.turns();
        let begun = Conversation { native: Native::None, turns: 0, turns_in_log: 0 };
        let begun = self.recalled.unwrap_or(begun);
        let turns = begun.turns + turns_in_log.saturating_sub(begun.turns_in_log);
        let native = match begun.native {
            Native::None if turns_in_log > 0 => Native::Intact,
            native @ (Native::None | Native::Intact | Native::Rebuilt | Native::Lost) => native,
        };
        Conversation { native, turns: turns.min(turns_in_log), turns_in_log }
    }

    /// How long it was to live when it began here, if that was written down.
    pub fn time_to_live(&self) -> Option<Duration> {
        self.time_to_live
    }

    /// When it ends by itself.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires_at
    }

    /// Which session this is.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Where it stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Where it stands, by name.
    pub fn status(&self) -> Status {
        match self.state {
            State::Starting { .. } => Status::Starting,
            State::Active => Status::Active,
            State::Paused { .. } => Status::Paused,
            State::Stopped => Status::Stopped,
            State::Error { .. } => Status::Error,
            State::Ended => Status::Ended,
        }
    }

    /// What is, or may be, running for it.
    pub fn sandbox(&self) -> Sandbox {
        self.sandbox
    }

    /// Of the sandbox in the slot, or of the last one if the slot is empty.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The last report of this incarnation that is in the log.
    pub fn spool(&self) -> SpoolPosition {
        self.spool
    }

    /// The run that the agent works on.
    pub fn current_run(&self) -> Option<&CurrentRun> {
        self.current.as_ref()
    }

    /// What the agent asks, and has asked lately.
    pub fn questions(&self) -> &Questions {
        &self.questions
    }

    /// The prompts that wait, next first.
    pub fn queued_runs(&self) -> impl ExactSizeIterator<Item = &QueuedRun> {
        self.queue.iter()
    }

    /// Turns and rewinds.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// The entry of the last rewind, or of the fork that it began with; zero, if there was none.
    pub fn branched_at(&self) -> Seq {
        self.branched_at
    }

    /// Which history of the log this is.
    pub fn log_epoch(&self) -> LogEpoch {
        self.log_epoch
    }

    /// The last entry of the log.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// When something last happened that counts as use.
    pub fn last_active(&self) -> Timestamp {
        self.last_active
    }

    /// When a prompt was last accepted, or answered.
    pub fn last_message_at(&self) -> Option<Timestamp> {
        self.last_message_at
    }

    /// Whether nothing needs a task: what runs, if anything, is frozen, and only time or a caller
    /// changes that.
    pub fn is_at_rest(&self) -> bool {
        if self.persistence.is_under_way() || self.rewinding.is_some() || self.keeping.is_leaving()
        {
            return false;
        }
        match self.sandbox {
            Sandbox::None | Sandbox::Frozen { .. } => true,
            Sandbox::Starting { .. }
            | Sandbox::Live
            | Sandbox::Freezing { .. }
            | Sandbox::Thawing { .. }
            | Sandbox::Stopping { .. } => false,
        }
    }

    /// When [`Fact::TimePassed`] will next change something.
    pub fn next_deadline(&self, policy: &Policy) -> Option<Timestamp> {
        let sandbox = match self.sandbox {
            Sandbox::None | Sandbox::Live => None,
            Sandbox::Starting { deadline }
            | Sandbox::Freezing { deadline, .. }
            | Sandbox::Thawing { deadline, .. }
            | Sandbox::Stopping { deadline, .. } => Some(deadline),
            Sandbox::Frozen { since } => Some(since.plus(policy.evict_after)),
        };
        let expiry = if self.state == State::Ended { None } else { self.expires_at };
        let run = if self.state == State::Active { self.run_deadline() } else { None };
        let idle = self.is_idle().then(|| self.idle_until(policy));
        let decided = if self.state == State::Active { self.questions.deadline() } else { None };
        let capture = self.capture_deadline(policy);
        let rewind = self.rewind_deadline();
        let keeping = self.keeping_deadline(policy);
        [sandbox, expiry, run, decided, idle, capture, rewind, keeping].into_iter().flatten().min()
    }

    /// What is wrong with this value, if anything is: no sequence of requests and facts leads
    /// here. For tests, which ask after every step.
    pub fn broken_invariant(&self) -> Option<&'static str> {
        let pair_allowed = match (&self.state, self.sandbox) {
            (State::Starting { .. }, Sandbox::Starting { .. } | Sandbox::Stopping { .. })
            | (State::Active, Sandbox::Live | Sandbox::Thawing { .. })
            | (
                State::Paused { .. },
                Sandbox::Freezing { .. }
                | Sandbox::Frozen { .. }
                | Sandbox::Stopping { .. }
                | Sandbox::None,
            )
            | (
                State::Stopped | State::Error { .. } | State::Ended,
                Sandbox::Stopping { .. } | Sandbox::None,
            ) => true,
            (
                State::Starting { .. }
                | State::Active
                | State::Paused { .. }
                | State::Stopped
                | State::Error { .. }
                | State::Ended,
                _,
            ) => false,
        };
        let may_hold_a_run = match self.sandbox {
            Sandbox::Live
            | Sandbox::Freezing { .. }
            | Sandbox::Frozen { .. }
            | Sandbox::Thawing { .. } => true,
            Sandbox::None | Sandbox::Starting { .. } | Sandbox::Stopping { .. } => false,
        };
        let may_queue =
            may_hold_a_run || matches!(self.state, State::Starting { .. } | State::Paused { .. });
        let are_files_in_place = match self.keeping.files() {
            FilesPlace::InPlace | FilesPlace::Stay { .. } => true,
            FilesPlace::Leaving { .. } | FilesPlace::Away => false,
        };
        if !are_files_in_place && self.sandbox != Sandbox::None {
            Some("files are away though something may run on them")
        } else if !pair_allowed {
            Some("the state and the sandbox do not go together")
        } else if self.current.is_some() && !may_hold_a_run {
            Some("a run is current without a sandbox that could work on it")
        } else if !self.queue.is_empty() && !may_queue {
            Some("a prompt waits for a session that does not come")
        } else if self.state == State::Active
            && self.sandbox == Sandbox::Live
            && self.current.is_none()
            && !self.queue.is_empty()
        {
            Some("a prompt waits though the agent is free")
        } else if self.questions.open().any(|question| !self.works_on(question.run)) {
            Some("a question is open though nobody works on its run")
        } else if self.rewinding.is_some()
            && !matches!(self.sandbox, Sandbox::Stopping { .. } | Sandbox::None)
        {
            Some("a session goes back though something runs")
        } else if self.persistence.is_out_of_order() {
            Some("an earlier capture is waited for, and no later one")
        } else if self.puts_back()
            && (self.sandbox != Sandbox::None || self.persistence.is_under_way())
        {
            Some("files are put back that are not at rest")
        } else {
            None
        }
    }

    /// Whether its sandbox is up and has nothing to do.
    pub fn is_idle(&self) -> bool {
        self.state == State::Active
            && self.sandbox == Sandbox::Live
            && self.current.is_none()
            && self.queue.is_empty()
    }

    fn works_on(&self, run: RunId) -> bool {
        self.current.as_ref().is_some_and(|current| current.id == run)
    }

    /// When the current run must be looked at again.
    fn run_deadline(&self) -> Option<Timestamp> {
        let run = self.current.as_ref()?;
        let end = run.ending.map_or(run.deadline, |ending| ending.deadline);
        match run.delivery {
            Delivery::Sent { deadline, .. } => Some(deadline.min(end)),
            Delivery::Begun => Some(end),
        }
    }
}
