//! What a session says of itself, where a program of the original looks for it: in files of the workspace.
//!
//! `systemPrompt` is written over `CLAUDE.md`, and `mcpServers` are merged into `.mcp.json`, before the program is started.
//! From then on the files are the agent's. So what was written is remembered in the home, and it is written again only if
//! the session says something else, or the file is gone. Each appears whole, and nothing is written through a link.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::place;
use crate::questions::new_id;
use crate::settings::Settings;

const INSTRUCTIONS: &str = "CLAUDE.md";
const SERVERS: &str = ".mcp.json";

/// What was written, in the home. The server removes it where a workspace begins anew.
const REMEMBERED: &str = ".ash-told.json";
const MAX_REMEMBERED_BYTES: u64 = 4 * 1024;

/// How long a list of servers may be that more are added to.
const MAX_SERVERS_BYTES: u64 = 1024 * 1024;

/// Digests of the settings that were written, by the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Told {
    #[serde(rename = "CLAUDE.md")]
    instructions: Option<String>,
    #[serde(rename = ".mcp.json")]
    servers: Option<String>,
}

/// Writes down what the session says, where that was not done yet. Says what could not be, for a person.
pub(super) fn tell(settings: &Settings) -> Vec<String> {
    let Settings { workspace, home, system_prompt, mcp_servers, .. } = settings;
    let remembered = home.join(REMEMBERED);
    let before = recall(&remembered);
    let mut told = before.clone();
    let mut problems = Vec::new();

    let path = workspace.join(INSTRUCTIONS);
    let prompt = system_prompt.as_deref();
    let written = once(&path, prompt, &mut told.instructions, |prompt| instruct(&path, prompt));
    if let Err(why) = written {
        problems.push(format!("systemPrompt of the session is not in {INSTRUCTIONS}: {why}"));
    }

    let path = workspace.join(SERVERS);
    let servers = mcp_servers.as_deref().map(RawValue::get);
    let written = once(&path, servers, &mut told.servers, |servers| add(&path, servers));
    if let Err(why) = written {
        problems.push(format!("mcpServers of the session are not in {SERVERS}: {why}"));
    }

    if told != before
        && let Err(error) = remember(&remembered, &told)
    {
        problems.push(format!(
            "what was written to {INSTRUCTIONS} and {SERVERS} is written again at the next start: {error}"
        ));
    }
    problems
}

/// Has something written, unless it was already. One that failed is tried again with the next start.
fn once(
    path: &Path,
    said: Option<&str>,
    told: &mut Option<String>,
    write: impl FnOnce(&str) -> Result<(), String>,
) -> Result<(), String> {
    let Some(said) = said else {
        *told = None;
        return Ok(());
    };
    let digest = blake3::hash(said.as_bytes()).to_hex().to_string();
    if told.as_ref() == Some(&digest) && !is_missing(path) {
        return Ok(());
    }
    write(said)?;
    *told = Some(digest);
    Ok(())
}

fn instruct(path: &Path, prompt: &str) -> Result<(), String> {
    // Whatever else is there is replaced, a link as well.
    let found = read(path, prompt.len() as u64).ok().flatten();
    if found.as_deref() == Some(prompt.as_bytes()) {
        return Ok(());
    }
    put(path, prompt.as_bytes()).map_err(|error| error.to_string())
}

/// Adds servers to those that are there. On the same name the session wins.
fn add(path: &Path, servers: &str) -> Result<(), String> {
    let servers: Map<String, Value> = serde_json::from_str(servers)
        .map_err(|error| format!("they are not understood: {error}"))?;
    let found = read(path, MAX_SERVERS_BYTES).map_err(|error| error.to_string())?;
    let before: Map<String, Value> = match &found {
        Some(text) => serde_json::from_slice(text)
            .map_err(|error| format!("what is there is not understood: {error}"))?,
        None => Map::new(),
    };
    let mut after = before.clone();
    let named = after.entry("mcpServers").or_insert(Value::Null);
    if named.is_null() {
        *named = json!({});
    }
    let Value::Object(named) = named else {
        return Err("what is there is not understood: its mcpServers are no object".to_owned());
    };
    named.extend(servers);
    if after == before {
        return Ok(());
    }
    let text = format!("{:#}\n", Value::Object(after));
    put(path, text.as_bytes()).map_err(|error| error.to_string())
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// What is in a file, if there is one. It is the agent's, and may be anything.
fn read(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(found) if !found.is_file() => {
            return Err(io::Error::other("what is there is no ordinary file"));
        }
        Ok(found) if found.len() > most => {
            return Err(io::Error::other(format!("what is there has more than {most} bytes")));
        }
        Ok(_) => {}
    }
    // Should it be something else by now, it is not followed, and nobody waits for it.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let mut content = Vec::new();
    file.take(most).read_to_end(&mut content)?;
    Ok(Some(content))
}

/// Puts a file into its place, whole and for good.
fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let beside = directory.join(format!(".ash-{}.tmp", new_id()?));
    let placed = fill(&beside, content).and_then(|()| fs::rename(&beside, path));
    if let Err(error) = placed {
        // It may not have been made.
        let _not_there = fs::remove_file(&beside);
        return Err(error);
    }
    File::open(directory)?.sync_all()
}

fn fill(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn recall(path: &Path) -> Told {
    let found = read(path, MAX_REMEMBERED_BYTES).ok().flatten();
    found.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

fn remember(path: &Path, told: &Told) -> io::Result<()> {
    place::file(path)?;
    put(path, &serde_json::to_vec(told)?)
}

#[cfg(test)]
mod test;
