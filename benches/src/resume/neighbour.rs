//! What a session feels of another one that is captured for the first time.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ash_bench_snapshot::trees::{self, Filling, SHAPES};
use futures_util::future::join;

use super::served::{Served, Told};
use crate::figures::{Figures, heading, millis};
use crate::server::client::Client;

const ALONE: Duration = Duration::from_secs(3);

/// What is captured: how many trees at once, and a large file or not.
const CAPTURES: [(&str, usize, Filled); 3] = [
    ("beside 28,000 files", 1, Filled::Tree),
    ("beside a file of 1 GB", 1, Filled::File),
    ("beside 28,000 files, twice at once", 2, Filled::Tree),
];

#[derive(Clone, Copy)]
enum Filled {
    Tree,
    File,
}

pub(super) async fn measure(served: &Served) {
    heading("Messages of a session while others are captured for the first time");
    let neighbour = served.session().await;
    let mut client = served.client().await;
    let mut alone = Vec::new();
    for (number, (what, count, filled)) in CAPTURES.into_iter().enumerate() {
        let mut others = Vec::new();
        for each in 0..count {
            let session = served.session().await;
            let seed = 100 + 10 * number as u64 + each as u64;
            fill(&served.workspace(&session), filled, seed);
            others.push((session, served.client().await));
        }
        alone.extend(talk_for(served, &mut client, &neighbour, ALONE).await);
        // The captures begin when these turns are over.
        for (session, client) in &mut others {
            served.send(client, session).await;
        }
        let begin = Instant::now();
        let is_over = AtomicBool::new(false);
        let captured = async {
            for (session, client) in &mut others {
                client.finish().await;
                served.captured(client, session).await;
            }
            is_over.store(true, Ordering::Release);
            begin.elapsed()
        };
        let talking = talk(served, &mut client, &neighbour, || is_over.load(Ordering::Acquire));
        let (took, told) = join(captured, talking).await;
        print(what, told);
        println!("  captured after {:.2} s", took.as_secs_f64());
    }
    print("alone", alone);
}

fn fill(at: &Path, filled: Filled, seed: u64) {
    match filled {
        Filled::Tree => drop(trees::make_from(seed, at, &SHAPES[2]).expect("there is room")),
        Filled::File => {
            trees::make_large(&at.join("file"), Filling::Pages, b"").expect("there is room");
        }
    }
    let opened = std::fs::File::open(at).expect("it is there");
    rustix::fs::syncfs(opened).expect("it can be synced");
}

async fn talk_for(
    served: &Served,
    client: &mut Client,
    session: &str,
    time: Duration,
) -> Vec<Told> {
    let begin = Instant::now();
    talk(served, client, session, || begin.elapsed() >= time).await
}

/// One message after the other.
async fn talk(
    served: &Served,
    client: &mut Client,
    session: &str,
    is_over: impl Fn() -> bool,
) -> Vec<Told> {
    let mut told = Vec::new();
    while !is_over() {
        told.push(served.send(client, session).await);
        client.finish().await;
    }
    told
}

fn print(what: &str, told: Vec<Told>) {
    let each = |of: fn(&Told) -> Duration| Figures::one_by_one(told.iter().map(of).collect());
    each(|told| told.accepted).print_least(&format!("{what}: accepted"));
    let started = each(|told| told.started);
    started.print_least("  begun by the agent");
    println!("  the longest wait for that {}", millis(started.worst()));
    each(|told| told.done).print_least("  done");
}
