-- What people know versions of agents by, which of them new sessions get, and which are there no more. `version` names
-- content, which never changes; `number` is what people say. Of those with the same number one is not retired.

ALTER TABLE agent ADD COLUMN active_version BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agent_version ADD COLUMN number BIGINT NOT NULL DEFAULT 0;
ALTER TABLE agent_version ADD COLUMN label TEXT NOT NULL DEFAULT '{}';
ALTER TABLE agent_version ADD COLUMN changed_at BIGINT;
ALTER TABLE agent_version ADD COLUMN retired BIGINT NOT NULL DEFAULT 0;

UPDATE agent SET active_version = latest_version;
UPDATE agent_version SET number = version;

CREATE UNIQUE INDEX agent_version_by_number ON agent_version (agent_id, number) WHERE retired = 0;
