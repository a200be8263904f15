//! How much of what happened goes into one commit.

use ash_core::session::Fact;

/// The most that goes into one.
pub(super) const MAX_BATCH: usize = 256;
pub(super) const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// What a report without content counts for: a flood of them has a bound too.
const REPORT_BYTES: usize = 64;

pub(super) fn size_of_reports(fact: &Fact) -> usize {
    match fact {
        Fact::Reported { reports, .. } => {
            reports.iter().map(|numbered| REPORT_BYTES + numbered.report.body.size()).sum()
        }
        Fact::SandboxStarted { .. }
        | Fact::SandboxStartFailed { .. }
        | Fact::SandboxGone { .. }
        | Fact::SandboxUnreachable { .. }
        | Fact::SandboxFrozen { .. }
        | Fact::SandboxThawed { .. }
        | Fact::Persisted { .. }
        | Fact::PutBack { .. }
        | Fact::PutAway { .. }
        | Fact::InUse
        | Fact::TimePassed
        | Fact::DriverPanicked { .. } => 0,
    }
}
