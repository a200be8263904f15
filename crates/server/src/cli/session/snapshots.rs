//! `ash session snapshots`

use ash_core::time::Clock as _;
use ash_engine::SystemClock;

use super::lifecycle::Which;
use crate::api::{Snapshot, SnapshotLocation, Snapshots};
use crate::cli::columns::fitted;
use crate::cli::connect::Context;
use crate::cli::exit::Exit;
use crate::cli::output::{Screen, note, print};
use crate::cli::{format, prefix};

pub(super) async fn run(ctx: &Context, which: &Which) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &which.id).await?;
    let snapshots = ctx.client.snapshots(id).await?;
    if ctx.screen.json {
        Screen::document(&Snapshots { snapshots })?;
        return Ok(Exit::Ok);
    }
    if snapshots.is_empty() {
        note("there are none yet: the first one is made after the first turn");
        return Ok(Exit::Ok);
    }
    let now = SystemClock.now();
    let row = |snapshot: &Snapshot| {
        vec![
            snapshot.id.to_string(),
            snapshot.turn.to_string(),
            snapshot.seq.to_string(),
            files(snapshot),
            format::bytes(snapshot.bytes),
            format::bytes(snapshot.new_bytes),
            place(snapshot.location).to_owned(),
            format::ago(&snapshot.created_at, now),
        ]
    };
    let rows: Vec<_> = snapshots.iter().map(row).collect();
    let headings = ["ID", "TURN", "LOG", "FILES", "SIZE", "NEW", "WHERE", "AGE"];
    let spare = ["LOG", "NEW", "WHERE", "SIZE", "FILES"];
    print(&fitted(&headings, &rows, ctx.screen.room(), (&["ID"], &spare)))?;
    Ok(Exit::Ok)
}

/// How many there are, and of how many nobody can say that they are of that moment.
fn files(snapshot: &Snapshot) -> String {
    let all = format::count(snapshot.files);
    match snapshot.unverified {
        0 => all,
        unverified => format!("{all} ({unverified} unverified)"),
    }
}

fn place(location: SnapshotLocation) -> &'static str {
    match (location.local, location.cloud) {
        (true, true) => "here, cloud",
        (true, false) => "here",
        (false, true) => "cloud",
        (false, false) => "nowhere",
    }
}
