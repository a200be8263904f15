//! What is said to a bridge, and what its answers and its end mean.

use std::error::Error;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use ash_core::failure::{Death, Failure, FailureCode};
use ash_core::permission::Permission;
use ash_protocol::{Answer, Ask, Decision, EXIT_NO_ROOM, EXIT_RECORD_GONE, Frame, MAX_FRAME_BYTES};
use serde_json::value::RawValue;

use crate::archive::ArchiveError;
use crate::cloud::CloudError;
use crate::host::HostError;

/// What a frame has beside its body, at most.
const FRAME_MARGIN: usize = 1024;

/// What is asked, if it fits a frame.
pub(super) fn frame_of(ask: &Ask) -> Result<Frame, HostError> {
    let attempted = "ask a sandbox";
    let frame = ask.frame().map_err(|error| failed(attempted, error))?;
    let length = frame.body.as_ref().map_or(0, |body| body.get().len());
    if length > MAX_FRAME_BYTES - FRAME_MARGIN {
        return Err(failed(attempted, format!("{length} bytes are more than it takes")));
    }
    Ok(frame)
}

/// What a person says to an agent's question, as its bridge hears it.
pub(super) fn decision_of(permission: &Permission) -> Result<Decision, HostError> {
    Ok(match permission {
        Permission::Allow { input: None } => Decision::Allow { input: None },
        Permission::Allow { input: Some(input) } => {
            let input = RawValue::from_string(input.get().to_owned());
            let input = input.map_err(|error| failed("answer a question", error))?;
            Decision::Allow { input: Some(input) }
        }
        Permission::Deny { message } => Decision::Deny { message: message.clone() },
    })
}

/// What may cross into a sandbox of the server's own environment.
pub(super) fn is_harmless(name: &str) -> bool {
    matches!(name, "PATH" | "LANG" | "TERM")
}

pub(super) fn death_by(status: ExitStatus) -> Death {
    match (status.code(), status.signal()) {
        (Some(code), _) => death_by_code(code),
        (None, Some(signal)) => Death::Killed(signal),
        (None, None) => Death::Unseen,
    }
}

/// What a bridge means by its exit code.
pub(super) fn death_by_code(code: i32) -> Death {
    match u8::try_from(code) {
        Ok(EXIT_NO_ROOM) => Death::DiskFull,
        Ok(EXIT_RECORD_GONE) => Death::RecordGone,
        Ok(_) | Err(_) => Death::Exited(code),
    }
}

pub(super) fn done(attempted: &'static str, answer: Answer) -> Result<(), HostError> {
    match answer {
        Answer::Done => Ok(()),
        answer @ (Answer::Welcome(_)
        | Answer::Executed(_)
        | Answer::Hooked(_)
        | Answer::Refused { .. }) => Err(unexpected(attempted, &answer)),
    }
}

pub(super) fn unexpected(attempted: &'static str, answer: &Answer) -> HostError {
    match answer {
        Answer::Refused { message } => failed(attempted, message),
        Answer::Welcome(_) | Answer::Done | Answer::Executed(_) | Answer::Hooked(_) => {
            failed(attempted, "it answered something else")
        }
    }
}

pub(super) fn failed(attempted: &'static str, detail: impl ToString) -> HostError {
    HostError::new(attempted, detail)
}

/// Why something could not be done with a snapshot.
pub(super) fn archive_failed(attempted: &'static str, error: &ArchiveError) -> HostError {
    let is_out_of_reach = error.is_out_of_reach();
    HostError { is_out_of_reach, ..failed(attempted, error) }
}

/// Whether it is room on the disk that something has failed for.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    let mut reasons = std::iter::successors(Some(error), |&error| error.source());
    reasons.any(|reason| {
        reason.downcast_ref::<io::Error>().is_some_and(|reason| full.contains(&reason.kind()))
    })
}

fn no_room() -> Failure {
    Failure::new(
        FailureCode::SandboxDiskFull,
        "there is no room for its files: the disk of the server is full, or its own limit is reached",
    )
}

/// Why the files of a session could not be made ready.
pub(super) fn not_ready(error: io::Error) -> Failure {
    if is_full(&error) {
        return no_room();
    }
    match error.downcast::<ArchiveError>() {
        Ok(error) => not_prepared(error),
        Err(error) => start_failed(error),
    }
}

/// The same of what an archive has of them.
pub(super) fn not_prepared(error: ArchiveError) -> Failure {
    if is_full(&error) {
        return no_room();
    }
    match error {
        ArchiveError::Cloud(CloudError::Unavailable(_) | CloudError::Unfit(_)) => Failure::new(
            FailureCode::CloudUnavailable,
            "the cloud, where its files are, does not answer",
        ),
        ArchiveError::Cloud(CloudError::NotOurs(_)) => Failure::new(
            FailureCode::CloudUnavailable,
            "the cloud, where its files are, cannot be used: the server's log says why",
        ),
        ArchiveError::NoCloud => Failure::new(
            FailureCode::CloudUnavailable,
            "its files are in the cloud, and this server has none: ASH_SNAPSHOT_URL is not set",
        ),
        ArchiveError::DamagedInCloud => Failure::new(
            FailureCode::SnapshotDamaged,
            "what is in the cloud of its files is damaged, and none of them is whole here",
        ),
        ArchiveError::NothingLeft => {
            Failure::new(FailureCode::NoSavedState, "there is nothing left of its files")
        }
        ArchiveError::Cloud(_)
        | ArchiveError::Nowhere(_)
        | ArchiveError::Snapshot(_)
        | ArchiveError::Place(_)
        | ArchiveError::Home(_) => start_failed(error),
    }
}

pub(super) fn start_failed(detail: impl ToString) -> Failure {
    Failure::new(FailureCode::SandboxStartFailed, detail.to_string())
}
