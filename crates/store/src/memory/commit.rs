//! Recording a decision.

use std::collections::BTreeSet;

use super::{OutboxRow, Tables, apply_run_change};
use crate::model::{Commit, OutboxItem, entry_json};
use crate::{Result, StoreError};

impl Tables {
    pub(super) fn commit(&mut self, commit: &Commit) -> Result<()> {
        commit.check()?;
        for entry in &commit.entries {
            entry_json(entry)?;
        }
        let id = commit.session.id();
        let row = self.row(id)?;
        if row.fence != commit.fence {
            return Err(StoreError::Fenced { session: id, held: commit.fence });
        }
        if row.session.last_seq() != commit.expected_seq {
            return Err(StoreError::Conflict { session: id, expected: commit.expected_seq });
        }
        self.check_receipt(commit.receipt.as_ref())?;
        self.check_outbox(&commit.outbox)?;
        let mut runs = row.runs.clone();
        for change in &commit.runs {
            apply_run_change(&mut runs, id, change)?;
        }

        row.check_snapshots(&commit.snapshots)?;

        // Nothing fails from here on.
        let row = self.sessions.get_mut(&id).expect("the row was found above");
        row.session = commit.session.clone();
        row.due_at = commit.due_at;
        row.log.extend(commit.entries.iter().cloned());
        row.runs = runs;
        row.keep_snapshots(&commit.snapshots);
        if let Some(settings) = &commit.settings {
            row.record.settings = settings.clone();
        }
        self.keep_outbox(&commit.outbox);
        self.keep_receipt(commit.receipt.as_ref());
        Ok(())
    }

    pub(super) fn check_outbox(&self, items: &[OutboxItem]) -> Result<()> {
        let mut added = BTreeSet::new();
        let is_new = |item: &OutboxItem| !self.outbox.contains_key(&item.id);
        if items.iter().all(|item| is_new(item) && added.insert(item.id)) {
            return Ok(());
        }
        Err(StoreError::Exists("outbox task"))
    }

    pub(super) fn keep_outbox(&mut self, items: &[OutboxItem]) {
        for item in items {
            let available_at = item.ready_at;
            let row = OutboxRow { item: item.clone(), attempt: 0, available_at };
            self.outbox.insert(item.id, row);
        }
    }
}
