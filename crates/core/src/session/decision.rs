//! What comes out: what to record, and what to do once it is recorded.

use crate::entry::Entry;
use crate::id::{QuestionId, RunId, SnapshotId};
use crate::number::{Incarnation, Seq, SpoolPosition, Turn};
use crate::resume::{FilesLost, IfLost, Transcript};
use crate::run::{Outcome, Phase, Usage};
use crate::snapshot::Snapshot;
use crate::time::Timestamp;

/// What was decided: to be committed with the session in one transaction, then performed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a decision that is not committed and performed is a lost one"]
pub struct Decision {
    /// What the log says about it.
    pub entries: Vec<LogEntry>,
    /// What becomes of runs.
    pub runs: Vec<RunChange>,
    /// Snapshots that there are now.
    pub snapshots: Vec<Snapshot>,
    /// What has to be done, in this order. Each can be done twice without harm.
    pub effects: Vec<Effect>,
}

impl Decision {
    /// Adds what was decided after this.
    pub fn extend(&mut self, later: Self) {
        self.entries.extend(later.entries);
        self.runs.extend(later.runs);
        self.snapshots.extend(later.snapshots);
        self.effects.extend(later.effects);
    }
}

/// An entry with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its place.
    pub seq: Seq,
    /// When it was decided.
    pub at: Timestamp,
    /// What it says.
    pub entry: Entry,
}

/// What became of a run; the history of runs is made of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunChange {
    /// Its prompt was accepted.
    Accepted {
        /// Which run.
        run: RunId,
        /// The log entry that holds the prompt.
        prompt_seq: Seq,
        /// When.
        at: Timestamp,
    },
    /// The agent was given its prompt.
    Started {
        /// Which run.
        run: RunId,
        /// Its ordinal.
        turn: Turn,
        /// The turn it continues.
        parent_turn: Turn,
        /// When.
        at: Timestamp,
    },
    /// It does something else now.
    Progressed {
        /// Which run.
        run: RunId,
        /// What it does.
        phase: Phase,
        /// How often the model was asked so far.
        round: u32,
    },
    /// It is over.
    Ended {
        /// Which run.
        run: RunId,
        /// How it ended.
        outcome: Outcome,
        /// What it consumed.
        usage: Usage,
        /// When.
        at: Timestamp,
    },
}

impl RunChange {
    /// What an entry of the log says about a run. The history of runs can be made anew from a log.
    pub fn of(logged: &LogEntry) -> Option<Self> {
        let at = logged.at;
        match &logged.entry {
            Entry::Prompt { run, .. } => {
                Some(Self::Accepted { run: *run, prompt_seq: logged.seq, at })
            }
            Entry::RunStarted { run, turn, parent_turn } => {
                Some(Self::Started { run: *run, turn: *turn, parent_turn: *parent_turn, at })
            }
            Entry::Phase { run, phase, round } => {
                Some(Self::Progressed { run: *run, phase: *phase, round: *round })
            }
            Entry::RunEnded { run, outcome, usage } => {
                Some(Self::Ended { run: *run, outcome: outcome.clone(), usage: *usage, at })
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
            | Entry::SessionForked { .. }
            | Entry::SessionImported { .. }
            | Entry::Rewound { .. }
            | Entry::RunRetry { .. }
            | Entry::RunCancelling { .. }
            | Entry::TextDelta { .. }
            | Entry::ThinkingDelta { .. }
            | Entry::Message { .. }
            | Entry::Output { .. }
            | Entry::Aside { .. }
            | Entry::PermissionRequest { .. }
            | Entry::PermissionDecided { .. }
            | Entry::PermissionAnswered { .. }
            | Entry::ReportTooLarge { .. }
            | Entry::RunError { .. }
            | Entry::ReportsLost { .. } => None,
        }
    }
}

/// What has to be done in the world. Each names the incarnation it is meant for, and doing it
/// twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a sandbox, or find that one already up. An incarnation that has lived and died, or
    /// was stopped before it lived, is never started again.
    StartSandbox {
        /// Which one.
        incarnation: Incarnation,
        /// What the agent's own record of the conversation must begin with, if it has one.
        transcript: Option<Transcript>,
        /// How many runs the session has completed.
        completed_runs: u32,
        /// How many turns its log has.
        turns: u32,
        /// What becomes of it if its files cannot be brought back.
        if_lost: IfLost,
        /// What was lost of them before, and the agent has yet to be told.
        lost: Option<FilesLost>,
        /// What to bring back, if the files are gone.
        snapshot: Option<Snapshot>,
        /// Whether that was captured before the last turn, so that what it brings back is not the latest.
        is_behind: bool,
        /// What to put them right from, if they cannot be relied on.
        proven: Option<Box<Snapshot>>,
    },
    /// Connect to a sandbox that an earlier owner left running.
    Attach {
        /// Which one.
        incarnation: Incarnation,
        /// The last report that is in the log; what follows is to be sent again.
        after: SpoolPosition,
    },
    /// Destroy a sandbox and see to it that nothing of it, or of any before it, runs on or comes
    /// up later.
    StopSandbox {
        /// Which one.
        incarnation: Incarnation,
    },
    /// Freeze a sandbox.
    Freeze {
        /// Which one.
        incarnation: Incarnation,
        /// For which pause.
        asked: Seq,
    },
    /// Thaw a sandbox and connect to it, if that is not so yet.
    Thaw {
        /// Which one.
        incarnation: Incarnation,
        /// For which resume.
        asked: Seq,
        /// The last report that is in the log; what follows is to be sent again.
        after: SpoolPosition,
    },
    /// Hand a prompt to the agent.
    Deliver {
        /// To which sandbox.
        incarnation: Incarnation,
        /// Whose prompt.
        run: RunId,
    },
    /// Tell the agent to end a run.
    Interrupt {
        /// In which sandbox.
        incarnation: Incarnation,
        /// Which run.
        run: RunId,
    },
    /// Tell the agent what a person says to its question.
    Decide {
        /// In which sandbox.
        incarnation: Incarnation,
        /// Which question.
        question: QuestionId,
        /// The entry that says it.
        decided: Seq,
    },
    /// Capture what the agent works on. While its sandbox is alive it stands still for a moment, and what is to
    /// be done next waits for that.
    Persist {
        /// The sandbox in the slot, or the last one there was.
        incarnation: Incarnation,
        /// Which capture.
        number: u64,
        /// A snapshot that is as good, if nothing has changed since.
        unless_like: Option<SnapshotId>,
        /// Not if nothing but the bridge runs in the sandbox.
        only_if_busy: bool,
        /// The last snapshot of files that could be relied on. If the machine was restarted since they were last in
        /// use, they are held against it first.
        proven: Option<Box<Snapshot>>,
    },
    /// Make the files of a session what a snapshot says. Nothing of the session runs, and nothing is started before
    /// the outcome was observed.
    PutBack {
        /// For which rewind.
        number: u64,
        /// What they are to be.
        snapshot: Snapshot,
    },
    /// Remove the files of a session for which nothing runs, if they are as in a snapshot that can be read.
    PutAway {
        /// The last sandbox there was.
        incarnation: Incarnation,
        /// Which time.
        number: u64,
        /// What has them too.
        snapshot: SnapshotId,
    },
    /// Remove everything that is left of a session that is over, and then what is remembered of it.
    Purge,
    /// Tell a sandbox what it need not keep any longer.
    Acknowledge {
        /// Which one.
        incarnation: Incarnation,
        /// The last report that is in the log.
        through: SpoolPosition,
    },
}
