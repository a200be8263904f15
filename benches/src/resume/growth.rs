//! What a turn adds to the disk.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ash_bench_snapshot::trees;

use super::SIZES;
use super::served::Served;
use crate::figures::heading;

const TURNS: u64 = 20;

pub(super) async fn measure(served: &Served) {
    heading("What 20 turns add to the disk, five changed files each, 1,000 files");
    let mut client = served.client().await;
    let session = served.session().await;
    let (_, shape) = SIZES[1];
    let files = trees::make(&served.workspace(&session), shape).expect("there is room");
    served.send(&mut client, &session).await;
    client.finish().await;
    served.captured(&mut client, &session).await;
    let snapshots = served.data().join("snapshots");
    let database = served.data().join("ash.db");
    let before = (used(&snapshots), used(&database));
    let mut changed = 0;
    for turn in 0..TURNS {
        let files: BTreeSet<_> =
            trees::change(&files, turn).expect("they can be written").into_iter().collect();
        served.send(&mut client, &session).await;
        client.finish().await;
        served.captured(&mut client, &session).await;
        changed += files.iter().map(|file| used(file)).sum::<u64>();
    }
    let added = (used(&snapshots) - before.0, used(&database) - before.1);
    let each = |bytes: u64| bytes as f64 / 1e3 / TURNS as f64;
    println!("changed files, as du counts them     {:>9.1} kB per turn", each(changed));
    println!(
        "snapshots                            {:>9.1} kB per turn, {:.2}x of that",
        each(added.0),
        added.0 as f64 / changed as f64,
    );
    println!(
        "the database                         {:>9.1} kB per turn; its log, which is used again, {:.1} MB",
        each(added.1),
        used(&served.data().join("ash.db-wal")) as f64 / 1e6,
    );
}

/// What is taken on the disk, as `du` counts it.
fn used(path: &Path) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    let below = match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| used(&entry.path())).sum(),
        Err(_) => 0,
    };
    found.blocks() * 512 + below
}
