//! Children.

/// All children.
#[derive(Clone, Debug, Default)]
pub struct Processes;
