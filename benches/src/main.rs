//! What Ash costs, against bare baselines, as ratios taken in one run.
//!
//! `make bench` runs everything; `cargo run --release -p ash-bench -- commits` one part. Windows of
//! rivals alternate, so that a busy machine is busy for all of them. The database lies in a
//! temporary directory below the working directory, not in `/tmp`: that may be memory.

#![expect(clippy::print_stdout, reason = "a benchmark is a program that prints")]

mod bridge;
mod commits;
mod egress;
mod figures;
mod memory;
mod model;
mod recovery;
mod replay;
mod resume;
mod sandbox;
mod server;
mod world;

use std::path::PathBuf;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.next();
    // Memory is measured in a process of its own, so that nothing else has left traces in it.
    if part.as_deref() == Some("resident") {
        let path = arguments.next().expect("the path of a database");
        memory::print_resident(&PathBuf::from(path));
        return;
    }
    // What the server is compared with has a process of its own, as the server has.
    if part.as_deref() == Some("bare") {
        let bytes = arguments.next().and_then(|bytes| bytes.parse().ok());
        server::serve_bare(bytes.expect("how much to answer"));
        return;
    }
    if part.as_deref() == Some("reverse") {
        let upstream = arguments.next().and_then(|upstream| upstream.parse().ok());
        egress::serve_reverse(upstream.expect("whom to ask"));
        return;
    }
    let wanted = |name: &str| part.as_deref().is_none_or(|part| part == name);
    if wanted("commits") {
        commits::measure();
    }
    if wanted("replay") {
        replay::measure();
    }
    if wanted("recovery") {
        recovery::measure();
    }
    if wanted("bridge") {
        bridge::measure();
    }
    if wanted("memory") {
        memory::measure();
    }
    if wanted("sandbox") {
        sandbox::measure();
    }
    // Not among everything: it fills the machine.
    if part.as_deref() == Some("sandbox-many") {
        sandbox::measure_many();
    }
    if wanted("server") {
        server::measure(arguments.next().as_deref());
    }
    if wanted("egress") {
        egress::measure();
    }
    // Last: it deletes many files when it is over, and files are made slower after that.
    if wanted("resume") {
        resume::measure(arguments.next().as_deref());
    }
}
