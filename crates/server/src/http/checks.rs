//! What sessions may be told, and what is too long or too much.

use std::collections::BTreeMap;

use ash_engine::agent::Runtime;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::extract::{length, range};
use crate::api::{Block, CreateSession, MAX_TEXT_CHARS, McpServer, UpdateConfig};

/// The longest time that a session can be told to live or to be idle: a year.
const LONGEST_MS: u64 = 31_536_000_000;

/// Refuses what is longer, shorter, larger or smaller than it may be.
pub(super) fn check(body: &CreateSession) -> Result<(), ApiError> {
    if body.agent.is_empty() {
        return Err(ApiError::invalid("agent is empty"));
    }
    length("agent", &body.agent, 255)?;
    check_model(body.model.as_deref())?;
    check_prompt(body.system_prompt.as_deref())?;
    length("initialAgent", body.initial_agent.as_deref().unwrap_or_default(), 255)?;
    check_agents(body.subagents.as_ref(), body.betas.as_deref())?;
    check_words(body.title.as_deref(), body.metadata.as_ref())?;
    check_env(body.extra_env.as_ref())?;
    check_servers(body.mcp_servers.as_ref())?;
    check_tools(body.allowed_tools.as_deref(), body.disallowed_tools.as_deref())?;
    check_times(body.idle_timeout_ms, body.ttl_ms)?;
    check_permission_timeout(body.permission_timeout_ms)?;
    body.budget_usd.map(|usd| range("budgetUsd", usd, 0.0, 1_000_000.0)).transpose()?;
    body.budget_tokens.map(|of| range("budgetTokens", of, 0, 1_000_000_000_000)).transpose()?;
    Ok(())
}

/// A server is a program that is started, or it is somewhere.
fn check_servers(servers: Option<&BTreeMap<String, McpServer>>) -> Result<(), ApiError> {
    for (name, server) in servers.into_iter().flatten() {
        let is_said = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
        let wrong = match (is_said(&server.command), is_said(&server.url)) {
            (true, false) | (false, true) => continue,
            (false, false) => "has neither a command nor a url",
            (true, true) => "has a command and a url, and can be only one of them",
        };
        return Err(ApiError::invalid(format!("mcpServers.{} {wrong}", shown(name))));
    }
    let size = serde_json::to_vec(&servers).map_err(ApiError::internal)?.len();
    range("the size of mcpServers", size, 0, MAX_VARIABLE).map(drop)
}

/// Lists of tools are told to a program on its command line: they must fit there.
pub(super) fn check_tools(
    allowed: Option<&[String]>,
    disallowed: Option<&[String]>,
) -> Result<(), ApiError> {
    for (name, tools) in [("allowedTools", allowed), ("disallowedTools", disallowed)] {
        let size = tools.unwrap_or_default().iter().map(|tool| tool.len() + 1).sum();
        range(&format!("the size of {name}"), size, 0, MAX_VARIABLE)?;
    }
    Ok(())
}

/// Refuses servers that a runtime cannot speak to: said now, not in the first turn.
pub(super) fn check_reachable(
    runtime: Runtime,
    servers: Option<&BTreeMap<String, McpServer>>,
) -> Result<(), ApiError> {
    let is_far = |(_, server): &(&String, &McpServer)| server.url.is_some();
    match (runtime, servers.into_iter().flatten().find(is_far)) {
        (Runtime::Builtin, Some((name, _))) => Err(ApiError::invalid(format!(
            "mcpServers.{} has a url, and the builtin agent speaks only to servers that are started with a command: \
             give it a command, or use the runtime claude",
            shown(name)
        ))),
        (Runtime::Builtin | Runtime::Claude | Runtime::Legacy | Runtime::Acp, _) => Ok(()),
    }
}

/// As much of a name as fits a sentence.
fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

/// Instructions, if there are any, say something.
pub(super) fn check_prompt(system_prompt: Option<&str>) -> Result<(), ApiError> {
    match system_prompt {
        Some(prompt) if prompt.trim().is_empty() => {
            Err(ApiError::invalid("systemPrompt is empty; leave it out to have the agent's own"))
        }
        prompt => length("systemPrompt", prompt.unwrap_or_default(), 1_000_000),
    }
}

pub(super) fn check_times(idle_timeout: Option<u64>, ttl: Option<u64>) -> Result<(), ApiError> {
    for (name, milliseconds) in [("idleTimeoutMs", idle_timeout), ("ttlMs", ttl)] {
        milliseconds.map(|ms| range(name, ms, 1_000, LONGEST_MS)).transpose()?;
    }
    Ok(())
}

pub(super) fn check_permission_timeout(timeout: Option<u64>) -> Result<(), ApiError> {
    timeout.map(|ms| range("permissionTimeoutMs", ms, 100, 604_800_000)).transpose()?;
    Ok(())
}

pub(super) fn check_update(body: &UpdateConfig) -> Result<(), ApiError> {
    check_model(body.model.as_deref())?;
    length("initialAgent", body.initial_agent.as_deref().unwrap_or_default(), 255)?;
    check_permission_timeout(body.permission_timeout_ms)?;
    check_agents(body.subagents.as_ref(), body.betas.as_deref())?;
    check_tools(body.allowed_tools.as_deref(), body.disallowed_tools.as_deref())?;
    check_words(body.title.as_deref(), body.metadata.as_ref())
}

/// The agents of an agent, and the beta features, are told to a program on its command line: they must fit there.
fn check_agents(
    subagents: Option<&BTreeMap<String, Value>>,
    betas: Option<&[String]>,
) -> Result<(), ApiError> {
    for (name, agent) in subagents.into_iter().flatten() {
        if !agent.is_object() {
            return Err(ApiError::invalid(format!("The sub-agent {name:.64} is not an object")));
        }
    }
    let size = serde_json::to_vec(&subagents).map_err(ApiError::internal)?.len();
    range("the size of subagents", size, 0, MAX_VARIABLE)?;
    let betas = betas.unwrap_or_default();
    range("the number of betas", betas.len(), 0, 100)?;
    betas.iter().try_for_each(|beta| length("a beta", beta, 255))
}

pub(super) fn check_model(model: Option<&str>) -> Result<(), ApiError> {
    match model {
        Some("") => Err(ApiError::invalid("model is empty")),
        Some(model) => length("model", model, 100),
        None => Ok(()),
    }
}

pub(super) fn check_words(
    title: Option<&str>,
    metadata: Option<&BTreeMap<String, String>>,
) -> Result<(), ApiError> {
    length("title", title.unwrap_or_default(), 500)?;
    let bytes: usize =
        metadata.into_iter().flatten().map(|(name, value)| name.len() + value.len()).sum();
    range("the size of metadata", bytes, 0, 65_536).map(drop)
}

/// What a variable may have at the most: no program can be given a longer one.
pub(super) const MAX_VARIABLE: usize = 100_000;

/// Variables are set in the environment of programs: their names and values must fit there.
pub(super) fn check_env(env: Option<&BTreeMap<String, String>>) -> Result<(), ApiError> {
    for (name, value) in env.into_iter().flatten() {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
        if name.len() + value.len() > MAX_VARIABLE {
            let message = format!("The variable {name:.64} has more than {MAX_VARIABLE} bytes");
            return Err(ApiError::invalid(message));
        }
        if !is_name || value.contains('\0') {
            let message =
                format!("{name:?} cannot be the name of a variable, or has a value with a NUL");
            return Err(ApiError::invalid(message));
        }
    }
    Ok(())
}

/// What pictures can be.
const PICTURES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// Refuses a part of a prompt that no model could read.
pub(super) fn check_block(number: usize, block: &Block) -> Result<(), ApiError> {
    let name = |field: &str| format!("content[{number}].{field}");
    match block {
        Block::Text { text } if text.is_empty() => {
            Err(ApiError::invalid(format!("{} is empty", name("text"))))
        }
        Block::Text { text } => length(&name("text"), text, MAX_TEXT_CHARS),
        Block::Image { source } => check_source(&name("source"), source, Some(&PICTURES)),
        Block::Document { source } => check_source(&name("source"), source, None),
    }
}

/// Refuses a source that cannot be one: bytes in base64, an address, a file of the provider, or text. Those of a picture
/// are of one of its types.
fn check_source(
    name: &str,
    source: &Map<String, Value>,
    pictures: Option<&[&str]>,
) -> Result<(), ApiError> {
    let field = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or_default();
    let wrong = |why: String| Err(ApiError::invalid(format!("{name}.{why}")));
    let missing = |field: &str| wrong(format!("{field} is missing"));
    let one_of = |field: &str, found: &str, known: &[&str]| {
        let known = known.join(", ");
        match found {
            "" => wrong(format!("{field} is missing; known are {known}")),
            found => wrong(format!("{field} \"{found:.40}\" is not known; known are {known}")),
        }
    };
    let media_type = field("media_type");
    match (field("type"), pictures) {
        ("base64", Some(known)) if !known.contains(&media_type) => {
            one_of("media_type", media_type, known)
        }
        ("base64", None) if !media_type.contains('/') => {
            wrong("media_type must be a type like application/pdf".to_owned())
        }
        ("base64", _) if field("data").is_empty() => missing("data"),
        ("base64", _) => match super::base64::check_strict(field("data")) {
            Ok(()) => Ok(()),
            Err(why) => wrong(format!("data is not base64: {why}")),
        },
        ("url", _) if !field("url").starts_with("http") => {
            wrong("url must begin with http".to_owned())
        }
        ("file", _) if field("file_id").is_empty() => missing("file_id"),
        ("text", None) if field("data").is_empty() => missing("data"),
        ("url" | "file", _) | ("text" | "content", None) => Ok(()),
        (kind, Some(_)) => one_of("type", kind, &["base64", "url", "file"]),
        (kind, None) => one_of("type", kind, &["base64", "url", "file", "text", "content"]),
    }
}
