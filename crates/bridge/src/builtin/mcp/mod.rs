//! MCP servers: programs of the workspace that offer tools over their standard streams.

use std::path::Path;

use serde_json::value::RawValue;

use super::tools::{Definition, Outcome};
use crate::exec::Env;
use crate::process::Processes;

/// The servers of a workspace.
pub(super) struct Servers {}

impl Servers {
    pub(super) async fn start(_: &Path, _: &Env, _: &Processes) -> (Self, Vec<String>) {
        (Self {}, Vec::new())
    }

    pub(super) fn definitions(&self) -> Vec<Definition> {
        Vec::new()
    }

    pub(super) fn has(&self, _name: &str) -> bool {
        false
    }

    pub(super) fn is_read_only(&self, _name: &str) -> bool {
        false
    }

    pub(super) async fn call(&self, name: &str, _input: &RawValue) -> Outcome {
        Outcome::error(format!("there is no tool {name}"))
    }

    pub(super) async fn close(&mut self) {}
}
