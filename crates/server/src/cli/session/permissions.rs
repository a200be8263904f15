//! `ash session permissions`, `allow` and `deny`

use std::collections::BTreeMap;

use anyhow::Context as _;
use ash_core::time::Clock as _;
use ash_engine::SystemClock;
use serde_json::Value;
use uuid::Uuid;

use super::lifecycle::Which;
use crate::api::{Behavior, DecidePermission, Permission, Permissions};
use crate::cli::columns::fitted;
use crate::cli::connect::Context;
use crate::cli::exit::{Exit, Mistake};
use crate::cli::output::{Screen, note, plain, print};
use crate::cli::{Hint, format, prefix, render};

/// Let the agent do what it asks about
#[derive(Debug, clap::Args)]
pub(super) struct Allow {
    /// The session's id, or how that begins
    id: String,
    /// The question's id, or how that begins
    permission: String,
    /// Have it done with this instead: a JSON object
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
}

/// Do not let the agent do what it asks about
#[derive(Debug, clap::Args)]
pub(super) struct Deny {
    /// The session's id, or how that begins
    id: String,
    /// The question's id, or how that begins
    permission: String,
    /// Why not, for the agent
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

pub(super) async fn list(ctx: &Context, which: &Which) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &which.id).await?;
    let permissions = ctx.client.permissions(id).await?;
    if ctx.screen.json {
        Screen::document(&Permissions { permissions })?;
        return Ok(Exit::Ok);
    }
    if permissions.is_empty() {
        note("nothing is asked");
        return Ok(Exit::Ok);
    }
    let now = SystemClock.now();
    let row = |permission: &Permission| {
        vec![
            permission.id.to_string(),
            plain(&render::tool(&permission.tool, Some(&permission.input))),
            permission.decided.map(word).unwrap_or_default().to_owned(),
            format::ago(&permission.asked_at, now),
        ]
    };
    let rows: Vec<_> = permissions.iter().map(row).collect();
    let headings = ["ID", "WHAT", "ANSWER", "AGE"];
    print(&fitted(&headings, &rows, ctx.screen.room(), (&["WHAT", "ID"], &["AGE", "ANSWER"])))?;
    Ok(Exit::Ok)
}

pub(super) async fn allow(ctx: &Context, args: Allow) -> anyhow::Result<Exit> {
    let input = args.input.as_deref().map(object).transpose()?;
    let decision = DecidePermission { behavior: Behavior::Allow, input, message: None };
    decide(ctx, &args.id, &args.permission, decision).await
}

pub(super) async fn deny(ctx: &Context, args: Deny) -> anyhow::Result<Exit> {
    let decision =
        DecidePermission { behavior: Behavior::Deny, input: None, message: args.message };
    decide(ctx, &args.id, &args.permission, decision).await
}

async fn decide(
    ctx: &Context,
    session: &str,
    permission: &str,
    decision: DecidePermission,
) -> anyhow::Result<Exit> {
    let session = prefix::session(&ctx.client, session).await?;
    let permission = which(ctx, session, permission).await?;
    let decided = ctx.client.decide(session, permission, &decision).await?;
    if ctx.screen.json {
        Screen::document(&decided)?;
    } else {
        print(&format!("{}: {}\n", decided.id, word(decided.behavior)))?;
    }
    Ok(Exit::Ok)
}

/// A question by its id, or by how that begins among those that are open.
async fn which(ctx: &Context, session: Uuid, text: &str) -> anyhow::Result<Uuid> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let open = ctx.client.permissions(session).await?;
    let mut fitting = open.iter().filter(|open| open.id.to_string().starts_with(text));
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only.id),
        (Some(_), Some(_)) => {
            Err(Mistake::Usage(format!("several questions begin with {text}")).into())
        }
        (None, _) => Err(Mistake::Usage(format!("no open question begins with {text}")))
            .context(Hint("ash session permissions lists them")),
    }
}

fn object(text: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    serde_json::from_str(text)
        .map_err(|error| Mistake::Usage(format!("--input is no JSON object: {error}")).into())
}

fn word(behavior: Behavior) -> &'static str {
    match behavior {
        Behavior::Allow => "allowed",
        Behavior::Deny => "denied",
    }
}
