//! A new sandbox, and the files brought back from a snapshot on the same disk.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use ash_core::id::SnapshotId;
use ash_core::resume::Workspace;
use ash_snapshot::objects::LocalObjects;
use ash_snapshot::{Damaged, Repository, Restore};

use super::stage::Stage;
use super::{SIZES, times};
use crate::figures::{Figures, heading};

pub(super) async fn measure(stage: &Stage, directory: &Path) {
    heading("Cold resume from a local snapshot, against the restore alone");
    let rounds = [10, 4];
    for ((name, shape), rounds) in SIZES.into_iter().skip(1).zip(rounds) {
        let at = directory.join(format!("back-{}", shape.files));
        fs::create_dir(&at).expect("there is room");
        let session = stage.session_with(shape).await;
        stage.stop(session).await;
        let (mut alone, mut resumed, mut looked) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            let id = stage
                .look(session)
                .await
                .persistence()
                .last()
                .expect("it was captured")
                .captured
                .id;
            let alone_to = at.join(format!("alone-{round}"));
            // Nobody always comes after the same one.
            if round % 2 == 0 {
                alone.push(restore(&stage.snapshots, id, &alone_to));
            }
            looked.push(look(&stage.snapshots, id));
            let aside = at.join(format!("aside-{round}"));
            fs::create_dir(&aside).expect("there is room");
            for place in [stage.workspace(session), stage.home(session)] {
                let name = place.file_name().expect("it has a name");
                fs::rename(&place, aside.join(name)).expect("it is at rest");
            }
            settle(&at);
            let (took, receipt) = stage.resume(session).await;
            assert_eq!(receipt.workspace, Workspace::Restored, "its files were gone");
            resumed.push(took);
            if round % 2 == 1 {
                alone.push(restore(&stage.snapshots, id, &alone_to));
            }
            stage.stop(session).await;
        }
        let [alone, resumed, looked] = [alone, resumed, looked].map(Figures::one_by_one);
        alone.print_least(&format!("restore alone, {name}"));
        looked.print_least("  finding out whether all of it is there");
        resumed.print_least(&format!("cold resume from it, {name}"));
        println!("  {:.2}x of the restore; 1.3x is allowed", times(&resumed, &alone));
    }
}

/// What was written before is not synced on anybody's time.
fn settle(at: &Path) {
    let opened = File::open(at).expect("it is there");
    rustix::fs::syncfs(opened).expect("it can be synced");
}

/// Finds out whether everything is there that a snapshot needs.
fn look(snapshots: &Path, id: SnapshotId) -> Duration {
    let begin = Instant::now();
    let objects = LocalObjects::open(snapshots).expect("it is there");
    let repository = Repository::open(Box::new(objects)).expect("it is a repository");
    let id = id.to_string().parse().expect("it is the same id");
    let snapshot = repository.snapshot(id).expect("it is there");
    repository.is_present(&snapshot).expect("it is all there");
    begin.elapsed()
}

/// Brings both directories back, elsewhere.
fn restore(snapshots: &Path, id: SnapshotId, to: &Path) -> Duration {
    fs::create_dir(to).expect("there is room");
    settle(to);
    let begin = Instant::now();
    let objects = LocalObjects::open(snapshots).expect("it is there");
    let repository = Repository::open(Box::new(objects)).expect("it is a repository");
    let id = id.to_string().parse().expect("it is the same id");
    let snapshot = repository.snapshot(id).expect("it is there");
    for tree in &snapshot.roots {
        let restore = Restore {
            tree,
            path: b"",
            damaged: Damaged::Refuse,
            target: &to.join(&tree.name),
            owner: None,
            max_entries: u64::MAX,
            max_bytes: u64::MAX,
            threads: std::thread::available_parallelism().map_or(1, |many| many.get().min(4)),
            progress: &|_| true,
        };
        repository.restore(&restore).expect("it is restored");
    }
    begin.elapsed()
}
