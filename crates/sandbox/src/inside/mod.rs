//! Attempts to get out, made by the program inside.
//!
//! They are the cheap half of the escape suite, and run at every start of a server: [`crate::probe()`]
//! believes in a tier only if all of them fail. So they must be safe where the sandbox does not hold:
//! **probe, never fire**. What is opened for writing is never written to; a system call gets arguments for
//! which it does nothing.

mod calls;
mod files;
mod network;
mod process;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// One attempt and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was attempted.
    pub name: String,
    /// Whether the sandbox held.
    pub passed: bool,
    /// What happened.
    pub detail: String,
}

/// Things outside that must not be seen from inside.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Outside {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// A process.
    pub pid: Option<u32>,
    /// A port that is listened to on the machine's loopback interface.
    pub port: Option<u16>,
    /// An abstract socket that is listened to.
    pub abstract_socket: Option<String>,
    /// Text in the server's environment.
    pub secret: Option<String>,
}

impl Check {
    fn new(name: &str, passed: bool, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), passed, detail: detail.into() }
    }

    /// It holds if it was refused, whatever the reason.
    fn refused<T>(name: &str, result: io::Result<T>) -> Self {
        match result {
            Ok(_) => Self::new(name, false, "was allowed"),
            Err(error) => Self::new(name, true, error.to_string()),
        }
    }

    /// It holds if it was refused for one of these reasons.
    fn refused_with<T>(name: &str, result: io::Result<T>, reasons: &[i32]) -> Self {
        match result {
            Ok(_) => Self::new(name, false, "was allowed"),
            Err(error) => {
                let right = error.raw_os_error().is_some_and(|errno| reasons.contains(&errno));
                Self::new(name, right, error.to_string())
            }
        }
    }

    /// It holds if it works: the sandbox would be of no use otherwise.
    fn works<T>(name: &str, result: io::Result<T>) -> Self {
        match result {
            Ok(_) => Self::new(name, true, "works"),
            Err(error) => Self::new(name, false, error.to_string()),
        }
    }

    fn is(name: &str, found: &str, expected: &str) -> Self {
        let detail = format!("{found:?}, expected {expected:?}");
        Self::new(name, found == expected, detail)
    }
}

/// The main function of the program inside, with the argument `probe`, and what is outside (as JSON) as
/// the next. Prints a [`Check`] on each line.
pub fn inside_main() -> ExitCode {
    let outside = std::env::args().nth(2);
    let outside = outside.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let mut output = io::stdout().lock();
    for check in all(&outside) {
        let Ok(line) = serde_json::to_string(&check) else { return ExitCode::FAILURE };
        if writeln!(output, "{line}").is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn all(outside: &Outside) -> Vec<Check> {
    let mut checks = files::checks(outside);
    checks.extend(process::checks(outside));
    checks.extend(calls::checks());
    checks.extend(network::checks(outside));
    checks
}
