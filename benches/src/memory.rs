//! What ten thousand paused sessions add to a server's memory: rows, not tasks.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use ash_store::Store;

use crate::figures::heading;
use crate::world;

const SESSIONS: usize = 10_000;

pub(crate) fn measure() {
    heading("Memory that 10,000 paused sessions add (resident set of a fresh process)");
    let directory = world::directory();
    let (empty, full) = (directory.path().join("empty.db"), directory.path().join("full.db"));
    world::runtime().block_on(async {
        world::deploy(&*world::open(&empty, 256)).await;
        let store: Arc<dyn Store> = world::open(&full, 256);
        let agent = world::deploy(&*store).await;
        world::paused_sessions(&store, agent, SESSIONS).await;
    });
    let (without, with) = (resident(&empty), resident(&full));
    println!("no sessions                  {without:>8} kB");
    println!("10,000 paused sessions       {with:>8} kB");
    println!(
        "difference                   {:>8} kB, {:.0} bytes per session",
        with.saturating_sub(without),
        with.saturating_sub(without) as f64 * 1_024.0 / SESSIONS as f64
    );
}

fn resident(path: &Path) -> u64 {
    let this = std::env::current_exe().expect("this program has a path");
    let output = Command::new(this).arg("resident").arg(path).output().expect("it runs again");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace();
    let kilobytes = words.next().and_then(|word| word.parse().ok()).expect("a number");
    println!(
        "  {}: started and looked around in {} ms",
        path.display(),
        words.next().unwrap_or("?")
    );
    kilobytes
}

/// Starts an engine on a database, lets it look around, and prints what the process holds.
pub(crate) fn print_resident(path: &Path) {
    world::runtime().block_on(async {
        let before = Instant::now();
        let store: Arc<dyn Store> = world::open(path, 256);
        let engine = world::engine(store, &world::host()).await;
        engine.reconcile().await.expect("the database can be read");
        let took = before.elapsed();
        assert_eq!(engine.driven_sessions(), 0, "paused sessions are rows, not tasks");
        let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is there");
        let kilobytes = line.split_whitespace().nth(1).expect("a number");
        println!("{kilobytes} {:.1}", took.as_secs_f64() * 1_000.0);
        engine.abort().await;
    });
}
