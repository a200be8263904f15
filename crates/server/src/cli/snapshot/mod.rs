//! `ash snapshot`: directories in a store, and back. No server is needed.

mod in_place;
mod look;
mod store;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ash_snapshot::{Capture, Damaged, Others, Progress, Restore, Root, SnapshotError, Verify};
use clap::Subcommand;
use serde_json::json;

use super::Hint;
use super::exit::{Exit, Mistake};
use super::format::{bytes, things};
use super::live::{Live, TICK};
use super::output::{Screen, note, plain, print};
use store::{Cache, Store, Where};

/// What a directory is called in the snapshots of this command.
const ROOT: &str = "workspace";

/// How many names a snapshot may have.
const MAX_ENTRIES: u64 = 20_000_000;

/// Capture directories for the price of what changed, and restore them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Capture a directory
    Capture {
        /// The directory
        dir: PathBuf,
        #[command(flatten)]
        store: Where,
        /// What to call the snapshot
        #[arg(long)]
        label: Option<String>,
        /// A path in the directory that is left out; can be given several times
        #[arg(long, value_name = "PATH")]
        exclude: Vec<PathBuf>,
    },
    /// List snapshots, oldest first
    List {
        #[command(flatten)]
        store: Where,
    },
    /// List what is in a snapshot
    Show {
        /// Its id, the beginning of it, or `latest`
        snapshot: String,
        #[command(flatten)]
        store: Where,
    },
    /// Tell how one snapshot became another
    Diff {
        /// The earlier one, or `empty`
        before: String,
        /// The later one
        after: String,
        #[command(flatten)]
        store: Where,
    },
    /// Restore a snapshot, or one path of it, where nothing is yet; or over a directory
    Restore {
        /// Its id, the beginning of it, or `latest`
        snapshot: String,
        /// Where it is to appear
        target: PathBuf,
        #[command(flatten)]
        store: Where,
        /// Only what is at this path of the snapshot
        #[arg(long)]
        path: Option<PathBuf>,
        /// Leave out files that are damaged in the store, and name them
        #[arg(long)]
        leave_out_damaged: bool,
        #[command(flatten)]
        in_place: in_place::Args,
    },
    /// Read everything back, and name what is damaged; ends with 1 if something is
    Verify {
        #[command(flatten)]
        store: Where,
        /// Let the next captures store again what is damaged, as far as they find it
        #[arg(long)]
        repair: bool,
    },
    /// Remove a snapshot
    Forget {
        /// Its id, or the beginning of it
        snapshot: String,
        #[command(flatten)]
        store: Where,
    },
    /// Remove what no snapshot needs any more
    Gc {
        #[command(flatten)]
        store: Where,
        /// Forget all snapshots but the last ones first
        #[arg(long, value_name = "COUNT")]
        keep_last: Option<usize>,
        /// Nobody else uses the store now: remove at once what otherwise waits for a day
        #[arg(long)]
        alone: bool,
    },
}

pub(super) fn run(args: Args, env: &BTreeMap<String, String>, json: bool) -> anyhow::Result<Exit> {
    let screen = Screen::of(json, env);
    let open = |store: &Where| Store::open(store, env, Cache::Used);
    match args.command {
        Command::Capture { dir, store, label, exclude } => {
            let store = Store::make(&store, env)?;
            capture(&screen, &store, &dir, label.as_deref(), &exclude)
        }
        Command::List { store } => look::list(&screen, &open(&store)?),
        Command::Show { snapshot, store } => look::show(&screen, &open(&store)?, &snapshot),
        Command::Diff { before, after, store } => {
            look::diff(&screen, &open(&store)?, &before, &after)
        }
        Command::Restore { snapshot, target, store, in_place, .. } if in_place.in_place => {
            let store = open(&store)?;
            in_place::restore(&screen, &store, &snapshot, &target, &in_place)
        }
        Command::Restore { snapshot, target, store, path, leave_out_damaged, .. } => {
            let damaged = if leave_out_damaged { Damaged::LeaveOut } else { Damaged::Refuse };
            let store = open(&store)?;
            restore(&screen, &store, &snapshot, &target, path.as_deref(), damaged)
        }
        // What is in the store is verified, not what is kept of it here.
        Command::Verify { store, repair } => {
            verify(&screen, &Store::open(&store, env, Cache::Passed)?, repair)
        }
        Command::Forget { snapshot, store } => {
            let store = open(&store)?;
            let id = store.find_id(&snapshot)?;
            store.repository.forget(id).map_err(of)?;
            if screen.json {
                Screen::document(&json!({ "forgotten": [id] }))?;
            }
            Ok(Exit::Ok)
        }
        Command::Gc { store, keep_last, alone } => {
            let others = if alone { Others::AreAway } else { Others::MayCapture };
            gc(&screen, &open(&store)?, keep_last, others)
        }
    }
}

/// An error of a repository, as commands have it.
fn of(error: SnapshotError) -> anyhow::Error {
    match error {
        SnapshotError::Missing(what) => Mistake::NotFound(format!("{what} is not there")).into(),
        error @ SnapshotError::Exists(_) => anyhow::Error::from(error).context(Hint(
            "name a place where nothing is yet, or restore over a directory with --in-place",
        )),
        error @ SnapshotError::Damaged { .. } => anyhow::Error::from(error).context(Hint(
            "ash snapshot verify names what is damaged; restore --leave-out-damaged leaves it out",
        )),
        SnapshotError::Store { .. } => of_store(error),
        error @ (SnapshotError::Tree { .. }
        | SnapshotError::Format(_)
        | SnapshotError::TooMuch { .. }
        | SnapshotError::Collected
        | SnapshotError::Cancelled) => error.into(),
    }
}

/// An error of a store, with what to do about it.
fn of_store(error: SnapshotError) -> anyhow::Error {
    let SnapshotError::Store { source, .. } = &error else { return error.into() };
    let kind = source.kind();
    let is_silent =
        matches!(kind, ErrorKind::NotConnected | ErrorKind::TimedOut | ErrorKind::ResourceBusy);
    // Those of a directory have nothing in them.
    let is_refused = kind == ErrorKind::PermissionDenied && source.get_ref().is_some();
    let error = anyhow::Error::from(error);
    if is_silent {
        let what = Mistake::Unreachable("the store does not answer".to_owned());
        return error.context(what).context(Hint(
            "try again; --endpoint or AWS_ENDPOINT_URL says where a server is that is not Amazon's",
        ));
    }
    if is_refused {
        let what = Mistake::Unauthorized("the store refuses".to_owned());
        return error.context(what).context(Hint(
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or GOOGLE_APPLICATION_CREDENTIALS, say who asks",
        ));
    }
    error
}

/// How many threads work.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Tells how far something is, from several threads.
struct Telling {
    live: Mutex<(Live, Instant)>,
    doing: &'static str,
    what: &'static str,
}

impl Telling {
    fn new(screen: &Screen, doing: &'static str, what: &'static str) -> Self {
        Self { live: Mutex::new((Live::new(screen, doing), Instant::now())), doing, what }
    }

    fn progress(&self, progress: Progress) -> bool {
        // Whoever finds it taken has nothing newer to say.
        let Ok(mut live) = self.live.try_lock() else { return true };
        let (live, told) = &mut *live;
        if told.elapsed() >= TICK {
            *told = Instant::now();
            let Progress { files, all_files, bytes: done } = progress;
            let (doing, what) = (self.doing, self.what);
            live.update(&format!(
                "{doing} {files} of {}, {}",
                things(all_files, what),
                bytes(done)
            ));
            live.tick();
        }
        true
    }

    fn end(self) {
        self.live.into_inner().unwrap_or_else(PoisonError::into_inner).0.wipe();
    }
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

fn capture(
    screen: &Screen,
    store: &Store,
    dir: &std::path::Path,
    label: Option<&str>,
    exclude: &[PathBuf],
) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let real = dir.canonicalize();
    let real = real.with_context(|| format!("could not open {}", dir.display()))?;
    let excluded = exclude.iter().map(|path| store::inner_path(&real, path));
    let mut excluded = excluded.collect::<anyhow::Result<Vec<Vec<u8>>>>()?;
    // A store in the directory does not capture itself.
    excluded.extend(store.inside(&real)?);
    let saved = store.state_of(&real);
    let mut state = saved.as_deref().map(ash_snapshot::State::load).unwrap_or_default();
    let telling = Telling::new(screen, "capturing", "file");
    let roots = [Root { name: ROOT, path: dir, excluded: &excluded }];
    let capture = Capture {
        roots: &roots,
        parent: None,
        label,
        freeze: None,
        threads: threads(),
        progress: &|progress| telling.progress(progress),
    };
    let captured = store.repository.capture(&capture, &mut state);
    telling.end();
    let captured = captured.map_err(of)?;
    if let Some(saved) = saved
        && let Err(error) = store.make_states().and_then(|()| state.save(&saved))
    {
        let saved = saved.display();
        note(&format!("warning: the next capture reads everything again: {saved}: {error}"));
    }
    let (snapshot, took, total) = (captured.snapshot, captured.took, begin.elapsed());
    if screen.json {
        let document = json!({
            "id": snapshot.id, "files": snapshot.files(), "bytes": snapshot.bytes(),
            "newBytes": snapshot.new_bytes, "storedBytes": snapshot.stored_bytes,
            "skipped": snapshot.skipped, "unstable": snapshot.unstable,
            "unreadable": snapshot.unreadable,
            "milliseconds": {
                "scan": milliseconds(took.scan), "look": milliseconds(took.plan + took.look),
                "store": milliseconds(took.store), "read": milliseconds(took.reading),
                "hash": milliseconds(took.hashing), "compress": milliseconds(took.compressing),
                "write": milliseconds(took.writing), "trees": milliseconds(took.trees),
                "sync": milliseconds(took.sync), "total": milliseconds(total),
            },
        });
        Screen::document(&document)?;
        return Ok(Exit::Ok);
    }
    for path in &snapshot.unstable {
        note(&format!("warning: {} changed each time it was read", plain(path)));
    }
    for path in &snapshot.unreadable {
        note(&format!("warning: {} could not be read", plain(path)));
    }
    if snapshot.skipped.unreadable > snapshot.unreadable.len() as u64 {
        let all = things(snapshot.skipped.unreadable, "path");
        note(&format!("warning: {all} could not be read in all"));
    }
    print(&format!(
        "{}  {}, {}; {} new, {} stored, {} ms\n",
        snapshot.id,
        things(snapshot.files(), "file"),
        bytes(snapshot.bytes()),
        bytes(snapshot.new_bytes),
        bytes(snapshot.stored_bytes),
        total.as_millis(),
    ))?;
    Ok(Exit::Ok)
}

fn restore(
    screen: &Screen,
    store: &Store,
    name: &str,
    target: &std::path::Path,
    path: Option<&std::path::Path>,
    damaged: Damaged,
) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let snapshot = store.find(name)?;
    let telling = Telling::new(screen, "restoring", "file");
    let path = path.map(store::bytes_of).unwrap_or_default();
    let restore = Restore {
        tree: store::root_of(&snapshot)?,
        path: path.strip_suffix(b"/").unwrap_or(path),
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
    let restored = restored.map_err(of)?;
    let left_out: Vec<String> =
        restored.left_out.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    if screen.json {
        Screen::document(&json!({
            "id": snapshot.id, "files": restored.files, "bytes": restored.bytes,
            "leftOut": left_out, "milliseconds": { "total": milliseconds(begin.elapsed()) },
        }))?;
    } else {
        let (files, size) = (things(restored.files, "file"), bytes(restored.bytes));
        print(&format!("{files}, {size}, {} ms\n", begin.elapsed().as_millis()))?;
        left_out.iter().for_each(|path| note(&format!("damaged, left out: {}", plain(path))));
    }
    Ok(if left_out.is_empty() { Exit::Ok } else { Exit::Failure })
}

fn verify(screen: &Screen, store: &Store, repair: bool) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let telling = Telling::new(screen, "reading", "pack");
    let verify = Verify {
        threads: threads(),
        max_entries: MAX_ENTRIES,
        progress: &|progress| telling.progress(progress),
    };
    let verified = store.repository.verify(&verify);
    telling.end();
    let verified = verified.map_err(of)?;
    let mut distrusted = 0;
    if repair && !verified.is_whole() {
        distrusted = store.repository.distrust(&verified).map_err(of)?;
        // Who remembers that a file was stored does not read it again.
        store.forget_states()?;
    }
    let shown = |path: &(String, Vec<u8>)| String::from_utf8_lossy(&path.1).into_owned();
    if screen.json {
        let packs = verified.damaged_packs.iter();
        let packs: Vec<_> =
            packs.map(|(name, reason)| json!({ "pack": name, "reason": reason })).collect();
        let damaged = verified.damaged.iter().map(|damaged| {
            let paths: Vec<String> = damaged.paths.iter().map(shown).collect();
            json!({ "id": damaged.id, "reason": damaged.record, "paths": paths })
        });
        Screen::document(&json!({
            "whole": verified.is_whole(), "snapshots": verified.snapshots,
            "packs": verified.packs, "chunks": verified.chunks, "bytes": verified.bytes,
            "distrustedPacks": distrusted, "damagedPacks": packs, "damagedSnapshots": damaged.collect::<Vec<_>>(),
            "milliseconds": { "total": milliseconds(begin.elapsed()) },
        }))?;
    } else {
        let (snapshots, packs) =
            (things(verified.snapshots, "snapshot"), things(verified.packs, "pack"));
        print(&format!("{snapshots}, {packs}, {} read back\n", bytes(verified.bytes)))?;
        for (_, reason) in &verified.damaged_packs {
            print(&format!("damaged: {}\n", plain(reason)))?;
        }
        for damaged in &verified.damaged {
            if let Some(reason) = &damaged.record {
                print(&format!("snapshot {}: {}\n", damaged.id, plain(reason)))?;
            }
            for path in &damaged.paths {
                let path = shown(path);
                let path = if path.is_empty() { "all of it".to_owned() } else { plain(&path) };
                print(&format!("snapshot {}: {path}\n", damaged.id))?;
            }
        }
    }
    if verified.is_whole() {
        return Ok(Exit::Ok);
    }
    if repair && !screen.json {
        note(
            "the next capture of a directory reads all of it, and stores again what is damaged and found",
        );
    }
    anyhow::bail!("the store is damaged")
}

fn gc(
    screen: &Screen,
    store: &Store,
    keep_last: Option<usize>,
    others: Others,
) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let forgotten = match keep_last {
        Some(count) => store.repository.keep_last(count, others).map_err(of)?,
        None => Vec::new(),
    };
    let collected = store.repository.gc(others).map_err(of)?;
    if screen.json {
        Screen::document(&json!({
            "forgotten": forgotten, "kept": collected.kept, "waiting": collected.waiting,
            "removed": collected.removed, "removedBytes": collected.removed_bytes,
            "rewritten": collected.rewritten, "rewrittenBytes": collected.rewritten_bytes,
            "unreadable": collected.unreadable,
            "milliseconds": { "total": milliseconds(begin.elapsed()) },
        }))?;
        return Ok(Exit::Ok);
    }
    print(&format!(
        "forgot {}; removed {}, {}; wrote {} anew, {}; kept {}, {} more to be removed later\n",
        things(forgotten.len() as u64, "snapshot"),
        things(collected.removed, "pack"),
        bytes(collected.removed_bytes),
        things(collected.rewritten, "pack"),
        bytes(collected.rewritten_bytes),
        things(collected.kept, "pack"),
        collected.waiting,
    ))?;
    Ok(Exit::Ok)
}
