//! Two hundred sessions that come back at once.

use std::time::{Duration, Instant};

use ash_core::entry::ResumePath;
use ash_core::id::SessionId;
use futures_util::future::join_all;

use super::stage::Stage;
use crate::figures::{Figures, heading};

const SESSIONS: usize = 200;
/// So many are made, paused or stopped at a time.
const AT_A_TIME: usize = 8;

pub(super) async fn measure(stage: &Stage) {
    heading("200 sessions resumed at once");
    let mut sessions = Vec::new();
    while sessions.len() < SESSIONS {
        sessions.extend(join_all((0..AT_A_TIME).map(|_| stage.session())).await);
    }
    for some in sessions.chunks(AT_A_TIME) {
        join_all(some.iter().map(|session| stage.pause(*session))).await;
    }
    let (total, warm) = resume(stage, &sessions, ResumePath::Warm).await;
    print("warm", total, &warm);
    for some in sessions.chunks(AT_A_TIME) {
        join_all(some.iter().map(|session| stage.stop(*session))).await;
    }
    let (total, cold) = resume(stage, &sessions, ResumePath::Cold).await;
    print("cold, in place", total, &cold);
    for some in sessions.chunks(AT_A_TIME) {
        join_all(some.iter().map(|session| stage.stop(*session))).await;
    }
}

async fn resume(stage: &Stage, sessions: &[SessionId], path: ResumePath) -> (Duration, Figures) {
    let begin = Instant::now();
    let resumed = join_all(sessions.iter().map(|session| stage.resume(*session))).await;
    let total = begin.elapsed();
    assert!(resumed.iter().all(|(_, receipt)| receipt.path == path), "all came back that way");
    (total, Figures::new(resumed.into_iter().map(|(took, _)| took).collect(), total))
}

fn print(what: &str, total: Duration, each: &Figures) {
    each.print_least(what);
    println!("  all after {:.2} s: {:.0}/s", total.as_secs_f64(), each.per_second());
}
