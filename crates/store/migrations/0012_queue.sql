-- Prompts that wait to be worked on. As in the outbox, `available_at` moves with every lease and every retry; `lease`
-- counts how often an item was taken, and guards what whoever took it writes. Whether it is over is told by
-- `completed_at`. Its session may be gone: the item stays.

CREATE TABLE queue_item (
    id            TEXT   NOT NULL PRIMARY KEY,
    tenant_id     TEXT   NOT NULL REFERENCES tenant (id),
    agent_name    TEXT   NOT NULL,
    prompt        TEXT   NOT NULL,
    priority      BIGINT NOT NULL,
    max_retries   BIGINT NOT NULL,
    created_at    BIGINT NOT NULL,
    session_id    TEXT,
    status        TEXT   NOT NULL,
    retry_count   BIGINT NOT NULL DEFAULT 0,
    run_id        TEXT,
    stop_reason   TEXT,
    result        TEXT,
    error_code    TEXT,
    error_message TEXT,
    started_at    BIGINT,
    completed_at  BIGINT,
    available_at  BIGINT NOT NULL,
    lease         BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX queue_item_by_tenant ON queue_item (tenant_id, id);
CREATE INDEX queue_item_by_status ON queue_item (tenant_id, status);
CREATE INDEX queue_item_open ON queue_item (priority DESC, id) WHERE completed_at IS NULL;
CREATE INDEX queue_item_due ON queue_item (available_at) WHERE completed_at IS NULL;
CREATE INDEX queue_item_over ON queue_item (completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX queue_item_busy ON queue_item (session_id) WHERE status = 'processing';
