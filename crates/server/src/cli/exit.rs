//! How a command ends: its exit code, and what is said about an error.

use std::process::ExitCode;

use serde_json::json;

use super::Hint;
use super::hints::hint;
use super::output::{note, plain};
use super::suggest::Suggestion;
use crate::api::Problem;
use crate::client::ClientError;

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

/// Whether the server says that a session is over for good.
pub(super) fn says_ended(problem: &Problem) -> bool {
    matches!(problem.code.as_str(), "session_ended" | "session_expired")
}

/// Whether the server says that there is no such session.
pub(super) fn is_missing_session(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<ClientError>(), Some(ClientError::Problem(problem))
        if problem.code == "not_found" && problem.error.starts_with("Session"))
}

/// Says on standard error what went wrong, why, and what to do.
pub(super) fn report(error: &anyhow::Error, json: bool) {
    let client = error.downcast_ref::<ClientError>();
    let said = error.downcast_ref::<Hint>().map(ToString::to_string);
    let meant = error.downcast_ref::<Suggestion>().map(ToString::to_string);
    let hint = meant.clone().or_else(|| said.clone()).or_else(|| hint(client?).map(str::to_owned));
    let chain = error.chain().map(ToString::to_string);
    let mut chain =
        chain.filter(|message| Some(message) != said.as_ref() && Some(message) != meant.as_ref());
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
