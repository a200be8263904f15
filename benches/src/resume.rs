//! What it costs to keep a session, and to have it back.
//!
//! | part | in | measures |
//! |---|---|---|
//! | `warm` | this process | paused where it is, and back |
//! | `cold` | this process | a new sandbox over the files that are there, by how many there are |
//! | `snapshot` | this process | the same when the files are gone, against the restore alone |
//! | `many` | this process | two hundred at once |
//! | `message` | `ash serve` | from `done` to the next message, and how long a sandbox stands still |
//! | `neighbour` | `ash serve` | messages of one session while another one is captured |
//! | `growth` | `ash serve` | what a turn adds to the disk |
//! | `paused` | both | ten thousand sessions that rest |
//!
//! Sandboxes, bridges, snapshots and the database are the real ones. Nothing is deleted before the end: files would be
//! made slower after that (see `docs/benchmarks.md`).

mod cold;
mod growth;
mod many;
mod message;
mod neighbour;
mod served;
mod snapshot;
mod stage;
mod warm;

use std::time::Duration;

use ash_bench_snapshot::trees::{SHAPES, Shape};

use crate::figures::Figures;
use crate::{memory, sandbox, server, world};
use served::Served;
use stage::Stage;

/// How large the measured workspaces are.
const SIZES: [(&str, &Shape); 3] =
    [("10 files", &SHAPES[0]), ("1,000 files", &SHAPES[1]), ("28,000 files", &SHAPES[2])];

/// Measures everything, or one of the parts.
pub(crate) fn measure(kind: Option<&str>) {
    sandbox::print_load();
    let wanted = |name: &str| kind.is_none_or(|kind| kind == name);
    let directory = world::directory();
    let directory = directory.path().canonicalize().expect("it was just made");
    world::runtime().block_on(async {
        if ["warm", "cold", "snapshot", "many"].into_iter().any(wanted) {
            let stage = Stage::set(&directory).await;
            if wanted("warm") {
                warm::measure(&stage, &directory).await;
            }
            if wanted("cold") {
                cold::measure(&stage, &directory).await;
            }
            if wanted("snapshot") {
                snapshot::measure(&stage, &directory).await;
            }
            if wanted("many") {
                many::measure(&stage).await;
            }
            stage.clear().await;
        }
        if ["message", "neighbour", "growth"].into_iter().any(wanted) {
            let served = Served::start(&directory).await;
            if wanted("message") {
                message::measure(&served).await;
            }
            if wanted("neighbour") {
                neighbour::measure(&served).await;
            }
            if wanted("growth") {
                growth::measure(&served).await;
            }
        }
    });
    if wanted("paused") {
        memory::measure();
        world::runtime().block_on(server::rest::start(&directory));
    }
}

/// How many times as long one takes as another, at its middle.
fn times(ours: &Figures, theirs: &Figures) -> f64 {
    ours.p50().as_secs_f64() / theirs.p50().as_secs_f64().max(f64::EPSILON)
}

/// Between two looks whether something is over. Nobody tells a stranger when a capture is.
const LOOK: Duration = Duration::from_millis(2);
