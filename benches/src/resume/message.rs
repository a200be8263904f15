//! From `done` to the next message, while what the turn left is captured; and how long that holds the sandbox.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ash_bench_snapshot::trees::{self, Dice, Filling, Shape};

use super::SIZES;
use super::served::Served;
use crate::figures::{Figures, heading, millis};
use crate::server::client::Client;

const ROUNDS: usize = 15;
/// A large file is changed in one of so many.
const LARGE_EACH: usize = 3;
const LARGE_BYTES: usize = 200_000_000;

/// A session, and what was measured with it.
struct Kept {
    name: &'static str,
    session: String,
    files: Vec<PathBuf>,
    /// A file that changes as a whole.
    large: Option<PathBuf>,
    first_still: Duration,
    calm: Vec<Duration>,
    accepted: Vec<Duration>,
    started: Vec<Duration>,
    still: Vec<Duration>,
}

pub(super) async fn measure(served: &Served) {
    heading("From `done` to the next message, by what there is to capture");
    let (mut one, mut other) = (served.client().await, served.client().await);
    let mut all = Vec::new();
    for (name, shape) in SIZES {
        all.push(keep(served, &mut one, name, shape, None).await);
    }
    all.push(keep(served, &mut one, "200 MB that changed", SIZES[0].1, Some("large")).await);
    for round in 0..ROUNDS {
        for kept in &mut all {
            if kept.large.is_some() && round % LARGE_EACH > 0 {
                continue;
            }
            let turn = 2 * round as u64;
            kept.change(turn);
            let calm = served.send(&mut one, &kept.session).await;
            // The moment of `done`: this is what the capture begins with, too.
            let next = served.send(&mut other, &kept.session).await;
            kept.calm.push(calm.started);
            kept.accepted.push(next.accepted);
            kept.started.push(next.started);
            one.finish().await;
            other.finish().await;
            served.captured(&mut one, &kept.session).await;
            kept.change(turn + 1);
            let still = kept.stands_still(served, &mut one).await;
            kept.still.push(still);
        }
    }
    for kept in all {
        kept.print();
    }
}

async fn keep(
    served: &Served,
    client: &mut Client,
    name: &'static str,
    shape: &Shape,
    large: Option<&str>,
) -> Kept {
    let session = served.session().await;
    let place = served.workspace(&session);
    let files = trees::make(&place, shape).expect("there is room");
    let mut kept = Kept {
        name,
        session,
        files,
        large: large.map(|large| place.join(large)),
        first_still: Duration::ZERO,
        calm: Vec::new(),
        accepted: Vec::new(),
        started: Vec::new(),
        still: Vec::new(),
    };
    kept.change(u64::MAX / 2);
    kept.first_still = kept.stands_still(served, client).await;
    kept
}

impl Kept {
    /// Does what an agent would do in a turn.
    fn change(&self, turn: u64) {
        trees::change(&self.files, turn).expect("they can be written");
        if let Some(large) = &self.large {
            fill(large, turn).expect("there is room");
        }
    }

    /// A turn, and how long its capture holds the sandbox.
    async fn stands_still(&self, served: &Served, client: &mut Client) -> Duration {
        let before = served.stood_still(client).await;
        served.send(client, &self.session).await;
        client.finish().await;
        served.captured(client, &self.session).await;
        served.stood_still(client).await.saturating_sub(before)
    }

    fn print(self) {
        let name = self.name;
        let [calm, accepted, started, still] =
            [self.calm, self.accepted, self.started, self.still].map(Figures::one_by_one);
        accepted.print_least(&format!("{name}: accepted after `done`; 5 ms"));
        calm.print_least("  begun by the agent, nothing captured before it");
        started.print_least("  begun by the agent after `done`; 250 ms more");
        still.print_least("  stands still for a capture; 250 ms");
        println!("  stood still for the first capture {}", millis(self.first_still));
    }
}

/// Fills a file with what nobody can compress.
fn fill(path: &Path, seed: u64) -> io::Result<()> {
    let mut dice = Dice::new(9_000 + seed % 1_000);
    let mut file = BufWriter::new(File::create(path)?);
    for _ in 0..LARGE_BYTES / 1_000_000 {
        file.write_all(&trees::bytes(&mut dice, Filling::Dense, 1_000_000))?;
    }
    file.flush()
}
