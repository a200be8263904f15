//! `ash logs`: what a session's sandbox says about itself.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::connect::Context;
use super::exit::{Exit, Mistake};
use super::output::{Reader, Screen, Style, look_for_reader, plain, show};
use super::{Hint, prefix, watch};
use crate::api::{Log, LogGap, LogGapReason, Logs, SessionStatus};

/// How often it is asked for more.
const ASK: Duration = Duration::from_millis(500);

/// Show what a session's sandbox says about itself: its starts and ends, and what is printed beside the conversation
///
/// The server's own log goes to its standard error, and from there to wherever it was started, such as the journal.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id, or how that begins
    id: Option<String>,
    /// Wait for more
    #[arg(long, short)]
    follow: bool,
}

pub(super) async fn run(ctx: &Context, args: &Args) -> anyhow::Result<Exit> {
    let Some(id) = &args.id else {
        let message = "say of which session; the server's own log goes to its standard error";
        return Err(Mistake::Usage(message.to_owned())).context(Hint(
            "ash ps shows the sessions; a server under systemd is read with: journalctl -fu ash",
        ));
    };
    let id = prefix::session(&ctx.client, id).await?;
    if ctx.screen.json && !args.follow {
        Screen::document(&ctx.client.logs(id, None).await?)?;
        return Ok(Exit::Ok);
    }
    let mut ctrl_c = watch::ctrl_c()?;
    let mut ticks = tokio::time::interval(ASK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut after, mut is_quiet) = (None, false);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = ctrl_c.recv() => return Ok(Exit::CtrlC),
        }
        if look_for_reader() == Reader::Gone {
            return Ok(Exit::Ok);
        }
        // Asked first: what was said at the end is there by then.
        let is_over = is_quiet && has_ended(ctx, id).await;
        let Logs { logs, gap, .. } = match ctx.client.logs(id, after).await {
            Ok(logs) => logs,
            // The server starts again, maybe.
            Err(error) if args.follow && after.is_some() && error.is_transient() => continue,
            Err(error) => return Err(error.into()),
        };
        let mut text = gap.map(|gap| missing(ctx, gap)).unwrap_or_default();
        for log in &logs {
            text.push_str(&line(ctx, log));
        }
        after = logs.last().map(|log| log.index).or(after);
        is_quiet = logs.is_empty();
        if show(&text)? == Reader::Gone || !args.follow || (is_over && is_quiet) {
            return Ok(Exit::Ok);
        }
    }
}

/// Whether there will be no sandbox of a session any more.
async fn has_ended(ctx: &Context, id: Uuid) -> bool {
    let session = ctx.client.session(id).await;
    session.is_ok_and(|session| session.status == SessionStatus::Ended)
}

/// That some lines cannot be shown.
fn missing(ctx: &Context, gap: LogGap) -> String {
    if ctx.screen.json {
        return format!("{}\n", serde_json::json!({ "gap": gap }));
    }
    let why = match gap.reason {
        LogGapReason::LeftOut => "there were too many lines, and some are not kept",
        LogGapReason::OtherEpoch => "the session was brought here, and what was said before stayed",
        LogGapReason::BeyondEnd => "the server has lost what was said, and begins again",
    };
    format!("{}\n", ctx.screen.paint(Style::Red, &format!("({why})")))
}

fn line(ctx: &Context, log: &Log) -> String {
    if ctx.screen.json {
        return format!("{}\n", serde_json::json!(log));
    }
    let style = match log.level.as_str() {
        "system" => Style::Yellow,
        _ => Style::Dim,
    };
    let level = ctx.screen.paint(style, &format!("{:<6}", plain(&log.level)));
    format!("{level} {}\n", plain(&log.text).replace('\n', " "))
}
