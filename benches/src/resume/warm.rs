//! Paused where it is, and back.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use ash_core::entry::ResumePath;
use ash_store::Store;

use super::stage::Stage;
use crate::figures::{Figures, heading, millis};
use crate::world::{self, EVENT_BYTES, Writer};

const ROUNDS: usize = 200;

/// A driver goes on from what the last one left: it records what it decides, and then what came of it.
const COMMITS: u32 = 2;

pub(super) async fn measure(stage: &Stage, directory: &Path) {
    heading("Warm resume, against a bare fdatasync and a durable commit");
    let session = stage.session().await;
    let store: Arc<dyn Store> = world::open(&directory.join("commits.db"), 256);
    let agent = world::deploy(&*store).await;
    let mut writer = Writer::new(store, agent).await;
    let text = "x".repeat(EVENT_BYTES);
    let mut file = File::create(directory.join("bare")).expect("a file can be made");
    let (mut synced, mut durable, mut resumed) = (Vec::new(), Vec::new(), Vec::new());
    // The first is not counted: it grows what is new.
    for round in 0..=ROUNDS {
        stage.pause(session).await;
        let begin = Instant::now();
        file.write_all(text.as_bytes()).and_then(|()| file.sync_data()).expect("there is room");
        let sync = begin.elapsed();
        let begin = Instant::now();
        writer.say(&text).await;
        let commit = begin.elapsed();
        let (took, receipt) = stage.resume(session).await;
        assert_eq!(receipt.path, ResumePath::Warm, "the same sandbox goes on");
        if round > 0 {
            synced.push(sync);
            durable.push(commit);
            resumed.push(took);
        }
    }
    let [synced, durable, resumed] = [synced, durable, resumed].map(Figures::one_by_one);
    synced.print_least("bare: append 300 bytes, fdatasync");
    durable.print_least("one durable commit");
    resumed.print_least("warm resume");
    println!(
        "beside its {COMMITS} commits: p50 {}; beside as many bare syncs: p50 {}; below 1 ms is wanted",
        millis(resumed.p50().saturating_sub(COMMITS * durable.p50())),
        millis(resumed.p50().saturating_sub(COMMITS * synced.p50())),
    );
}
