-- A session may begin with the history of another one: through this entry its log was written elsewhere, and what
-- runs consumed before it was consumed there.

ALTER TABLE session ADD COLUMN inherited_seq BIGINT NOT NULL DEFAULT 0;
