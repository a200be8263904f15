//! What becomes of a session that nobody uses: its files go once a snapshot has them too, and when it is over and
//! its time has passed, all of it goes.
//!
//! ```text
//!   in place ──► leaving ──► away          a start has them in place again, from wherever they are
//!      ▲            │
//!      └── stay ◄───┘                      they could not be removed: tried again later
//! ```
//!
//! Files are removed only where nothing runs, and where everything that was wanted of a capture is over and went
//! well: so the last snapshot has what is there. Whoever removes them looks again. Somebody who wants them
//! meanwhile gets them: see the contract of `Effect::PutAway`'s performer.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, Sandbox, Session, State};
use crate::id::SnapshotId;
use crate::policy::{Context, Policy};
use crate::snapshot::Snapshot;
use crate::time::Timestamp;

/// How long to wait before something that could not be removed is tried again.
const RETRY: Duration = Duration::from_secs(10 * 60);

/// How many times as long as a capture it may take: all that was stored is read first, one session after another.
const TIMES_AS_LONG: u32 = 6;

/// How long at first, where all of a session is to go: something of it may have been in use for a moment. It is as long again
/// as was waited already, up to the other one.
const FIRST_RETRY_OF_ALL: Duration = Duration::from_secs(10);

/// What is kept of a session beside its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeping {
    /// How often its files were to be removed: tells the outcome of one time from that of another.
    #[serde(default)]
    number: u64,
    #[serde(default)]
    files: FilesPlace,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    /// When its end is to be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    purge_at: Option<Timestamp>,
}

/// Where the files of a session are, beside its snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilesPlace {
    /// Where its sandboxes have them, if it had one.
    #[default]
    InPlace,
    /// They are being removed.
    Leaving {
        /// When that is given up.
        deadline: Timestamp,
    },
    /// They could not be removed.
    Stay {
        /// When it is tried again.
        until: Timestamp,
    },
    /// Only the snapshot has them.
    Away,
}

/// What came of removing the files of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AwayOutcome {
    /// They are gone, or were not there.
    Gone,
    /// They are where they were: somebody works with them.
    Stay,
    /// They are where they were: they are not as in the snapshot, or that cannot be relied on.
    Uncaptured,
}

impl Keeping {
    /// Where its files are.
    pub fn files(&self) -> FilesPlace {
        self.files
    }

    pub(super) fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn is_leaving(&self) -> bool {
        match self.files {
            FilesPlace::Leaving { .. } => true,
            FilesPlace::InPlace | FilesPlace::Stay { .. } | FilesPlace::Away => false,
        }
    }

    /// Somebody wants the files, or has them: those that are there stay.
    pub(super) fn keep_in_place(&mut self) {
        self.files = match self.files {
            FilesPlace::Away => FilesPlace::Away,
            FilesPlace::InPlace | FilesPlace::Leaving { .. } | FilesPlace::Stay { .. } => {
                FilesPlace::InPlace
            }
        };
    }

    /// A sandbox is started: its host puts them there, from wherever they are.
    pub(super) fn bring_in_place(&mut self) {
        self.files = FilesPlace::InPlace;
    }

    pub(super) fn ended(&mut self, now: Timestamp) {
        self.ended_at = Some(now);
    }
}

impl Session {
    /// What is kept of it.
    pub fn keeping(&self) -> &Keeping {
        &self.keeping
    }

    /// The snapshots that it cannot do without: those that a start may bring back.
    pub fn needed_snapshots(&self) -> Vec<SnapshotId> {
        let of = |snapshot: &Snapshot| snapshot.captured.id;
        let last = self.persistence.last().map(of);
        let proven = self.persistence.proven().map(of);
        let rewinding = self.rewinding().map(|rewinding| of(rewinding.to()));
        [last, proven, rewinding].into_iter().flatten().collect()
    }

    /// The snapshot that has the same files as are in place, if nothing runs that could change them and nobody
    /// has anything to capture.
    pub fn stored_by(&self) -> Option<SnapshotId> {
        let is_whole = self.sandbox == Sandbox::None
            && self.rewinding.is_none()
            && self.persistence.is_settled()
            && self.persistence.failed().is_none()
            && !self.persistence.is_lost();
        let rests = match self.state {
            State::Paused { .. } | State::Stopped | State::Error { .. } | State::Ended => true,
            State::Starting { .. } | State::Active => false,
        };
        let last = self.persistence.last().filter(|_| is_whole && rests)?;
        Some(last.captured.id)
    }

    /// When it was last used, or its files were last captured.
    pub fn last_used(&self) -> Timestamp {
        let captured = self.persistence.last().map(|last| last.at);
        captured.map_or(self.last_active, |at| at.max(self.last_active))
    }

    /// When something is to be removed, or that is to be given up.
    pub(super) fn keeping_deadline(&self, policy: &Policy) -> Option<Timestamp> {
        let files = match self.keeping.files {
            FilesPlace::Leaving { deadline } => Some(deadline),
            FilesPlace::Away => None,
            // All of it goes.
            _ if self.keeping.purge_at.is_some() => None,
            FilesPlace::InPlace => self.stored_by().map(|_| self.last_used().plus(policy.cold_ttl)),
            FilesPlace::Stay { until } => self.stored_by().map(|_| until),
        };
        [files, self.purge_deadline(policy)].into_iter().flatten().min()
    }

    fn purge_deadline(&self, policy: &Policy) -> Option<Timestamp> {
        let is_over = self.state == State::Ended
            && self.sandbox == Sandbox::None
            && !self.persistence.is_under_way()
            && !self.keeping.is_leaving();
        is_over.then(|| self.keeping.purge_at.unwrap_or_else(|| self.is_over_at(policy)))
    }

    /// When the time of a session is over that has ended.
    fn is_over_at(&self, policy: &Policy) -> Timestamp {
        // Sessions of the first versions do not know when they ended.
        self.keeping.ended_at.unwrap_or(self.last_active).plus(policy.retention)
    }

    /// Has the files removed, if that can be done.
    pub(super) fn put_away(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        let may_begin = match self.keeping.files {
            FilesPlace::InPlace | FilesPlace::Stay { .. } => self.keeping.purge_at.is_none(),
            FilesPlace::Leaving { .. } | FilesPlace::Away => false,
        };
        if may_begin && self.stored_by().is_some() {
            self.keeping.number += 1;
            let deadline = ctx.now.plus(ctx.policy.persist_timeout * TIMES_AS_LONG);
            self.keeping.files = FilesPlace::Leaving { deadline };
            out.effects.extend(self.put_away_effect());
        }
    }

    /// What is owed while files are being removed.
    pub(super) fn put_away_effect(&self) -> Option<Effect> {
        let snapshot = self.stored_by().filter(|_| self.keeping.is_leaving())?;
        let (incarnation, number) = (self.incarnation, self.keeping.number);
        Some(Effect::PutAway { incarnation, number, snapshot })
    }

    pub(super) fn put_away_ended(&mut self, ctx: &Context<'_>, number: u64, outcome: AwayOutcome) {
        if number != self.keeping.number || !self.keeping.is_leaving() {
            return;
        }
        self.keeping.files = match outcome {
            AwayOutcome::Gone => FilesPlace::Away,
            AwayOutcome::Stay | AwayOutcome::Uncaptured => {
                FilesPlace::Stay { until: ctx.now.plus(RETRY) }
            }
        };
        if outcome == AwayOutcome::Uncaptured {
            self.want_capture(ctx.now);
        }
    }

    /// Leads out of a removal that nobody heard of again, and sets about what is due.
    pub(super) fn keeping_is_late(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        if let FilesPlace::Leaving { deadline } = self.keeping.files
            && deadline <= ctx.now
        {
            self.keeping.files = FilesPlace::Stay { until: ctx.now.plus(RETRY) };
        }
        if self.purge_deadline(ctx.policy).is_some_and(|due| due <= ctx.now) {
            // Recorded before it is done: whoever dies in the middle does it again.
            let waited = ctx.now.since(self.is_over_at(ctx.policy));
            self.keeping.purge_at = Some(ctx.now.plus(waited.clamp(FIRST_RETRY_OF_ALL, RETRY)));
            out.effects.push(Effect::Purge);
            return;
        }
        if self.keeping_deadline(ctx.policy).is_some_and(|due| due <= ctx.now) {
            self.put_away(ctx, out);
        }
    }
}
