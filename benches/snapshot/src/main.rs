//! What snapshots cost, against a bare scan, `cp -a`, `tar --zstd` and restic in one run.
//!
//! `make bench-snapshot` runs everything, `PART=small` or `large` or `memory` one part. Rivals
//! alternate. Nothing is deleted before the end of a part: where ext4 has no journal, it does not
//! give the number of a file that was deleted in the last minute or five to a new one, and looks
//! for another one each time, so that files are made twenty times slower after many were
//! deleted. How fast files are made is printed first, before and after such a deletion.

#![expect(clippy::print_stdout, reason = "a benchmark is a program that prints")]

mod figures;
mod large;
mod memory;
mod own;
mod rivals;
mod small;

use std::path::{Path, PathBuf};
use std::time::Instant;

use ash_bench_snapshot::trees;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let at = PathBuf::from(arguments.next().expect("a directory to work in"));
    let part = arguments.next().filter(|part| !part.is_empty());
    // Memory is measured in a process of its own.
    if part.as_deref() == Some("peak") {
        memory::peak(&at, arguments.next().as_deref());
        return;
    }
    // To look closer by hand: makes the tree of 28,000 files, for the steps of `peak`.
    if part.as_deref() == Some("tree") {
        trees::make(&at.join("tree"), &trees::SHAPES[2]).expect("the tree is made");
        return;
    }
    let rounds = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(3);
    let at = at.join(format!("ash-bench-{}", std::process::id()));
    std::fs::create_dir_all(&at).expect("the directory is made");
    let has_restic = rivals::Restic::is_there();
    if !has_restic {
        println!("restic is not here and could not be installed: its rows are missing");
    }
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    if wanted("small") {
        for shape in &trees::SHAPES {
            small::measure(&at, shape, rounds, has_restic);
        }
    }
    if wanted("large") {
        large::measure(&at, rounds, has_restic);
    }
    if wanted("memory") {
        memory::measure(&at);
    }
    // Last: it deletes many files.
    if wanted("files") {
        made_per_second(&at);
    }
    std::fs::remove_dir_all(&at).expect("the directory is removed");
}

/// Whether files are made as fast after many were deleted.
fn made_per_second(at: &Path) {
    const FILES: u32 = 15_000;
    figures::heading("Files made in a second");
    let make = |name: &str| {
        let begin = Instant::now();
        for directory in 0..FILES / 100 {
            let directory = at.join(name).join(directory.to_string());
            std::fs::create_dir_all(&directory).expect("the directory is made");
            for file in 0..100 {
                std::fs::File::create(directory.join(file.to_string())).expect("the file is made");
            }
        }
        f64::from(FILES) / begin.elapsed().as_secs_f64()
    };
    let fresh = make("fresh");
    std::fs::remove_dir_all(at.join("fresh")).expect("they are removed");
    let after = make("after");
    println!("fresh {fresh:.0}, right after as many were deleted {after:.0}");
}
