-- How long things are kept: whether any session still needs a snapshot is asked for each that is in a repository.

CREATE INDEX snapshot_by_id ON snapshot (id);
