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
        From::Turn => at(last_turn(runs).map_or(0, |run| run.prompt_seq.saturating_sub(1))),
    }
}

/// The first of those that are not over, or the last that is. If its prompt had to wait, whoever it waited for stands
/// behind that in the log, and is shown whole.
fn last_turn(runs: &[Run]) -> Option<&Run> {
    let open = runs.iter().filter(|run| run.ended_at.is_none()).min_by_key(|run| run.prompt_seq);
    let mut first = open.or_else(|| runs.iter().max_by_key(|run| run.prompt_seq))?;
    let went_on_when =
        |run: &&Run, accepted: &str| run.ended_at.as_deref().is_none_or(|ended| ended > accepted);
    while let Some(earlier) = runs
        .iter()
        .filter(|run| run.prompt_seq < first.prompt_seq && went_on_when(run, &first.accepted_at))
        .min_by_key(|run| run.prompt_seq)
    {
        first = earlier;
    }
    Some(first)
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

    fn run(prompt_seq: u64, accepted_at: &str, ended_at: Option<&str>) -> Run {
        Run {
            id: uuid::Uuid::nil(),
            session_id: uuid::Uuid::nil(),
            status: "completed".to_owned(),
            phase: None,
            round: 1,
            turn: None,
            parent_turn: None,
            stop_reason: None,
            error: None,
            usage: Usage::default(),
            prompt_seq,
            accepted_at: accepted_at.to_owned(),
            started_at: None,
            ended_at: ended_at.map(str::to_owned),
        }
    }

    #[test]
    fn the_last_turn_is_shown_with_those_that_it_waited_for() {
        let begins = |runs: &[Run]| last_turn(runs).map(|run| run.prompt_seq);
        assert_eq!(begins(&[]), None);
        let [first, second] = [run(1, "01", Some("02")), run(9, "03", Some("04"))];
        assert_eq!(begins(&[second.clone(), first.clone()]), Some(9));
        let [third, fourth] = [run(12, "03.5", Some("06")), run(20, "05", Some("07"))];
        assert_eq!(begins(&[fourth.clone(), third.clone(), second.clone(), first]), Some(9));
        let open = run(30, "06.5", None);
        assert_eq!(begins(&[open, fourth, third, second]), Some(9));
        assert_eq!(begins(&[run(30, "08", None), run(20, "05", Some("07"))]), Some(30));
    }
}
