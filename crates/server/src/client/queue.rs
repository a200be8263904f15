//! The queue.

use crate::api::{NewQueueItem, QueueItem, QueueItemBody, QueueItemStatus, QueueItems};

use super::error::ClientError;
use super::request::{Ask, Client, Repeat, idempotency_key, segment};

impl Client {
    /// Adds a prompt to the queue.
    pub async fn enqueue(&self, new: &NewQueueItem) -> Result<QueueItem, ClientError> {
        let repeat = Repeat::Keyed(idempotency_key());
        let answer: QueueItemBody = self.ask(Ask::post("/api/queue".into(), new, repeat)).await?;
        Ok(answer.item)
    }

    /// Items of the queue, newest first.
    pub async fn queue_items(
        &self,
        status: Option<QueueItemStatus>,
        limit: u32,
    ) -> Result<QueueItems, ClientError> {
        let status = status.map(|status| format!("&status={}", status.as_str()));
        let path = format!("/api/queue?limit={limit}{}", status.unwrap_or_default());
        self.ask(Ask::get(path)).await
    }

    /// One item of the queue.
    pub async fn queue_item(&self, id: &str) -> Result<QueueItem, ClientError> {
        let path = format!("/api/queue/{}", segment(id));
        let answer: QueueItemBody = self.ask(Ask::get(path)).await?;
        Ok(answer.item)
    }

    /// Withdraws an item that waits.
    pub async fn cancel_queue_item(&self, id: &str) -> Result<QueueItem, ClientError> {
        let path = format!("/api/queue/{}", segment(id));
        let answer: QueueItemBody = self.ask(Ask::delete(path)).await?;
        Ok(answer.item)
    }
}
