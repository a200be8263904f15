//! `ash session send`

use std::time::Duration;

use crate::api::{Content, IfBusy, SendMessage};
use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::output::{Screen, print};
use crate::cli::watch::{self, Form, OnCtrlC};
use crate::cli::{ask, parse, prefix};

/// Send a message, and show the answer as it comes
///
/// If the connection breaks, it is taken up again where it was cut. Ctrl-C leaves, and the run goes
/// on; `ash session interrupt` cuts it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id, or how that begins
    id: String,
    /// What to say; - reads it from standard input
    text: String,
    /// Do not wait for the answer: print the run's id
    #[arg(long)]
    detach: bool,
    /// Bring the session back even if a person put it to rest, or it is broken
    #[arg(long)]
    wake: bool,
    /// What to do when a run goes on: queue or reject
    #[arg(long, value_name = "queue|reject", default_value = "queue",
          value_parser = parse::word::<IfBusy>)]
    if_busy: IfBusy,
    /// Show the events as they come over the wire
    #[arg(long, conflicts_with = "detach")]
    raw: bool,
    /// Another model for this run
    #[arg(long)]
    model: Option<String>,
    /// How often the model may be asked
    #[arg(long, value_name = "N")]
    max_turns: Option<u32>,
    /// What the run may cost, in US dollars
    #[arg(long, value_name = "USD", value_parser = parse::dollars, allow_hyphen_values = true)]
    budget: Option<f64>,
    /// How long the run may take, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    timeout: Option<Duration>,
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    let text = if args.text == "-" { ask::everything()? } else { args.text };
    let id = prefix::session(&ctx.client, &args.id).await?;
    let message = SendMessage {
        content: Content::Text(text),
        include_partial_messages: None,
        model: args.model,
        max_turns: args.max_turns,
        max_budget_usd: args.budget,
        effort: None,
        thinking: None,
        output_format: None,
        permission_mode: None,
        permission_timeout_ms: None,
        allowed_tools: None,
        disallowed_tools: None,
        detach: args.detach,
        if_busy: args.if_busy,
        wake: args.wake,
        timeout_ms: parse::millis(args.timeout),
    };
    if args.detach {
        let sent = ctx.client.send_detached(id, &message).await?;
        if ctx.screen.json {
            Screen::document(&sent)?;
        } else {
            print(&format!("{}\n", sent.run_id))?;
        }
        return Ok(Exit::Ok);
    }
    let form = match (ctx.screen.json, args.raw) {
        (_, true) => Form::Raw,
        (true, false) => Form::Json,
        (false, false) => Form::Answer,
    };
    let mut ctrl_c = watch::ctrl_c()?;
    let stream = ctx.client.send(id, &message);
    let mut typed = ask::person(ctx);
    let typed = typed.as_mut();
    Ok(watch::watch(ctx, id, stream, form, OnCtrlC::Leave, &mut ctrl_c, typed).await?.into())
}
