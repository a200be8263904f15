-- What the HTTP server asks for: settings of agents that are not part of a version, when a credential
-- was last used, and how many sandboxes there are without looking at every session.

-- Beside the versions, which never change: `settings` may be replaced at any time.
ALTER TABLE agent ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';
ALTER TABLE agent ADD COLUMN configured_at BIGINT;

ALTER TABLE credential ADD COLUMN last_used_at BIGINT;

-- As long as what runs, not as everything that ever ran.
CREATE INDEX session_census ON session (sandbox, status) WHERE sandbox <> 'none';
CREATE INDEX run_running ON run (session_id) WHERE status = 'running';
