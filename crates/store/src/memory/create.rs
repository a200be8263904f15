//! Adding sessions: new ones, and ones that begin with a history.

use std::collections::{BTreeMap, BTreeSet};

use ash_core::number::{Fence, Seq};
use ash_core::session::LogEntry;

use super::{Row, Tables, apply_run_change};
use crate::model::{ImportedSession, Inherited, NewSession, StoredSnapshot, entry_json};
use crate::{Attachment, Result, Spend, StoreError};

impl Tables {
    pub(super) fn create(&mut self, new: &NewSession) -> Result<Fence> {
        new.check()?;
        let row = self.new_row(new)?;
        Ok(self.add(new, row))
    }

    pub(super) fn import(&mut self, imported: &ImportedSession) -> Result<Fence> {
        imported.check()?;
        let ImportedSession { new, inherited, runs, snapshots, attachments, outbox } = imported;
        let mut log = match inherited {
            Some(inherited) => self.inheritable(new, *inherited)?,
            None => Vec::new(),
        };
        if let Some(Inherited { session, .. }) = inherited {
            let kept = &self.row(*session)?.snapshots;
            let key = |of: &StoredSnapshot| (of.snapshot.seq, of.snapshot.captured.id);
            if !snapshots.iter().all(|inherits| kept.contains_key(&key(inherits))) {
                return Err(StoreError::NotFound("snapshot"));
            }
        }
        let mut row = self.new_row(new)?;
        log.append(&mut row.log);
        row.log = log;
        row.inherited = imported.inherited_seq();
        for change in runs {
            apply_run_change(&mut row.runs, new.record.id, change)?;
        }
        for kept in snapshots {
            row.check_snapshots(std::slice::from_ref(&kept.snapshot))?;
            let snapshot = &kept.snapshot;
            row.snapshots.insert((snapshot.seq, snapshot.captured.id), kept.clone());
        }
        self.check_outbox(outbox)?;
        let paths: BTreeSet<&str> = attachments.iter().map(|one| one.path.as_str()).collect();
        let is_taken = |one: &Attachment| self.attachments.contains_key(&one.id);
        if paths.len() < attachments.len() || attachments.iter().any(is_taken) {
            return Err(StoreError::Exists("attachment"));
        }
        self.keep_outbox(outbox);
        self.attachments.extend(attachments.iter().map(|one| (one.id, one.clone())));
        Ok(self.add(new, row))
    }

    fn inheritable(&self, new: &NewSession, inherited: Inherited) -> Result<Vec<LogEntry>> {
        let Inherited { session, through } = inherited;
        let row = self.row(session)?;
        if row.record.tenant != new.record.tenant {
            return Err(StoreError::NotFound("session"));
        }
        if row.session.last_seq() < through {
            return Err(StoreError::Conflict { session, expected: through });
        }
        Ok(row.log.iter().filter(|entry| entry.seq <= through).cloned().collect())
    }

    /// The row of a session that may be added.
    fn new_row(&self, new: &NewSession) -> Result<Row> {
        for entry in &new.entries {
            entry_json(entry)?;
        }
        let agent = (new.record.agent, new.record.agent_version);
        let deployed = self.agents.get(&agent).is_some_and(|agent| {
            agent.tenant == new.record.tenant
                && !self.deleted_agents.contains(&agent.id)
                && self.is_usable(agent)
        });
        if !deployed {
            return Err(StoreError::NotFound("agent"));
        }
        if new.owner < self.last_owner {
            return Err(StoreError::Superseded(new.record.id));
        }
        if self.sessions.contains_key(&new.record.id) || self.purged.contains_key(&new.record.id) {
            return Err(StoreError::Exists("session"));
        }
        self.check_receipt(new.receipt.as_ref())?;
        Ok(Row {
            record: new.record.clone(),
            session: new.session.clone(),
            due_at: new.due_at,
            owner: new.owner,
            fence: Fence::new(1),
            log: new.entries.clone(),
            inherited: Seq::ZERO,
            runs: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            cloud_head: None,
            spend: Spend::default(),
        })
    }

    /// Nothing fails here.
    fn add(&mut self, new: &NewSession, row: Row) -> Fence {
        self.keep_receipt(new.receipt.as_ref());
        let fence = row.fence;
        self.sessions.insert(new.record.id, row);
        fence
    }
}
