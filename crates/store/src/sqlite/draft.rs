//! Writes, turned into column values by whoever asks for them: JSON is written on the caller's
//! side, so that the one thread that writes only writes.

use ash_core::id::SessionId;
use ash_core::number::{Fence, Owner, Seq};
use ash_core::session::{LogEntry, RunChange, Sandbox, Session};
use ash_core::snapshot::Snapshot;
use ash_core::time::Timestamp;

use super::fault::damaged;
use super::rows::number;
use crate::Result;
use crate::attachment::Attachment;
use crate::model::{
    Commit, ImportedSession, Inherited, NewSession, OutboxItem, Places, Receipt, SessionRecord,
    Settings, entry_json,
};

/// A session to be added.
pub(super) struct SessionDraft {
    pub(super) record: SessionRecord,
    pub(super) owner: Owner,
    pub(super) machine: MachineDraft,
    pub(super) settings: String,
    pub(super) events: Vec<EventDraft>,
    pub(super) receipt: Option<Receipt>,
}

/// A session to be added that begins with a history.
pub(super) struct ImportDraft {
    pub(super) session: SessionDraft,
    pub(super) inherited: Option<Inherited>,
    pub(super) runs: Vec<RunChange>,
    pub(super) snapshots: Vec<SnapshotDraft>,
    pub(super) attachments: Vec<Attachment>,
    pub(super) outbox: Vec<OutboxItem>,
}

/// A decision to be recorded.
pub(super) struct CommitDraft {
    pub(super) session: SessionId,
    pub(super) fence: Fence,
    pub(super) expected: Seq,
    pub(super) machine: MachineDraft,
    pub(super) settings: Option<String>,
    pub(super) events: Vec<EventDraft>,
    pub(super) runs: Vec<RunChange>,
    pub(super) snapshots: Vec<SnapshotDraft>,
    pub(super) outbox: Vec<OutboxItem>,
    pub(super) receipt: Option<Receipt>,
}

/// Where a session stands, and what lists ask about that.
pub(super) struct MachineDraft {
    pub(super) last_seq: i64,
    pub(super) status: &'static str,
    pub(super) sandbox: &'static str,
    pub(super) at_rest: bool,
    pub(super) incarnation: u32,
    pub(super) due_at: Option<i64>,
    pub(super) json: String,
}

/// One line of a log.
pub(super) struct EventDraft {
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) kind: &'static str,
    pub(super) run: Option<String>,
    pub(super) role: Option<&'static str>,
    pub(super) body: String,
}

/// A snapshot that there is.
pub(super) struct SnapshotDraft {
    pub(super) id: String,
    pub(super) seq: i64,
    pub(super) places: Places,
    pub(super) body: String,
}

impl SnapshotDraft {
    /// A new one lies on this machine.
    fn of(snapshot: &Snapshot) -> Result<Self> {
        Self::placed(snapshot, Places { local: true, cloud: false })
    }

    fn placed(snapshot: &Snapshot, places: Places) -> Result<Self> {
        Ok(Self {
            id: snapshot.captured.id.to_string(),
            seq: number(snapshot.seq.get()),
            places,
            body: serde_json::to_string(snapshot).map_err(|error| damaged("snapshot", error))?,
        })
    }
}

impl SessionDraft {
    pub(super) fn of(new: &NewSession) -> Result<Self> {
        new.check()?;
        Self::of_checked(new)
    }

    fn of_checked(new: &NewSession) -> Result<Self> {
        Ok(Self {
            events: event_drafts(&new.entries)?,
            machine: MachineDraft::of(&new.session, new.due_at)?,
            settings: settings_json(&new.record.settings)?,
            record: new.record.clone(),
            owner: new.owner,
            receipt: new.receipt.clone(),
        })
    }
}

impl ImportDraft {
    pub(super) fn of(imported: &ImportedSession) -> Result<Self> {
        imported.check()?;
        let snapshots = imported.snapshots.iter();
        let snapshots = snapshots.map(|kept| SnapshotDraft::placed(&kept.snapshot, kept.places));
        Ok(Self {
            session: SessionDraft::of_checked(&imported.new)?,
            inherited: imported.inherited,
            runs: imported.runs.clone(),
            snapshots: snapshots.collect::<Result<_>>()?,
            attachments: imported.attachments.clone(),
            outbox: imported.outbox.clone(),
        })
    }
}

impl CommitDraft {
    pub(super) fn of(commit: &Commit) -> Result<Self> {
        commit.check()?;
        Ok(Self {
            events: event_drafts(&commit.entries)?,
            machine: MachineDraft::of(&commit.session, commit.due_at)?,
            settings: commit.settings.as_ref().map(settings_json).transpose()?,
            session: commit.session.id(),
            fence: commit.fence,
            expected: commit.expected_seq,
            runs: commit.runs.clone(),
            snapshots: commit.snapshots.iter().map(SnapshotDraft::of).collect::<Result<_>>()?,
            outbox: commit.outbox.clone(),
            receipt: commit.receipt.clone(),
        })
    }
}

impl MachineDraft {
    fn of(session: &Session, due_at: Option<Timestamp>) -> Result<Self> {
        Ok(Self {
            last_seq: number(session.last_seq().get()),
            status: session.status().as_str(),
            sandbox: sandbox_name(session.sandbox()),
            at_rest: session.is_at_rest(),
            incarnation: session.incarnation().get(),
            due_at: due_at.map(Timestamp::as_millis),
            json: serde_json::to_string(session).map_err(|error| damaged("session", error))?,
        })
    }
}

fn event_drafts(entries: &[LogEntry]) -> Result<Vec<EventDraft>> {
    let draft = |entry: &LogEntry| {
        Ok(EventDraft {
            seq: number(entry.seq.get()),
            at: entry.at.as_millis(),
            kind: entry.entry.kind(),
            run: entry.entry.run().map(|run| run.to_string()),
            role: entry.entry.role().map(|role| role.as_str()),
            body: entry_json(entry)?,
        })
    };
    entries.iter().map(draft).collect()
}

fn settings_json(settings: &Settings) -> Result<String> {
    serde_json::to_string(settings).map_err(|error| damaged("settings", error))
}

fn sandbox_name(sandbox: Sandbox) -> &'static str {
    match sandbox {
        Sandbox::None => "none",
        Sandbox::Starting { .. } => "starting",
        Sandbox::Live => "live",
        Sandbox::Freezing { .. } => "freezing",
        Sandbox::Frozen { .. } => "frozen",
        Sandbox::Thawing { .. } => "thawing",
        Sandbox::Stopping { .. } => "stopping",
    }
}
