//! When what the agent works on is captured, and what came of it.
//!
//! A capture is *wanted* at a time, *asked for* when the sandbox slot allows it, and over when its outcome was
//! observed. One is asked for at a time; whatever is wanted meanwhile is one more. Only the end of a turn does not wait:
//! the next one changes the files, so another capture is asked for though earlier ones are still being stored, as long
//! as they are not too many. A failure never touches the
//! session beside this: it is remembered, shown, and tried again. Files that are gone are such a failure, unless they
//! are known to be elsewhere: nothing is bound to a turn that they are not of.
//!
//! | what happens | when it is captured |
//! |---|---|
//! | a run ends | at once, before the next prompt is handed over |
//! | the sandbox is frozen, or gone | at once: nothing moves |
//! | a command is run, or files are written from outside | when that has stopped for a moment, or the next turn begins |
//! | the sandbox lives on | every now and then |
//! | somebody wants the files as they are: a fork, an export | at once, if something is to be captured |
//!
//! While the slot is on its way from one thing to another (starting, freezing, thawing, stopping) it waits.

mod failed;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, FilesPlace, Sandbox, Session, State};
use crate::id::SnapshotId;
use crate::number::{Seq, Turn};
use crate::policy::{Context, Policy};
use crate::refusal::Refusal;
use crate::resume::{FilesLost, Found, Transcript, Workspace};
use crate::snapshot::{Captured, PersistOutcome, Snapshot};
use crate::time::Timestamp;

/// How many captures of one session can be under way: each is of a turn, and holds what that turn changed until it is
/// stored.
const MAX_UNDER_WAY: usize = 16;

/// Where a session stands with its snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persistence {
    /// How many captures were asked for: tells the outcome of one from that of another.
    #[serde(default)]
    number: u64,
    /// The one that was asked for last, if its outcome is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<Asked>,
    /// Those of earlier turns whose outcome is not known either, by their number. They are over before the last one is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) earlier: BTreeMap<u64, Asked>,
    /// When another one is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due: Option<Timestamp>,
    /// When the last one was asked for, or the sandbox came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<Snapshot>,
    /// Whether that was found to be lost: then nothing is as good as another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_lost: bool,
    /// The last one before those of files that may be torn, as long as the last one is of such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proven: Option<Box<Snapshot>>,
    /// What was last captured by a start, of files as it found them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    as_found: Option<SnapshotId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<PersistFailed>,
}

/// A capture whose outcome is not known, and the moment that it is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    seq: Seq,
    pub(super) turn: Turn,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) through: Option<Seq>,
    at: Timestamp,
    deadline: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    transcript: Option<Transcript>,
    completed_runs: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<FilesLost>,
}

impl Asked {
    /// The snapshot that was made of that moment.
    fn answered_by(self, captured: Captured) -> Snapshot {
        let Self { seq, turn, through, at, transcript, completed_runs, lost, .. } = self;
        Snapshot { captured, seq, turn, through, at, transcript, completed_runs, lost }
    }
}

/// Captures that failed, since the last one that did not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistFailed {
    /// How many.
    pub attempts: u32,
    /// When the last one did.
    pub at: Timestamp,
    /// Why, for a person.
    pub message: String,
}

impl Persistence {
    /// The last snapshot.
    pub fn last(&self) -> Option<&Snapshot> {
        self.last.as_ref()
    }

    /// The last snapshot of files that could be relied on.
    pub fn proven(&self) -> Option<&Snapshot> {
        match &self.proven {
            Some(proven) => Some(proven),
            None => self.last.as_ref().filter(|last| !last.captured.unproven),
        }
    }

    /// What went wrong with the last capture, if something did.
    pub fn failed(&self) -> Option<&PersistFailed> {
        self.failed.as_ref()
    }

    /// Whether the last snapshot was found to be lost.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether everything that was wanted is over.
    pub fn is_settled(&self) -> bool {
        !self.is_under_way() && self.due.is_none()
    }

    /// Whether what a turn left is being captured.
    pub fn is_capturing(&self, turn: Turn) -> bool {
        let mut all = self.asked.iter().chain(self.earlier.values());
        all.any(|asked| asked.turn == turn && asked.through.is_none())
    }

    /// Nothing is wanted: everything is in this snapshot.
    pub(super) fn of(last: Option<Snapshot>) -> Self {
        Self { last, ..Self::default() }
    }

    pub(super) fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.asked.is_some() || !self.earlier.is_empty()
    }

    /// Whether an earlier one is under way though the last one is not: nothing leads there.
    pub(super) fn is_out_of_order(&self) -> bool {
        self.asked.is_none() && !self.earlier.is_empty()
    }

    /// How many captures were asked for so far, which is the number of the last one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the outcome of a capture with this number, or of one before it, is not known yet.
    pub fn awaits(&self, number: u64) -> bool {
        let is_last = self.asked.is_some() && self.number <= number;
        is_last || self.earlier.keys().next().is_some_and(|first| *first <= number)
    }

    /// What was asked for under a number, if its outcome is not known. Captures are over in the order in which they were
    /// asked for: an earlier one that nobody has heard of by then was lost with whoever was at it.
    fn take(&mut self, number: u64) -> Option<Asked> {
        let later = self.earlier.split_off(&number);
        let asked = if number == self.number { self.asked.take() } else { None };
        self.earlier = later;
        asked.or_else(|| self.earlier.remove(&number))
    }

    /// Takes note of a snapshot that there is now. What was good before it is remembered for as long as it may be
    /// needed to put right what is not.
    fn add(&mut self, snapshot: Snapshot, out: &mut Decision) {
        self.proven =
            if snapshot.captured.unproven { self.proven().cloned().map(Box::new) } else { None };
        self.last = Some(snapshot.clone());
        self.is_lost = false;
        out.snapshots.push(snapshot);
    }
}

impl Session {
    /// Where it stands with its snapshots.
    pub fn persistence(&self) -> &Persistence {
        &self.persistence
    }

    /// Wants a capture at a time, or at the one that is wanted already if that is earlier.
    pub(super) fn want_capture(&mut self, at: Timestamp) {
        let due = self.persistence.due.map_or(at, |due| due.min(at));
        self.persistence.due = Some(due);
    }

    /// Wants a capture once whatever goes on from outside has stopped for a moment; but not for ever later.
    pub(super) fn want_capture_after_use(&mut self, ctx: &Context<'_>) {
        let waits_already = self.persistence.due.is_some_and(|due| due <= ctx.now);
        if waits_already || self.persistence.failed.is_some() {
            return self.want_capture(ctx.now.plus(ctx.policy.persist_debounce));
        }
        let quiet = ctx.now.plus(ctx.policy.persist_debounce);
        let latest = self.persistence.since.unwrap_or(ctx.now).plus(ctx.policy.persist_interval);
        self.persistence.due = Some(quiet.min(latest).max(ctx.now));
    }

    /// Somebody waits for what is to be captured: it is not waited for whatever goes on from outside to stop. What failed
    /// is tried again when it is time to.
    pub(super) fn capture_at_once(&mut self, ctx: &Context<'_>) -> Result<(), Refusal> {
        let is_new = self.persistence.last.is_none() && self.current.is_none();
        if is_new && self.state == State::Ended {
            return Err(Refusal::Ended);
        }
        if is_new {
            self.keeping.keep_in_place();
        }
        let is_wanted = self.persistence.due.is_some() && self.persistence.failed.is_none();
        // What was left running, or what prepared the sandbox, may have changed something unseen.
        let may_differ = self.is_idle() && self.persistence.is_settled();
        if is_new || is_wanted || may_differ {
            self.want_capture(ctx.now);
        }
        Ok(())
    }

    /// Whether the last snapshot is not of the files as they are: something is to be captured, or is.
    pub fn is_yet_to_be_captured(&self) -> bool {
        let is_on_the_way = match self.sandbox {
            Sandbox::Freezing { .. } | Sandbox::Stopping { .. } => true,
            Sandbox::None
            | Sandbox::Starting { .. }
            | Sandbox::Live
            | Sandbox::Frozen { .. }
            | Sandbox::Thawing { .. } => false,
        };
        !self.persistence.is_settled() || is_on_the_way
    }

    /// The last snapshot was found to be lost. Where its files are in place, they are captured once more, and stay.
    pub(super) fn capture_again(&mut self, ctx: &Context<'_>, lost: SnapshotId) {
        let is_last = self.persistence.last().is_some_and(|last| last.captured.id == lost);
        if !is_last || self.persistence.is_lost || self.keeping.files() == FilesPlace::Away {
            return;
        }
        self.persistence.is_lost = true;
        self.keeping.keep_in_place();
        self.want_capture(ctx.now);
    }

    /// What is there is not worth it.
    pub(super) fn want_no_capture(&mut self) {
        self.persistence.due = None;
    }

    /// Everything was made what a snapshot says, and nothing has changed since. Whatever was good before is of other
    /// files; these are good, whatever they were when they were captured.
    pub(super) fn is_captured_by(&mut self, snapshot: Snapshot) {
        self.persistence.proven = snapshot.captured.unproven.then(|| Box::new(snapshot.clone()));
        self.persistence.last = Some(snapshot);
        self.persistence.is_lost = false;
        self.persistence.failed = None;
    }

    /// The time from which a sandbox that lives on is captured every now and then.
    pub(super) fn begin_interval(&mut self, ctx: &Context<'_>) {
        self.persistence.since = Some(ctx.now);
    }

    /// Whether the slot is in a state that can be captured.
    fn may_capture(&self) -> bool {
        match self.sandbox {
            Sandbox::Live | Sandbox::Frozen { .. } => true,
            // What is being put back is neither what it was nor what it will be.
            Sandbox::None => !self.puts_back(),
            Sandbox::Starting { .. }
            | Sandbox::Freezing { .. }
            | Sandbox::Thawing { .. }
            | Sandbox::Stopping { .. } => false,
        }
    }

    /// When a capture is to be asked for, or to be given up.
    pub fn capture_deadline(&self, policy: &Policy) -> Option<Timestamp> {
        let this = &self.persistence;
        if let Some(first) =
            this.earlier.values().chain(&this.asked).map(|asked| asked.deadline).min()
        {
            return Some(first);
        }
        if !self.may_capture() {
            return None;
        }
        let interval = match (&self.state, self.sandbox, self.persistence.since) {
            (State::Active, Sandbox::Live, Some(since)) if self.persistence.failed.is_none() => {
                Some(since.plus(policy.persist_interval))
            }
            _ => None,
        };
        [self.persistence.due, interval].into_iter().flatten().min()
    }

    /// A turn is over, and the next one may begin at once: what it left is captured whatever else is being stored.
    pub(super) fn capture_turn(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        self.want_capture(ctx.now);
        let this = &self.persistence;
        let has_room = this.earlier.len() + 1 < MAX_UNDER_WAY;
        if has_room
            && self.may_capture()
            && let Some(asked) = self.persistence.asked.take()
        {
            self.persistence.earlier.insert(self.persistence.number, asked);
            return self.ask_for_a_capture(ctx, out);
        }
        self.capture_if_due(ctx, out);
    }

    /// The next turn begins. What was done from outside since the last one is captured before that, and not in a moment:
    /// it belongs to where the conversation was.
    pub(super) fn capture_before_turn(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        if self.persistence.due.is_some() && self.persistence.failed.is_none() {
            self.capture_turn(ctx, out);
        }
    }

    /// Asks for a capture, if one is due and the slot allows it.
    pub(super) fn capture_if_due(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        let is_due = self.capture_deadline(ctx.policy).is_some_and(|due| due <= ctx.now);
        if is_due && !self.persistence.is_under_way() {
            self.ask_for_a_capture(ctx, out);
        }
    }

    fn ask_for_a_capture(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        // Nobody did anything, and nothing is wanted: only what was left running may have.
        let only_if_busy = self.persistence.due.is_none() && self.current.is_none();
        let asked = self.this_moment(ctx);
        let this = &mut self.persistence;
        this.number += 1;
        this.due = None;
        this.since = Some(ctx.now);
        this.asked = Some(asked);
        out.effects.extend(self.capture_effect(only_if_busy));
    }

    /// What a capture that is asked for now is of.
    fn this_moment(&self, ctx: &Context<'_>) -> Asked {
        Asked {
            seq: self.last_seq,
            turn: self.lineage.head(),
            through: self.knows_through(),
            at: ctx.now,
            deadline: ctx.now.plus(ctx.policy.persist_timeout),
            transcript: self.transcript.clone(),
            completed_runs: self.completed_runs,
            lost: self.lost_of_turn(),
        }
    }

    /// What is owed for the capture that was asked for, if one was.
    pub(super) fn capture_effect(&self, only_if_busy: bool) -> Option<Effect> {
        let asked = self.persistence.asked.as_ref()?;
        let last = self.persistence.last.as_ref();
        // One of files that may be torn is not as good as one of the same files that are not; nor is one from the
        // middle of a turn that is over.
        let same = last.filter(|last| {
            // What is on its way may be other files of the same moment: then this is the newer one.
            let is_newest = self.persistence.earlier.is_empty();
            let is_alike = last.turn == asked.turn
                && last.through.is_some() == asked.through.is_some()
                && last.transcript == asked.transcript
                && last.lost == asked.lost;
            is_newest && is_alike && !last.captured.unproven && !self.persistence.is_lost
        });
        Some(Effect::Persist {
            incarnation: self.incarnation,
            number: self.persistence.number,
            unless_like: same.map(|last| last.captured.id),
            only_if_busy,
            proven: self.persistence.proven().cloned().map(Box::new),
        })
    }

    pub(super) fn persisted(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        number: u64,
        outcome: PersistOutcome,
    ) {
        let Some(asked) = self.persistence.take(number) else { return };
        let is_last = number == self.persistence.number;
        match outcome {
            PersistOutcome::Captured(captured) => {
                self.persistence.failed = None;
                self.persistence.add(asked.answered_by(captured), out);
            }
            PersistOutcome::PutRight { as_found, captured } => {
                self.persistence.failed = None;
                // A start that came meanwhile may have told of it already.
                if self.persistence.as_found.replace(as_found.id) != Some(as_found.id) {
                    self.persistence.add(asked.clone().answered_by(as_found), out);
                }
                self.persistence.add(asked.answered_by(captured), out);
            }
            PersistOutcome::Unchanged => self.persistence.failed = None,
            // Its moment is over. What can be captured now is, by the one that comes after it.
            PersistOutcome::Gone | PersistOutcome::Failed { .. } if !is_last => {}
            PersistOutcome::Gone if self.has_no_files_in_place() => self.persistence.failed = None,
            PersistOutcome::Gone => self.files_are_gone(ctx, out),
            PersistOutcome::Failed { message } => self.capture_failed(ctx, out, message),
        }
        self.capture_if_due(ctx, out);
    }

    /// A start has captured the files as it found them, and then put right what was wrong with them. What they
    /// are now is captured as well.
    pub(super) fn found_and_mended(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        found: &Found,
    ) {
        let is_other = found.snapshot.is_some_and(|from| from.outdated || from.left_out > 0);
        let is_new = found.workspace == Workspace::Fresh && self.persistence.last.is_some();
        let was_not = self.persistence.failed.is_some();
        if found.workspace == Workspace::Repaired || is_other || is_new || was_not {
            self.want_capture(ctx.now);
        }
        let Some(captured) = found.as_found else { return };
        if self.persistence.as_found.replace(captured.id) == Some(captured.id) {
            return;
        }
        let snapshot = self.this_moment(ctx).answered_by(captured);
        self.persistence.add(snapshot, out);
    }
}
