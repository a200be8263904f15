//! `ash snapshot restore`, where nothing is yet.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use ash_snapshot::{Damaged, Restore, RestoreTook, Restored, Snapshot, SnapshotError, Tree};
use serde_json::{Value, json};

use super::said::{Times, path_document, path_text, tell_copied};
use super::stop::Stop;
use super::store::{self, Store};
use super::telling::Telling;
use super::whose::Whose;
use super::{HOME, MAX_ENTRIES, threads};
use crate::cli::Hint;
use crate::cli::exit::{Exit, Mistake};
use crate::cli::format::{bytes, things};
use crate::cli::output::{Screen, note, print};

/// What to restore
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Only what is at this path of the snapshot
    #[arg(long)]
    path: Option<PathBuf>,
    /// Where the home that was captured with it is to appear
    #[arg(long, value_name = "DIR", conflicts_with = "path")]
    pub(super) home: Option<PathBuf>,
    /// Restore this tree of the snapshot, such as `home`, and not the workspace
    #[arg(long, value_name = "NAME", conflicts_with_all = ["home", "in_place"])]
    root: Option<String>,
    /// Leave out files that are damaged in the store, and name them
    #[arg(long)]
    leave_out_damaged: bool,
}

/// Which snapshot is wanted where.
pub(super) struct Wanted<'a> {
    pub(super) snapshot: &'a str,
    pub(super) target: &'a Path,
    pub(super) whose: &'a Whose,
}

pub(super) fn restore(
    screen: &Screen,
    store: &Store,
    stop: &Stop,
    wanted: &Wanted<'_>,
    args: &Args,
) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let target = wanted.target;
    let snapshot = store.find(wanted.snapshot, wanted.whose.source.as_deref())?;
    let tree = match &args.root {
        Some(name) => snapshot.root(name).map_err(super::of)?,
        None => store::root_of(&snapshot)?,
    };
    let home = args.home.as_deref().map(|home| Ok::<_, anyhow::Error>((home_of(&snapshot)?, home)));
    let home = home.transpose()?;
    let targets = [Some(target), args.home.as_deref()].into_iter().flatten();
    for target in targets {
        store.refuse_target(target)?;
        if target.symlink_metadata().is_ok() {
            return Err(super::of(SnapshotError::Exists(target.to_owned())));
        }
    }
    let damaged = if args.leave_out_damaged { Damaged::LeaveOut } else { Damaged::Refuse };
    let path = args.path.as_deref().map(store::path_in_snapshot).transpose()?.unwrap_or_default();
    let one = |tree: &Tree, target: &Path| -> anyhow::Result<Restored> {
        let telling = Telling::new(screen, stop, "restoring", "file");
        let restore = Restore {
            tree,
            path: &path,
            damaged,
            target,
            owner: None,
            max_entries: MAX_ENTRIES,
            max_bytes: u64::MAX,
            threads: threads(),
            progress: &|progress| telling.progress(progress),
        };
        let restored = store.repository.restore(&restore);
        telling.end();
        let hint =
            "ash snapshot verify names what is damaged; --leave-out-damaged restores the rest";
        match restored {
            Err(error @ SnapshotError::Damaged { .. }) => {
                Err(anyhow::Error::from(error).context(Hint(hint)))
            }
            // If nobody named a path, it is the store that lacks something.
            Err(error @ SnapshotError::Missing(_)) if path.is_empty() => {
                Err(anyhow::Error::from(error).context(Hint(hint)))
            }
            restored => stop.of(restored),
        }
    };
    let half = |done: &Path| format!("{} was restored, and the rest not", done.display());
    let (restored, of_home) = match home {
        None => (one(tree, target)?, None),
        // There is no other place for it before.
        Some((home_tree, home)) if store::to_be(home).starts_with(store::to_be(target)) => {
            let restored = one(tree, target)?;
            let of_home = one(home_tree, home).with_context(|| half(target))?;
            (restored, Some(of_home))
        }
        // The home first: who sees the workspace has both.
        Some((home_tree, home)) => {
            let of_home = one(home_tree, home)?;
            let restored = one(tree, target).with_context(|| half(home))?;
            (restored, Some(of_home))
        }
    };
    say(screen, &snapshot, &restored, of_home.as_ref(), begin)?;
    if args.home.is_none() && args.root.is_none() && !screen.json && snapshot.root(HOME).is_ok() {
        note("it has a home too: --home DIR restores it");
    }
    let is_whole =
        restored.left_out.is_empty() && of_home.is_none_or(|home| home.left_out.is_empty());
    Ok(if is_whole { Exit::Ok } else { Exit::Failure })
}

/// The home that was captured with a workspace.
pub(super) fn home_of(snapshot: &Snapshot) -> anyhow::Result<&Tree> {
    let missing = |_| Mistake::NotFound(format!("the snapshot {} has no home", snapshot.id));
    Ok(snapshot.root(HOME).map_err(missing)?)
}

fn times(took: RestoreTook) -> [(&'static str, std::time::Duration); 5] {
    let RestoreTook { look, trees, files, finish, sync } = took;
    [("look", look), ("trees", trees), ("files", files), ("finish", finish), ("sync", sync)]
}

fn say(
    screen: &Screen,
    snapshot: &Snapshot,
    restored: &Restored,
    home: Option<&Restored>,
    begin: Instant,
) -> anyhow::Result<()> {
    let both = home.map_or(restored.took, |home| RestoreTook {
        look: restored.took.look + home.took.look,
        trees: restored.took.trees + home.took.trees,
        files: restored.took.files + home.took.files,
        finish: restored.took.finish + home.took.finish,
        sync: restored.took.sync + home.took.sync,
    });
    let times = Times { total: begin.elapsed(), steps: &times(both) };
    if screen.json {
        let left_out = |restored: &Restored| -> Vec<Value> {
            restored.left_out.iter().map(|path| path_document(path)).collect()
        };
        let mut document = json!({
            "id": snapshot.id, "files": restored.files, "bytes": restored.bytes,
            "leftOut": left_out(restored), "copied": restored.copied, "milliseconds": times.json(),
        });
        if let Some(home) = home {
            document["home"] = json!({
                "files": home.files, "bytes": home.bytes, "leftOut": left_out(home),
                "copied": home.copied,
            });
        }
        return Screen::document(&document);
    }
    let (files, size) = (things(restored.files, "file"), bytes(restored.bytes));
    let beside = home.map(|home| {
        let (files, size) = (things(home.files, "file"), bytes(home.bytes));
        format!("; home: {files}, {size}")
    });
    print(&format!("{files}, {size}{}; {}\n", beside.unwrap_or_default(), times.text()))?;
    for (restored, beginning) in [(Some(restored), ""), (home, "home/")] {
        for path in restored.map_or(&[][..], |restored| &restored.left_out) {
            note(&format!("damaged, left out: {beginning}{}", path_text(path)));
        }
    }
    tell_copied(restored.copied + home.map_or(0, |home| home.copied));
    Ok(())
}
