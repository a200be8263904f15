//! `ash snapshot capture`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ash_snapshot::{Capture, Captured, MAX_SOURCE, Root, Skipped, Snapshot, State};
use serde_json::json;

use super::said::Times;
use super::stop::Stop;
use super::store::{self, Store};
use super::telling::Telling;
use super::whose::Whose;
use super::{HOME, ROOT, threads};
use crate::cli::Hint;
use crate::cli::exit::{Exit, Mistake};
use crate::cli::format::{bytes, things};
use crate::cli::output::{Screen, note, plain, print};

/// What to capture
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// The directory
    dir: PathBuf,
    /// A home to capture with it, without its caches
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// What to call the snapshot
    #[arg(long)]
    label: Option<String>,
    /// A path in the directory that is left out; can be given several times
    #[arg(long, value_name = "PATH")]
    exclude: Vec<PathBuf>,
}

/// What is to be captured, and is there.
pub(super) struct Asked {
    args: Args,
    source: String,
    workspace: Tree,
    home: Option<Tree>,
    /// When it was asked.
    begin: Instant,
    /// How long it took to find the caches of the home.
    caches: Duration,
}

/// A directory, and what is left out of it.
struct Tree {
    real: PathBuf,
    excluded: Vec<Vec<u8>>,
}

impl Asked {
    /// Looks whether it can be done, before there is a store.
    pub(super) fn of(args: Args, whose: &Whose) -> anyhow::Result<Self> {
        let begin = Instant::now();
        let real = directory(&args.dir)?;
        let source = whose.of(&real);
        if source.len() as u64 > MAX_SOURCE {
            let long = format!("the name of the source is longer than {MAX_SOURCE} bytes");
            return Err(anyhow::Error::from(Mistake::Usage(long))
                .context(Hint("give it a shorter one with --source NAME")));
        }
        let excluded = args.exclude.iter().map(|path| store::inner_path(&real, path));
        let excluded = excluded.collect::<anyhow::Result<Vec<Vec<u8>>>>()?;
        let mut workspace = Tree { real, excluded };
        let home = args.home.as_deref().map(directory).transpose()?;
        let before = Instant::now();
        let home = home.map(|real| workspace.beside(real)).transpose()?;
        let caches = before.elapsed();
        Ok(Self { args, source, workspace, home, begin, caches })
    }

    /// Where the directories are.
    pub(super) fn real(&self) -> Vec<&Path> {
        self.trees().map(|(_, tree)| &*tree.real).collect()
    }

    fn trees(&self) -> impl Iterator<Item = (&'static str, &Tree)> {
        [(ROOT, &self.workspace)].into_iter().chain(self.home.as_ref().map(|home| (HOME, home)))
    }

    pub(super) fn capture(
        mut self,
        screen: &Screen,
        store: &Store,
        stop: &Stop,
    ) -> anyhow::Result<Exit> {
        // A store in a directory does not capture itself.
        for tree in [Some(&mut self.workspace), self.home.as_mut()].into_iter().flatten() {
            tree.excluded.extend(store.inside(&tree.real)?);
        }
        let saved = store.state_of(&self.workspace.real);
        let mut state = saved.as_deref().map(State::load).unwrap_or_default();
        let parent = store.parent(&self.source)?;
        let telling = Telling::new(screen, stop, "capturing", "file");
        let roots = self.trees().map(|(name, tree)| {
            let Tree { real, excluded } = tree;
            Root { name, path: real, excluded }
        });
        let roots: Vec<Root<'_>> = roots.collect();
        let capture = Capture {
            roots: &roots,
            source: Some(&self.source),
            parent,
            label: self.args.label.as_deref(),
            unless_like: None,
            freeze: None,
            threads: threads(),
            progress: &|progress| telling.progress(progress),
        };
        let captured = store.repository.capture(&capture, &mut state);
        telling.end();
        let captured = stop.of(captured)?;
        if let Some(saved) = saved
            && let Err(error) = store.make_states().and_then(|()| state.save(&saved))
        {
            let saved = saved.display();
            note(&format!("warning: the next capture reads everything again: {saved}: {error}"));
        }
        say(screen, &captured, self.caches, self.begin)?;
        Ok(Exit::Ok)
    }
}

impl Tree {
    /// A home beside this directory. If one is in the other, it is captured once.
    fn beside(&mut self, home: PathBuf) -> anyhow::Result<Self> {
        if home == self.real {
            return Err(Mistake::Usage("the directory is the home itself".to_owned()).into());
        }
        let caches = ash_snapshot::caches(&home);
        let mut excluded =
            caches.with_context(|| format!("could not look into {}", home.display()))?;
        if let Ok(inside) = self.real.strip_prefix(&home) {
            excluded.push(store::bytes_of(inside).to_vec());
        }
        if let Ok(inside) = home.strip_prefix(&self.real) {
            self.excluded.push(store::bytes_of(inside).to_vec());
        }
        Ok(Self { real: home, excluded })
    }
}

/// Where a directory is, whatever it was called by.
pub(super) fn directory(path: &Path) -> anyhow::Result<PathBuf> {
    let real = match path.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(Mistake::NotFound(format!("{} is not there", path.display())).into());
        }
        real => real.with_context(|| format!("could not open {}", path.display()))?,
    };
    if !real.is_dir() {
        return Err(Mistake::NotFound(format!("{} is no directory", path.display())).into());
    }
    Ok(real)
}

/// Says what was there and is not in the snapshot, or not as it was.
fn tell_left_out(snapshot: &Snapshot) {
    let Skipped { sockets, fifos, devices, mounts, attributes, .. } = snapshot.skipped;
    let kinds = [(sockets, "socket"), (fifos, "pipe"), (devices, "device"), (mounts, "mount")];
    let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
    let kinds: Vec<String> = kinds.map(|(count, what)| things(count, what)).collect();
    if !kinds.is_empty() {
        note(&format!("left out: {}", kinds.join(", ")));
    }
    for path in &snapshot.stripped {
        note(&format!("warning: not kept: some attributes of {}", plain(path)));
    }
    if attributes > snapshot.stripped.len() as u64 {
        note(&format!("warning: not kept: {} in all", things(attributes, "attribute")));
    }
    if snapshot.unfrozen_scan {
        note("warning: not everything was looked at while writers stood still");
    }
}

fn say(
    screen: &Screen,
    captured: &Captured,
    caches: Duration,
    begin: Instant,
) -> anyhow::Result<()> {
    let Captured { snapshot, took, .. } = captured;
    let steps = [
        ("caches", caches),
        ("scan", took.scan),
        ("look", took.plan + took.look),
        ("store", took.store),
        ("read", took.reading),
        ("hash", took.hashing),
        ("compress", took.compressing),
        ("write", took.writing),
        ("trees", took.trees),
        ("sync", took.sync),
    ];
    let times = Times { total: begin.elapsed(), steps: &steps };
    if screen.json {
        return Screen::document(&json!({
            "id": snapshot.id, "source": snapshot.source, "parent": snapshot.parent,
            "files": snapshot.files(), "bytes": snapshot.bytes(),
            "newBytes": snapshot.new_bytes, "storedBytes": snapshot.stored_bytes,
            "skipped": snapshot.skipped, "unstable": snapshot.unstable,
            "unreadable": snapshot.unreadable, "stripped": snapshot.stripped,
            "unfrozenScan": snapshot.unfrozen_scan, "milliseconds": times.json(),
        }));
    }
    tell_left_out(snapshot);
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
        "{}  {}, {}; {} new, {} stored, {}\n",
        snapshot.id,
        things(snapshot.files(), "file"),
        bytes(snapshot.bytes()),
        bytes(snapshot.new_bytes),
        bytes(snapshot.stored_bytes),
        times.text(),
    ))
}
