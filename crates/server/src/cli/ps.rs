//! `ash ps`: what runs now.

use std::time::Duration;

use ash_core::time::{Clock as _, Timestamp};
use ash_engine::SystemClock;
use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use super::columns::fitted;
use super::connect::Context;
use super::exit::Exit;
use super::output::{Reader, Screen, look_for_reader, note, one_line, reader, show};
use super::session::{attach, list};
use super::transcript::painter::{Painter, Picture, Size};
use super::transcript::text::{Look, Row};
use super::{format, parse, prefix, watch};
use crate::api::{Activity, Run, Session, SessionStatus, Usage};
use crate::client::{ClientError, SessionQuery};

/// How many sessions are asked for at a time.
const PAGE: u32 = 1_000;

/// How many sessions are asked about their runs at once.
const AT_ONCE: usize = 8;

/// Show what runs now
///
/// Sessions that have a sandbox, the last used first, with what they do and what they have used.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Also those that are at rest or over
    #[arg(long, short)]
    all: bool,
    /// Those of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Show it again and again, every two seconds or as often as is said
    #[arg(long, short, value_name = "DURATION", num_args = 0..=1, require_equals = true,
          default_missing_value = "2s", value_parser = parse::duration)]
    watch: Option<Duration>,
}

/// One session and what it does.
#[derive(Serialize)]
struct Process {
    session: Session,
    /// The run that goes on.
    run: Option<Run>,
    /// What all its runs have used.
    usage: Usage,
}

pub(super) async fn run(ctx: &Context, args: Args) -> anyhow::Result<Exit> {
    let Some(every) = args.watch else {
        let found = processes(ctx, &args).await?;
        if ctx.screen.json {
            Screen::document(&serde_json::json!({ "sessions": found }))?;
        } else if found.is_empty() {
            note("nothing runs; ash ps --all shows what is at rest");
        } else {
            let room = if ctx.screen.is_terminal { Size::now().room() } else { usize::MAX };
            for row in rows(&found, SystemClock.now(), room) {
                show(&format!("{}\n", row.paint(ctx.screen.color)))?;
            }
        }
        return Ok(Exit::Ok);
    };
    let mut ticks = tokio::time::interval(every.max(Duration::from_millis(200)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ctrl_c = watch::ctrl_c()?;
    let mut painter = Painter::new(std::io::stdout(), ctx.screen.color);
    let mut looks = watch::looks();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = ctrl_c.recv() => {
                return Ok(Exit::CtrlC);
            }
            _ = looks.tick(), if !ctx.screen.is_terminal => match look_for_reader() {
                Reader::There => continue,
                Reader::Gone => return Ok(Exit::Ok),
            },
        }
        let found = match processes(ctx, &args).await {
            Ok(found) => Ok(found),
            // It may come back: one who watches waits.
            Err(error) if error.is_transient() && ctx.screen.rich => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        let shown = if ctx.screen.rich {
            reader(paint(&mut painter, &found))?
        } else {
            let found = found.unwrap_or_default();
            let text = match ctx.screen.json {
                true => format!("{}\n", serde_json::json!({ "sessions": found })),
                false => {
                    let rows = rows(&found, SystemClock.now(), usize::MAX);
                    let rows: Vec<String> = rows.iter().map(|row| row.paint(false)).collect();
                    format!("{}\n\n", rows.join("\n"))
                }
            };
            show(&text)?
        };
        if shown == Reader::Gone {
            return Ok(Exit::Ok);
        }
    }
}

fn paint(
    painter: &mut Painter<std::io::Stdout>,
    found: &Result<Vec<Process>, String>,
) -> std::io::Result<()> {
    let size = Size::now();
    let mut bottom = match found {
        Ok(found) if found.is_empty() => vec![Row::of("nothing runs", Look::DIM)],
        Ok(found) => rows(found, SystemClock.now(), size.room()),
        Err(error) => vec![Row::of(error, Look::DIM).cut(size.room())],
    };
    // The first ones are those that matter.
    bottom.truncate(size.lines.saturating_sub(2).max(1));
    bottom.push(Row::of("Ctrl-C leaves", Look::DIM));
    painter.paint(Picture { bottom, ..Picture::default() }, size)
}

async fn processes(ctx: &Context, args: &Args) -> Result<Vec<Process>, ClientError> {
    let wanted = match args.all {
        true => vec![None],
        false => vec![
            Some(SessionStatus::Active),
            Some(SessionStatus::Starting),
            Some(SessionStatus::Paused),
        ],
    };
    let mut sessions = Vec::new();
    for status in wanted {
        let agent = args.agent.clone();
        let mut query =
            SessionQuery { agent, status, limit: Some(PAGE), ..SessionQuery::default() };
        loop {
            let page = ctx.client.sessions(&query).await?;
            // One that was paused has a sandbox only while it is frozen.
            let lives = |session: &Session| {
                args.all || session.status != SessionStatus::Paused || session.activity.is_some()
            };
            sessions.extend(page.sessions.into_iter().filter(lives));
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
    }
    sessions.sort_by(|a, b| b.last_active_at.cmp(&a.last_active_at));
    let processes = futures_util::stream::iter(sessions).map(|session| async move {
        // It may have been deleted meanwhile.
        let runs = match session.turns + session.queued {
            0 if session.activity != Some(Activity::Running) => Vec::new(),
            _ => ctx.client.runs(session.id).await.unwrap_or_default(),
        };
        let usage = attach::used(&runs);
        let run = runs.into_iter().find(|run| run.status == "running");
        Process { session, run, usage }
    });
    Ok(processes.buffered(AT_ONCE).collect().await)
}

fn rows(processes: &[Process], now: Timestamp, room: usize) -> Vec<Row> {
    let ids: Vec<String> = processes.iter().map(|of| of.session.id.to_string()).collect();
    let length = prefix::session_length(ids.iter().map(String::as_str));
    let headings =
        ["ID", "AGENT", "STATE", "PHASE", "TURN", "AGE", "USED", "TOKENS", "COST", "TITLE"];
    let lines: Vec<Vec<String>> = processes
        .iter()
        .zip(&ids)
        .map(|(of, id)| {
            let session = &of.session;
            let tokens = of.usage.input_tokens
                + of.usage.cache_creation_tokens
                + of.usage.cache_read_tokens
                + of.usage.output_tokens;
            vec![
                prefix::short(id, length).to_owned(),
                session.agent_name.clone(),
                list::state(session),
                phase(of),
                session.turns.to_string(),
                format::ago(&session.created_at, now),
                format::ago(&session.last_active_at, now),
                if tokens > 0 { format::short_count(tokens) } else { "-".to_owned() },
                match of.usage.cost_usd > 0.0 {
                    true => format!("${:.4}", of.usage.cost_usd),
                    false => "-".to_owned(),
                },
                one_line(session.title.as_deref().unwrap_or_default(), 60),
            ]
        })
        .collect();
    // The rest is in `ash session show`.
    let spare = ["COST", "TOKENS", "AGE", "TITLE", "USED", "TURN", "PHASE", "AGENT"];
    let text = fitted(&headings, &lines, Some(room), (&["TITLE", "AGENT"], &spare));
    let look = |index: usize| if index == 0 { Look::BOLD } else { Look::PLAIN };
    text.lines().enumerate().map(|(index, line)| Row::of(line, look(index)).cut(room)).collect()
}

/// What a run does, in a word.
fn phase(process: &Process) -> String {
    if process.session.open_permissions > 0 {
        return "asks".to_owned();
    }
    let phase = process.run.as_ref().map(|run| match run.phase.as_deref() {
        Some("streaming_llm") => "thinking",
        Some("executing_tools") => "tools",
        Some("delegating_coder") => "delegating",
        Some(_) | None => "working",
    });
    phase.unwrap_or("-").to_owned()
}
