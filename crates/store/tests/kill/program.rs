//! The kill test: does a store keep what it acknowledged, however its process dies?
//!
//! ```text
//! ash-kill-test run <dir> --kills N | --minutes M [--seed S]
//!     starts a writer, kills it with SIGKILL, reopens the store and checks it; again and again
//! ash-kill-test full <dir>
//!     fills the file system of <dir>, frees some of it, and checks; give it a small one
//! ash-kill-test limited <dir>
//!     has every write beyond a file size fail, and checks
//! ash-kill-test write <dir> <seed>
//!     the writer: one line for each acknowledged commit, until it is killed
//! ash-kill-test write-limited <dir> <seed>
//!     the writer under a file size limit: until writes fail for good
//! ```
//!
//! The exit code is 1 if anything that was acknowledged is missing, or anything is half there.

mod check;
mod kills;
mod random;
mod scarcity;
mod workload;

use std::error::Error;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Anything that stops the test, in words for whoever reads its output.
type Fallible<T> = Result<T, Box<dyn Error>>;

/// Where the store lies in a directory.
fn database(directory: &Path) -> PathBuf {
    directory.join("ash.db")
}

/// Prints a line at once: whoever reads it may be waiting, and we may be killed.
fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(&arguments)),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(arguments: &[&str]) -> Fallible<()> {
    match arguments {
        ["write", directory, seed] => {
            workload::write_until_killed(Path::new(directory), seed.parse()?).await
        }
        ["write-limited", directory, seed] => {
            scarcity::write_until_it_fails(Path::new(directory), seed.parse()?).await
        }
        ["full", directory] => scarcity::fill(Path::new(directory)).await,
        ["limited", directory] => scarcity::limit(Path::new(directory)).await,
        ["run", directory, rest @ ..] => {
            let plan = plan(rest)?;
            kills::run(Path::new(directory), &plan).await
        }
        _ => Err("usage: ash-kill-test run <dir> --kills N | --minutes M [--seed S]\n       \
                  ash-kill-test full <dir>\n       ash-kill-test limited <dir>"
            .into()),
    }
}

fn plan(mut options: &[&str]) -> Fallible<kills::Plan> {
    let mut seed = 1;
    let mut until = None;
    while let [name, value, rest @ ..] = options {
        match *name {
            "--kills" => until = Some(kills::Until::Kills(value.parse()?)),
            "--minutes" => {
                until = Some(kills::Until::Elapsed(Duration::from_secs(
                    value.parse::<u64>()?.saturating_mul(60),
                )));
            }
            "--seed" => seed = value.parse()?,
            unknown => return Err(format!("no such option: {unknown}").into()),
        }
        options = rest;
    }
    match (until, options) {
        (Some(until), []) => Ok(kills::Plan { seed, until }),
        (None, _) => Err("how long? give --kills N or --minutes M".into()),
        (Some(_), leftover) => Err(format!("what is {leftover:?}?").into()),
    }
}
