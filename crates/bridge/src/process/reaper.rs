//! The duty of pid 1: every child that ends is reaped, and none is there that nobody keeps.
//!
//! This is the one place that waits for children. The bridge starts keepers and nothing else, so
//! any other child is an orphan whose keeper was killed: it is killed with all below it. A keeper
//! that is stopped was stopped by what it keeps, in order not to be killed by it; it is killed, and
//! its tree is then such an orphan.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};

use super::{Processes, tree};

/// Between two rounds of killing.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// Reaps for ever.
pub async fn reap(processes: Processes) {
    // Before the first look: what ends in between is then noticed.
    let Ok(mut ended) = signal(SignalKind::child()) else { return };
    let mut has_orphans = true;
    loop {
        has_orphans |= reap_ended(&processes);
        if has_orphans {
            has_orphans = kill_orphans(&processes);
        }
        processes.0.may_have_orphans.set(Some(has_orphans));
        if has_orphans {
            // A killed process takes a moment, and what it forked meanwhile comes to us silently.
            let _signal = tokio::time::timeout(PAUSE, ended.recv()).await;
        } else {
            ended.recv().await;
        }
    }
}

/// Reaps what has ended. Says whether there may be orphans: a keeper that ends by itself leaves
/// none, and whatever else ends is one or was forked by one.
fn reap_ended(processes: &Processes) -> bool {
    let mut may_have_orphans = false;
    loop {
        match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if status.stopped() => {
                // Not reaped, so the number is still its own.
                let _ended = rustix::process::kill_process(pid, Signal::KILL);
            }
            Ok(Some((pid, status))) => {
                let is_keeper = processes.forget_keeper(pid.as_raw_nonzero().get());
                may_have_orphans |= !is_keeper || status.exit_status() != Some(0);
            }
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return may_have_orphans,
        }
    }
}

/// Kills every child that is no keeper, and all below it. Says whether there was any.
fn kill_orphans(processes: &Processes) -> bool {
    let own = std::process::id().cast_signed();
    let orphans = tree::below(own, |pid| processes.is_keeper(pid));
    for &orphan in &orphans {
        tree::signal(orphan, Signal::KILL);
    }
    !orphans.is_empty()
}
