//! Our own agent loop.

pub mod mcp;
mod message;
pub mod model;
pub mod tools;
