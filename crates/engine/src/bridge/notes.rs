//! What people and scripts find on the disk about a session: `data/sessions/<session>/metadata.json`.
//!
//! It is written after the session has changed, whole or not at all, and nothing reads it back: the store is the truth. Of
//! several changes that come together only the last one is written.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash_core::id::SessionId;
use ash_core::rfc3339::rfc3339;
use ash_core::session::Session;
use ash_store::SessionRecord;
use serde_json::json;
use tokio::sync::Notify;

use super::mend::write_whole;

/// Writes what was last said about each session.
pub(super) struct Notes {
    root: PathBuf,
    /// At most one for each session.
    waiting: Mutex<BTreeMap<SessionId, String>>,
    more: Notify,
}

impl Notes {
    pub(super) fn new(data: &Path) -> Self {
        Self { root: data.join("sessions"), waiting: Mutex::default(), more: Notify::new() }
    }

    /// Has a session written down, in place of what was to be written down of it before.
    pub(super) fn put(&self, record: &SessionRecord, session: &Session) {
        self.waiting().insert(record.id, describe(record, session));
        self.more.notify_one();
    }

    /// Writes whatever there is, for ever.
    pub(super) async fn keep_writing(self: Arc<Self>) {
        loop {
            self.more.notified().await;
            let taken = std::mem::take(&mut *self.waiting());
            let notes = Arc::clone(&self);
            let written = tokio::task::spawn_blocking(move || {
                for (session, text) in taken {
                    if let Err(error) = notes.write(session, &text) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, session.id = %session, "the metadata of session {session} was not written");
                    }
                }
            });
            // Whoever panics there says so; the next change is written all the same.
            let _written_or_not = written.await;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<SessionId, String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, session: SessionId, text: &str) -> io::Result<()> {
        let directory = self.root.join(session.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        write_whole(&directory.join("metadata.json"), text.as_bytes())
    }
}

fn describe(record: &SessionRecord, session: &Session) -> String {
    let snapshot = session.persistence().last().map(|last| {
        json!({
            "id": last.captured.id,
            "seq": last.seq,
            "turn": last.turn,
            "at": rfc3339(last.at),
            "files": last.captured.files,
            "bytes": last.captured.bytes,
        })
    });
    let about = json!({
        "sessionId": record.id,
        "agentName": record.agent_name.as_str(),
        "agentVersion": record.agent_version,
        "sandboxId": record.id,
        "incarnation": session.incarnation(),
        "status": session.status(),
        "createdAt": rfc3339(record.created_at),
        "lastMessageAt": session.last_message_at().map(rfc3339),
        "turns": session.lineage().turns(),
        "lastSeq": session.last_seq(),
        "snapshot": snapshot,
    });
    format!("{about:#}\n")
}
