-- What is not in the cloud yet: as long as the lag, not as everything that was ever captured.

CREATE INDEX snapshot_lagging ON snapshot (session_id) WHERE is_cloud = 0;
