//! Durable event commits per second, against a bare fdatasync loop on the same disk.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash_store::Store;

use crate::figures::{Figures, heading};
use crate::world::{self, EVENT_BYTES, Writer};

const WINDOW: Duration = Duration::from_secs(2);
const ROUNDS: u32 = 3;

/// Before a window is measured: a new file grows, which costs syncs that an old one does not.
const WARM_UP: Duration = Duration::from_secs(1);

pub(crate) fn measure() {
    heading("Durable commits of one event (300 bytes), SQLite, WAL, synchronous=FULL");
    let directory = world::directory();
    let mut fdatasync = Vec::new();
    // (name, group limit, writers)
    let rivals = [
        ("1 writer, one transaction each", 1, 1),
        ("1 writer, group commit", 256, 1),
        ("32 writers, one transaction each", 1, 32),
        ("32 writers, group commit", 256, 32),
    ];
    let mut samples: Vec<Vec<Duration>> = vec![Vec::new(); rivals.len()];
    for round in 0..ROUNDS {
        fdatasync.extend(sync_loop(directory.path()));
        for (index, (_, group_limit, writers)) in rivals.iter().enumerate() {
            let path = directory.path().join(format!("{round}-{index}.db"));
            samples[index].extend(commit_loop(&path, *group_limit, *writers));
        }
    }
    let window = WINDOW * ROUNDS;
    let bare = Figures::new(fdatasync, window);
    bare.print("bare loop: append 300 bytes, fdatasync");
    let figures: Vec<Figures> =
        samples.into_iter().map(|samples| Figures::new(samples, window)).collect();
    for ((name, ..), figures) in rivals.iter().zip(&figures) {
        figures.print(name);
    }
    println!(
        "\ngroup commit at 32 writers: {:.1}x one transaction each (target: 6x), {:.1}x the bare loop",
        figures[3].per_second() / figures[2].per_second(),
        figures[3].per_second() / bare.per_second(),
    );
    println!(
        "one writer: {:.2} of the bare loop; p50 {:.2}x of a bare fdatasync",
        figures[1].per_second() / bare.per_second(),
        figures[1].p50().as_secs_f64() / bare.p50().as_secs_f64(),
    );
}

fn sync_loop(directory: &Path) -> Vec<Duration> {
    let mut file = File::create(directory.join("bare")).expect("a file can be made");
    let line = [b'x'; EVENT_BYTES];
    let mut each = Vec::new();
    let start = Instant::now() + WARM_UP;
    while Instant::now() < start + WINDOW {
        let before = Instant::now();
        file.write_all(&line).and_then(|()| file.sync_data()).expect("the disk takes it");
        if before >= start {
            each.push(before.elapsed());
        }
    }
    each
}

fn commit_loop(path: &Path, group_limit: usize, writers: usize) -> Vec<Duration> {
    world::runtime().block_on(async {
        let store = world::open(path, group_limit);
        let as_store: Arc<dyn Store> = Arc::clone(&store) as Arc<dyn Store>;
        let agent = world::deploy(&*as_store).await;
        let mut ready = Vec::new();
        for _ in 0..writers {
            ready.push(Writer::new(Arc::clone(&as_store), agent).await);
        }
        let start = Instant::now() + WARM_UP;
        let mut writing = tokio::task::JoinSet::new();
        for mut writer in ready {
            writing.spawn(async move {
                let text = "x".repeat(EVENT_BYTES);
                let mut each = Vec::new();
                while Instant::now() < start + WINDOW {
                    let before = Instant::now();
                    writer.say(&text).await;
                    if before >= start {
                        each.push(before.elapsed());
                    }
                }
                each
            });
        }
        writing.join_all().await.concat()
    })
}
