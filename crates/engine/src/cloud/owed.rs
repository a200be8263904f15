//! What is owed to the cloud: tasks in the outbox, written in the commit that makes them necessary.

use ash_core::id::{OutboxId, SessionId, SnapshotId};
use ash_core::json::Json;
use ash_core::session::{Session, Status};
use ash_core::snapshot::Snapshot;
use ash_store::{OutboxItem, OutboxTask, Settings};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::shared::Shared;

/// What its tasks are called in the outbox.
pub(super) const TOPIC: &str = "cloud";

/// What to bring up: a session as it is then, and one of its snapshots.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Payload {
    pub(super) session: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) snapshot: Option<SnapshotId>,
}

/// What a task says, if that can be read.
pub(super) fn payload_of<T: DeserializeOwned>(task: &OutboxTask) -> Option<T> {
    match serde_json::from_str(task.item.payload.get()) {
        Ok(payload) => Some(payload),
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "a task for the cloud cannot be read, and is dropped");
            None
        }
    }
}

/// What a decision leaves to be brought up, where there is a cloud: its snapshots; or the session as it is, if it has
/// changed in what a stranger machine would go on with.
pub(crate) fn to_bring_up(
    shared: &Shared,
    (before, after): (&Session, &Session),
    told: Option<&Settings>,
    snapshots: &[Snapshot],
) -> Vec<OutboxItem> {
    if snapshots.is_empty() && !changes_set(before, after, told) {
        return Vec::new();
    }
    let ids: Vec<SnapshotId> = snapshots.iter().map(|snapshot| snapshot.captured.id).collect();
    as_it_is(shared, after.id(), &ids)
}

/// Whether a set of the session would be another one now: it went back, it has started or come to rest, something was
/// noted while it rests, or its owner says something else about it. What goes on is in the next snapshot.
fn changes_set(before: &Session, after: &Session, told: Option<&Settings>) -> bool {
    let files = |session: &Session| session.persistence().last().map(|last| last.captured.id);
    let rests =
        after.is_at_rest() && (!before.is_at_rest() || before.last_seq() != after.last_seq());
    // What was put meanwhile says that it starts.
    let has_started = before.status() == Status::Starting && after.status() != Status::Starting;
    let is_other = files(before) != files(after) || rests || has_started || told.is_some();
    files(after).is_some() && is_other
}

/// Has a session brought up as it is, with these of its snapshots, where there is a cloud.
pub(crate) fn as_it_is(
    shared: &Shared,
    session: SessionId,
    snapshots: &[SnapshotId],
) -> Vec<OutboxItem> {
    if shared.cloud.is_none() {
        return Vec::new();
    }
    let now = shared.now();
    let task = |snapshot: Option<SnapshotId>| OutboxItem {
        id: shared.ids.make(now, OutboxId::from_parts),
        topic: TOPIC.to_owned(),
        payload: Json::of(&Payload { session, snapshot }).expect("two ids in an object are JSON"),
        ready_at: now,
    };
    if snapshots.is_empty() {
        return vec![task(None)];
    }
    snapshots.iter().map(|id| task(Some(*id))).collect()
}

#[cfg(test)]
mod test {
    use std::collections::BTreeMap;

    use ash_core::number::{LogEpoch, Seq, Turn};
    use ash_core::policy::{Context, Policy};
    use ash_core::session::{History, Origin, Request};
    use ash_core::snapshot::Captured;
    use ash_core::time::Timestamp;

    use super::*;

    fn snapshot(number: u8) -> Snapshot {
        let at = Timestamp::from_millis(1);
        let id = SnapshotId::from_parts(at, [number; 10]);
        let captured = Captured {
            id,
            files: 0,
            bytes: 0,
            new_bytes: 0,
            unfrozen: 0,
            unstable: 0,
            unproven: false,
        };
        let (seq, turn, transcript) = (Seq::ZERO, Turn::ZERO, None);
        Snapshot {
            captured,
            seq,
            turn,
            through: None,
            at,
            transcript,
            completed_runs: 0,
            lost: None,
        }
    }

    fn session(last: Option<Snapshot>) -> Session {
        let policy = Policy::default();
        let ctx = Context { now: Timestamp::from_millis(1), policy: &policy };
        let id = SessionId::from_parts(ctx.now, [7; 10]);
        let (origin, history) = (Origin::Fork(id), History::default());
        Session::with_history(&ctx, id, origin, LogEpoch::new(1), history, last).0
    }

    #[test]
    fn a_session_is_brought_up_when_it_went_back_or_rests_or_is_called_otherwise() {
        let first = session(Some(snapshot(1)));
        let called = Settings {
            title: Some("Ada".to_owned()),
            model: None,
            metadata: BTreeMap::new(),
            config: Json::parse("{}".to_owned()).unwrap(),
        };
        assert!(!changes_set(&first, &first, None), "nothing has changed");
        assert!(changes_set(&first, &session(Some(snapshot(2))), None), "other files");
        assert!(changes_set(&first, &first, Some(&called)));
        let policy = Policy::default();
        let ctx = Context { now: Timestamp::from_millis(2), policy: &policy };
        let mut ended = first.clone();
        let _decision = ended.request(&ctx, Request::End).unwrap();
        assert!(changes_set(&first, &ended, None), "it is over");
        let never = session(None);
        assert!(!changes_set(&never, &never, Some(&called)), "there is nothing to go on with");
    }
}
