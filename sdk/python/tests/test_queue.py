"""The queue, and the figures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from world import eventually

import ash_sdk
from ash_sdk import AshClient, InvalidRequestError, QueueItem, QueueStats, Session, schema


def over(client: AshClient, item: QueueItem) -> QueueItem | None:
    found = client.get_queue_item(item.id)
    return found if found.completed_at else None


def test_an_item_is_done_and_says_what_came_of_it(client: AshClient) -> None:
    made = client.enqueue("notes", "/say Later.", priority=1, max_retries=2)
    assert (made.agent_name, made.prompt, made.priority, made.max_retries) == ("notes", "/say Later.", 1, 2)
    done = eventually(lambda: over(client, made))
    assert (done.status, done.result, done.stop_reason, done.error) == ("completed", "Later.", "end_turn", None)
    assert done.session_id is not None
    assert client.get_session(done.session_id).metadata["queueItemId"] == made.id
    client.end_session(done.session_id)


def test_an_item_that_waits_can_be_taken_back(client: AshClient, session: Session) -> None:
    # Of one session one item is worked on at a time, and the first one never comes to its end by itself.
    first = client.enqueue("notes", "/hang", session_id=session.id, priority=1)
    second = client.enqueue("notes", "/say Never.", session_id=session.id)
    newest = client.list_queue_items(limit=1)
    assert [one.id for one in newest] == [second.id]
    assert [one.id for one in client.list_queue_items(limit=1, cursor=newest[0].id)] == [first.id]
    assert client.cancel_queue_item(second.id).status == "cancelled"
    with pytest.raises(InvalidRequestError) as again:
        client.cancel_queue_item(second.id)
    assert again.value.code == "not_pending"
    assert second.id in [one.id for one in client.list_queue_items(status="cancelled")]
    stats = client.get_queue_stats()
    assert isinstance(stats, QueueStats)
    assert stats.cancelled >= 1
    assert stats.pending + stats.processing >= 1
    client.end_session(session.id)
    assert eventually(lambda: over(client, first)).status in ("failed", "cancelled")


def test_analytics(client: AshClient) -> None:
    found = client.get_analytics()
    assert found.agents.total >= 1
    assert found.agents["total"] == found.agents.total
    assert sum(found.sessions.by_status.values()) == found.sessions.total
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    assert client.get_analytics(after=tomorrow).usage.total_messages == 0


def test_what_people_import_is_what_the_schema_has() -> None:
    assert ash_sdk.QueueItem is schema.QueueItem
    assert ash_sdk.QueueStats is schema.QueueCounts
    assert ash_sdk.Attachment is schema.Attachment
    assert ash_sdk.Analytics is schema.Analytics
