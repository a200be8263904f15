//! What the agent can do, until the real tools are here.

use std::path::PathBuf;

use serde_json::json;
use serde_json::value::RawValue;

use crate::exec::Env;
use crate::process::Processes;

/// A tool, as the model is told about it.
#[derive(Debug)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What it takes.
    pub input_schema: serde_json::Value,
}

/// What became of a call.
#[derive(Debug)]
pub struct Outcome {
    /// Content blocks.
    pub content: Vec<serde_json::Value>,
    /// Whether it went wrong.
    pub is_error: bool,
    /// Files that were changed.
    pub touched: Vec<String>,
}

/// All tools.
#[derive(Debug)]
pub struct Toolbox;

impl Toolbox {
    /// Opens it.
    pub async fn open(_: PathBuf, _: Env, _: Processes) -> (Self, Vec<String>) {
        (Self, Vec::new())
    }

    /// What there is.
    pub fn definitions(&self) -> Vec<Definition> {
        Vec::new()
    }

    /// Whether a tool changes nothing.
    pub fn is_read_only(&self, name: &str) -> bool {
        name == "read"
    }

    /// Calls one.
    pub async fn call(&self, name: &str, _: &RawValue) -> Outcome {
        if name == "hang" {
            std::future::pending::<()>().await;
        }
        Outcome {
            content: vec![json!({ "type": "text", "text": format!("no tool {name}") })],
            is_error: true,
            touched: Vec::new(),
        }
    }

    /// Closes it.
    pub async fn close(&mut self) {}
}
