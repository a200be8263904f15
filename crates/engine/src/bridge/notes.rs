//! What people and scripts find on the disk about a session: `data/sessions/<session>/metadata.json`.
//!
//! It is written after the session has changed, whole or not at all, and nothing reads it back: the store is the truth. Of
//! several changes that come together only the last one is written, a moment later: its syncs are not to compete with the
//! commits that somebody waits for.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash_core::id::SessionId;
use ash_core::rfc3339::rfc3339;
use ash_core::session::Session;
use ash_store::SessionRecord;
use serde_json::json;
use tokio::sync::Notify;

use super::mend::write_whole;

/// How long changes are gathered before they are written.
const GATHER: Duration = Duration::from_millis(20);

/// Writes what was last said about each session.
pub(super) struct Notes {
    root: PathBuf,
    /// At most one for each session.
    waiting: Mutex<BTreeMap<SessionId, String>>,
    /// Held while something is written.
    writing: Mutex<()>,
    more: Notify,
}

impl Notes {
    pub(super) fn new(data: &Path) -> Self {
        let (waiting, writing) = Default::default();
        Self { root: data.join("sessions"), waiting, writing, more: Notify::new() }
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
            tokio::time::sleep(GATHER).await;
            let notes = Arc::clone(&self);
            let written = tokio::task::spawn_blocking(move || notes.write_all());
            // Whoever panics there says so; the next change is written all the same.
            let _written_or_not = written.await;
        }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<SessionId, String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has nothing more written down of a session, which is about to be removed. Blocks while something is written.
    pub(super) fn forget(&self, session: SessionId) {
        let _nothing_is_written = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting().remove(&session);
    }

    fn write_all(&self) {
        let _one_by_one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        for (session, text) in std::mem::take(&mut *self.waiting()) {
            if let Err(error) = self.write(session, &text) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, session.id = %session, "the metadata of session {session} was not written");
            }
        }
    }

    fn write(&self, session: SessionId, text: &str) -> io::Result<()> {
        let directory = self.root.join(session.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        write_whole(&directory.join("metadata.json"), text.as_bytes())
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        self.write_all();
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
