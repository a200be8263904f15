-- Files that were attached to a session. Their bytes lie in the data directory; `path` is where the agent finds its copy,
-- and `placed` whether that was written.

CREATE TABLE attachment (
    id         TEXT     NOT NULL PRIMARY KEY,
    tenant_id  TEXT     NOT NULL REFERENCES tenant (id),
    session_id TEXT     NOT NULL REFERENCES session (id),
    message_id TEXT,
    filename   TEXT     NOT NULL,
    media_type TEXT     NOT NULL,
    size       BIGINT   NOT NULL,
    path       TEXT     NOT NULL,
    placed     SMALLINT NOT NULL,
    created_at BIGINT   NOT NULL
);
CREATE UNIQUE INDEX attachment_by_path ON attachment (session_id, path);
CREATE INDEX attachment_by_session ON attachment (session_id, id);
CREATE INDEX attachment_unplaced ON attachment (session_id) WHERE placed = 0;
