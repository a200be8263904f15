//! Attachments in their table.

use ash_core::id::{AttachmentId, SessionId, TenantId};
use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use super::rows::{self, number, parsed, time};
use super::sql::attachment as sql;
use super::write::{self, change_one};
use super::{SqliteStore, read};
use crate::Result;
use crate::attachment::{Attachment, AttachmentStore};
use crate::model::{Receipt, ReceiptKey};

const WHAT: &str = "attachment";

#[async_trait]
impl AttachmentStore for SqliteStore {
    async fn create_attachment(&self, new: &Attachment, receipt: Option<&Receipt>) -> Result<()> {
        let (new, receipt) = (new.clone(), receipt.cloned());
        self.writer.perform(move |db| create(db, &new, receipt.as_ref())).await
    }

    async fn attachment(&self, tenant: &TenantId, id: AttachmentId) -> Result<Attachment> {
        let names = [tenant.to_string(), id.to_string()];
        self.readers.look_up(move |db| read::one(db, sql::ONE, names, row, WHAT)).await
    }

    async fn attachments(&self, tenant: &TenantId, session: SessionId) -> Result<Vec<Attachment>> {
        let names = [session.to_string(), tenant.to_string()];
        let list = move |db: &_| read::list(db, sql::OF_SESSION, names, row);
        let mut found: Vec<Attachment> = self.readers.perform(list).await?;
        // Those that came with a history may have later ids than when they were attached.
        found.sort_by_key(|one| (one.created_at, one.id));
        Ok(found)
    }

    async fn unplaced_attachments(&self, session: SessionId) -> Result<Vec<Attachment>> {
        let session = session.to_string();
        self.readers.look_up(move |db| read::list(db, sql::UNPLACED, [session], row)).await
    }

    async fn sessions_with_unplaced(&self) -> Result<Vec<SessionId>> {
        let list = |db: &_| read::list(db, sql::SESSIONS_WITH_UNPLACED, [], rows::session_id);
        self.readers.perform(list).await
    }

    async fn place_attachment(&self, id: AttachmentId) -> Result<()> {
        let place = move |db: &_| change_one(db, sql::PLACE, [id.to_string()], WHAT);
        self.writer.perform(place).await
    }

    async fn delete_attachment(
        &self,
        tenant: &TenantId,
        id: AttachmentId,
        receipt: Option<&ReceiptKey>,
    ) -> Result<()> {
        let (names, receipt) = ([tenant.to_string(), id.to_string()], receipt.cloned());
        let delete = move |db: &Connection| {
            change_one(db, sql::DELETE, names.each_ref(), WHAT)?;
            if let Some(ReceiptKey { tenant, route, key }) = &receipt {
                let values = params![tenant.as_str(), route, key];
                db.prepare_cached(sql::DELETE_RECEIPT)?.execute(values)?;
            }
            Ok(())
        };
        self.writer.perform(delete).await
    }
}

fn create(db: &Connection, new: &Attachment, receipt: Option<&Receipt>) -> Result<()> {
    read::session(db, &new.tenant, new.session)?;
    add(db, new)?;
    write::keep_receipt(db, receipt)
}

pub(super) fn add(db: &Connection, new: &Attachment) -> Result<()> {
    let values = params![
        new.id.to_string(),
        new.tenant.as_str(),
        new.session.to_string(),
        new.message,
        new.filename,
        new.media_type,
        number(new.size),
        new.path,
        new.placed,
        new.created_at.as_millis(),
    ];
    write::insert(db, sql::INSERT, values, WHAT)
}

fn row(row: &Row<'_>) -> Result<Attachment> {
    Ok(Attachment {
        id: parsed(row, 0, WHAT)?,
        tenant: parsed(row, 1, WHAT)?,
        session: parsed(row, 2, WHAT)?,
        message: row.get(3)?,
        filename: row.get(4)?,
        media_type: row.get(5)?,
        size: rows::count(row, 6)?,
        path: row.get(7)?,
        placed: row.get(8)?,
        created_at: time(row, 9)?,
    })
}
