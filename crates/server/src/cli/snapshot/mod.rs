//! `ash snapshot`: directories in a store, and back. No server is needed.

mod capture;
mod check;
mod in_place;
mod look;
mod restore;
mod said;
mod stop;
mod store;
mod telling;
mod whose;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use ash_snapshot::{SnapshotError, objects};
use clap::Subcommand;
use serde_json::json;

use super::Hint;
use super::exit::{Exit, Mistake};
use super::output::Screen;
use stop::Stop;
use store::{Cache, Store, Where};
use whose::Whose;

/// What a directory is called in the snapshots of this command, and the home beside it.
const ROOT: &str = "workspace";
const HOME: &str = "home";

/// How many names a snapshot may have.
const MAX_ENTRIES: u64 = 20_000_000;

/// Capture directories for the price of what changed, and restore them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Show no progress
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Capture a directory
    Capture {
        #[command(flatten)]
        args: capture::Args,
        #[command(flatten)]
        store: Where,
        #[command(flatten)]
        whose: Whose,
    },
    /// List snapshots, oldest first
    List {
        #[command(flatten)]
        store: Where,
        #[command(flatten)]
        whose: Whose,
    },
    /// List what is in a snapshot
    Show {
        /// Its id, the beginning of it, or `latest`
        snapshot: String,
        #[command(flatten)]
        store: Where,
        #[command(flatten)]
        whose: Whose,
    },
    /// Tell how one snapshot became another
    Diff {
        /// The earlier one, or `empty`
        before: String,
        /// The later one
        after: String,
        #[command(flatten)]
        store: Where,
        #[command(flatten)]
        whose: Whose,
    },
    /// Restore a snapshot, or one path of it, where nothing is yet; or over a directory
    Restore {
        /// Its id, the beginning of it, or `latest`
        snapshot: String,
        /// Where it is to appear
        target: PathBuf,
        #[command(flatten)]
        store: Where,
        #[command(flatten)]
        whose: Whose,
        #[command(flatten)]
        args: restore::Args,
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
        #[command(flatten)]
        args: check::GcArgs,
        #[command(flatten)]
        whose: Whose,
    },
}

pub(super) fn run(args: Args, env: &BTreeMap<String, String>, json: bool) -> anyhow::Result<Exit> {
    let mut screen = Screen::of(json, env);
    screen.live &= !args.quiet;
    let open = |store: &Where| Store::open(store, env, Cache::Used);
    match args.command {
        Command::Capture { args, store, whose } => {
            let asked = capture::Asked::of(args, &whose)?;
            asked.real().into_iter().try_for_each(|real| store.refuse(real))?;
            let store = Store::make(&store, env)?;
            asked.capture(&screen, &store, &Stop::listen()?)
        }
        Command::List { store, whose } => look::list(&screen, &open(&store)?, &whose),
        Command::Show { snapshot, store, whose } => {
            look::show(&screen, &open(&store)?, &snapshot, &whose)
        }
        Command::Diff { before, after, store, whose } => {
            look::diff(&screen, &open(&store)?, [&before, &after], &whose)
        }
        Command::Restore { snapshot, target, store, whose, args, in_place } => {
            let store = open(&store)?;
            let stop = Stop::listen()?;
            let wanted = restore::Wanted { snapshot: &snapshot, target: &target, whose: &whose };
            if in_place.in_place {
                let home = args.home.as_deref();
                return in_place::restore(&screen, &store, &stop, &wanted, home, &in_place);
            }
            restore::restore(&screen, &store, &stop, &wanted, &args)
        }
        // What is in the store is verified, not what is kept of it here.
        Command::Verify { store, repair } => {
            let store = Store::open(&store, env, Cache::Passed)?;
            check::verify(&screen, &store, &Stop::listen()?, repair)
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
        Command::Gc { store, args, whose } => {
            args.check(&whose)?;
            check::gc(&screen, &open(&store)?, &Stop::listen()?, &args, &whose)
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
        error @ SnapshotError::Damaged { .. } => {
            anyhow::Error::from(error).context(Hint("ash snapshot verify names what is damaged"))
        }
        SnapshotError::Unreadable { .. } => {
            anyhow::Error::from(Mistake::Refused(format!("{error}; nothing was removed")))
                .context(Hint("remove it with ash snapshot forget"))
        }
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
    let is_nowhere = objects::is_missing_bucket(source);
    let error = anyhow::Error::from(error);
    if is_nowhere {
        let what = Mistake::NotFound("the bucket of the store is not there".to_owned());
        return error
            .context(what)
            .context(Hint("make it first: a store is put into one, and makes none"));
    }
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
