-- A session with a long log goes in steps: first nothing of it is found any more, then its entries are removed, then
-- its row.

ALTER TABLE session ADD COLUMN purged SMALLINT NOT NULL DEFAULT 0;
CREATE INDEX session_purged ON session (id) WHERE purged = 1;
