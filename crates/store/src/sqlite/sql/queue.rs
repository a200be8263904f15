//! Statements about the queue.

statements! {
    INSERT =
        "INSERT INTO queue_item (id, tenant_id, agent_name, prompt, priority, max_retries, created_at,
            session_id, status, available_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'pending', ?7) ON CONFLICT DO NOTHING";
    ITEM =
        "SELECT id, tenant_id, agent_name, prompt, priority, max_retries, created_at, session_id, status,
            retry_count, run_id, stop_reason, result, error_code, error_message, started_at, completed_at, lease
         FROM queue_item WHERE tenant_id = ?1 AND id = ?2";
    ITEMS =
        "SELECT id, tenant_id, agent_name, prompt, priority, max_retries, created_at, session_id, status,
            retry_count, run_id, stop_reason, result, error_code, error_message, started_at, completed_at, lease
         FROM queue_item WHERE tenant_id = ?1 AND id < ?2 AND (?3 IS NULL OR status = ?3)
         ORDER BY id DESC LIMIT ?4";
    COUNTS = "SELECT status, COUNT(*) FROM queue_item WHERE tenant_id = ?1 GROUP BY status";
    WITHDRAW =
        "UPDATE queue_item SET status = 'cancelled', completed_at = ?3
         WHERE tenant_id = ?1 AND id = ?2 AND status = 'pending'";

    NEXT_TIME = "SELECT MIN(available_at) FROM queue_item WHERE completed_at IS NULL";
    /// The first that is ready, or was put back under another clock, and whose session nothing else is done with. One
    /// that waits is left alone while a person has its session rest.
    NEXT_ITEM =
        "SELECT id, tenant_id, agent_name, prompt, priority, max_retries, created_at, session_id, status,
            retry_count, run_id, stop_reason, result, error_code, error_message, started_at, completed_at, lease
         FROM queue_item a
         WHERE completed_at IS NULL AND (available_at <= ?1 OR available_at > ?2)
            AND (session_id IS NULL OR NOT EXISTS (
                SELECT 1 FROM queue_item b
                WHERE b.session_id = a.session_id AND b.status = 'processing' AND b.id <> a.id))
            AND (session_id IS NULL OR status <> 'pending' OR NOT EXISTS (
                SELECT 1 FROM session s
                WHERE s.id = a.session_id AND (s.status = 'stopped' OR s.status = 'paused'
                    AND json_extract(s.machine, '$.state.paused.reason') = 'requested')))
         ORDER BY priority DESC, id LIMIT 1";
    TAKE =
        "UPDATE queue_item SET status = 'processing', lease = lease + 1, available_at = ?2,
            started_at = COALESCE(started_at, ?3)
         WHERE id = ?1";
    RELEASE = "UPDATE queue_item SET available_at = ?1 WHERE completed_at IS NULL AND status = 'processing'";
    HOLD =
        "UPDATE queue_item SET available_at = ?3 WHERE id = ?1 AND lease = ?2 AND status = 'processing'";
    NOTE =
        "UPDATE queue_item SET session_id = ?3, run_id = ?4
         WHERE id = ?1 AND lease = ?2 AND status = 'processing'";
    COMPLETE =
        "UPDATE queue_item SET status = 'completed', completed_at = ?3, stop_reason = ?4, result = ?5,
            error_code = NULL, error_message = NULL
         WHERE id = ?1 AND lease = ?2 AND status = 'processing'";
    CANCEL =
        "UPDATE queue_item SET status = 'cancelled', completed_at = ?3
         WHERE id = ?1 AND lease = ?2 AND status = 'processing'";
    FAIL =
        "UPDATE queue_item SET status = 'failed', completed_at = ?3, error_code = ?4, error_message = ?5
         WHERE id = ?1 AND lease = ?2 AND status = 'processing'";
    RETRY =
        "UPDATE queue_item SET status = 'pending', available_at = ?3, error_code = ?4, error_message = ?5,
            run_id = NULL, retry_count = retry_count + 1
         WHERE id = ?1 AND lease = ?2 AND status = 'processing'";
    PUT_BACK =
        "UPDATE queue_item SET status = 'pending', available_at = ?3
         WHERE id = ?1 AND lease = ?2 AND status = 'processing'";
    PURGE = "DELETE FROM queue_item WHERE completed_at < ?1 AND completed_at IS NOT NULL";
}
