//! Snapshots, as a server makes them: the repository is open, and what was there is remembered.

use std::path::Path;
use std::time::{Duration, Instant};

use ash_snapshot::objects::LocalObjects;
use ash_snapshot::{Capture, Damaged, Repository, Restore, Root, Snapshot, State, Took};

/// How many threads work: as many as there are processors here.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(crate) struct Own {
    repository: Repository,
    pub(crate) state: State,
}

impl Own {
    pub(crate) fn new(at: &Path) -> Self {
        let objects = LocalObjects::open(at).expect("the store is made");
        let repository = Repository::open(Box::new(objects)).expect("the repository is made");
        Self { repository, state: State::default() }
    }

    pub(crate) fn capture(&mut self, from: &Path) -> (Snapshot, Took, Duration) {
        let roots = [Root { name: "workspace", path: from, excluded: &[] }];
        let capture = Capture {
            roots: &roots,
            source: None,
            parent: None,
            label: None,
            unless_like: None,
            freeze: None,
            threads: threads(),
            progress: &|_| true,
        };
        let begin = Instant::now();
        let captured = self.repository.capture(&capture, &mut self.state).expect("it is captured");
        (captured.snapshot, captured.took, begin.elapsed())
    }

    pub(crate) fn restore(&self, snapshot: &Snapshot, to: &Path) -> Duration {
        let begin = Instant::now();
        let restore = Restore {
            tree: &snapshot.roots[0],
            path: b"",
            damaged: Damaged::Refuse,
            target: to,
            owner: None,
            max_entries: u64::MAX,
            max_bytes: u64::MAX,
            threads: threads(),
            progress: &|_| true,
        };
        self.repository.restore(&restore).expect("it is restored");
        begin.elapsed()
    }
}
