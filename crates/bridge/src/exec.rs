//! Commands.

/// The environment of tools.
#[derive(Clone, Debug, Default)]
pub struct Env;
