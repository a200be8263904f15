"""The queue: prompts that nobody waits for."""

from __future__ import annotations

from .._method import operation
from .._wire import Call, Id, Repeat, at, call, given, many, one
from ..schema import QueueCounts, QueueItem, QueueItemStatus


class QueueOperations:
    """The queue."""

    @operation
    def enqueue(
        self,
        agent_name: str,
        prompt: str,
        *,
        session_id: Id | None = None,
        priority: int | None = None,
        max_retries: int | None = None,
        idempotency_key: str | None = None,
    ) -> Call[QueueItem]:
        """Has a prompt done when there is time."""
        body = given(
            agent_name=agent_name,
            prompt=prompt,
            session_id=None if session_id is None else str(session_id),
            priority=priority,
            max_retries=max_retries,
        )
        path, read = at("queue"), one(QueueItem, "item")
        return call("POST", path, read, body=body, repeat=Repeat.KEYED, key=idempotency_key)

    @operation
    def list_queue_items(
        self, *, status: QueueItemStatus | None = None, limit: int | None = None, cursor: Id | None = None
    ) -> Call[list[QueueItem]]:
        """Lists what is in the queue, newest first. The id of the last one is the `cursor` of the next page."""
        query = given(status=status, limit=limit, cursor=cursor)
        return call("GET", at("queue"), many(QueueItem, "items"), query=query)

    @operation
    def get_queue_item(self, item_id: Id) -> Call[QueueItem]:
        """Looks at something in the queue."""
        return call("GET", at("queue", item_id), one(QueueItem, "item"))

    @operation
    def cancel_queue_item(self, item_id: Id) -> Call[QueueItem]:
        """Takes something out of the queue, if it was not begun."""
        return call("DELETE", at("queue", item_id), one(QueueItem, "item"))

    @operation
    def get_queue_stats(self) -> Call[QueueCounts]:
        """How many are in which state."""
        return call("GET", at("queue", "stats"), one(QueueCounts, "stats"))
