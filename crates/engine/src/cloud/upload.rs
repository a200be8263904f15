//! Bringing a session to the cloud: its latest snapshot, its log, what it is, and last the head that names them.
//!
//! Whether it has to be is told by what was put last: the store remembers that for each session. Whoever is killed
//! on the way leaves objects that no head names. The next attempt finds what of them it can use by name, and old ones
//! go with the next sets (`tidy`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::json::Json;
use ash_core::number::LogEpoch;
use ash_core::snapshot::Snapshot;
use ash_core::time::Timestamp;
use ash_snapshot::objects::Put;
use ash_snapshot::{Capture, Root, SnapshotError, State};
use ash_store::{
    Agent, CloudHead, Place, Settings, Store, StoreError, StoredSession, StoredSnapshot,
};
use serde_json::Value;

use super::error::CloudError;
use super::place::Shelf;
use super::set::{
    AgentRecord, Head, MAX_AGENT, MAX_HEAD, MAX_NAMES, MAX_RECORD, Part, Record, Standing, VERSION,
    digest_of, place_of, versioned,
};
use super::tidy::tidy_up;
use super::{Cloud, blocking, log};
use crate::agent::Definition;
use crate::archive::{ours, theirs};

/// How many snapshots a record names: the latest.
const MAX_SNAPSHOTS: u32 = 10_000;

/// What in the options of a session is a secret, or stands for one.
const SECRETS_OF_SESSIONS: [&str; 3] = ["sealed", "shown", "credentialId"];

/// The same, of the settings of an agent.
const SECRETS_OF_AGENTS: [&str; 2] = ["sealed", "names"];

impl Cloud {
    /// Brings a session to the cloud as it stands now, unless all of it is there.
    pub(super) async fn bring_up(
        &self,
        store: &dyn Store,
        session: SessionId,
        now: Timestamp,
    ) -> Result<(), CloudError> {
        let Some(stored) = known(store, session).await? else { return Ok(()) };
        let Some(last) = stored.session.persistence().last() else { return Ok(()) };
        let id = last.captured.id;
        let snapshots = store.snapshots(session, MAX_SNAPSHOTS).await?;
        // It is not kept any more.
        let Some(row) = snapshots.iter().find(|row| row.snapshot.captured.id == id) else {
            return Ok(());
        };
        let lies_there = row.places.cloud;
        let record = &stored.record;
        let described = serde_json::to_vec(&described(&stored, &snapshots)?);
        let described = described.map_err(CloudError::here)?;
        let (epoch, seq) = (stored.session.log_epoch(), stored.session.last_seq());
        let put = to_put(&stored, last, digest_of(&described));
        let before = store.cloud_heads(&[session]).await?.remove(&session);
        let lags = |row: &StoredSnapshot| !row.places.cloud && row.places.local;
        let goes_on =
            Unfinished { log: !stored.session.is_at_rest(), snapshots: snapshots.iter().any(lags) };
        if lies_there && before.is_some_and(|before| covers(&before, &put, goes_on)) {
            return Ok(());
        }
        if described.len() as u64 > MAX_RECORD {
            return Err(CloudError::TooLarge(format!("the record of session {session}")));
        }
        let agent = store.agent_version(&record.tenant, &record.agent_name, record.agent_version);
        let agent = agent.await?;
        let tenant = &record.tenant;
        let (shelf, standing) = {
            let (this, tenant) = (self.clone(), tenant.clone());
            blocking(move || {
                let shelf = this.0.remote.shelf(&tenant)?;
                let standing = shelf.standing(&tenant, session)?;
                Ok((shelf, standing))
            })
            .await?
        };
        // Before anything is put: who does not go on with it leaves nothing there.
        let (number, earlier) = self.place_in_line(epoch, &standing)?;
        if !lies_there {
            self.bring_up_snapshot(tenant, id).await?;
        }
        let log = log::bring_up(store, &shelf, &stored, earlier).await?;
        let agent = {
            let (this, shelf) = (self.clone(), Arc::clone(&shelf));
            blocking(move || this.bring_up_agent(&shelf, &agent)).await?
        };
        let stem = format!("{}records/{:010}-{:020}", place_of(session), epoch.get(), seq.get());
        let mut head = Head {
            version: VERSION,
            session,
            tenant: tenant.clone(),
            epoch,
            number,
            seq,
            end: log.end,
            snapshot: id,
            snapshot_seq: last.seq,
            at: now,
            writer: self.writer().to_owned(),
            agent_name: record.agent_name.clone(),
            title: record.settings.title.clone(),
            turns: stored.session.lineage().turns(),
            status: Some(stored.session.status().as_str().to_owned()),
            log: log.segments,
            record: Part { name: String::new(), bytes: 0, blake3: String::new(), stored: None },
            agent,
        };
        blocking(move || {
            head.record = shelf.put_part(&stem, &described)?;
            put_head(&shelf, &mut head)?;
            if let Err(error) = tidy_up(&shelf, &head, now) {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, "old sets of session {session} stay until the next one");
            }
            Ok(())
        })
        .await?;
        is_there(store, session, id).await?;
        match store.put_cloud_head(session, &put).await {
            // It was purged meanwhile.
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The number of the next head of a session, and the latest of this server that it can build on.
    fn place_in_line<'a>(
        &self,
        epoch: LogEpoch,
        standing: &'a Standing,
    ) -> Result<(u64, Option<&'a Head>), CloudError> {
        let Standing { head, latest } = standing;
        if latest.is_some_and(|(latest, _)| latest > epoch) {
            return Err(CloudError::Elsewhere);
        }
        let head = head.as_ref().filter(|head| head.epoch == epoch);
        if head.is_some_and(|head| head.writer != self.writer()) {
            return Err(CloudError::Elsewhere);
        }
        let before = latest.filter(|(latest, _)| *latest == epoch).map_or(0, |(_, number)| number);
        Ok((before + 1, head))
    }

    /// Brings an older snapshot of a session to the cloud, unless it is there.
    pub(super) async fn bring_up_older(
        &self,
        store: &dyn Store,
        session: SessionId,
        id: SnapshotId,
    ) -> Result<(), CloudError> {
        let Some(stored) = known(store, session).await? else { return Ok(()) };
        match store.snapshot(session, id).await {
            Ok(row) if row.places.cloud => return Ok(()),
            Ok(_) => {}
            Err(StoreError::NotFound(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.bring_up_snapshot(&stored.record.tenant, id).await?;
        is_there(store, session, id).await
    }

    /// Brings everything of a session to the cloud: as it stands now, then older snapshots, the newest first, and a
    /// head that names them.
    pub(super) async fn catch_up(
        &self,
        store: &dyn Store,
        session: SessionId,
        now: Timestamp,
    ) -> Result<(), CloudError> {
        self.bring_up(store, session, now).await?;
        let mut failed = None;
        for row in store.snapshots(session, MAX_SNAPSHOTS).await? {
            if !row.places.cloud {
                let brought = self.bring_up_older(store, session, row.snapshot.captured.id).await;
                match brought {
                    Ok(()) => {}
                    // One that is lost here keeps no other from being brought there.
                    Err(CloudError::Here(_)) if !row.places.local => {}
                    Err(error @ CloudError::Here(_)) => failed = Some(error),
                    Err(error) => return Err(error),
                }
            }
        }
        self.bring_up(store, session, now).await?;
        failed.map_or(Ok(()), Err)
    }

    async fn bring_up_snapshot(&self, tenant: &TenantId, id: SnapshotId) -> Result<(), CloudError> {
        let (this, tenant) = (self.clone(), tenant.clone());
        blocking(move || this.0.archive.bring_up(&tenant, id)).await
    }

    /// Puts what an agent is, unless it is there. What has its name and cannot be read stays, and it gets another.
    /// Blocks.
    fn bring_up_agent(&self, shelf: &Shelf, agent: &Agent) -> Result<Part, CloudError> {
        let definition: Definition =
            serde_json::from_str(agent.definition.get()).map_err(CloudError::here)?;
        let digest = &definition.digest;
        let settings = without(&agent.settings, &SECRETS_OF_AGENTS)?;
        // Settings change without the files: each is an object of its own.
        let stem = format!("agents/{digest}-{}", &digest_of(settings.get().as_bytes())[..16]);
        for number in 0..MAX_NAMES {
            let name = match number {
                0 => format!("{stem}.json"),
                _ => format!("{stem}.{number}.json"),
            };
            if matches!(agent_there(shelf, &name)?, AgentThere::Nothing) {
                let described = self.describe_agent(shelf, &definition, settings.clone())?;
                shelf.put(&name, &described)?;
            }
            // Whoever came first is named.
            if let AgentThere::Is(part) = agent_there(shelf, &name)? {
                return Ok(part);
            }
        }
        Err(CloudError::Damaged(format!("everything called {stem}")))
    }

    /// Copies the directory of an agent, and says what the agent is. Blocks.
    fn describe_agent(
        &self,
        shelf: &Shelf,
        definition: &Definition,
        settings: Json,
    ) -> Result<Vec<u8>, CloudError> {
        let digest = &definition.digest;
        let directory = self.0.library.directory(definition);
        let roots = [Root { name: "agent", path: &directory, excluded: &[] }];
        let source = format!("agent {digest}");
        let captured = shelf.repository.capture(
            &Capture {
                roots: &roots,
                source: Some(&source),
                parent: None,
                label: None,
                unless_like: None,
                freeze: None,
                threads: 1,
                progress: &|_| true,
            },
            &mut State::default(),
        )?;
        let snapshot = ours(captured.snapshot.id);
        let described =
            AgentRecord { version: VERSION, digest: digest.clone(), snapshot, settings };
        serde_json::to_vec(&described).map_err(CloudError::here)
    }
}

/// What has the name of an agent.
enum AgentThere {
    Nothing,
    Unreadable,
    Is(Part),
}

/// Looks what has the name of an agent. Blocks.
fn agent_there(shelf: &Shelf, name: &str) -> Result<AgentThere, CloudError> {
    let read = || {
        let Some(there) = shelf.get(name, MAX_AGENT)? else { return Ok(AgentThere::Nothing) };
        let _readable: AgentRecord = versioned(&there, name)?;
        let (bytes, blake3) = (there.len() as u64, digest_of(&there));
        Ok(AgentThere::Is(Part { name: name.to_owned(), bytes, blake3, stored: None }))
    };
    match read() {
        Err(CloudError::Damaged(_)) => Ok(AgentThere::Unreadable),
        read => read,
    }
}

/// What of a session changes all the time, or is on its way: a set may be without the latest of it.
#[derive(Clone, Copy)]
struct Unfinished {
    log: bool,
    snapshots: bool,
}

/// Whether what was put last has all that is to be there now.
fn covers(put: &CloudHead, now: &CloudHead, unfinished: Unfinished) -> bool {
    put.epoch == now.epoch
        && put.snapshot == now.snapshot
        && put.settings == now.settings
        && (put.seq == now.seq || unfinished.log)
        && (put.record == now.record || unfinished.snapshots)
}

/// Whether everything of a session is in the cloud, as far as this store knows.
pub(super) async fn is_all_there(
    store: &dyn Store,
    stored: &StoredSession,
) -> Result<bool, StoreError> {
    let session = stored.session.id();
    let Some(last) = stored.session.persistence().last() else { return Ok(true) };
    let put = store.cloud_heads(&[session]).await?.remove(&session);
    // Older snapshots follow when they can.
    let unfinished = Unfinished { log: !stored.session.is_at_rest(), snapshots: true };
    Ok(put.is_some_and(|put| covers(&put, &to_put(stored, last, String::new()), unfinished)))
}

/// What a set of a session would be now.
fn to_put(stored: &StoredSession, last: &Snapshot, record: String) -> CloudHead {
    let settings = serde_json::to_vec(&stored.record.settings);
    CloudHead {
        epoch: stored.session.log_epoch(),
        seq: stored.session.last_seq(),
        snapshot: last.captured.id,
        snapshot_seq: last.seq,
        settings: digest_of(&settings.expect("texts become JSON")),
        record,
    }
}

/// What a session is, beside its log and without secrets. Of its snapshots those that are in the cloud, and the
/// latest, which is there when this is.
fn described(stored: &StoredSession, snapshots: &[StoredSnapshot]) -> Result<Record, CloudError> {
    let StoredSession { record, session } = stored;
    let last = session.persistence().last().map(|last| last.captured.id);
    let there = snapshots.iter().rev();
    let there = there.filter(|row| row.places.cloud || Some(row.snapshot.captured.id) == last);
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(Record {
        version: VERSION,
        agent_name: record.agent_name.clone(),
        agent_version: record.agent_version,
        parent: record.parent,
        created_at: record.created_at,
        ttl_ms: session.expires_at().map(|at| millis(at.since(record.created_at))),
        idle_timeout_ms: session.idle_timeout().map(millis),
        settings: Settings {
            config: without(&record.settings.config, &SECRETS_OF_SESSIONS)?,
            ..record.settings.clone()
        },
        snapshots: there.map(|row| row.snapshot.clone()).collect(),
    })
}

/// Puts a head. If somebody else has put one in its place meanwhile, it is another server's session now, or this
/// one's that was copied: then it comes after that. Blocks.
fn put_head(shelf: &Shelf, head: &mut Head) -> Result<(), CloudError> {
    for _ in 0..MAX_NAMES {
        let (name, bytes) = (head.name(), head.encode());
        if shelf.put(&name, &bytes)? == Put::Created
            || shelf.get(&name, MAX_HEAD)?.as_deref() == Some(&bytes)
        {
            return Ok(());
        }
        let there = match shelf.head(&name, (&head.tenant, head.session)) {
            Err(CloudError::Damaged(_)) => None,
            there => there?,
        };
        if there.is_some_and(|there| there.writer != head.writer) {
            return Err(CloudError::Elsewhere);
        }
        head.number += 1;
    }
    Err(CloudError::Unavailable(format!("others put heads of {}", head.session)))
}

/// Notes that a snapshot of a session is in the cloud.
async fn is_there(store: &dyn Store, session: SessionId, id: SnapshotId) -> Result<(), CloudError> {
    match store.found_snapshot(session, id, Place::Cloud).await {
        // It was forgotten meanwhile.
        Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A session, if anybody may still know of it.
async fn known(
    store: &dyn Store,
    session: SessionId,
) -> Result<Option<Arc<StoredSession>>, CloudError> {
    let found = match store.session_record(session).await {
        Ok(record) => store.session(&record.tenant, session).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(stored) => Ok(Some(stored)),
        Err(StoreError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// An object without some of its fields.
fn without(json: &Json, names: &[&str]) -> Result<Json, CloudError> {
    let mut fields: BTreeMap<String, Value> =
        serde_json::from_str(json.get()).map_err(CloudError::here)?;
    fields.retain(|name, _| !names.contains(&name.as_str()));
    Json::of(&fields).map_err(CloudError::here)
}

impl crate::archive::Archive {
    /// Copies a snapshot to the cloud, unless it is there. Blocks.
    pub(super) fn bring_up(&self, tenant: &TenantId, id: SnapshotId) -> Result<(), CloudError> {
        let Some(remote) = self.remote() else {
            return Err(CloudError::Unfit("there is none".to_owned()));
        };
        let here = self.repository(tenant)?;
        let shelf = remote.shelf(tenant)?;
        if let Err(error) = here.snapshot(theirs(id)) {
            // One that is there alone is there; otherwise what is wrong here is no fault of the cloud.
            let is_there = shelf.repository.snapshot(theirs(id)).is_ok();
            return if is_there { Ok(()) } else { Err(CloudError::here(error)) };
        }
        let copied = match shelf.repository.replicate(&super::copy_of(&here, id)) {
            // What it lacks it lacks here.
            Err(error @ SnapshotError::Missing(_)) => return Err(CloudError::here(error)),
            copied => copied?,
        };
        metrics::counter!("ash_cloud_bytes_total", "way" => "up").increment(copied.stored_bytes);
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn secrets_are_left_out() {
        let options = r#"{"systemPrompt":"be kind","sealed":"AAAA","shown":{},"credentialId":"x"}"#;
        let options = Json::parse(options.to_owned()).unwrap();
        let left = without(&options, &SECRETS_OF_SESSIONS).unwrap();
        assert_eq!(left.get(), r#"{"systemPrompt":"be kind"}"#);
    }
}
