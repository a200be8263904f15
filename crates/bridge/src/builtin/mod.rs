//! Our own agent loop.

pub mod mcp;
pub mod model;
pub mod tools;
