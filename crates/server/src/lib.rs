//! The `ash` executable, as a library: the command line and what it starts.

mod agents;
pub mod api;
mod attachments;
pub mod beside;
pub mod cli;
pub mod client;
mod cloud;
pub mod config;
mod credentials;
pub mod discovery;
pub mod doctor;
pub mod egress;
pub mod http;
pub mod model;
pub mod reference;
mod runtime;
pub mod runtimes;
pub mod secret;
pub mod serve;
mod sessions;
