//! Attachments on a plain map.

use ash_core::id::{AttachmentId, SessionId, TenantId};
use async_trait::async_trait;

use super::MemoryStore;
use crate::attachment::{Attachment, AttachmentStore};
use crate::model::{Receipt, ReceiptKey};
use crate::{Result, StoreError};

const MISSING: StoreError = StoreError::NotFound("attachment");

#[async_trait]
impl AttachmentStore for MemoryStore {
    async fn create_attachment(&self, new: &Attachment, receipt: Option<&Receipt>) -> Result<()> {
        let mut tables = self.tables();
        let row = tables.row(new.session)?;
        if row.record.tenant != new.tenant || !tables.is_visible(row) {
            return Err(StoreError::NotFound("session"));
        }
        let is_taken = |other: &Attachment| {
            other.id == new.id || (other.session == new.session && other.path == new.path)
        };
        if tables.attachments.values().any(is_taken) {
            return Err(StoreError::Exists("attachment"));
        }
        tables.check_receipt(receipt)?;
        tables.keep_receipt(receipt);
        tables.attachments.insert(new.id, new.clone());
        Ok(())
    }

    async fn attachment(&self, tenant: &TenantId, id: AttachmentId) -> Result<Attachment> {
        let tables = self.tables();
        let found = tables.attachments.get(&id).filter(|found| found.tenant == *tenant);
        let found = found.ok_or(MISSING)?;
        if !tables.is_visible(tables.row(found.session)?) {
            return Err(MISSING);
        }
        Ok(found.clone())
    }

    async fn attachments(&self, tenant: &TenantId, session: SessionId) -> Result<Vec<Attachment>> {
        let tables = self.tables();
        let theirs = tables.attachments.values();
        let theirs = theirs.filter(|one| one.session == session && one.tenant == *tenant);
        let mut theirs: Vec<Attachment> = theirs.cloned().collect();
        // Those that came with a history may have later ids than when they were attached.
        theirs.sort_by_key(|one| (one.created_at, one.id));
        Ok(theirs)
    }

    async fn unplaced_attachments(&self, session: SessionId) -> Result<Vec<Attachment>> {
        let tables = self.tables();
        let unplaced = tables.attachments.values();
        let unplaced = unplaced.filter(|one| one.session == session && !one.placed);
        Ok(unplaced.cloned().collect())
    }

    async fn sessions_with_unplaced(&self) -> Result<Vec<SessionId>> {
        let tables = self.tables();
        let unplaced = tables.attachments.values().filter(|one| !one.placed);
        let mut sessions: Vec<_> = unplaced.map(|one| one.session).collect();
        sessions.sort_unstable();
        sessions.dedup();
        Ok(sessions)
    }

    async fn place_attachment(&self, id: AttachmentId) -> Result<()> {
        self.tables().attachments.get_mut(&id).ok_or(MISSING)?.placed = true;
        Ok(())
    }

    async fn delete_attachment(
        &self,
        tenant: &TenantId,
        id: AttachmentId,
        receipt: Option<&ReceiptKey>,
    ) -> Result<()> {
        let mut tables = self.tables();
        let found = tables.attachments.get(&id).filter(|found| found.tenant == *tenant);
        found.ok_or(MISSING)?;
        tables.attachments.remove(&id);
        if let Some(key) = receipt {
            tables.receipts.remove(key);
        }
        Ok(())
    }
}
