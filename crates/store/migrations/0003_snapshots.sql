-- What sessions' agents worked on, at moments of their logs. The bytes lie elsewhere: on this machine, in the
-- cloud, or both.

CREATE TABLE snapshot (
    session_id TEXT    NOT NULL REFERENCES session (id),
    id         TEXT    NOT NULL,
    seq        BIGINT  NOT NULL,
    is_local   BOOLEAN NOT NULL,
    is_cloud   BOOLEAN NOT NULL,
    body       TEXT    NOT NULL,
    PRIMARY KEY (session_id, id)
);

CREATE INDEX snapshot_by_seq ON snapshot (session_id, seq, id);
