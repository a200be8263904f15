//! `ash session attach`

use std::str::FromStr;

use tokio::signal::unix::Signal;
use tokio::time::Instant;

use crate::api::{Run, Session, SessionStatus, Usage};
use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::follow::{self, Following};
use crate::cli::prefix;
use crate::cli::talk::{self, Beginning, Stay};
use crate::cli::transcript::status::Status;
use crate::cli::watch::{self, OnCtrlC, Watched};
use crate::client::{Cursor, Until};

/// Watch a session as it goes on, and talk to it
///
/// Shows the last turn, and then what happens. On a terminal, a line that is typed is sent as a message; Ctrl-C
/// asks the run to stop, and leaves when it is pressed again; Ctrl-D leaves, and the run goes on.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id, or how that begins
    id: String,
    /// Where to begin: turn (the last one), start, end, or a place in the log
    #[arg(long, value_name = "turn|start|end|SEQ", default_value = "turn")]
    from: From,
    /// Only watch: nothing is sent, and Ctrl-C leaves
    #[arg(long)]
    read_only: bool,
    /// Show what is there and a run that goes on, and leave
    #[arg(long)]
    no_follow: bool,
}

/// Where in the log one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum From {
    /// With the last turn.
    Turn,
    Start,
    End,
    /// After this place.
    After(Cursor),
}

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "turn" => Ok(Self::Turn),
            "start" => Ok(Self::Start),
            "end" => Ok(Self::End),
            place => place.parse().map(Self::After).map_err(|_| {
                "expected turn, start, end, or a place in the log such as 42 or 1-42".to_owned()
            }),
        }
    }
}

pub(super) async fn run(ctx: &Context, args: &Args) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &args.id).await?;
    let session = ctx.client.session(id).await?;
    let mut ctrl_c = watch::ctrl_c()?;
    let stay = if args.read_only { Stay::Watching } else { Stay::Talking };
    let until = if args.no_follow { Until::Idle } else { Until::Dropped };
    attach(ctx, &session, args.from, stay, until, &mut ctrl_c).await.map(Exit::from)
}

/// Shows a session from a place on.
pub(in crate::cli) async fn attach(
    ctx: &Context,
    session: &Session,
    from: From,
    stay: Stay,
    until: Until,
    ctrl_c: &mut Signal,
) -> anyhow::Result<Watched> {
    let runs = ctx.client.runs(session.id).await?;
    let after = place(from, session, &runs);
    // Nothing happens any more in a session that has ended.
    let is_over = session.status == SessionStatus::Ended;
    let until = if is_over { Until::Idle } else { until };
    let stream = ctx.client.follow(session.id, after, until);
    let stay = if until == Until::Idle { Stay::Watching } else { stay };
    if !ctx.screen.rich {
        let past = session.last_seq;
        return follow::follow(ctx, Following { session: session.id, stream, stay, past }, ctrl_c)
            .await;
    }
    let on_ctrl_c = if stay == Stay::Talking { OnCtrlC::CutTheRun } else { OnCtrlC::Leave };
    let status = Status::of(session, Instant::now()).used(&used(&runs));
    let past = session.last_seq;
    let beginning = Beginning { session: session.id, stream, status, past, stay, on_ctrl_c };
    talk::talk(ctx, beginning, ctrl_c).await
}

/// What all runs together have used.
pub(in crate::cli) fn used(runs: &[Run]) -> Usage {
    let mut total = Usage::default();
    for Run { usage, .. } in runs {
        total.input_tokens += usage.input_tokens;
        total.output_tokens += usage.output_tokens;
        total.cache_creation_tokens += usage.cache_creation_tokens;
        total.cache_read_tokens += usage.cache_read_tokens;
        total.tool_calls += usage.tool_calls;
        total.cost_usd += usage.cost_usd;
    }
    total
}

fn place(from: From, session: &Session, runs: &[Run]) -> Cursor {
    let at = |seq| Cursor { epoch: Some(session.log_epoch), seq };
    match from {
        From::Start => at(0),
        From::End => at(session.last_seq),
        From::After(place) => place,
        From::Turn => {
            // The first of those that are not over, or the last that is.
            let open = runs.iter().filter(|run| run.ended_at.is_none()).map(|run| run.prompt_seq);
            let last = runs.iter().map(|run| run.prompt_seq).max();
            at(open.min().or(last).map_or(0, |seq| seq.saturating_sub(1)))
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_place_is_named_or_numbered() {
        assert_eq!("turn".parse(), Ok(From::Turn));
        assert_eq!("1-42".parse(), Ok(From::After(Cursor { epoch: Some(1), seq: 42 })));
        assert!("middle".parse::<From>().unwrap_err().contains("start, end"));
    }
}
