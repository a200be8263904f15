//! `ash deploy`: sends an agent's directory to the server.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use ash_snapshot::Progress;

use super::bar::Bar;
use super::connect::Context;
use super::exit::{Exit, Mistake};
use super::output::{Screen, note, print};
use super::{Hint, files, format, parse};
use crate::api::{AgentBody, DeployAgent};
use crate::client::Transfer;

/// Deploy an agent from a directory
///
/// Its files are sent to the server, without .git and node_modules. The directory needs a CLAUDE.md.
/// Deploying the same name again makes a new version; sessions keep the version they began with.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent's directory
    path: PathBuf,
    /// The agent's name [default: the directory's]
    #[arg(long, short)]
    name: Option<String>,
    /// A variable for the tools of all its sessions; NAME alone takes its value from the
    /// environment; can be repeated
    #[arg(long, short, value_name = "NAME[=VALUE]", value_parser = parse::variable)]
    env: Vec<parse::Variable>,
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    let name = match args.name {
        Some(name) => name,
        None => name_of(&args.path)?,
    };
    let env = parse::variables(args.env, &ctx.env)?;
    let collected = files::collect(&args.path)?;
    let agent = DeployAgent { name, files: Some(collected.files), env, ..DeployAgent::default() };
    let transfer = Transfer::default();
    let progress = || {
        let (bytes, all_bytes) = transfer.so_far();
        Progress { bytes, all_bytes, ..Progress::default() }
    };
    let work = ctx.client.deploy_agent(&agent, &transfer);
    let agent = Bar::new(&ctx.screen, "deploying", "").during(progress, work).await?;
    if ctx.screen.json {
        Screen::document(&AgentBody { agent })?;
        return Ok(Exit::Ok);
    }
    let (files, bytes) = (format::things(agent.files, "file"), format::bytes(agent.bytes));
    print(&format!("deployed {} version {}: {files}, {bytes}\n", agent.name, agent.version))?;
    if let Some(problem) = &agent.problem {
        note(&format!("warning: its sessions cannot be started: {problem}"));
    }
    Ok(Exit::Ok)
}

/// The name of a directory, as the name of an agent.
fn name_of(path: &Path) -> anyhow::Result<String> {
    let real = std::fs::canonicalize(path)
        .with_context(|| format!("could not open {}", path.display()))?;
    let name = real.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || !name.chars().all(is_fit) {
        let message = format!("`{name}` cannot be the name of an agent");
        return Err(Mistake::Usage(message))
            .context(Hint("give it a name of letters, digits, - and _ with: --name"));
    }
    Ok(name.to_owned())
}
