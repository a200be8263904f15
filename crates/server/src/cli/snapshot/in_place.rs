//! `ash snapshot restore --in-place`: a directory that is there becomes what a snapshot says.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use ash_snapshot::{Effect, InPlace, Mended, Mending, Root, State, Trust};
use serde_json::json;

use super::store::{self, Store};
use super::{MAX_ENTRIES, Telling, milliseconds, of, threads};
use crate::cli::exit::{Exit, Mistake};
use crate::cli::format::{bytes, count, things};
use crate::cli::output::{Screen, note, plain, print};

/// How to restore in place
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The target is a directory: make it equal to the snapshot, writing only what differs
    #[arg(long, conflicts_with_all = ["path", "leave_out_damaged"])]
    pub(super) in_place: bool,
    /// Trust nothing but bytes: read every file, and mend those that only look right
    #[arg(long, requires = "in_place")]
    check: bool,
    /// Only say what would be done
    #[arg(long, requires = "in_place")]
    dry_run: bool,
    /// A path in the directory that is left alone; can be given several times
    #[arg(long, value_name = "PATH", requires = "in_place")]
    exclude: Vec<PathBuf>,
}

pub(super) fn restore(
    screen: &Screen,
    store: &Store,
    name: &str,
    target: &Path,
    args: &Args,
) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let snapshot = store.find(name)?;
    if !target.is_dir() {
        let wrong =
            format!("{} is no directory: --in-place is for one that is there", target.display());
        return Err(Mistake::NotFound(wrong).into());
    }
    let real = target.canonicalize();
    let real = real.with_context(|| format!("could not open {}", target.display()))?;
    let excluded = args.exclude.iter().map(|path| store::inner_path(&real, path));
    let mut excluded = excluded.collect::<anyhow::Result<Vec<Vec<u8>>>>()?;
    // A store in the directory is not removed by what is restored from it.
    excluded.extend(store.inside(&real)?);
    let saved = store.state_of(&real);
    let tree = store::root_of(&snapshot)?;
    let doing = if args.check { "checking" } else { "restoring" };
    let telling = Telling::new(screen, doing, "step");
    let in_place = InPlace {
        snapshot: &snapshot,
        root: Root { name: &tree.name, path: target, excluded: &excluded },
        trust: if args.check { Trust::Bytes } else { Trust::Looks },
        effect: if args.dry_run { Effect::Report } else { Effect::Write },
        owner: None,
        max_entries: MAX_ENTRIES,
        max_bytes: u64::MAX,
        threads: threads(),
        progress: &|progress| telling.progress(progress),
    };
    let known = saved.as_deref().map(State::load).unwrap_or_default();
    let mended = store.repository.restore_in_place(&in_place, &known);
    telling.end();
    let mended = mended.map_err(of)?;
    if !args.dry_run
        && let Some(saved) = saved
        && let Err(error) = store.make_states().and_then(|()| mended.state.save(&saved))
    {
        let saved = saved.display();
        note(&format!("warning: the next capture reads everything again: {saved}: {error}"));
    }
    if screen.json {
        let changes = mended.changes.iter().map(
            |(path, how)| json!({ "path": String::from_utf8_lossy(path), "change": word(*how) }),
        );
        Screen::document(&json!({
            "id": snapshot.id, "dryRun": args.dry_run, "same": mended.same,
            "written": mended.written, "repaired": mended.repaired, "removed": mended.removed,
            "left": mended.left, "bytesRead": mended.bytes_read,
            "bytesWritten": mended.bytes_written, "changes": changes.collect::<Vec<_>>(),
            "milliseconds": { "total": milliseconds(begin.elapsed()) },
        }))?;
        return Ok(Exit::Ok);
    }
    show(&mended, args.dry_run, begin)?;
    Ok(Exit::Ok)
}

/// What is to be said to a person: each path, if nothing was done; otherwise those that were torn.
fn show(mended: &Mended, dry_run: bool, begin: Instant) -> anyhow::Result<()> {
    for (path, how) in &mended.changes {
        if dry_run || *how == Mending::Repaired {
            print(&format!("{} {}\n", word(*how), plain(&String::from_utf8_lossy(path))))?;
        }
    }
    let Mended { same, written, repaired, removed, left, bytes_read, bytes_written, .. } = mended;
    let repaired =
        if *repaired > 0 { format!(" ({} looked right)", count(*repaired)) } else { String::new() };
    let left = if *left > 0 {
        format!(", {} left alone", things(*left, "socket, pipe, device or mount"))
    } else {
        String::new()
    };
    print(&format!(
        "{}{} written{repaired}, {}; {} removed, {} as they were{left}; {} read, {} ms\n",
        if dry_run { "would be: " } else { "" },
        things(*written, "name"),
        bytes(*bytes_written),
        count(*removed),
        count(*same),
        bytes(*bytes_read),
        begin.elapsed().as_millis(),
    ))?;
    Ok(())
}

fn word(how: Mending) -> &'static str {
    match how {
        Mending::Written => "written",
        Mending::Repaired => "repaired",
        Mending::Removed => "removed",
    }
}
