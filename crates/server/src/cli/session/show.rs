//! `ash session show`

use ash_core::time::Clock as _;
use ash_engine::SystemClock;
use serde_json::json;

use super::word;
use crate::api::Activity;
use crate::cli::columns::fitted;
use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::output::{Screen, print};
use crate::cli::{format, prefix};

/// How many runs are shown.
const RUNS: usize = 10;

/// Show a session and its last runs
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The session's id, or how that begins
    id: String,
}

pub(super) async fn run(ctx: &Context, args: &Args) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &args.id).await?;
    let session = ctx.client.session(id).await?;
    let runs = ctx.client.runs(id).await?;
    if ctx.screen.json {
        Screen::document(&json!({ "session": session, "runs": runs }))?;
        return Ok(Exit::Ok);
    }
    let now = SystemClock.now();
    let error = session.error.map(|error| format!("{} ({})", error.message, error.code));
    let metadata = session.metadata.iter().map(|(name, value)| format!("{name}={value}"));
    let metadata: Vec<String> = metadata.collect();
    let captured = session.snapshot.as_ref().map(|last| last.seq);
    let snapshot = session.snapshot.map(|last| {
        let size = (format::things(last.files, "file"), format::bytes(last.bytes));
        format!("turn {}, {}, {}, {} ago", last.turn, size.0, size.1, format::ago(&last.at, now))
    });
    let failed = session.snapshot_error.map(|failed| {
        format!("{} ({})", failed.message, format::things(failed.attempts.into(), "attempt"))
    });
    let cloud = match (session.cloud_seq, captured) {
        (None, _) => String::new(),
        (Some(there), Some(here)) if there < here => format!("as of entry {there} of {here}"),
        (Some(_), _) => "has the last snapshot".to_owned(),
    };
    let not_there = session.cloud_error.map(|failed| failed.message);
    let ago = |at: &str| format!("{at} ({} ago)", format::ago(at, now));
    let status = match session.activity {
        Some(Activity::Rewinding) => format!("{}, being rewound", word(session.status)),
        Some(Activity::Idle | Activity::Running | Activity::Frozen) | None => {
            word(session.status).to_owned()
        }
    };
    print(&format::fields(&[
        ("id", session.id.to_string()),
        ("agent", format!("{} version {}", session.agent_name, session.agent_version)),
        ("status", status),
        ("paused by", session.pause_reason.unwrap_or_default()),
        ("error", error.unwrap_or_default()),
        ("title", session.title.unwrap_or_default()),
        ("model", session.model.unwrap_or_default()),
        ("turns", session.turns.to_string()),
        ("queued", if session.queued > 0 { session.queued.to_string() } else { String::new() }),
        ("asks", asks(session.open_permissions)),
        ("log", format!("{}-{}", session.log_epoch, session.last_seq)),
        ("snapshot", snapshot.unwrap_or_default()),
        ("no snapshot", failed.unwrap_or_default()),
        ("cloud", cloud),
        ("cloud error", not_there.unwrap_or_default()),
        ("sandboxes", session.incarnation.to_string()),
        ("isolation", session.isolation),
        ("metadata", metadata.join(", ")),
        ("created", ago(&session.created_at)),
        ("used", ago(&session.last_active_at)),
        ("ends", session.expires_at.unwrap_or_default()),
    ]))?;
    if runs.is_empty() {
        return Ok(Exit::Ok);
    }
    let ids: Vec<String> = runs.iter().map(|run| run.id.to_string()).collect();
    let length = prefix::unique_length(ids.iter().map(String::as_str));
    let rows = runs.iter().zip(&ids).take(RUNS).map(|(run, id)| {
        let error = run.error.as_ref().map(|error| error.code.clone());
        vec![
            prefix::short(id, length).to_owned(),
            run.turn.map(|turn| turn.to_string()).unwrap_or_default(),
            run.status.clone(),
            error.or_else(|| run.stop_reason.clone()).unwrap_or_default(),
            format::count(run.usage.output_tokens),
            format!("${:.4}", run.usage.cost_usd),
            format::ago(&run.accepted_at, now),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let headings = ["RUN", "TURN", "STATUS", "WHY", "TOKENS OUT", "COST", "AGE"];
    let gives_way = (&["WHY"][..], &["TOKENS OUT", "COST", "RUN", "WHY"][..]);
    print(&format!("\n{}", fitted(&headings, &rows, ctx.screen.room(), gives_way)))?;
    Ok(Exit::Ok)
}

/// How many questions wait for an answer, in words.
fn asks(open: u32) -> String {
    match open {
        0 => String::new(),
        open => format!("{}; ash session permissions", format::things(open.into(), "question")),
    }
}
