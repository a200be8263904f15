//! Trees of small files: the first capture, one without a change, turns that change five files, and
//! the way back.

use std::path::Path;
use std::time::{Duration, Instant};

use ash_snapshot::{State, Took};

use crate::figures::{Row, heading, megabytes, milliseconds, print};
use crate::own::{Own, threads};
use crate::rivals::{Restic, bare_scan, copy, size, sync, tar, untar};
use crate::trees::{self, Shape};

/// How many turns change five files.
const TURNS: u64 = 20;

pub(crate) fn measure(at: &Path, shape: &Shape, rounds: usize, has_restic: bool) {
    heading(shape.name);
    let at = at.join(format!("{}-files", shape.files));
    let tree = at.join("tree");
    std::fs::create_dir_all(&tree).expect("the directory is made");
    let files = trees::make(&tree, shape).expect("the tree is made");
    sync(&tree);
    let names = bare_scan(&tree, threads()).expect("it is scanned");
    println!("{names} names, {:.0} MB", megabytes(size(&tree)));

    let mut own = Own::new(&at.join("store"));
    let restic = has_restic.then(|| Restic::new(&at));
    first(&at, &tree, rounds, has_restic, &mut own, restic.as_ref());
    unchanged(&tree, rounds, &mut own, restic.as_ref());
    saved(&at, &own);
    turns(&at, &tree, &files, &mut own, restic.as_ref());
    back(&at, &tree, rounds, &mut own, restic.as_ref());
}

fn first(
    at: &Path,
    tree: &Path,
    rounds: usize,
    has_restic: bool,
    own: &mut Own,
    restic: Option<&Restic>,
) {
    let [mut ours, mut copied, mut synced, mut tarred, mut theirs] =
        ["ash", "cp -a", "cp -a, then sync", "tar --zstd", "restic"].map(Row::named);
    let mut took = Took::default();
    for round in 0..rounds {
        let begin = at.join(format!("first-{round}"));
        std::fs::create_dir(&begin).expect("the directory is made");
        let mut other;
        let own = if round == 0 {
            &mut *own
        } else {
            other = Own::new(&begin.join("store"));
            &mut other
        };
        let (_, steps, total) = own.capture(tree);
        took = steps;
        ours.took.push(total);
        let copying = copy(tree, &begin.join("copy"));
        copied.took.push(copying);
        synced.took.push(copying + sync(&begin));
        tarred.took.push(tar(tree, &begin.join("tar")));
        if has_restic {
            let other;
            let restic = match restic {
                Some(restic) if round == 0 => restic,
                _ => {
                    other = Restic::new(&begin);
                    &other
                }
            };
            theirs.took.push(restic.backup(tree));
        }
        sync(at);
    }
    print("first capture", &[&ours, &copied, &synced, &tarred, &theirs]);
    steps(&took);
}

fn unchanged(tree: &Path, rounds: usize, own: &mut Own, restic: Option<&Restic>) {
    let [mut scanned, mut ours, mut theirs] = ["bare scan", "ash", "restic"].map(Row::named);
    // Once for what was too young to be relied on.
    own.capture(tree);
    let mut took = Took::default();
    for round in 0..rounds.max(1) * 7 {
        let begin = Instant::now();
        bare_scan(tree, threads()).expect("it is scanned");
        scanned.took.push(begin.elapsed());
        let (snapshot, steps, total) = own.capture(tree);
        assert_eq!(snapshot.new_bytes, 0, "nothing changed");
        ours.took.push(total);
        took = steps;
        if let Some(restic) = restic.filter(|_| round < rounds) {
            theirs.took.push(restic.backup(tree));
        }
    }
    print("nothing changed", &[&scanned, &ours, &theirs]);
    steps(&took);
}

/// What a process of its own has to do beside: read what was remembered, and write it.
fn saved(at: &Path, own: &Own) {
    let path = at.join("state");
    let begin = Instant::now();
    own.state.save(&path).expect("it is saved");
    let saving = begin.elapsed();
    let begin = Instant::now();
    assert_eq!(State::load(&path), own.state, "it is what it was");
    println!(
        "  as a process of its own: state read in {:.1} ms, written in {:.1} ms",
        milliseconds(begin.elapsed()),
        milliseconds(saving),
    );
}

fn turns(
    at: &Path,
    tree: &Path,
    files: &[std::path::PathBuf],
    own: &mut Own,
    restic: Option<&Restic>,
) {
    let [mut scanned, mut ours, mut theirs] = ["bare scan", "ash", "restic"].map(Row::named);
    let mut took = Took::default();
    for turn in 0..TURNS {
        trees::change(files, turn).expect("files are changed");
        let begin = Instant::now();
        bare_scan(tree, threads()).expect("it is scanned");
        scanned.took.push(begin.elapsed());
        let (_, steps, total) = own.capture(tree);
        ours.took.push(total);
        took = steps;
        if let Some(restic) = restic {
            theirs.took.push(restic.backup(tree));
        }
    }
    print("five files changed", &[&scanned, &ours, &theirs]);
    steps(&took);
    let stored = size(&at.join("store"));
    print!("stored after {TURNS} turns: ash {:.2} MB", megabytes(stored));
    if let Some(restic) = restic {
        let theirs = size(&restic.repository);
        print!(", restic {:.2} MB ({:.2}x)", megabytes(theirs), stored as f64 / theirs as f64);
    }
    println!();
}

fn back(at: &Path, tree: &Path, rounds: usize, own: &mut Own, restic: Option<&Restic>) {
    let [mut ours, mut copied, mut synced, mut tarred, mut theirs] =
        ["ash (synced)", "cp -a", "cp -a, then sync", "tar --zstd", "restic"].map(Row::named);
    let (snapshot, _, _) = own.capture(tree);
    tar(tree, &at.join("last.tar"));
    for round in 0..rounds {
        let begin = at.join(format!("back-{round}"));
        std::fs::create_dir(&begin).expect("the directory is made");
        sync(at);
        ours.took.push(own.restore(&snapshot, &begin.join("ash")));
        sync(at);
        let copying = copy(tree, &begin.join("copy"));
        copied.took.push(copying);
        synced.took.push(copying + sync(&begin));
        tarred.took.push(untar(&at.join("last.tar"), &begin.join("untarred")));
        sync(at);
        if let Some(restic) = restic {
            theirs.took.push(restic.restore(&begin.join("restic")));
        }
    }
    print("restore", &[&ours, &copied, &synced, &tarred, &theirs]);
}

/// Where the time went.
pub(crate) fn steps(took: &Took) {
    let steps: [(&str, Duration); 10] = [
        ("scan", took.scan),
        ("plan", took.plan),
        ("look", took.look),
        ("store", took.store),
        ("trees", took.trees),
        ("sync", took.sync),
        ("all threads: read and cut", took.reading),
        ("hash", took.hashing),
        ("compress", took.compressing),
        ("write", took.writing),
    ];
    let shown: Vec<String> =
        steps.iter().map(|(name, took)| format!("{name} {:.1}", milliseconds(*took))).collect();
    println!("  the last one in ms: {}", shown.join(", "));
}
