//! Which servers a workspace wants, in its `.mcp.json`, and which its session.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// How long the file may be.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;
/// How many servers there may be.
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

/// Reads the file, if there is one, and what the session wants besides. On the same name the session
/// wins. The strings say which entries cannot be used, and why.
pub(super) fn read(
    workspace: &Path,
    of_session: Option<&RawValue>,
) -> (Vec<(String, ServerConfig)>, Vec<String>) {
    let mut problems = Vec::new();
    let mut named = of_file(&workspace.join(".mcp.json")).unwrap_or_else(|problem| {
        problems.push(problem);
        BTreeMap::new()
    });
    match of_session.map_or(Ok(BTreeMap::new()), |raw| serde_json::from_str(raw.get())) {
        Ok(more) => named.extend(more),
        Err(error) => {
            problems.push(format!("the session's MCP servers could not be understood: {error}"));
        }
    }
    let (servers, more) = usable(named);
    problems.extend(more);
    (servers, problems)
}

fn of_file(path: &Path) -> Result<BTreeMap<String, Value>, String> {
    let mut text = String::new();
    // Asked before it is opened, since to open a FIFO may take for ever.
    let read = path.metadata().and_then(|metadata| {
        if !metadata.is_file() {
            return Err(io::Error::other("it is not an ordinary file"));
        }
        File::open(path)?.take(MAX_CONFIG_BYTES).read_to_string(&mut text)
    });
    match read {
        Ok(_) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(format!(".mcp.json could not be read: {error}")),
    }
}

fn parse(text: &str) -> Result<BTreeMap<String, Value>, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Document {
        #[serde(default)]
        mcp_servers: BTreeMap<String, Value>,
    }
    let document: Document = serde_json::from_str(text)
        .map_err(|error| format!(".mcp.json could not be understood: {error}"))?;
    Ok(document.mcp_servers)
}

fn usable(named: BTreeMap<String, Value>) -> (Vec<(String, ServerConfig)>, Vec<String>) {
    let mut servers = Vec::new();
    let mut problems = Vec::new();
    for (name, value) in named {
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
        if value.get("command").is_none() {
            problems.push(format!("MCP server {name}: it has neither a command nor a url"));
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
        let named = parse(
            r#"{"mcpServers": {
                "good": {"command": "node", "args": ["x.js"], "env": {"A": "1"}, "more": true},
                "web": {"type": "http", "url": "https://example.com"},
                "old": {"url": "https://example.com"},
                "bad": {"args": []}
            }}"#,
        );
        let (servers, problems) = usable(named.unwrap());
        let good = ServerConfig {
            command: "node".to_owned(),
            args: vec!["x.js".to_owned()],
            env: [("A".to_owned(), "1".to_owned())].into(),
        };
        assert_eq!(servers, [("good".to_owned(), good)]);
        let names: Vec<&str> = problems.iter().filter_map(|line| line.split(':').next()).collect();
        assert_eq!(names, ["MCP server bad", "MCP server old", "MCP server web"]);
        assert_eq!(problems[0], "MCP server bad: it has neither a command nor a url");
        assert!(parse("[").is_err());
        assert_eq!(parse("{}"), Ok(BTreeMap::new()));
    }

    #[test]
    fn the_session_adds_servers_and_wins_on_the_same_name() {
        let workspace = tempfile::tempdir().unwrap();
        let file = workspace.path().join(".mcp.json");
        let read = |of_session: &str| {
            let of_session: Box<RawValue> = serde_json::from_str(of_session).unwrap();
            let (servers, problems) = read(workspace.path(), Some(&of_session));
            let commands = servers.into_iter().map(|(name, config)| (name, config.command));
            let commands: Vec<String> =
                commands.map(|(name, command)| format!("{name}: {command}")).collect();
            (commands, problems)
        };
        let session = r#"{"b": {"command": "mine"}, "c": {"command": "more"}}"#;
        assert_eq!(read(session).0, ["b: mine", "c: more"]);
        let two = r#"{"mcpServers": {"a": {"command": "its"}, "b": {"command": "its"}}}"#;
        std::fs::write(&file, two).unwrap();
        assert_eq!(read(session), (owned(&["a: its", "b: mine", "c: more"]), Vec::new()));
        // One that cannot be used is still the one that is meant.
        let (servers, problems) = read(r#"{"b": {"url": "https://example.com"}}"#);
        assert_eq!(servers, ["a: its"]);
        assert!(problems[0].starts_with("MCP server b: only servers over stdio"), "{problems:?}");
        let (servers, problems) = read("[1]");
        assert_eq!((servers.len(), problems.len()), (2, 1));
        assert!(problems[0].starts_with("the session's MCP servers"), "{problems:?}");
        std::fs::write(&file, "nonsense").unwrap();
        let (servers, problems) = read(session);
        assert_eq!((servers, problems.len()), (owned(&["b: mine", "c: more"]), 1));
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }
}
