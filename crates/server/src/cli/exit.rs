//! How a command ends: its exit code, and what is said about an error.

use std::process::ExitCode;

use serde_json::json;

use super::Hint;
use super::output::{note, plain};
use crate::api::Problem;
use crate::client::{ClientError, is_loopback};

/// The codes a command ends with. Scripts rely on them: none ever changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// Done.
    Ok,
    /// Something went wrong.
    Failure,
    /// The command line is not understood.
    Usage,
    /// No server answers, or what answers is none of ours.
    Unreachable,
    /// There is no such thing.
    NotFound,
    /// The server refuses: it does not fit the state of things.
    Refused,
    /// Without a valid key.
    Unauthorized,
    /// The run failed or was interrupted.
    RunFailed,
    /// Ctrl-C.
    CtrlC,
    /// The code of somebody else's command.
    Of(u8),
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::NotFound => 4,
            Self::Refused => 5,
            Self::Unauthorized => 6,
            Self::RunFailed => 7,
            Self::CtrlC => 130,
            Self::Of(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// What a person got wrong, as far as it is known before a server is asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Mistake {
    /// The command line says something that cannot be done.
    #[error("{0}")]
    Usage(String),
    /// Something named on it does not exist.
    #[error("{0}")]
    NotFound(String),
    /// What it names does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// What it names does not let us in.
    #[error("{0}")]
    Unauthorized(String),
    /// It does not fit the state of things.
    #[error("{0}")]
    Refused(String),
    /// A signal came in the middle of it.
    #[error("stopped by a signal")]
    Stopped(i32),
    /// Ctrl-C at a prompt.
    #[error("nothing was done")]
    CtrlC,
}

/// The code for an error.
pub(super) fn of(error: &anyhow::Error) -> Exit {
    if let Some(mistake) = error.downcast_ref::<Mistake>() {
        return match mistake {
            Mistake::Usage(_) => Exit::Usage,
            Mistake::NotFound(_) => Exit::NotFound,
            Mistake::Unreachable(_) => Exit::Unreachable,
            Mistake::Unauthorized(_) => Exit::Unauthorized,
            Mistake::Refused(_) => Exit::Refused,
            Mistake::Stopped(signal) => Exit::Of(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
            Mistake::CtrlC => Exit::CtrlC,
        };
    }
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Address { .. } | ClientError::Key) => Exit::Usage,
        Some(
            ClientError::Unreachable { .. }
            | ClientError::Silent { .. }
            | ClientError::Broken { .. }
            | ClientError::Unexpected { .. },
        ) => Exit::Unreachable,
        Some(ClientError::Problem(problem)) => of_status(problem.status_code),
        Some(ClientError::Stream(_)) | None => Exit::Failure,
    }
}

fn of_status(status: u16) -> Exit {
    match status {
        401 | 403 => Exit::Unauthorized,
        404 => Exit::NotFound,
        429 => Exit::Failure,
        400..=499 => Exit::Refused,
        _ => Exit::Failure,
    }
}

/// What to do about an error that says nothing about it itself.
fn hint(error: &ClientError) -> Option<&'static str> {
    match error {
        ClientError::Unreachable { url, .. } if is_local(url) => Some("start one with: ash serve"),
        ClientError::Unreachable { .. } | ClientError::Broken { .. } => {
            Some("--server or ASH_SERVER_URL says where the server is")
        }
        ClientError::Silent { .. } => Some("it is there, and may be busy; try again"),
        ClientError::Address { .. } => Some("an address is such as http://127.0.0.1:4100"),
        ClientError::Key => Some("ASH_API_KEY holds the key"),
        ClientError::Problem(problem) => match (problem.status_code, problem.code.as_str()) {
            (401 | 403, _) => {
                Some("set ASH_API_KEY, or say with --data-dir where the server's data directory is")
            }
            _ if says_ended(problem) => {
                Some("it cannot come back; begin another with: ash session create")
            }
            (_, "no_such_run") => Some("nothing runs; ash session show tells what it did last"),
            (_, "session_not_active") => {
                Some("bring it back with: ash session resume, or send with --wake")
            }
            (_, "run_in_progress") => {
                Some("wait, cut it with: ash session interrupt, or send without --if-busy reject")
            }
            (_, "snapshot_expired") => {
                Some("ash session snapshots lists what can still be brought back")
            }
            (_, "snapshot_damaged") => Some(
                "ash session resume --fresh begins with what can be had; the conversation is kept",
            ),
            (_, "no_such_turn") => Some("ash session snapshots lists what can be brought back"),
            (_, "no_cloud") => Some("start the server with ASH_SNAPSHOT_URL, which says where"),
            (404, _) => Some("ash session list and ash agent list show what there is"),
            _ => None,
        },
        ClientError::Unexpected { .. } => {
            Some("it is no Ash server; --server or ASH_SERVER_URL says where one is")
        }
        ClientError::Stream(_) => None,
    }
}

/// Whether an address is of this machine.
fn is_local(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| is_loopback(&url))
}

/// Whether the server says that a session is over for good.
pub(super) fn says_ended(problem: &Problem) -> bool {
    matches!(problem.code.as_str(), "session_ended" | "session_expired")
}

/// Says on standard error what went wrong, why, and what to do.
pub(super) fn report(error: &anyhow::Error, json: bool) {
    let client = error.downcast_ref::<ClientError>();
    let said = error.downcast_ref::<Hint>().map(ToString::to_string);
    let hint = said.clone().or_else(|| Some(hint(client?)?.to_owned()));
    let chain = error.chain().map(ToString::to_string);
    let mut chain = chain.filter(|message| Some(message) != said.as_ref());
    let first = chain.next().unwrap_or_default();
    let causes: Vec<String> = chain.collect();
    if json {
        let mut document = json!({
            "error": first, "causes": causes, "hint": hint, "exitCode": of(error).code(),
        });
        if let Some(ClientError::Problem(problem)) = client {
            document["code"] = json!(problem.code);
            document["statusCode"] = json!(problem.status_code);
            document["retryable"] = json!(problem.retryable);
            document["requestId"] = json!(problem.request_id);
        }
        note(&document.to_string());
        return;
    }
    note(&format!("error: {}", plain(&first)));
    for cause in causes {
        note(&format!("cause: {}", plain(&cause)));
    }
    if let Some(hint) = hint {
        note(&format!("hint: {hint}"));
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn problem(status_code: u16, code: &str) -> Problem {
        let (error, code, request_id) = ("no".to_owned(), code.to_owned(), "r".to_owned());
        Problem { error, status_code, code, retryable: false, request_id }
    }

    #[test]
    fn no_hint_names_what_always_fails() {
        let hinted = |status, code| hint(&ClientError::Problem(problem(status, code))).unwrap();
        for (status, code) in
            [(400, "session_ended"), (410, "session_ended"), (409, "session_expired")]
        {
            let told = hinted(status, code);
            assert!(told.contains("ash session create") && !told.contains("resume"), "{told}");
        }
        assert!(hinted(409, "session_not_active").contains("resume"));
        assert!(hinted(404, "no_such_run").contains("nothing runs"));
        assert!(hinted(410, "snapshot_expired").contains("ash session snapshots"));
        assert!(hinted(409, "snapshot_damaged").contains("--fresh"));
        assert!(hinted(404, "no_cloud").contains("ASH_SNAPSHOT_URL"));
        let silent = ClientError::Silent {
            url: "http://127.0.0.1:1".to_owned(),
            source: crate::client::Cause::new("no answer"),
        };
        assert!(!hint(&silent).unwrap().contains("ash serve"));
    }

    #[test]
    fn an_address_is_of_this_machine_by_its_host_alone() {
        assert!(is_local("http://127.0.0.9:1") && is_local("http://[::1]:1"));
        assert!(is_local("http://me:pw@localhost"));
        assert!(!is_local("http://127.example.com") && !is_local("http://a/?//localhost"));
    }

    #[test]
    fn each_status_has_its_code() {
        let codes =
            [(400, 5), (401, 6), (403, 6), (404, 4), (409, 5), (410, 5), (429, 1), (500, 1)];
        for (status, code) in codes {
            let problem = problem(status, "some_code");
            let error = anyhow::Error::new(ClientError::Problem(problem)).context("what was done");
            assert_eq!(of(&error).code(), code, "{status}");
        }
    }
}
