//! What an engine counts, for whoever watches over it. Never by session: a label is kept for ever.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ash_core::entry::{Entry, ResumePath};
use ash_core::id::RunId;
use ash_core::run::{Outcome, Phase};
use ash_core::session::LogEntry;
use ash_core::snapshot::PersistOutcome;

use crate::host::{Away, Collected};

/// Counts what happened. What is only of interest to a dashboard goes through the `metrics` facade.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    warm: AtomicU64,
    cold: AtomicU64,
    prewarmed: AtomicU64,
}

/// The phase of a run that was cut before its agent did anything.
const NOT_BEGUN: &str = "not_begun";

/// How often sessions came back since the engine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resumes {
    /// In the same sandbox.
    pub warm: u64,
    /// In a new one.
    pub cold: u64,
    /// How often one began in a sandbox that waited for it.
    pub prewarmed: u64,
}

impl Counts {
    pub(crate) fn resumes(&self) -> Resumes {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Resumes { warm: of(&self.warm), cold: of(&self.cold), prewarmed: of(&self.prewarmed) }
    }

    /// A commit took so long, and says this. `before` it, this run went on, in that phase.
    pub(crate) fn committed(
        &self,
        took: Duration,
        entries: &[LogEntry],
        before: Option<(RunId, Option<Phase>)>,
    ) {
        metrics::histogram!("ash_event_commit_seconds").record(took);
        let mut current = before.map(|(run, _)| run);
        let mut phase = before.and_then(|(_, phase)| phase);
        for LogEntry { entry, .. } in entries {
            match entry {
                Entry::RunStarted { run, .. } => (current, phase) = (Some(*run), None),
                Entry::Phase { phase: now, .. } => phase = Some(*now),
                Entry::SessionResumed { path, receipt, .. } => {
                    let counter = match path {
                        ResumePath::Warm => &self.warm,
                        ResumePath::Cold => &self.cold,
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                    metrics::counter!("ash_resume_total", "path" => path.as_str()).increment(1);
                    let source = receipt.as_ref().and_then(|receipt| receipt.source);
                    let source = source.map_or("none", ash_core::resume::Source::as_str);
                    if *path == ResumePath::Cold {
                        metrics::counter!("ash_resume_cold_total", "source" => source).increment(1);
                    }
                    if let Some(receipt) = receipt {
                        let labels = [("path", path.as_str()), ("source", source)];
                        let took = Duration::from_micros(receipt.duration_micros);
                        metrics::histogram!("ash_resume_seconds", &labels).record(took);
                    }
                }
                Entry::RunEnded { run, outcome, .. } => {
                    let name = outcome.status().as_str();
                    metrics::counter!("ash_runs_total", "outcome" => name).increment(1);
                    if let Outcome::Interrupted(_) = outcome {
                        let phase = if current == Some(*run) { phase } else { None };
                        let phase = phase.map_or(NOT_BEGUN, Phase::as_str);
                        metrics::counter!("ash_interrupted_runs_total", "phase" => phase)
                            .increment(1);
                    }
                }
                Entry::SessionCreated
                | Entry::SessionActive { .. }
                | Entry::SessionPaused { .. }
                | Entry::SessionWaking
                | Entry::ContextLost { .. }
                | Entry::SessionStopped
                | Entry::SessionFailed { .. }
                | Entry::SessionEnded { .. }
                | Entry::SessionForked { .. }
                | Entry::SessionImported { .. }
                | Entry::Rewound { .. }
                | Entry::Prompt { .. }
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
                | Entry::ReportsLost { .. } => {}
            }
        }
    }

    /// A capture is over.
    pub(crate) fn persisted(&self, outcome: &PersistOutcome) {
        let name = match outcome {
            PersistOutcome::Captured(captured) | PersistOutcome::PutRight { captured, .. } => {
                metrics::histogram!("ash_snapshot_bytes", "kind" => "scanned")
                    .record(captured.bytes as f64);
                metrics::histogram!("ash_snapshot_bytes", "kind" => "new")
                    .record(captured.new_bytes as f64);
                "captured"
            }
            PersistOutcome::Unchanged => "unchanged",
            PersistOutcome::Gone => "gone",
            PersistOutcome::Failed { .. } => "failed",
        };
        metrics::counter!("ash_persist_total", "outcome" => name).increment(1);
    }

    /// The files of a session were removed, or stay; nothing is known if that went wrong.
    pub(crate) fn put_away(&self, away: Option<Away>) {
        let name = match away {
            Some(Away::Gone) => "gone",
            Some(Away::Wanted) => "wanted",
            Some(Away::Changed) => "changed",
            Some(Away::Unsaved) => "unsaved",
            None => "failed",
        };
        metrics::counter!("ash_workspaces_put_away_total", "outcome" => name).increment(1);
    }

    /// Nothing is left of a session.
    pub(crate) fn purged(&self) {
        metrics::counter!("ash_sessions_purged_total").increment(1);
    }

    /// Snapshots were forgotten, and what no snapshot needs removed.
    pub(crate) fn collected(&self, collected: Collected) {
        metrics::counter!("ash_snapshots_forgotten_total").increment(collected.forgotten);
        metrics::counter!("ash_collected_bytes_total").increment(collected.removed_bytes);
    }

    /// How much room there is on the disk.
    pub(crate) fn free(&self, bytes: u64) {
        metrics::gauge!("ash_disk_free_bytes").set(bytes as f64);
    }

    /// A session began in a sandbox that waited for it.
    pub(crate) fn prewarmed(&self) {
        self.prewarmed.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("ash_resume_total", "path" => "prewarm").increment(1);
    }

    /// A write was turned down: another owner has the session.
    pub(crate) fn fenced(&self) {
        metrics::counter!("ash_fenced_writes_total").increment(1);
    }

    /// A sandbox's place was given up to another one.
    pub(crate) fn evicted(&self) {
        metrics::counter!("ash_pool_evictions_total").increment(1);
    }

    /// Somebody wanted a place for a sandbox, and none could be made.
    pub(crate) fn found_no_place(&self) {
        metrics::counter!("ash_pool_refusals_total").increment(1);
    }

    /// A sandbox took so long to come up.
    pub(crate) fn started(&self, took: Duration) {
        metrics::histogram!("ash_sandbox_start_seconds").record(took);
    }
}
