//! What a log says of its session, and a session that begins with it.
//!
//! A fork and an import both begin with the log of another session, up to some entry. Read entry by entry it tells
//! everything that the new one has to know of the past, so no log is ever held in memory as a whole.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::observe::TRANSCRIPT;
use super::{
    Decision, Keeping, LogEntry, Lost, OpenQuestion, PauseReason, Persistence, Questions,
    RunChange, Sandbox, Session, State,
};
use crate::entry::{Entry, Said};
use crate::failure::{Failure, FailureCode};
use crate::id::{RunId, SessionId};
use crate::lineage::Lineage;
use crate::number::{Incarnation, LogEpoch, Seq, SpoolPosition, Turn};
use crate::policy::Context;
use crate::resume::{IfLost, Transcript};
use crate::run::{Outcome, RunStatus, Usage};
use crate::snapshot::Snapshot;

/// What a log says, up to the last entry that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    last_seq: Seq,
    lineage: Lineage,
    runs: Vec<RunChange>,
    /// Runs that are not over, oldest first, and whether they have begun.
    open: Vec<(RunId, bool)>,
    /// Questions that are not over.
    questions: Vec<OpenQuestion>,
    /// The last rewind or fork.
    branched_at: Seq,
    known: Known,
    /// What was known at the end of each turn: a rewind goes back to it.
    at_turn: BTreeMap<Turn, Known>,
}

/// What the agent knows of the conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known {
    transcript: Option<Transcript>,
    completed_runs: u32,
}

/// Where a session that begins with a history comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Another session here, which goes on as it was.
    Fork(SessionId),
    /// Elsewhere, where it was called so.
    Import(SessionId),
}

/// An entry that does not follow the ones before it: the log is not whole, or not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {0} does not follow what comes before it")]
pub struct BrokenHistory(pub Seq);

impl History {
    /// Takes the next entry in. After an error nothing more can be made of it.
    pub fn read(&mut self, logged: &LogEntry) -> Result<(), BrokenHistory> {
        let broken = BrokenHistory(logged.seq);
        if logged.seq != self.last_seq.next() {
            return Err(broken);
        }
        self.last_seq = logged.seq;
        match &logged.entry {
            Entry::Prompt { run, .. } => self.open.push((*run, false)),
            Entry::RunStarted { run, turn, parent_turn } => {
                let continues = *parent_turn == self.lineage.head();
                if !continues && !self.lineage.rewind(*parent_turn) {
                    return Err(broken);
                }
                if self.lineage.begin().0 != *turn {
                    return Err(broken);
                }
                let of = self.open.iter_mut().find(|(open, _)| open == run);
                of.into_iter().for_each(|(_, has_begun)| *has_begun = true);
            }
            Entry::SessionForked { .. } => self.branched_at = logged.seq,
            Entry::Rewound { to, through, .. } => {
                if !self.lineage.rewind_into(*to, *through) {
                    return Err(broken);
                }
                self.branched_at = logged.seq;
                self.known = self.at_turn.get(to).cloned().unwrap_or_default();
            }
            Entry::Output { name, body, .. } if name == TRANSCRIPT => {
                if let Some(transcript) = Transcript::read(body.get()) {
                    self.known.transcript = Some(transcript);
                }
            }
            Entry::Aside { turn, said: Said::Output { name, body } } if name == TRANSCRIPT => {
                if let Some(transcript) = Transcript::read(body.get()) {
                    self.known.transcript = Some(transcript);
                    self.at_turn.insert(*turn, self.known.clone());
                }
            }
            Entry::PermissionRequest { run, id, .. } => {
                let (id, run, asked) = (*id, *run, logged.seq);
                self.questions.push(OpenQuestion { id, run, asked, decided: None });
            }
            Entry::PermissionDecided { id, .. } => {
                let of = self.questions.iter_mut().find(|question| question.id == *id);
                of.into_iter().for_each(|question| question.decided = Some(logged.seq));
            }
            Entry::PermissionAnswered { id, .. } => {
                self.questions.retain(|question| question.id != *id);
            }
            Entry::RunEnded { run, outcome, .. } => {
                self.open.retain(|(open, _)| open != run);
                if outcome.status() == RunStatus::Completed {
                    self.known.completed_runs = self.known.completed_runs.saturating_add(1);
                }
                self.at_turn.insert(self.lineage.head(), self.known.clone());
            }
            Entry::SessionCreated
            | Entry::SessionActive { .. }
            | Entry::SessionPaused { .. }
            | Entry::SessionWaking
            | Entry::SessionResumed { .. }
            | Entry::ContextLost { .. }
            | Entry::SessionStopped
            | Entry::SessionFailed { .. }
            | Entry::SessionEnded { .. }
            | Entry::SessionImported { .. }
            | Entry::Phase { .. }
            | Entry::RunRetry { .. }
            | Entry::RunCancelling { .. }
            | Entry::TextDelta { .. }
            | Entry::ThinkingDelta { .. }
            | Entry::Message { .. }
            | Entry::Output { .. }
            | Entry::Aside { .. }
            | Entry::ReportTooLarge { .. }
            | Entry::RunError { .. }
            | Entry::ReportsLost { .. } => {}
        }
        let Some(change) = RunChange::of(logged) else { return Ok(()) };
        // Of where a run was on its way, only the last is history.
        if let (RunChange::Progressed { run, .. }, Some(RunChange::Progressed { run: of, .. })) =
            (&change, self.runs.last())
            && run == of
        {
            self.runs.pop();
        }
        self.runs.push(change);
        Ok(())
    }

    /// The last entry that was read.
    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// Turns and rewinds.
    pub fn lineage(&self) -> &Lineage {
        &self.lineage
    }
}

impl Session {
    /// A session that begins with a history: paused, without a sandbox, its files those of `snapshot`. The decision
    /// has the entries that follow the history, and everything that is known of runs.
    pub fn with_history(
        ctx: &Context<'_>,
        id: SessionId,
        origin: Origin,
        epoch: LogEpoch,
        history: History,
        snapshot: Option<Snapshot>,
    ) -> (Self, Decision) {
        let History { last_seq, lineage, runs, open, questions, branched_at, known, .. } = history;
        // The record must be as it was when the files were captured: it is one of them.
        let known = match &snapshot {
            Some(Snapshot { transcript, completed_runs, .. }) => {
                Known { transcript: transcript.clone(), completed_runs: *completed_runs }
            }
            None => known,
        };
        let turn = lineage.head();
        let mut session = Self {
            id,
            state: State::Paused { reason: PauseReason::Requested, since: ctx.now },
            sandbox: Sandbox::None,
            incarnation: Incarnation::ZERO,
            spool: SpoolPosition::ZERO,
            current: None,
            questions: Questions::of(questions),
            queue: VecDeque::new(),
            lineage,
            log_epoch: epoch,
            last_seq,
            last_active: ctx.now,
            last_message_at: None,
            expires_at: None,
            time_to_live: None,
            recalled: None,
            if_lost: IfLost::default(),
            idle_timeout: None,
            transcript: known.transcript,
            interrupted_run: None,
            completed_runs: known.completed_runs,
            lost: snapshot.as_ref().and_then(Lost::of),
            persistence: Persistence::of(snapshot.clone()),
            rewinding: None,
            put_backs: 0,
            branched_at,
            // There are none yet: a start brings them.
            keeping: Keeping::default(),
        };
        let mut out = Decision { runs, ..Decision::default() };
        let snapshot = snapshot.map(|snapshot| snapshot.captured.id);
        // Nobody works on them here.
        let elsewhere = Failure::new(FailureCode::SandboxLost, "the run went on elsewhere");
        for (run, has_begun) in open {
            let outcome = match origin {
                // It was sent after the point that the fork begins at.
                Origin::Fork(_) if !has_begun => Outcome::Cancelled,
                Origin::Fork(_) | Origin::Import(_) => Outcome::Interrupted(elsewhere.clone()),
            };
            let cut = session.interrupted_run;
            session.end_run(ctx, &mut out, run, outcome, Usage::default());
            if !has_begun {
                // A prompt that still waited was not cut in the middle of anything.
                session.interrupted_run = cut;
            }
        }
        // Of a run that is over none is open, whatever the log says.
        session.questions = Questions::default();
        match origin {
            Origin::Fork(parent) => {
                session.log(ctx, &mut out, Entry::SessionForked { parent, turn, snapshot });
                session.branched_at = session.last_seq;
            }
            Origin::Import(from) => {
                session.log(ctx, &mut out, Entry::SessionImported { from, turn, snapshot });
            }
        }
        (session, out)
    }

    /// The same session, which ends by itself after some time.
    #[must_use]
    pub fn with_time_to_live(self, ctx: &Context<'_>, time_to_live: Option<Duration>) -> Self {
        Self { expires_at: time_to_live.map(|ttl| ctx.now.plus(ttl)), time_to_live, ..self }
    }
}
