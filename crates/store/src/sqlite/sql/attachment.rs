//! Statements about attachments.

statements! {
    INSERT =
        "INSERT INTO attachment (id, tenant_id, session_id, message_id, filename, media_type, size, path, placed,
            created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING";
    ONE =
        "SELECT a.id, a.tenant_id, a.session_id, a.message_id, a.filename, a.media_type, a.size, a.path, a.placed,
            a.created_at
         FROM attachment a JOIN session s ON s.id = a.session_id JOIN agent g ON g.id = s.agent_id
         WHERE a.tenant_id = ?1 AND a.id = ?2 AND s.purged = 0 AND g.deleted = 0";
    OF_SESSION =
        "SELECT id, tenant_id, session_id, message_id, filename, media_type, size, path, placed, created_at
         FROM attachment WHERE session_id = ?1 AND tenant_id = ?2 ORDER BY id";
    UNPLACED =
        "SELECT id, tenant_id, session_id, message_id, filename, media_type, size, path, placed, created_at
         FROM attachment WHERE session_id = ?1 AND placed = 0";
    SESSIONS_WITH_UNPLACED =
        "SELECT DISTINCT session_id FROM attachment WHERE placed = 0 ORDER BY session_id";
    PLACE = "UPDATE attachment SET placed = 1 WHERE id = ?1";
    DELETE = "DELETE FROM attachment WHERE tenant_id = ?1 AND id = ?2";
    DELETE_RECEIPT = "DELETE FROM receipt WHERE tenant_id = ?1 AND route = ?2 AND request_key = ?3";
    PURGE = "DELETE FROM attachment WHERE session_id = ?1";
}
