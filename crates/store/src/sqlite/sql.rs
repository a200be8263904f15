//! Every statement that is run on a migrated database. A test prepares each of them.
//!
//! Nothing is put together at run time. An optional filter reads `(?1 IS NULL OR col = ?1)`; an
//! optional bound is given as a value beyond every id, because a range that may be absent would
//! not be looked up in an index.

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:literal;)*) => {
        $($(#[$doc])* pub(in crate::sqlite) const $name: &str = $sql;)*

        #[cfg(test)]
        pub(in crate::sqlite) const ALL: &[(&str, &str)] = &[$((stringify!($name), $sql)),*];
    };
}

pub(super) mod attachment;
pub(super) mod queue;

/// Sorts before every id.
pub(super) const BEFORE_EVERY_ID: &str = "";
/// Sorts after every id: ids are made of digits, letters and hyphens.
pub(super) const AFTER_EVERY_ID: &str = "~";

statements! {
    // The group that is being committed, and one operation in it.
    BEGIN = "BEGIN IMMEDIATE";
    COMMIT = "COMMIT";
    ROLLBACK = "ROLLBACK";
    SAVEPOINT = "SAVEPOINT operation";
    RELEASE = "RELEASE operation";
    ROLLBACK_TO = "ROLLBACK TO operation";
    CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)";

    INSERT_TENANT =
        "INSERT INTO tenant (id, created_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING";
    TENANT = "SELECT id, created_at FROM tenant WHERE id = ?1";
    TENANTS = "SELECT id, created_at FROM tenant ORDER BY id";

    INSERT_API_KEY =
        "INSERT INTO api_key (id, tenant_id, hash, prefix, label, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
    API_KEY_BY_HASH =
        "SELECT id, tenant_id, hash, prefix, label, created_at FROM api_key WHERE hash = ?1";
    API_KEYS =
        "SELECT id, tenant_id, hash, prefix, label, created_at FROM api_key
         WHERE tenant_id = ?1 ORDER BY id";
    DELETE_API_KEY = "DELETE FROM api_key WHERE tenant_id = ?1 AND id = ?2";

    INSERT_CREDENTIAL =
        "INSERT INTO credential (id, tenant_id, kind, label, sealed, created_at, last_used_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
    CREDENTIAL =
        "SELECT id, tenant_id, kind, label, sealed, created_at, last_used_at FROM credential
         WHERE tenant_id = ?1 AND id = ?2";
    CREDENTIALS =
        "SELECT id, tenant_id, kind, label, sealed, created_at, last_used_at FROM credential
         WHERE tenant_id = ?1 ORDER BY id";
    TOUCH_CREDENTIAL =
        "UPDATE credential SET last_used_at = MAX(COALESCE(last_used_at, ?3), ?3)
         WHERE tenant_id = ?1 AND id = ?2";
    DELETE_CREDENTIAL = "DELETE FROM credential WHERE tenant_id = ?1 AND id = ?2";

    INSERT_AGENT =
        "INSERT INTO agent (id, tenant_id, name, latest_version, created_at)
         VALUES (?1, ?2, ?3, 0, ?4) ON CONFLICT DO NOTHING";
    LIVING_AGENT =
        "SELECT id FROM agent WHERE tenant_id = ?1 AND name = ?2 AND deleted = 0";
    RAISE_AGENT_VERSION =
        "UPDATE agent SET latest_version = latest_version + 1 WHERE id = ?1
         RETURNING latest_version";
    INSERT_AGENT_VERSION =
        "INSERT INTO agent_version
            (agent_id, version, definition, created_at, number, label, changed_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    ACTIVATE_VERSION = "UPDATE agent SET active_version = ?2 WHERE id = ?1";
    AMEND_VERSION =
        "UPDATE agent_version SET label = ?3, changed_at = ?4 WHERE agent_id = ?1 AND version = ?2";
    RETIRE_VERSION =
        "UPDATE agent_version SET retired = 1 WHERE agent_id = ?1 AND version = ?2";
    AGENT =
        "SELECT a.id, a.tenant_id, a.name, v.version, v.definition, a.settings, a.created_at,
            COALESCE(v.changed_at, v.created_at), a.configured_at
         FROM agent a JOIN agent_version v
           ON v.agent_id = a.id AND v.version = a.active_version
         WHERE a.tenant_id = ?1 AND a.name = ?2 AND a.deleted = 0";
    AGENT_VERSION =
        "SELECT a.id, a.tenant_id, a.name, v.version, v.definition, a.settings, a.created_at,
            COALESCE(v.changed_at, v.created_at), a.configured_at
         FROM agent a JOIN agent_version v ON v.agent_id = a.id
         WHERE a.tenant_id = ?1 AND a.name = ?2 AND a.deleted = 0 AND v.version = ?3";
    AGENT_VERSIONS =
        "SELECT a.id, a.tenant_id, a.name, v.version, v.definition, a.settings, a.created_at,
            COALESCE(v.changed_at, v.created_at), a.configured_at,
            v.number, v.label, v.version = a.active_version, v.created_at
         FROM agent a JOIN agent_version v ON v.agent_id = a.id
         WHERE a.tenant_id = ?1 AND a.name = ?2 AND a.deleted = 0 AND v.retired = 0
         ORDER BY v.number DESC";
    LABELLED_VERSION =
        "SELECT a.id, a.tenant_id, a.name, v.version, v.definition, a.settings, a.created_at,
            COALESCE(v.changed_at, v.created_at), a.configured_at,
            v.number, v.label, v.version = a.active_version, v.created_at
         FROM agent a JOIN agent_version v ON v.agent_id = a.id
         WHERE a.tenant_id = ?1 AND a.name = ?2 AND a.deleted = 0 AND v.retired = 0
            AND v.number = ?3";
    CONFIGURE_AGENT =
        "UPDATE agent SET settings = ?3, configured_at = ?4
         WHERE tenant_id = ?1 AND name = ?2 AND deleted = 0";
    AGENTS =
        "SELECT a.id, a.tenant_id, a.name, v.version, v.definition, a.settings, a.created_at,
            COALESCE(v.changed_at, v.created_at), a.configured_at
         FROM agent a JOIN agent_version v
           ON v.agent_id = a.id AND v.version = a.active_version
         WHERE a.tenant_id = ?1 AND a.deleted = 0 ORDER BY a.name";
    DELETE_AGENT =
        "UPDATE agent SET deleted = 1 WHERE tenant_id = ?1 AND name = ?2 AND deleted = 0
         RETURNING id";
    SESSIONS_GOING_ON =
        "SELECT id FROM session WHERE agent_id = ?1 AND status <> 'ended' ORDER BY id";
    USED_DEFINITIONS =
        "SELECT v.definition FROM agent_version v JOIN agent a ON a.id = v.agent_id
         WHERE (a.deleted = 0 AND v.retired = 0) OR EXISTS (SELECT 1 FROM session s
            WHERE s.agent_id = v.agent_id AND s.agent_version = v.version)";
    IS_DEPLOYED =
        "SELECT 1 FROM agent a JOIN agent_version v ON v.agent_id = a.id
         WHERE a.id = ?1 AND v.version = ?2 AND a.tenant_id = ?3 AND a.deleted = 0
            AND (v.retired = 0 OR EXISTS (SELECT 1 FROM session s
                WHERE s.agent_id = v.agent_id AND s.agent_version = v.version))";

    INSERT_SESSION =
        "INSERT INTO session (id, tenant_id, agent_id, agent_version, agent_name, parent_id,
            created_at, owner, fence, last_seq, status, sandbox, at_rest, incarnation, due_at,
            machine, inherited_seq)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
         ON CONFLICT DO NOTHING";
    /// The end of a log that a tenant's session may begin with.
    INHERITABLE_SEQ =
        "SELECT last_seq FROM session WHERE id = ?1 AND tenant_id = ?2 AND purged = 0";
    INHERIT_EVENTS =
        "INSERT INTO event (session_id, seq, at, kind, run_id, role, body)
         SELECT ?2, seq, at, kind, run_id, role, body FROM event
         WHERE session_id = ?1 AND seq <= ?3";
    PUT_SETTINGS =
        "INSERT INTO session_settings (session_id, settings) VALUES (?1, ?2)
         ON CONFLICT (session_id) DO UPDATE SET settings = excluded.settings";
    LATEST_OWNER = "SELECT last FROM owner";
    NEXT_OWNER = "UPDATE owner SET last = last + 1 RETURNING last";
    RAISE_FENCE =
        "UPDATE session SET fence = fence + 1, owner = ?2
         WHERE id = ?1 AND owner <= ?2 AND purged = 0
         RETURNING fence";
    /// Like the next, for most commits: they only add to the log. No indexed column is touched,
    /// so no index is rewritten.
    ADVANCE_SESSION =
        "UPDATE session SET last_seq = ?4, machine = ?10
         WHERE id = ?1 AND fence = ?2 AND last_seq = ?3 AND status = ?5 AND sandbox = ?6
            AND at_rest = ?7 AND incarnation = ?8 AND due_at IS NOT DISTINCT FROM ?9";
    /// The guard of every commit: it changes the row only under the fence and on the end of the
    /// log that the decision was made on.
    COMMIT_SESSION =
        "UPDATE session SET last_seq = ?4, status = ?5, sandbox = ?6, at_rest = ?7,
            incarnation = ?8, due_at = ?9, machine = ?10
         WHERE id = ?1 AND fence = ?2 AND last_seq = ?3";
    FENCE = "SELECT fence FROM session WHERE id = ?1 AND purged = 0";
    CLAIMED_SESSION =
        "SELECT s.id, s.tenant_id, s.agent_id, s.agent_name, s.agent_version, s.parent_id,
            s.created_at, t.settings, s.machine
         FROM session s JOIN session_settings t ON t.session_id = s.id WHERE s.id = ?1";
    SESSION =
        "SELECT s.id, s.tenant_id, s.agent_id, s.agent_name, s.agent_version, s.parent_id,
            s.created_at, t.settings, s.machine
         FROM session s JOIN session_settings t ON t.session_id = s.id
            JOIN agent a ON a.id = s.agent_id
         WHERE s.id = ?1 AND s.tenant_id = ?2 AND a.deleted = 0";
    SESSIONS =
        "SELECT s.id, s.tenant_id, s.agent_id, s.agent_name, s.agent_version, s.parent_id,
            s.created_at, t.settings, s.machine
         FROM session s JOIN session_settings t ON t.session_id = s.id
            JOIN agent a ON a.id = s.agent_id
         WHERE s.tenant_id = ?1 AND s.id >= ?2 AND s.id < ?3 AND a.deleted = 0
            AND (?4 IS NULL OR s.agent_name = ?4) AND (?5 IS NULL OR s.status = ?5)
         ORDER BY s.id DESC LIMIT ?6 OFFSET ?7";
    COUNT_SESSIONS =
        "SELECT COUNT(*) FROM session s JOIN agent a ON a.id = s.agent_id
         WHERE s.tenant_id = ?1 AND s.id >= ?2 AND s.id < ?3 AND a.deleted = 0 AND s.purged = 0
            AND (?4 IS NULL OR s.agent_name = ?4) AND (?5 IS NULL OR s.status = ?5)";
    UNSETTLED_SESSIONS =
        "SELECT id FROM session WHERE at_rest = 0 AND id > ?1 ORDER BY id LIMIT ?2";
    SANDBOXED_SESSIONS =
        "SELECT id, incarnation FROM session WHERE sandbox IN ('live', 'frozen') AND id > ?1
         ORDER BY id LIMIT ?2";
    HOUSED_SESSIONS =
        "SELECT machine FROM session INDEXED BY session_census WHERE sandbox <> 'none'
         UNION ALL SELECT machine FROM session WHERE at_rest = 0 AND sandbox = 'none'";
    ABANDONED_SESSIONS =
        "SELECT id FROM session
         WHERE agent_id IN (SELECT id FROM agent WHERE deleted = 1) AND status <> 'ended'
            AND id > ?1
         ORDER BY id LIMIT ?2";
    DUE_SESSIONS =
        "SELECT id, due_at FROM session WHERE due_at IS NOT NULL AND due_at <= ?1
         ORDER BY due_at, id LIMIT ?2";
    EXPECTED_INCARNATION =
        "SELECT incarnation FROM session WHERE id = ?1 AND sandbox <> 'none'";

    /// The indexes are named because nothing else is as short: they hold what is alive. An active
    /// session has a sandbox, so it is among them.
    CENSUS =
        "SELECT COUNT(*) FILTER (WHERE status = 'active'),
            COUNT(*) FILTER (WHERE sandbox = 'starting'),
            COUNT(*) FILTER (WHERE sandbox = 'live'),
            COUNT(*) FILTER (WHERE sandbox = 'frozen'),
            (SELECT COUNT(*) FROM run r INDEXED BY run_running
                CROSS JOIN session s ON s.id = r.session_id
                WHERE r.status = 'running' AND s.sandbox = 'live')
         FROM session INDEXED BY session_census WHERE sandbox <> 'none'";

    INSERT_EVENT =
        "INSERT INTO event (session_id, seq, at, kind, run_id, role, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    /// What is left of a session that was purged is nobody's log.
    EVENTS_AFTER =
        "SELECT seq, at, body FROM event WHERE session_id = ?1 AND seq > ?2
            AND NOT EXISTS (SELECT 1 FROM session WHERE id = ?1 AND purged = 1)
         ORDER BY seq LIMIT ?3";
    /// The index is named because the planner thinks the primary key just as good. It is not:
    /// between two messages there may be thousands of entries.
    MESSAGES_AFTER =
        "SELECT seq, at, body FROM event INDEXED BY event_message
         WHERE session_id = ?1 AND seq > ?2 AND role IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM session WHERE id = ?1 AND purged = 1)
         ORDER BY seq LIMIT ?3";
    PROMPT =
        "SELECT e.seq, e.at, e.body FROM run r
         JOIN event e ON e.session_id = r.session_id AND e.seq = r.prompt_seq
         WHERE r.session_id = ?1 AND r.id = ?2";

    ACCEPT_RUN =
        "INSERT INTO run (session_id, id, status, prompt_seq, accepted_at)
         VALUES (?1, ?2, 'queued', ?3, ?4) ON CONFLICT DO NOTHING";
    START_RUN =
        "UPDATE run SET status = 'running', turn = ?3, parent_turn = ?4, started_at = ?5
         WHERE session_id = ?1 AND id = ?2";
    PROGRESS_RUN =
        "UPDATE run SET phase = ?3, round = ?4 WHERE session_id = ?1 AND id = ?2";
    END_RUN =
        "UPDATE run SET status = ?3, stop_reason = ?4, failure_code = ?5, failure_message = ?6,
            input_tokens = ?7, output_tokens = ?8, cache_creation_tokens = ?9,
            cache_read_tokens = ?10, tool_calls = ?11, cost_micro_usd = ?12, ended_at = ?13
         WHERE session_id = ?1 AND id = ?2";
    RUN =
        "SELECT session_id, id, status, prompt_seq, turn, parent_turn, phase, round, stop_reason,
            failure_code, failure_message, input_tokens, output_tokens, cache_creation_tokens,
            cache_read_tokens, tool_calls, cost_micro_usd, accepted_at, started_at, ended_at
         FROM run WHERE session_id = ?1 AND id = ?2";
    RUNS =
        "SELECT session_id, id, status, prompt_seq, turn, parent_turn, phase, round, stop_reason,
            failure_code, failure_message, input_tokens, output_tokens, cache_creation_tokens,
            cache_read_tokens, tool_calls, cost_micro_usd, accepted_at, started_at, ended_at
         FROM run WHERE session_id = ?1 ORDER BY prompt_seq DESC LIMIT ?2";
    SPEND = "SELECT cost, tokens FROM spend WHERE session_id = ?1";
    ADD_SPEND =
        "INSERT INTO spend (session_id, cost, tokens) VALUES (?1, ?2, ?3)
         ON CONFLICT (session_id) DO UPDATE SET
            cost = MIN(spend.cost + ?2, ?4), tokens = MIN(spend.tokens + ?3, ?4)";
    USAGE_RECORDS =
        "SELECT r.session_id, r.id, r.status, r.prompt_seq, r.turn, r.parent_turn, r.phase, r.round,
            r.stop_reason, r.failure_code, r.failure_message, r.input_tokens, r.output_tokens,
            r.cache_creation_tokens, r.cache_read_tokens, r.tool_calls, r.cost_micro_usd,
            r.accepted_at, r.started_at, r.ended_at, s.agent_name
         FROM run r JOIN session s ON s.id = r.session_id
         WHERE s.tenant_id = ?1 AND r.ended_at IS NOT NULL AND r.prompt_seq > s.inherited_seq
            AND (?2 IS NULL OR s.id = ?2) AND (?3 IS NULL OR s.agent_name = ?3)
            AND (?4 IS NULL OR r.ended_at >= ?4) AND (?5 IS NULL OR r.ended_at < ?5)
         ORDER BY r.ended_at DESC, r.id DESC LIMIT ?6";
    USAGE =
        "SELECT COUNT(*), COALESCE(SUM(r.input_tokens), 0), COALESCE(SUM(r.output_tokens), 0),
            COALESCE(SUM(r.cache_creation_tokens), 0), COALESCE(SUM(r.cache_read_tokens), 0),
            COALESCE(SUM(r.tool_calls), 0), COALESCE(SUM(r.cost_micro_usd), 0),
            COALESCE(SUM(CASE WHEN r.ended_at > r.started_at THEN r.ended_at - r.started_at
                ELSE 0 END), 0)
         FROM run r JOIN session s ON s.id = r.session_id
         WHERE s.tenant_id = ?1 AND r.ended_at IS NOT NULL AND r.prompt_seq > s.inherited_seq
            AND (?2 IS NULL OR s.id = ?2) AND (?3 IS NULL OR s.agent_name = ?3)
            AND (?4 IS NULL OR r.ended_at >= ?4) AND (?5 IS NULL OR r.ended_at < ?5)";

    INSERT_RECEIPT =
        "INSERT INTO receipt (tenant_id, route, request_key, body_digest, answer, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
    RECEIPT =
        "SELECT body_digest, answer, at FROM receipt
         WHERE tenant_id = ?1 AND route = ?2 AND request_key = ?3";
    /// Those of an item of the queue that is not over are not forgotten: it may be taken up after any time.
    PURGE_RECEIPTS =
        "DELETE FROM receipt WHERE at < ?1 AND (route <> 'queue' OR NOT EXISTS (
            SELECT 1 FROM queue_item q
            WHERE q.id = SUBSTR(request_key, 1, 36) AND q.completed_at IS NULL))";

    INSERT_OUTBOX =
        "INSERT INTO outbox (id, topic, payload, ready_at, available_at, attempt)
         VALUES (?1, ?2, ?3, ?4, ?4, 0) ON CONFLICT DO NOTHING";
    READY_OUTBOX =
        "SELECT id, topic, payload, ready_at, attempt FROM outbox
         WHERE topic = ?1 AND available_at <= ?2 ORDER BY available_at, id LIMIT ?3";
    /// What was put back under another clock.
    FAR_OUTBOX =
        "SELECT id, topic, payload, ready_at, attempt FROM outbox
         WHERE topic = ?1 AND available_at > ?2 ORDER BY available_at, id LIMIT ?3";
    LEASE_OUTBOX =
        "UPDATE outbox SET attempt = attempt + 1, available_at = ?2 WHERE id = ?1";
    RELEASE_OUTBOX =
        "UPDATE outbox SET available_at = ?2
         WHERE topic = ?1 AND available_at > ?2 AND attempt > 0";
    FINISH_OUTBOX = "DELETE FROM outbox WHERE id = ?1 AND attempt = ?2";
    RETRY_OUTBOX =
        "UPDATE outbox SET available_at = ?3 WHERE id = ?1 AND attempt = ?2";

    INSERT_SNAPSHOT =
        "INSERT INTO snapshot (session_id, id, seq, is_local, is_cloud, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
    SNAPSHOTS =
        "SELECT body, is_local, is_cloud FROM snapshot
         WHERE session_id = ?1 ORDER BY seq DESC, id DESC LIMIT ?2";
    SNAPSHOT =
        "SELECT body, is_local, is_cloud FROM snapshot WHERE session_id = ?1 AND id = ?2";
    LOST_LOCALLY = "UPDATE snapshot SET is_local = FALSE WHERE session_id = ?1 AND id = ?2";
    LOST_IN_CLOUD = "UPDATE snapshot SET is_cloud = FALSE WHERE session_id = ?1 AND id = ?2";
    FOUND_LOCALLY = "UPDATE snapshot SET is_local = TRUE WHERE session_id = ?1 AND id = ?2";
    FOUND_IN_CLOUD = "UPDATE snapshot SET is_cloud = TRUE WHERE session_id = ?1 AND id = ?2";
    CLOUD_HEAD = "SELECT cloud_head FROM session WHERE id = ?1 AND cloud_head IS NOT NULL";
    PUT_CLOUD_HEAD = "UPDATE session SET cloud_head = ?2 WHERE id = ?1";
    KEEP_CLOUD_PLACES =
        "UPDATE snapshot SET is_cloud = 1 WHERE is_cloud = 0 AND is_local = 0
            AND session_id IN (SELECT id FROM session WHERE cloud_head IS NOT NULL)";
    FORGET_CLOUD_HEADS = "UPDATE session SET cloud_head = NULL WHERE cloud_head IS NOT NULL";
    FORGET_CLOUD_PLACES = "UPDATE snapshot SET is_cloud = 0 WHERE is_cloud = 1 AND is_local = 1";
    CLOUD_USE = "SELECT bucket, writer, url FROM cloud_use";
    FORGET_CLOUD_USE = "DELETE FROM cloud_use";
    PUT_CLOUD_USE = "INSERT INTO cloud_use (bucket, writer, url) VALUES (?1, ?2, ?3)";
    SESSIONS_WITHOUT_HEAD =
        "SELECT id FROM session
         WHERE cloud_head IS NULL AND id > ?1
            AND EXISTS (SELECT 1 FROM snapshot WHERE session_id = session.id)
         ORDER BY id LIMIT ?2";
    LAGGING_SESSIONS =
        "SELECT DISTINCT session_id FROM snapshot
         WHERE is_cloud = 0 AND session_id > ?1 ORDER BY session_id LIMIT ?2";
    CLOUD_LAG = "SELECT COUNT(*) FROM snapshot WHERE is_cloud = 0";
    FORGET_SNAPSHOT = "DELETE FROM snapshot WHERE session_id = ?1 AND id = ?2";

    /// All but the latest so many.
    OLDER_SNAPSHOTS =
        "SELECT id FROM snapshot WHERE session_id = ?1 ORDER BY seq DESC, id DESC
         LIMIT -1 OFFSET ?2";
    IS_SNAPSHOT_NEEDED =
        "SELECT 1 FROM snapshot p CROSS JOIN session s ON s.id = p.session_id
         WHERE p.id = ?1 AND p.is_local AND s.tenant_id = ?2";

    // What goes.
    RESTING_SESSIONS =
        "SELECT id, machine, due_at FROM session
         WHERE sandbox = 'none' AND purged = 0 AND id > ?1
         ORDER BY id LIMIT ?2";
    REDATE_SESSION =
        "UPDATE session SET due_at = ?4
         WHERE id = ?1 AND last_seq = ?2 AND due_at IS NOT DISTINCT FROM ?3 AND purged = 0";
    TO_PURGE =
        "SELECT fence, last_seq, status = 'ended', agent_id FROM session
         WHERE id = ?1 AND purged = 0";
    /// Nothing is found of it any more, and nobody holds a fence like that.
    HIDE_PURGED = "UPDATE session SET purged = 1, fence = -1, due_at = NULL WHERE id = ?1";
    PURGED = "SELECT id, agent_id FROM session WHERE purged = 1 ORDER BY id LIMIT 1";
    /// The last ones first.
    PURGE_SOME_EVENTS =
        "DELETE FROM event WHERE session_id = ?1 AND seq >= (SELECT MIN(seq) FROM
            (SELECT seq FROM event WHERE session_id = ?1 ORDER BY seq DESC LIMIT ?2))";
    HAS_EVENTS = "SELECT 1 FROM event WHERE session_id = ?1";
    PURGE_SNAPSHOTS = "DELETE FROM snapshot WHERE session_id = ?1";
    PURGE_EVENTS = "DELETE FROM event WHERE session_id = ?1";
    PURGE_RUNS = "DELETE FROM run WHERE session_id = ?1";
    PURGE_SPEND = "DELETE FROM spend WHERE session_id = ?1";
    PURGE_SETTINGS = "DELETE FROM session_settings WHERE session_id = ?1";
    PURGE_SESSION = "DELETE FROM session WHERE id = ?1";
    IS_AGENT_OVER =
        "SELECT 1 FROM agent WHERE id = ?1 AND deleted = 1
            AND NOT EXISTS (SELECT 1 FROM session WHERE agent_id = ?1)";
    PURGE_VERSIONS = "DELETE FROM agent_version WHERE agent_id = ?1";
    PURGE_AGENT = "DELETE FROM agent WHERE id = ?1";

    // What an operator asks after an accident.
    INTEGRITY = "PRAGMA integrity_check";
    DANGLING_REFERENCES = "PRAGMA foreign_key_check";
    BROKEN_LOGS =
        "SELECT s.id, s.last_seq, COUNT(e.seq), COALESCE(MAX(e.seq), 0)
         FROM session s LEFT JOIN event e ON e.session_id = s.id
         WHERE s.purged = 0
         GROUP BY s.id, s.last_seq
         HAVING COUNT(e.seq) <> s.last_seq OR COALESCE(MAX(e.seq), 0) <> s.last_seq";
}

#[cfg(test)]
mod test {
    use rusqlite::Connection;

    use super::*;
    use crate::sqlite::migrate;

    fn migrated() -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate::apply(&mut connection).unwrap();
        connection
    }

    #[test]
    fn every_statement_prepares_on_a_migrated_database() {
        let connection = migrated();
        for (name, sql) in [ALL, queue::ALL, attachment::ALL].concat() {
            if let Err(error) = connection.prepare(sql) {
                panic!("{name} does not prepare: {error}");
            }
        }
    }

    /// How SQLite means to run a statement, one line per step.
    fn plan(sql: &str) -> String {
        let connection = migrated();
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = explain.parameter_count();
        let nulls = rusqlite::params_from_iter(vec![rusqlite::types::Null; parameters]);
        let steps = explain.query_map(nulls, |row| row.get::<_, String>(3)).unwrap();
        steps.map(Result::unwrap).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn what_is_asked_often_is_looked_up_in_an_index() {
        for (sql, index) in [
            (SESSIONS, "session_by_tenant (tenant_id=? AND id>? AND id<?)"),
            (COUNT_SESSIONS, "session_by_tenant (tenant_id=? AND id>? AND id<?)"),
            (AGENT_VERSIONS, "agent_version_by_number (agent_id=?)"),
            (LABELLED_VERSION, "agent_version_by_number (agent_id=? AND number=?)"),
            (SESSIONS_GOING_ON, "session_by_agent"),
            (UNSETTLED_SESSIONS, "session_unsettled"),
            (SANDBOXED_SESSIONS, "session_sandboxed"),
            (HOUSED_SESSIONS, "session_census"),
            (CENSUS, "COVERING INDEX session_census"),
            (CENSUS, "run_running"),
            (DUE_SESSIONS, "session_due"),
            (EVENTS_AFTER, "PRIMARY KEY (session_id=? AND seq>?)"),
            (MESSAGES_AFTER, "event_message"),
            (PROMPT, "PRIMARY KEY (session_id=? AND seq=?)"),
            (RUNS, "run_by_prompt"),
            (SNAPSHOTS, "snapshot_by_seq"),
            (SESSIONS_WITHOUT_HEAD, "session_without_head"),
            (LAGGING_SESSIONS, "snapshot_lagging"),
            (CLOUD_LAG, "snapshot_lagging"),
            (OLDER_SNAPSHOTS, "snapshot_by_seq"),
            (IS_SNAPSHOT_NEEDED, "snapshot_by_id"),
            (IS_AGENT_OVER, "session_by_agent"),
            (READY_OUTBOX, "outbox_by_topic"),
            (RELEASE_OUTBOX, "outbox_by_topic"),
            (FAR_OUTBOX, "outbox_by_topic"),
            (PURGE_RECEIPTS, "receipt_by_age"),
            (queue::NEXT_ITEM, "queue_item_open"),
            (queue::NEXT_ITEM, "queue_item_busy"),
            (queue::NEXT_TIME, "queue_item_due"),
            (queue::ITEMS, "queue_item_by_tenant (tenant_id=? AND id<?)"),
            (queue::COUNTS, "COVERING INDEX queue_item_by_status"),
            (queue::PURGE, "queue_item_over"),
            (attachment::OF_SESSION, "attachment_by_session"),
            (attachment::UNPLACED, "attachment_unplaced"),
            (attachment::SESSIONS_WITH_UNPLACED, "attachment_unplaced"),
        ] {
            let plan = plan(sql);
            assert!(plan.contains(index), "{sql}\nis not looked up in {index}:\n{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{sql}\nis sorted:\n{plan}");
        }
    }
}
