//! `.mcp.json`: which servers a workspace wants.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// How long the file may be.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;
/// How many servers a workspace may have.
const MAX_SERVERS: usize = 32;

/// How a server is started.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ServerConfig {
    pub(super) command: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
}

/// Reads the file, if there is one. The strings say which entries cannot be used, and why.
pub(super) fn read(workspace: &Path) -> (Vec<(String, ServerConfig)>, Vec<String>) {
    let mut text = String::new();
    let path = workspace.join(".mcp.json");
    // Asked before it is opened, since to open a FIFO may take for ever.
    let read = path.metadata().and_then(|metadata| {
        if !metadata.is_file() {
            return Err(io::Error::other("it is not an ordinary file"));
        }
        File::open(&path)?.take(MAX_CONFIG_BYTES).read_to_string(&mut text)
    });
    match read {
        Ok(_) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Default::default(),
        Err(error) => (Vec::new(), vec![format!(".mcp.json could not be read: {error}")]),
    }
}

fn parse(text: &str) -> (Vec<(String, ServerConfig)>, Vec<String>) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Document {
        #[serde(default)]
        mcp_servers: BTreeMap<String, Value>,
    }
    let document: Document = match serde_json::from_str(text) {
        Ok(document) => document,
        Err(error) => {
            return (Vec::new(), vec![format!(".mcp.json could not be understood: {error}")]);
        }
    };
    let mut servers = Vec::new();
    let mut problems = Vec::new();
    for (name, value) in document.mcp_servers {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or("stdio");
        if kind != "stdio" || value.get("url").is_some() {
            problems.push(format!(
                "MCP server {name}: only servers over stdio are supported, and this is one over {}",
                if kind == "stdio" { "http" } else { kind }
            ));
            continue;
        }
        if servers.len() >= MAX_SERVERS {
            problems.push(format!("MCP server {name}: there are more than {MAX_SERVERS}"));
            continue;
        }
        match serde_json::from_value(value) {
            Ok(config) => servers.push((name, config)),
            Err(error) => problems.push(format!("MCP server {name}: {error}")),
        }
    }
    (servers, problems)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_said_and_the_rest_is_used() {
        let (servers, problems) = parse(
            r#"{"mcpServers": {
                "good": {"command": "node", "args": ["x.js"], "env": {"A": "1"}, "more": true},
                "web": {"type": "http", "url": "https://example.com"},
                "old": {"url": "https://example.com"},
                "bad": {"args": []}
            }}"#,
        );
        let good = ServerConfig {
            command: "node".to_owned(),
            args: vec!["x.js".to_owned()],
            env: [("A".to_owned(), "1".to_owned())].into(),
        };
        assert_eq!(servers, [("good".to_owned(), good)]);
        let names: Vec<&str> = problems.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(names, ["MCP server bad", "MCP server old", "MCP server web"]);
        assert_eq!(parse("[").1.len(), 1);
        assert_eq!(parse("{}"), (Vec::new(), Vec::new()));
    }
}
