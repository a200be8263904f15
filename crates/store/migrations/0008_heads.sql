-- What of each session was last put into the cloud, and which cloud that is.

ALTER TABLE session ADD COLUMN cloud_head TEXT;

-- Sessions of which nothing is there, as far as is known.
CREATE INDEX session_without_head ON session (id) WHERE cloud_head IS NULL;

-- One row, once a cloud was used.
CREATE TABLE cloud_use (
    bucket TEXT NOT NULL,
    writer TEXT NOT NULL
);
