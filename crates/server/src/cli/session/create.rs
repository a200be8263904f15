//! `ash session create`

use std::time::Duration;

use crate::api::{CreateSession, PermissionMode, SessionBody};
use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::live::Live;
use crate::cli::output::{Screen, print};
use crate::cli::{parse, prefix, suggest};

/// Make a session, and print its id
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The agent to talk to
    agent: String,
    /// What to call it
    #[arg(long)]
    title: Option<String>,
    /// Another model than the agent's
    #[arg(long)]
    model: Option<String>,
    /// A variable for its tools; NAME alone takes its value from the environment; can be repeated
    #[arg(long, short, value_name = "NAME[=VALUE]", value_parser = parse::variable)]
    env: Vec<parse::Variable>,
    /// After how long it ends by itself, such as 12h
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    ttl: Option<Duration>,
    /// After how long without use it is paused, such as 30m
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    idle_timeout: Option<Duration>,
    /// What all its runs together may cost, in US dollars
    #[arg(long, value_name = "USD", value_parser = parse::dollars, allow_hyphen_values = true)]
    budget: Option<f64>,
    /// Something to remember about it; can be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::pair)]
    metadata: Vec<(String, String)>,
    /// What the agent is told beside its own instructions
    #[arg(long, value_name = "TEXT")]
    system_prompt: Option<String>,
    /// What it may do without asking: bypassPermissions, permissionsByAgent, default, acceptEdits or plan
    #[arg(long, value_name = "MODE", value_parser = parse::word::<PermissionMode>)]
    permission_mode: Option<PermissionMode>,
    /// After how long a question that nobody answers is answered with no, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    permission_timeout: Option<Duration>,
    /// How many tokens all its runs together may use
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    budget_tokens: Option<u64>,
    /// A credential its requests are made with: its id, or how that begins; can be repeated
    #[arg(long, value_name = "ID")]
    credential: Vec<String>,
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    let extra_env = parse::variables(args.env, &ctx.env)?;
    let mut credentials = Vec::new();
    for text in &args.credential {
        credentials.push(prefix::credential(&ctx.client, text).await?);
    }
    // The first as clients of every age name it.
    let mut credentials = credentials.into_iter();
    let (credential_id, credential_ids) = (credentials.next(), credentials.collect());
    let new = CreateSession {
        agent: args.agent,
        title: args.title,
        model: args.model,
        extra_env,
        ttl_ms: parse::millis(args.ttl),
        idle_timeout_ms: parse::millis(args.idle_timeout),
        budget_usd: args.budget,
        budget_tokens: args.budget_tokens,
        metadata: parse::map(args.metadata),
        system_prompt: args.system_prompt,
        permission_mode: args.permission_mode,
        permission_timeout_ms: parse::millis(args.permission_timeout),
        credential_id,
        credential_ids,
        ..CreateSession::default()
    };
    let live = Live::new(&ctx.screen, "starting…");
    let session = match live.during(ctx.client.create_session(&new)).await {
        Ok(session) => session,
        Err(error) => return Err(suggest::agent(&ctx.client, &new.agent, error).await),
    };
    if ctx.screen.json {
        Screen::document(&SessionBody { session })?;
    } else {
        // The id alone, so that a script can keep it.
        print(&format!("{}\n", session.id))?;
    }
    Ok(Exit::Ok)
}
