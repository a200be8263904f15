//! The `ash` executable, as a library: the command line and what it starts.

pub mod beside;
pub mod cli;
pub mod egress;
pub mod model;
