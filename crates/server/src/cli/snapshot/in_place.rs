//! `ash snapshot restore --in-place`: a directory that is there becomes what a snapshot says.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ash_snapshot::{
    Effect, InPlace, MendTook, Mended, Mending, Newer, Root, Snapshot, SnapshotError, State, Tree,
    Trust,
};
use serde_json::{Value, json};

use super::restore::{Wanted, home_of};
use super::said::{Times, path_text, put_path, tell_copied};
use super::stop::Stop;
use super::store::{self, Store};
use super::telling::Telling;
use super::whose::shown;
use super::{MAX_ENTRIES, threads};
use crate::cli::Hint;
use crate::cli::exit::{Exit, Mistake};
use crate::cli::format::{bytes, count, things};
use crate::cli::output::{Screen, note, plain, print};

/// How to restore in place
#[derive(Debug, clap::Args)]
#[group(skip)]
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
    /// The snapshot may be of another directory than the one that becomes it
    #[arg(long, requires = "in_place")]
    any_source: bool,
}

/// A directory that is to become a tree.
struct Target<'a> {
    tree: &'a Tree,
    path: &'a Path,
    excluded: Vec<Vec<u8>>,
}

pub(super) fn restore(
    screen: &Screen,
    store: &Store,
    stop: &Stop,
    wanted: &Wanted<'_>,
    home: Option<&Path>,
    args: &Args,
) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let real = directory(wanted.target)?;
    // Before whose it is: who names the store is told that.
    let inside = store.inside(&real)?;
    let snapshot = meant(store, wanted, &real, args)?;
    let excluded = args.exclude.iter().map(|path| store::inner_path(&real, path));
    let mut excluded = excluded.collect::<anyhow::Result<Vec<Vec<u8>>>>()?;
    // A store in the directory is not removed by what is restored from it.
    excluded.extend(inside);
    let saved = store.state_of(&real);
    let tree = store::root_of(&snapshot)?;
    let home = home.map(|path| of_home(store, &snapshot, path)).transpose()?;
    if home.as_ref().is_some_and(|(_, real_home)| *real_home == real) {
        return Err(Mistake::Usage("the directory is the home itself".to_owned()).into());
    }
    let mut workspace = Target { tree, path: wanted.target, excluded };
    let home = home.map(|(mut home, real_home)| {
        // If one is in the other, neither removes it.
        let from = |above: &Path, below: &Path| {
            below.strip_prefix(above).ok().map(|path| store::bytes_of(path).to_vec())
        };
        home.excluded.extend(from(&real_home, &real));
        workspace.excluded.extend(from(&real, &real_home));
        home
    });
    let known = saved.as_deref().map(State::load).unwrap_or_default();
    let targets: Vec<&Target<'_>> =
        [Some(&workspace), home.as_ref()].into_iter().flatten().collect();
    let both = mend(screen, store, stop, &snapshot, &targets, &known, args)?;
    let states = both.iter().map(|mended| mended.state.clone());
    if !args.dry_run
        && let Some(saved) = saved
        && let Some(state) = states.reduce(State::and)
        && let Err(error) = store.make_states().and_then(|()| state.save(&saved))
    {
        let saved = saved.display();
        note(&format!("warning: the next capture reads everything again: {saved}: {error}"));
    }
    let steps = steps(&both);
    let times = Times { total: begin.elapsed(), steps: &steps };
    if screen.json {
        let mut documents = both.iter().map(document);
        let mut all = documents.next().unwrap_or_default();
        all["id"] = json!(snapshot.id);
        all["dryRun"] = json!(args.dry_run);
        all["milliseconds"] = times.json();
        if let Some(home) = documents.next() {
            all["home"] = home;
        }
        Screen::document(&all)?;
        return Ok(Exit::Ok);
    }
    let last = both.len().saturating_sub(1);
    for (number, (mended, beginning)) in both.iter().zip(["", "home/"]).enumerate() {
        let times = if number == last { format!("; {}", times.text()) } else { String::new() };
        show(mended, beginning, args.dry_run, &times)?;
    }
    Ok(Exit::Ok)
}

fn directory(target: &Path) -> anyhow::Result<PathBuf> {
    if !target.is_dir() {
        let wrong =
            format!("{} is no directory: --in-place is for one that is there", target.display());
        return Err(Mistake::NotFound(wrong).into());
    }
    target.canonicalize().with_context(|| format!("could not open {}", target.display()))
}

/// The snapshot that is meant. One of another directory is refused: what is not in it would be removed.
fn meant(store: &Store, wanted: &Wanted<'_>, real: &Path, args: &Args) -> anyhow::Result<Snapshot> {
    if args.any_source {
        return store.find(wanted.snapshot, wanted.whose.source.as_deref());
    }
    let source = wanted.whose.of(real);
    let snapshot = store.find(wanted.snapshot, Some(&source))?;
    if snapshot.source.as_ref() == Some(&source) {
        return Ok(snapshot);
    }
    let whose = shown(snapshot.source.as_deref());
    let other = format!("snapshot {} is of {whose}, and not of {}", snapshot.id, plain(&source));
    Err(anyhow::Error::from(Mistake::Refused(other)).context(Hint(
        "what is not in it would be removed: --any-source says that this is meant, and --dry-run shows what that is",
    )))
}

/// A home that is there. Its caches are left alone, those that came since it was captured too.
fn of_home<'a>(
    store: &Store,
    snapshot: &'a Snapshot,
    path: &'a Path,
) -> anyhow::Result<(Target<'a>, PathBuf)> {
    let tree = home_of(snapshot)?;
    let real = directory(path)?;
    let caches = ash_snapshot::caches(&real);
    let mut excluded = caches.with_context(|| format!("could not look into {}", path.display()))?;
    excluded.extend(store.inside(&real)?);
    Ok((Target { tree, path, excluded }, real))
}

fn mend(
    screen: &Screen,
    store: &Store,
    stop: &Stop,
    snapshot: &Snapshot,
    targets: &[&Target<'_>],
    known: &State,
    args: &Args,
) -> anyhow::Result<Vec<Mended>> {
    let doing = if args.check { "checking" } else { "restoring" };
    let telling = Telling::new(screen, stop, doing, "step");
    let progress = |progress| telling.progress(progress);
    let all = targets.iter().map(|Target { tree, path, excluded }| InPlace {
        snapshot,
        root: Root { name: &tree.name, path, excluded },
        trust: if args.check { Trust::Bytes } else { Trust::Looks },
        newer: Newer::Replace,
        effect: if args.dry_run { Effect::Report } else { Effect::Write },
        owner: None,
        max_entries: MAX_ENTRIES,
        max_bytes: u64::MAX,
        threads: threads(),
        progress: &progress,
    });
    // Damage of either is found before any of them is touched.
    let mended = store.repository.restore_all_in_place(&all.collect::<Vec<_>>(), known);
    telling.end();
    if let Err(error @ (SnapshotError::Missing(_) | SnapshotError::Damaged { .. })) = mended {
        // The tree is there: it is the store that lacks something.
        let hint = "nothing was touched; ash snapshot verify names what is damaged";
        return Err(anyhow::Error::from(error).context(Hint(hint)));
    }
    stop.of(mended)
}

/// Where the time of all of them went.
fn steps(all: &[Mended]) -> [(&'static str, Duration); 4] {
    let sum = |step: fn(&MendTook) -> Duration| all.iter().map(|mended| step(&mended.took)).sum();
    [
        ("scan", sum(|took| took.scan)),
        ("compare", sum(|took| took.compare)),
        ("write", sum(|took| took.write)),
        ("look", sum(|took| took.look)),
    ]
}

fn document(mended: &Mended) -> Value {
    let changes = mended.changes.iter().map(|(path, how)| {
        let mut change = json!({ "change": word(*how) });
        put_path(&mut change, "path", path);
        change
    });
    json!({
        "same": mended.same, "written": mended.written, "repaired": mended.repaired,
        "removed": mended.removed, "left": mended.left, "bytesRead": mended.bytes_read,
        "bytesWritten": mended.bytes_written, "copied": mended.copied, "changes": changes.collect::<Vec<_>>(),
    })
}

/// What is to be said to a person: each path, if nothing was done; otherwise those that were torn.
fn show(mended: &Mended, beginning: &str, dry_run: bool, times: &str) -> anyhow::Result<()> {
    for (path, how) in &mended.changes {
        if dry_run || *how == Mending::Repaired {
            print(&format!("{} {beginning}{}\n", word(*how), path_text(path)))?;
        }
    }
    tell_copied(mended.copied);
    let Mended { same, written, repaired, removed, left, bytes_read, bytes_written, .. } = mended;
    let repaired =
        if *repaired > 0 { format!(" ({} looked right)", count(*repaired)) } else { String::new() };
    let left = if *left > 0 {
        format!(", {} left alone", things(*left, "socket, pipe, device or mount"))
    } else {
        String::new()
    };
    print(&format!(
        "{}{} written{repaired}, {}; {} removed, {} as they were{left}; {} read{times}\n",
        if dry_run { "would be: " } else { "" },
        things(*written, "name"),
        bytes(*bytes_written),
        count(*removed),
        count(*same),
        bytes(*bytes_read),
    ))
}

fn word(how: Mending) -> &'static str {
    match how {
        Mending::Written => "written",
        Mending::Repaired => "repaired",
        Mending::Removed => "removed",
    }
}
