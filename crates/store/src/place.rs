//! Where snapshots lie.

/// Where the bytes of a snapshot lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// On this machine.
    pub local: bool,
    /// In the cloud.
    pub cloud: bool,
}

/// Where bytes of a snapshot can lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this machine.
    Local,
    /// In the cloud.
    Cloud,
}
