//! `ash agent`: what is deployed.

use ash_core::time::Clock as _;
use ash_engine::SystemClock;
use serde_json::json;

use super::columns::fitted;
use super::connect::Context;
use super::exit::Exit;
use super::output::{Screen, note, print};
use super::{format, suggest};
use crate::api::Agents;

/// See and delete agents
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the agents
    List,
    /// Show one agent and its versions
    Info {
        /// Its name
        name: String,
    },
    /// Delete an agent and end its sessions
    Delete {
        /// Its name
        name: String,
    },
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    match args.command {
        Command::List => list(ctx).await,
        Command::Info { name } => info(ctx, &name).await,
        Command::Delete { name } => {
            let deleted = match ctx.client.delete_agent(&name).await {
                Ok(deleted) => deleted,
                Err(error) => return Err(suggest::agent(&ctx.client, &name, error).await),
            };
            if ctx.screen.json {
                Screen::document(&deleted)?;
            } else {
                print(&format!("deleted {name}\n"))?;
            }
            Ok(Exit::Ok)
        }
    }
}

async fn list(ctx: &Context) -> anyhow::Result<Exit> {
    let agents = ctx.client.agents().await?;
    if ctx.screen.json {
        Screen::document(&Agents { agents })?;
        return Ok(Exit::Ok);
    }
    if agents.is_empty() {
        note("there are no agents; deploy one with: ash deploy <directory>");
        return Ok(Exit::Ok);
    }
    let now = SystemClock.now();
    let rows = agents.iter().map(|agent| {
        vec![
            agent.name.clone(),
            agent.version.to_string(),
            agent.runtime.clone(),
            agent.model.clone().unwrap_or_default(),
            format::count(agent.files),
            format::bytes(agent.bytes),
            format::ago(&agent.updated_at, now),
        ]
    });
    let headings = ["NAME", "VERSION", "RUNTIME", "MODEL", "FILES", "SIZE", "CHANGED"];
    let gives_way = (["MODEL"].as_slice(), ["FILES", "SIZE", "RUNTIME", "MODEL"].as_slice());
    print(&fitted(&headings, &rows.collect::<Vec<_>>(), ctx.screen.room(), gives_way))?;
    Ok(Exit::Ok)
}

async fn info(ctx: &Context, name: &str) -> anyhow::Result<Exit> {
    let agent = match ctx.client.agent(name).await {
        Ok(agent) => agent,
        Err(error) => return Err(suggest::agent(&ctx.client, name, error).await),
    };
    let versions = ctx.client.agent_versions(name).await?;
    if ctx.screen.json {
        Screen::document(&json!({ "agent": agent, "versions": versions }))?;
        return Ok(Exit::Ok);
    }
    let now = SystemClock.now();
    let env: Vec<&str> = agent.env.keys().map(String::as_str).collect();
    print(&format::fields(&[
        ("name", agent.name),
        ("version", agent.version.to_string()),
        ("id", agent.id.to_string()),
        ("runtime", agent.runtime),
        ("problem", agent.problem.unwrap_or_default()),
        ("model", agent.model.unwrap_or_default()),
        ("path", agent.path),
        ("files", format!("{}, {}", format::count(agent.files), format::bytes(agent.bytes))),
        ("variables", env.join(", ")),
        ("created", agent.created_at),
        ("changed", agent.updated_at),
    ]))?;
    let rows = versions.iter().map(|version| {
        vec![
            version.version_number.to_string(),
            if version.is_active { "active".to_owned() } else { String::new() },
            format::count(version.files),
            format::bytes(version.bytes),
            format::ago(&version.created_at, now),
        ]
    });
    let rows: Vec<_> = rows.collect();
    print(&format!("\n{}", format::table(&["VERSION", "", "FILES", "SIZE", "AGE"], &rows)))?;
    Ok(Exit::Ok)
}
