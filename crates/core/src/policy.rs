//! How long each thing may take, and how much of it there may be.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::time::Timestamp;

/// The most prompts that may wait behind the running one.
pub const MAX_QUEUED_RUNS: usize = 32;

/// How often a prompt is handed to a sandbox that does not begin it.
pub const MAX_DELIVERIES: u32 = 3;

/// How many questions of an agent may be open at once; what it asks beyond that is not recorded.
pub const MAX_OPEN_QUESTIONS: usize = 64;

/// How many questions that are over a session remembers, to tell what became of them.
pub const MAX_CLOSED_QUESTIONS: usize = 16;

/// How often a stop is asked for before whoever waits for it is told that the sandbox is stuck.
pub const MAX_STOPS_AWAITED: u32 = 3;

/// The most text that is gathered into one entry of the log.
pub const MAX_GATHERED_BYTES: usize = 64 * 1024;

/// The largest report that is taken into the log; of a larger one only its size is kept.
pub const MAX_REPORT_BYTES: usize = 8 * 1024 * 1024;

/// How long each transient state may last, and how many sandboxes there may be. Every duration is
/// longer than zero: a deadline that is already over when it is set would be observed for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// From asking for a sandbox to its bridge answering.
    pub start_timeout: Duration,
    /// From asking for a stop to asking again.
    pub stop_timeout: Duration,
    /// From asking for a freeze or a thaw to giving the sandbox up.
    pub freeze_timeout: Duration,
    /// From handing a prompt over to handing it over again.
    pub delivery_timeout: Duration,
    /// From interrupting a run to killing the sandbox that does not obey.
    pub interrupt_grace: Duration,
    /// How long one run may take, unless its prompt says otherwise.
    pub turn_timeout: Duration,
    /// How long an active session may do nothing before it is paused.
    pub idle_timeout: Duration,
    /// How long a frozen sandbox is kept before the session goes cold.
    pub evict_after: Duration,
    /// How often what a live sandbox works on is captured, if nothing else is a reason to.
    pub persist_interval: Duration,
    /// How long nothing may be done from outside before what was done is captured.
    pub persist_debounce: Duration,
    /// From asking for a capture to asking again.
    pub persist_timeout: Duration,
    /// How long the files of a session stay where its sandboxes had them when nobody uses it and a snapshot has
    /// them too.
    pub cold_ttl: Duration,
    /// How long an ended session is remembered.
    pub retention: Duration,
    /// How many snapshots of a session are kept; all, if nobody says.
    pub snapshot_keep: Option<NonZeroU32>,
    /// How long after its last use the snapshots of a session stay on this machine if the cloud has them too; for
    /// ever, if nobody says.
    pub local_snapshot_ttl: Option<Duration>,
    /// With less room than this on the disk, files that a snapshot has too are removed earlier. Zero: never.
    pub min_free_bytes: u64,
    /// How many sandboxes may be alive at once, frozen ones too.
    pub max_sandboxes: NonZeroU32,
    /// How many of them may wait for a session.
    pub max_prewarmed: u32,
    /// How long somebody waits for a place while all are taken by sandboxes that work.
    pub place_patience: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(10),
            freeze_timeout: Duration::from_secs(10),
            delivery_timeout: Duration::from_secs(10),
            interrupt_grace: Duration::from_secs(10),
            turn_timeout: Duration::from_secs(60 * 60),
            idle_timeout: Duration::from_secs(30 * 60),
            evict_after: Duration::from_secs(30 * 60),
            persist_interval: Duration::from_secs(5 * 60),
            persist_debounce: Duration::from_secs(2),
            persist_timeout: Duration::from_secs(10 * 60),
            cold_ttl: Duration::from_secs(2 * 60 * 60),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            snapshot_keep: None,
            local_snapshot_ttl: None,
            min_free_bytes: 0,
            max_sandboxes: NonZeroU32::new(1_000).expect("a thousand is not zero"),
            max_prewarmed: 16,
            place_patience: Duration::from_secs(3),
        }
    }
}

/// What every decision may depend on beside the session itself.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The time.
    pub now: Timestamp,
    /// How long things may take.
    pub policy: &'a Policy,
}
