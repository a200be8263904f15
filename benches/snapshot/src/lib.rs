//! What the measurements of snapshots share with those of sessions.

pub mod trees;
