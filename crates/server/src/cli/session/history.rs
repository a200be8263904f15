//! `ash session fork`, `rewind` and `diff`

use std::io::IsTerminal as _;

use anyhow::Context as _;
use uuid::Uuid;

use super::word;
use crate::api::{
    ChangeCounts, FileChange, FileDiff, ForkSession, Omitted, RewindSession, Rewound, SessionBody,
    SnapshotDiff,
};
use crate::cli::connect::Context;
use crate::cli::exit::{Exit, Mistake};
use crate::cli::live::Live;
use crate::cli::output::{Screen, Style, note, one_line, plain, print};
use crate::cli::{Hint, ask, format, prefix, watch};
use crate::client::ClientError;

/// Begin another session where one was: with its conversation and its files
#[derive(Debug, clap::Args)]
pub(super) struct Fork {
    /// The session's id, or how that begins
    id: String,
    #[command(flatten)]
    at: Where,
}

/// Put a session back to where it was: its conversation and its files
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("to").required(true).args(["turn", "snapshot"])))]
pub(super) struct Rewind {
    /// The session's id, or how that begins
    id: String,
    #[command(flatten)]
    to: Where,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// A point of a session's history.
#[derive(Debug, clap::Args)]
struct Where {
    /// The end of this turn, with what was done to the files from outside before the next one
    #[arg(long, value_name = "N", conflicts_with = "snapshot")]
    turn: Option<u32>,
    /// When this snapshot was made: its id, or how that begins
    #[arg(long, value_name = "ID")]
    snapshot: Option<String>,
}

/// Show how the files of a snapshot differ from those before it
#[derive(Debug, clap::Args)]
pub(super) struct Diff {
    /// The session's id, or how that begins
    id: String,
    /// The snapshot's id, or how that begins; the one that the session is at, if it is left out
    snapshot: Option<String>,
    /// Compare it with this snapshot instead, with `empty`, or with the `current` one
    #[arg(long, value_name = "ID")]
    against: Option<String>,
    /// Only name the files
    #[arg(long)]
    names: bool,
    /// Only what lies at or beneath this path of the workspace
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
}

impl Where {
    async fn find(&self, ctx: &Context, id: Uuid) -> anyhow::Result<(Option<Uuid>, Option<u32>)> {
        let snapshot = match &self.snapshot {
            Some(text) => Some(snapshot(ctx, id, text).await?),
            None => None,
        };
        Ok((snapshot, self.turn))
    }
}

/// The snapshot that a person means.
async fn snapshot(ctx: &Context, id: Uuid, text: &str) -> anyhow::Result<Uuid> {
    if text.len() == 36
        && let Ok(whole) = text.parse()
    {
        return Ok(whole);
    }
    let known = ctx.client.snapshots(id).await?;
    let known: Vec<String> = known.iter().map(|snapshot| snapshot.id.to_string()).collect();
    prefix::among("snapshot", &known, text)?.parse().context("the server has strange ids")
}

pub(super) async fn fork(ctx: &Context, args: &Fork) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &args.id).await?;
    let (snapshot_id, turn) = args.at.find(ctx, id).await?;
    let from = ForkSession { snapshot_id, turn };
    let session = Live::new(&ctx.screen, "forking…").during(ctx.client.fork(id, &from)).await?;
    if ctx.screen.json {
        Screen::document(&SessionBody { session })?;
        return Ok(Exit::Ok);
    }
    let turns = format::things(u64::from(session.turns), "turn");
    print(&format!("{} is {}, with {turns} of {id}\n", session.id, word(session.status)))?;
    Ok(Exit::Ok)
}

pub(super) async fn rewind(ctx: &Context, args: &Rewind) -> anyhow::Result<Exit> {
    let asks = !(args.yes || args.dry_run);
    // Whoever is asked sees it on standard error, wherever the answer goes.
    if asks && !std::io::stdin().is_terminal() {
        let why = "nobody can be asked here whether to rewind: say --yes, or look with --dry-run";
        return Err(Mistake::Usage(why.to_owned()).into());
    }
    let id = prefix::session(&ctx.client, &args.id).await?;
    let (snapshot_id, turn) = args.to.find(ctx, id).await?;
    let mut to = RewindSession { snapshot_id, turn, dry_run: true };
    if asks {
        let would = ctx.client.rewind(id, &to).await.map_err(refused)?;
        note(&question(&would, target(ctx, id, &to).await?));
        if !is_wanted("Rewind? [y/N]").await? {
            note("nothing was rewound");
            return Ok(Exit::Failure);
        }
    }
    to.dry_run = args.dry_run;
    let live = Live::new(&ctx.screen, "rewinding…");
    let rewound = live.during(ctx.client.rewind(id, &to)).await.map_err(refused)?;
    if ctx.screen.json {
        Screen::document(&rewound)?;
        return Ok(Exit::Ok);
    }
    let changes = counts(rewound.changes);
    let session = rewound.session;
    print(&if args.dry_run {
        format!("{changes}, if {} were rewound\n", session.id)
    } else {
        let turns = format::things(u64::from(session.turns), "turn");
        format!("{} is {}, after {turns}: {changes}\n", session.id, word(session.status))
    })?;
    if rewound.unverified > 0 {
        let files = format::things(rewound.unverified, "file");
        note(&format!(
            "{files} of it may be of a later moment: the next turn had begun when they were read"
        ));
    }
    if let (Some(turn), ChangeCounts { added: 0, modified: 0, removed: 0 }) =
        (turn, rewound.changes)
    {
        let kept = ctx.client.snapshots(id).await?;
        if kept.iter().filter(|kept| kept.turn == turn).count() > 1 {
            note(&format!(
                "there are earlier snapshots of turn {turn}: ash session snapshots {id} lists them, and --snapshot goes to one"
            ));
        }
    }
    Ok(Exit::Ok)
}

/// The turn that a rewind goes to, if that is known.
async fn target(ctx: &Context, id: Uuid, to: &RewindSession) -> anyhow::Result<Option<u32>> {
    let Some(snapshot) = to.snapshot_id else { return Ok(to.turn) };
    let known = ctx.client.snapshots(id).await?;
    Ok(known.iter().find(|kept| kept.id == snapshot).map(|kept| kept.turn))
}

/// What would come of a rewind, for the person who is asked.
fn question(would: &Rewound, to: Option<u32>) -> String {
    let turn = |turn: u32| match turn {
        0 => "before the first turn".to_owned(),
        turn => format!("turn {turn}"),
    };
    let from = would.session.snapshot.as_ref().map(|last| last.turn);
    let back = match (from, to) {
        (Some(from), Some(to)) if from == to => format!("The conversation stays at {}", turn(to)),
        (Some(from), Some(0)) => {
            format!("The conversation goes back from {} to before the first one", turn(from))
        }
        (Some(from), Some(to)) => {
            format!("The conversation goes from {} to {}", turn(from), turn(to))
        }
        (_, _) => "The conversation goes back".to_owned(),
    };
    format!(
        "{back}. {}. What is there now is kept, and can be gone back to. What runs in the session ends.",
        counts(would.changes)
    )
}

/// What to do about a run that is in the way of a rewind: it may stand still in a session that is paused.
fn refused(error: ClientError) -> anyhow::Error {
    let runs = matches!(&error, ClientError::Problem(problem) if problem.code == "run_in_progress");
    let error = anyhow::Error::from(error);
    if runs {
        return error.context(Hint(
            "let the run come to its end (ash session resume, if it is paused), or cut it with: ash session interrupt",
        ));
    }
    error
}

/// Whether a person says yes.
async fn is_wanted(question: &str) -> anyhow::Result<bool> {
    let mut ctrl_c = watch::ctrl_c()?;
    note(question);
    let mut lines = ask::lines();
    tokio::select! {
        line = lines.recv() => {
            let line = line.transpose().context("could not read the answer")?.unwrap_or_default();
            Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
        }
        _ = ctrl_c.recv() => Err(Mistake::CtrlC.into()),
    }
}

pub(super) async fn diff(ctx: &Context, args: &Diff) -> anyhow::Result<Exit> {
    let id = prefix::session(&ctx.client, &args.id).await?;
    let which = match &args.snapshot {
        Some(text) => snapshot(ctx, id, text).await?,
        None => {
            // After a rewind that is not the newest one.
            let current = ctx.client.session(id).await?.snapshot.map(|current| current.id);
            current
                .ok_or_else(|| Mistake::NotFound("the session has no snapshots yet".to_owned()))?
        }
    };
    let against = match args.against.as_deref() {
        Some(text @ ("empty" | "current")) => Some(text.to_owned()),
        Some(text) => Some(snapshot(ctx, id, text).await?.to_string()),
        None => None,
    };
    let diff = ctx.client.diff(id, which, against.as_deref(), args.path.as_deref()).await?;
    if ctx.screen.json {
        Screen::document(&diff)?;
        return Ok(Exit::Ok);
    }
    print(&shown(&ctx.screen, &diff, args.names))?;
    note(&counts(diff.changes));
    if diff.left_out > 0 {
        note("not all of them are named; --path DIRECTORY shows those beneath one");
    }
    Ok(Exit::Ok)
}

fn shown(screen: &Screen, diff: &SnapshotDiff, only_names: bool) -> String {
    let mut out = String::new();
    for file in &diff.files {
        match &file.diff {
            Some(lines) if !only_names && !lines.is_empty() => {
                lines.split_inclusive('\n').for_each(|line| out.push_str(&painted(screen, line)));
            }
            Some(_) | None => out.push_str(&named(screen, file)),
        }
    }
    if diff.left_out > 0 {
        let more = format::things(diff.left_out, "file");
        out.push_str(&screen.paint(Style::Dim, &format!("… and {more} more")));
        out.push('\n');
    }
    out
}

/// A line of a difference, with whatever it ends with. What is in files may be anything, and a terminal obeys.
fn painted(screen: &Screen, line: &str) -> String {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let line = if screen.is_terminal { plain(line) } else { line.to_owned() };
    let style = match line.as_bytes() {
        [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => Some(Style::Bold),
        [b'+', ..] => Some(Style::Green),
        [b'-', ..] => Some(Style::Red),
        [b'@', ..] => Some(Style::Dim),
        _ => None,
    };
    let line = style.map_or(line.clone(), |style| screen.paint(style, &line));
    format!("{line}\n")
}

fn named(screen: &Screen, file: &FileDiff) -> String {
    let (sign, style) = match file.change {
        FileChange::Added => ("A", Style::Green),
        FileChange::Modified => ("M", Style::Yellow),
        FileChange::Removed => ("D", Style::Red),
    };
    let size = |size: Option<u64>| size.map_or("-".to_owned(), format::bytes);
    let why = match file.omitted {
        Some(Omitted::Binary) => ", binary",
        Some(Omitted::TooLarge) => ", too large to be shown",
        None => "",
    };
    let sizes = format!("({} → {}{why})", size(file.size_before), size(file.size_after));
    let path = one_line(&file.path, 4_096);
    format!("{} {path}  {}\n", screen.paint(style, sign), screen.paint(Style::Dim, &sizes))
}

fn counts(changes: ChangeCounts) -> String {
    let ChangeCounts { added, modified, removed } = changes;
    if added + modified + removed == 0 {
        return "no file differs".to_owned();
    }
    let files = format::things(added + modified + removed, "file");
    let [added, modified, removed] = [added, modified, removed].map(format::count);
    format!("{files}: {added} added, {modified} modified, {removed} removed")
}

#[cfg(test)]
mod test {
    use super::*;

    fn screen(is_terminal: bool) -> Screen {
        Screen {
            json: false,
            is_terminal,
            color: is_terminal,
            live: false,
            rich: false,
            verbose: false,
        }
    }

    fn file(path: &str, diff: Option<&str>, omitted: Option<Omitted>) -> FileDiff {
        FileDiff {
            path: path.to_owned(),
            change: FileChange::Modified,
            size_before: Some(3),
            size_after: Some(2_048),
            diff: diff.map(str::to_owned),
            omitted,
        }
    }

    fn example() -> SnapshotDiff {
        let lines = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new\u{1b}[2J\n";
        SnapshotDiff {
            snapshot_id: Uuid::nil(),
            against: None,
            changes: ChangeCounts { added: 0, modified: 3, removed: 0 },
            files: vec![
                file("a", Some(lines), None),
                file("mode", Some(""), None),
                file("picture", None, Some(Omitted::Binary)),
            ],
            left_out: 2,
        }
    }

    #[test]
    fn a_difference_is_told_as_it_is_where_nobody_looks() {
        let told = shown(&screen(false), &example(), false);
        assert!(told.starts_with("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new\u{1b}[2J\n"));
        assert!(told.contains("M picture  (3 B → 2.0 KB, binary)\n… and 2 files more\n"), "{told}");
    }

    #[test]
    fn lines_end_as_they_do_in_the_files() {
        let lines = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new\r\n";
        let diff = SnapshotDiff { files: vec![file("a", Some(lines), None)], ..example() };
        let told = shown(&screen(false), &diff, false);
        assert!(told.starts_with(lines), "{told:?}");
    }

    #[test]
    fn numbers_are_told_in_one_way() {
        let many = ChangeCounts { added: 0, modified: 3, removed: 6_002 };
        assert_eq!(counts(many), "6,005 files: 0 added, 3 modified, 6,002 removed");
    }

    #[test]
    fn on_a_terminal_it_is_painted_and_moves_nothing() {
        let told = shown(&screen(true), &example(), false);
        assert!(told.contains("\u{1b}[32m+new[2J\u{1b}[0m\n"), "{told}");
        assert!(told.contains("\u{1b}[31m-old\u{1b}[0m\n"), "{told}");
    }

    #[test]
    fn names_alone_are_told_with_their_sizes() {
        let told = shown(&screen(false), &example(), true);
        assert!(told.starts_with("M a  (3 B → 2.0 KB)\nM mode"), "{told}");
        let none = ChangeCounts { added: 0, modified: 0, removed: 0 };
        assert_eq!(counts(none), "no file differs");
    }
}
