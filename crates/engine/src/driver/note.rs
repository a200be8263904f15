//! What is said about a session beside its own log.

use ash_core::entry::Entry;
use ash_core::session::Session;
use ash_store::{Commit, SessionRecord};

use crate::shared::Shared;

/// Says what has changed with a commit, to whoever looks at files and at the server's log.
pub(super) fn tell(shared: &Shared, record: &SessionRecord, before: &Session, commit: &Commit) {
    if state_of(before) != state_of(&commit.session) {
        shared.host.note(record, &commit.session);
    }
    let failed = commit.session.persistence().failed();
    if let Some(failed) = failed.filter(|failed| before.persistence().failed() != Some(failed)) {
        tracing::warn!(
            session.id = %record.id,
            attempts = failed.attempts,
            error = failed.message,
            "what session {} works on could not be captured: {}", record.id, failed.message,
        );
    }
    for entry in &commit.entries {
        if let Entry::SessionResumed { receipt: Some(receipt), .. } = &entry.entry {
            let (session, path) = (record.id, receipt.path.as_str());
            let (workspace, native) =
                (receipt.workspace.as_str(), receipt.conversation.native.as_str());
            tracing::info!(
                session.id = %session,
                path,
                source = receipt.source.map(ash_core::resume::Source::as_str),
                workspace,
                native,
                files = receipt.files,
                unverified = receipt.snapshot.map_or(0, |from| from.unverified),
                duration_micros = receipt.duration_micros,
                "session {session} came back {path}: workspace {workspace}, conversation {native}",
            );
        }
    }
}

/// What is written down of a session, as far as it can change.
fn state_of(session: &Session) -> impl PartialEq + use<> {
    let last = session.persistence().last().map(|last| last.captured.id);
    (session.status(), session.incarnation(), session.last_message_at(), last)
}
