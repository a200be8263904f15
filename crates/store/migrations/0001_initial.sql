-- The first schema, in the subset that SQLite and PostgreSQL share: ids and JSON are TEXT, times
-- are milliseconds since the Unix epoch, flags are 0 or 1. (BLOB is BYTEA over there, and WITHOUT
-- ROWID is left out.) A migration that was released is never edited; the next one follows it.

CREATE TABLE tenant (
    id         TEXT   NOT NULL PRIMARY KEY,
    created_at BIGINT NOT NULL
);

-- The tenant of whoever runs the server exists from the start.
INSERT INTO tenant (id, created_at) VALUES ('default', 0);

CREATE TABLE api_key (
    id         TEXT   NOT NULL PRIMARY KEY,
    tenant_id  TEXT   NOT NULL REFERENCES tenant (id),
    hash       BLOB   NOT NULL UNIQUE,
    prefix     TEXT   NOT NULL,
    label      TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX api_key_by_tenant ON api_key (tenant_id, id);

CREATE TABLE credential (
    id         TEXT   NOT NULL PRIMARY KEY,
    tenant_id  TEXT   NOT NULL REFERENCES tenant (id),
    kind       TEXT   NOT NULL,
    label      TEXT   NOT NULL,
    sealed     BLOB   NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX credential_by_tenant ON credential (tenant_id, id);

-- One row: how many servers have begun their life on this database. `session.owner` is one of them.
CREATE TABLE owner (
    last BIGINT NOT NULL
);
INSERT INTO owner (last) VALUES (0);

-- A deleted agent stays as a row: its sessions refer to it. Its name is free again.
CREATE TABLE agent (
    id             TEXT     NOT NULL PRIMARY KEY,
    tenant_id      TEXT     NOT NULL REFERENCES tenant (id),
    name           TEXT     NOT NULL,
    latest_version BIGINT   NOT NULL,
    created_at     BIGINT   NOT NULL,
    deleted        SMALLINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX agent_by_name ON agent (tenant_id, name) WHERE deleted = 0;

CREATE TABLE agent_version (
    agent_id   TEXT   NOT NULL REFERENCES agent (id),
    version    BIGINT NOT NULL,
    definition TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (agent_id, version)
);

-- `machine` is the session itself; the columns from `status` to `due_at` are derived from it or
-- decided with it, so that lists need not look into it. `fence` and `last_seq` guard every write.
CREATE TABLE session (
    id            TEXT     NOT NULL PRIMARY KEY,
    tenant_id     TEXT     NOT NULL REFERENCES tenant (id),
    agent_id      TEXT     NOT NULL,
    agent_version BIGINT   NOT NULL,
    agent_name    TEXT     NOT NULL,
    parent_id     TEXT,
    created_at    BIGINT   NOT NULL,
    owner         BIGINT   NOT NULL,
    fence         BIGINT   NOT NULL,
    last_seq      BIGINT   NOT NULL,
    status        TEXT     NOT NULL,
    sandbox       TEXT     NOT NULL,
    at_rest       SMALLINT NOT NULL,
    incarnation   BIGINT   NOT NULL,
    due_at        BIGINT,
    machine       TEXT     NOT NULL,
    FOREIGN KEY (agent_id, agent_version) REFERENCES agent_version (agent_id, version)
);
CREATE INDEX session_by_tenant ON session (tenant_id, id);
CREATE INDEX session_by_agent ON session (agent_id, id);
CREATE INDEX session_unsettled ON session (id) WHERE at_rest = 0;
CREATE INDEX session_sandboxed ON session (id, incarnation) WHERE sandbox IN ('live', 'frozen');
CREATE INDEX session_due ON session (due_at, id) WHERE due_at IS NOT NULL;

-- Apart from `session` because every commit rewrites that row, and the configuration in here can
-- be long and hardly ever changes.
CREATE TABLE session_settings (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id),
    settings   TEXT NOT NULL
);

CREATE TABLE run (
    session_id            TEXT   NOT NULL REFERENCES session (id),
    id                    TEXT   NOT NULL,
    status                TEXT   NOT NULL,
    prompt_seq            BIGINT NOT NULL,
    turn                  BIGINT,
    parent_turn           BIGINT,
    phase                 TEXT,
    round                 BIGINT NOT NULL DEFAULT 0,
    stop_reason           TEXT,
    failure_code          TEXT,
    failure_message       TEXT,
    input_tokens          BIGINT NOT NULL DEFAULT 0,
    output_tokens         BIGINT NOT NULL DEFAULT 0,
    cache_creation_tokens BIGINT NOT NULL DEFAULT 0,
    cache_read_tokens     BIGINT NOT NULL DEFAULT 0,
    tool_calls            BIGINT NOT NULL DEFAULT 0,
    cost_micro_usd        BIGINT NOT NULL DEFAULT 0,
    accepted_at           BIGINT NOT NULL,
    started_at            BIGINT,
    ended_at              BIGINT,
    PRIMARY KEY (session_id, id)
);
CREATE INDEX run_by_prompt ON run (session_id, prompt_seq);

-- The log. Rows of one session lie together on disk: a replay reads them in one go.
CREATE TABLE event (
    session_id TEXT   NOT NULL REFERENCES session (id),
    seq        BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    kind       TEXT   NOT NULL,
    run_id     TEXT,
    role       TEXT,
    body       TEXT   NOT NULL,
    PRIMARY KEY (session_id, seq)
) WITHOUT ROWID;
CREATE INDEX event_message ON event (session_id, seq) WHERE role IS NOT NULL;

CREATE TABLE receipt (
    tenant_id   TEXT   NOT NULL,
    route       TEXT   NOT NULL,
    request_key TEXT   NOT NULL,
    body_digest BLOB   NOT NULL,
    answer      TEXT   NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, route, request_key)
);
CREATE INDEX receipt_by_age ON receipt (at);

-- `ready_at` is what was asked for; `available_at` moves with every lease and every retry.
CREATE TABLE outbox (
    id           TEXT   NOT NULL PRIMARY KEY,
    topic        TEXT   NOT NULL,
    payload      TEXT   NOT NULL,
    ready_at     BIGINT NOT NULL,
    available_at BIGINT NOT NULL,
    attempt      BIGINT NOT NULL
);
CREATE INDEX outbox_by_topic ON outbox (topic, available_at, id);
