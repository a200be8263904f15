//! What goes: snapshots that are not kept, and sessions whose time is over.

use ash_core::id::{AgentId, SessionId, SnapshotId, TenantId};
use ash_core::number::{Fence, Seq};
use ash_core::session::{Sandbox, Status};
use ash_core::time::Timestamp;

use super::Tables;
use crate::model::{OutboxItem, Resting};
use crate::{PURGED_AT_ONCE, Result, StoreError};

impl Tables {
    pub(super) fn prune_snapshots(
        &mut self,
        session: SessionId,
        keep: u32,
        needed: &[SnapshotId],
    ) -> Result<Vec<SnapshotId>> {
        let row = self.sessions.get_mut(&session).ok_or(StoreError::NotFound("session"))?;
        let older = row.snapshots.keys().rev().skip(keep as usize).copied();
        let gone: Vec<_> = older.filter(|(_, id)| !needed.contains(id)).collect();
        for place in &gone {
            row.snapshots.remove(place);
        }
        Ok(gone.into_iter().map(|(_, id)| id).collect())
    }

    pub(super) fn unneeded_snapshots(
        &self,
        tenant: &TenantId,
        ids: &[SnapshotId],
    ) -> Vec<SnapshotId> {
        let theirs = self.sessions.values().filter(|row| row.record.tenant == *tenant);
        let local = theirs.flat_map(|row| row.snapshots.iter()).filter(|(_, it)| it.places.local);
        let needed: std::collections::BTreeSet<_> = local.map(|((_, id), _)| *id).collect();
        ids.iter().copied().filter(|id| !needed.contains(id)).collect()
    }

    pub(super) fn resting_sessions(&self, after: Option<SessionId>, limit: u32) -> Resting {
        let rows = self.sessions_after(after).filter(|row| row.session.sandbox() == Sandbox::None);
        let sessions: Vec<_> =
            rows.take(limit as usize).map(|row| (row.session.clone(), row.due_at)).collect();
        let is_full = sessions.len() == limit as usize;
        let next = sessions.last().map(|(session, _)| session.id()).filter(|_| is_full);
        Resting { sessions, next }
    }

    pub(super) fn redate(
        &mut self,
        id: SessionId,
        expected: Seq,
        recorded: Option<Timestamp>,
        due_at: Option<Timestamp>,
    ) -> Result<()> {
        let row = self.sessions.get_mut(&id).ok_or(StoreError::NotFound("session"))?;
        if row.session.last_seq() != expected || row.due_at != recorded {
            return Err(StoreError::Conflict { session: id, expected });
        }
        row.due_at = due_at;
        Ok(())
    }

    pub(super) fn purge(
        &mut self,
        id: SessionId,
        fence: Fence,
        outbox: &[OutboxItem],
    ) -> Result<()> {
        let row = self.row(id)?;
        if row.fence != fence {
            return Err(StoreError::Fenced { session: id, held: fence });
        }
        if row.session.status() != Status::Ended {
            let expected = row.session.last_seq();
            return Err(StoreError::Conflict { session: id, expected });
        }
        self.check_outbox(outbox)?;
        let agent = row.record.agent;
        if let Some(row) = self.sessions.remove(&id)
            && row.log.len() > PURGED_AT_ONCE as usize
        {
            self.purged.insert(id, (agent, row.log));
        }
        self.attachments.retain(|_, attachment| attachment.session != id);
        self.keep_outbox(outbox);
        self.purge_agent(agent);
        Ok(())
    }

    pub(super) fn purge_logs(&mut self) -> bool {
        let Some((&id, (agent, log))) = self.purged.iter_mut().next() else { return false };
        let agent = *agent;
        log.truncate(log.len().saturating_sub(PURGED_AT_ONCE as usize));
        if log.is_empty() {
            self.purged.remove(&id);
            self.purge_agent(agent);
        }
        true
    }

    /// Forgets an agent that was deleted, if no session refers to it any more.
    fn purge_agent(&mut self, agent: AgentId) {
        let is_used = self.sessions.values().any(|row| row.record.agent == agent)
            || self.purged.values().any(|(of, _)| *of == agent);
        if self.deleted_agents.contains(&agent) && !is_used {
            self.agents.retain(|(of, _), _| *of != agent);
            self.labels.retain(|(of, _), _| *of != agent);
            self.active.remove(&agent);
            self.configured.remove(&agent);
            self.deleted_agents.remove(&agent);
        }
    }
}
