//! `ash session list`

use ash_core::time::{Clock as _, Timestamp};
use ash_engine::SystemClock;

use super::word;
use crate::api::{Activity, Session, SessionStatus, Sessions};
use crate::cli::columns::fitted;
use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::output::{Screen, note, one_line, print};
use crate::cli::{format, parse, prefix};
use crate::client::SessionQuery;

/// How many sessions are asked for at a time.
const PAGE: u32 = 1_000;

/// List sessions, newest first
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Those of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Those that are starting, active, paused, stopped, ended or error
    #[arg(long, value_parser = parse::word::<SessionStatus>)]
    status: Option<SessionStatus>,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// All there are
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    let limit = Some(if args.all { PAGE } else { args.limit });
    let mut query =
        SessionQuery { agent: args.agent, status: args.status, limit, ..SessionQuery::default() };
    let mut page = ctx.client.sessions(&query).await?;
    while args.all && page.next_cursor.is_some() {
        query.cursor = page.next_cursor.take();
        let next = ctx.client.sessions(&query).await?;
        page.sessions.extend(next.sessions);
        page.next_cursor = next.next_cursor;
    }
    if ctx.screen.json {
        Screen::document(&page)?;
        return Ok(Exit::Ok);
    }
    if page.sessions.is_empty() {
        note("there are no such sessions; make one with: ash session create <agent>");
        return Ok(Exit::Ok);
    }
    print(&listed(&page, SystemClock.now(), ctx.screen.room()))?;
    if page.next_cursor.is_some() {
        note("there are more: --all lists every one");
    }
    Ok(Exit::Ok)
}

fn listed(page: &Sessions, now: Timestamp, room: Option<usize>) -> String {
    let ids: Vec<String> = page.sessions.iter().map(|session| session.id.to_string()).collect();
    let length = prefix::session_length(ids.iter().map(String::as_str));
    let row = |(session, id): (&Session, &String)| {
        vec![
            prefix::short(id, length).to_owned(),
            session.agent_name.clone(),
            state(session),
            session.turns.to_string(),
            format::ago(&session.last_active_at, now),
            one_line(session.title.as_deref().unwrap_or_default(), 40),
        ]
    };
    let rows: Vec<_> = page.sessions.iter().zip(&ids).map(row).collect();
    let headings = ["ID", "AGENT", "STATE", "TURNS", "USED", "TITLE"];
    fitted(
        &headings,
        &rows,
        room,
        (&["TITLE", "AGENT", "STATE"], &["TURNS", "USED", "TITLE", "AGENT"]),
    )
}

/// Where it stands, and what it does there.
pub(in crate::cli) fn state(session: &Session) -> String {
    let status = word(session.status);
    match (session.activity, &session.pause_reason) {
        (Some(Activity::Running), _) => format!("{status}, running"),
        (Some(Activity::Rewinding), _) => format!("{status}, being rewound"),
        (_, Some(reason)) => format!("{status}, {reason}"),
        (Some(Activity::Idle | Activity::Frozen) | None, None) => status.to_owned(),
    }
}
