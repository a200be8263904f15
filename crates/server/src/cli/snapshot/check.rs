//! `ash snapshot verify` and `gc`: whether everything is there, and removing what nobody needs.

use std::time::Instant;

use ash_snapshot::{
    Collect, CollectTook, Collected, Others, SnapshotError, SnapshotId, Verified, Verify,
    VerifyTook,
};
use serde_json::{Value, json};

use super::said::{Times, path_document, path_text};
use super::stop::Stop;
use super::store::Store;
use super::telling::Telling;
use super::whose::Whose;
use super::{MAX_ENTRIES, ROOT, of, threads};
use crate::cli::Hint;
use crate::cli::exit::{Exit, Mistake};
use crate::cli::format::{bytes, things};
use crate::cli::output::{Screen, note, plain, print};

pub(super) fn verify(
    screen: &Screen,
    store: &Store,
    stop: &Stop,
    repair: bool,
) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    let telling = Telling::new(screen, stop, "reading", "pack");
    let verify = Verify {
        threads: threads(),
        max_entries: MAX_ENTRIES,
        progress: &|progress| telling.progress(progress),
    };
    let verified = store.repository.verify(&verify);
    telling.end();
    let verified = stop.of(verified)?;
    let mut distrusted = 0;
    if repair && !verified.is_whole() {
        distrusted = store.repository.distrust(&verified).map_err(of)?;
        // Who remembers that a file was stored does not read it again.
        store.forget_states()?;
    }
    let VerifyTook { look, packs, snapshots } = verified.took;
    let steps = [("look", look), ("packs", packs), ("snapshots", snapshots)];
    let times = Times { total: begin.elapsed(), steps: &steps };
    if screen.json {
        Screen::document(&document(&verified, distrusted, &times))?;
    } else {
        say(&verified, &times)?;
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

fn document(verified: &Verified, distrusted: u64, times: &Times<'_>) -> Value {
    let packs = verified.damaged_packs.iter();
    let packs: Vec<_> =
        packs.map(|(name, reason)| json!({ "pack": name, "reason": reason })).collect();
    let damaged = verified.damaged.iter().map(|damaged| {
        let path = |(root, path): &(String, Vec<u8>)| {
            let mut document = path_document(path);
            document["root"] = json!(root);
            document
        };
        let paths: Vec<Value> = damaged.paths.iter().map(path).collect();
        json!({ "id": damaged.id, "reason": damaged.record, "paths": paths })
    });
    json!({
        "whole": verified.is_whole(), "snapshots": verified.snapshots,
        "packs": verified.packs, "chunks": verified.chunks, "bytes": verified.bytes,
        "distrustedPacks": distrusted, "damagedPacks": packs,
        "damagedSnapshots": damaged.collect::<Vec<_>>(), "milliseconds": times.json(),
    })
}

fn say(verified: &Verified, times: &Times<'_>) -> anyhow::Result<()> {
    let (snapshots, packs) =
        (things(verified.snapshots, "snapshot"), things(verified.packs, "pack"));
    let (size, times) = (bytes(verified.bytes), times.text());
    print(&format!("{snapshots}, {packs}, {size} read back; {times}\n"))?;
    for (_, reason) in &verified.damaged_packs {
        print(&format!("damaged: {}\n", plain(reason)))?;
    }
    for damaged in &verified.damaged {
        if let Some(reason) = &damaged.record {
            print(&format!("snapshot {}: {}\n", damaged.id, plain(reason)))?;
        }
        for (root, path) in &damaged.paths {
            let path = match (root.as_str(), path_text(path)) {
                (ROOT, path) if path.is_empty() => "all of it".to_owned(),
                (ROOT, path) => path,
                (root, path) => format!("{}/{path}", plain(root)),
            };
            print(&format!("snapshot {}: {path}\n", damaged.id))?;
        }
    }
    Ok(())
}

/// What to collect
#[derive(Debug, clap::Args)]
pub(super) struct GcArgs {
    /// Forget all snapshots of each source but the last ones first; with --source, of that one alone
    #[arg(long, value_name = "COUNT")]
    keep_last: Option<usize>,
    /// With --keep-last 0: yes, forget all of them
    #[arg(long, requires = "keep_last")]
    forget_all: bool,
    /// Nobody else uses the store now: remove at once what otherwise waits for a day
    #[arg(long)]
    alone: bool,
}

impl GcArgs {
    /// Refuses what is most likely a mistake, before anything is looked at.
    pub(super) fn check(&self, whose: &Whose) -> anyhow::Result<()> {
        if self.keep_last == Some(0) && !self.forget_all {
            let wrong = "--keep-last 0 forgets every snapshot".to_owned();
            return Err(anyhow::Error::from(Mistake::Usage(wrong)).context(Hint(
                "if that is meant, say --forget-all too; --source NAME forgets those of one alone",
            )));
        }
        if whose.source.is_some() && self.keep_last.is_none() {
            let wrong =
                "--source says whose snapshots are forgotten, and none are: --keep-last is missing";
            return Err(Mistake::Usage(wrong.to_owned()).into());
        }
        Ok(())
    }
}

pub(super) fn gc(
    screen: &Screen,
    store: &Store,
    stop: &Stop,
    args: &GcArgs,
    whose: &Whose,
) -> anyhow::Result<Exit> {
    let begin = Instant::now();
    if let Some(source) = &whose.source {
        store.has_any_of(source)?;
    }
    let others = if args.alone { Others::AreAway } else { Others::MayCapture };
    let forgotten = match (args.keep_last, &whose.source) {
        (Some(count), Some(source)) => store.repository.keep_last_of(source, count, others),
        (Some(count), None) => store.repository.keep_last(count, others),
        (None, _) => Ok(Vec::new()),
    };
    let forgotten = forgotten.map_err(|error| store.not_collected(error))?;
    let forget = begin.elapsed();
    let telling = Telling::new(screen, stop, "collecting", "step");
    let collect = Collect { others, progress: &|progress| telling.progress(progress) };
    let collected = store.repository.collect(&collect);
    telling.end();
    let (collected, took) = match collected {
        Err(error @ SnapshotError::Unreadable { .. }) => return Err(store.not_collected(error)),
        collected => stop.of(collected)?,
    };
    let CollectTook { look, reach, weigh, rewrite, remove } = took;
    let steps = [
        ("forget", forget),
        ("look", look),
        ("reach", reach),
        ("weigh", weigh),
        ("rewrite", rewrite),
        ("remove", remove),
    ];
    let times = Times { total: begin.elapsed(), steps: &steps };
    say_collected(screen, &forgotten, &collected, &times)?;
    Ok(Exit::Ok)
}

impl Store {
    /// Why nothing was collected. What helps depends on what of a snapshot is damaged.
    fn not_collected(&self, error: SnapshotError) -> anyhow::Error {
        let SnapshotError::Unreadable { id, .. } = &error else { return of(error) };
        let hint = match self.repository.snapshot(*id) {
            Ok(_) => {
                "remove it with ash snapshot forget, or mend it: ash snapshot verify --repair, and capture again"
            }
            Err(_) => {
                "its record is damaged, and nothing mends that: remove it with ash snapshot forget"
            }
        };
        let refused = Mistake::Refused(format!("{error}; nothing was removed"));
        anyhow::Error::from(refused).context(Hint(hint))
    }
}

fn say_collected(
    screen: &Screen,
    forgotten: &[SnapshotId],
    collected: &Collected,
    times: &Times<'_>,
) -> anyhow::Result<()> {
    if screen.json {
        return Screen::document(&json!({
            "forgotten": forgotten, "kept": collected.kept, "waiting": collected.waiting,
            "removed": collected.removed, "removedBytes": collected.removed_bytes,
            "rewritten": collected.rewritten, "rewrittenBytes": collected.rewritten_bytes,
            "unreadable": collected.unreadable, "milliseconds": times.json(),
        }));
    }
    if collected.unreadable > 0 {
        let packs = things(collected.unreadable, "pack");
        note(&format!(
            "{packs} cannot be read and stayed: ash snapshot verify --repair, capture and gc again"
        ));
    }
    print(&format!(
        "forgot {}; removed {}, {}; wrote {} anew, {}; kept {}, {} more to be removed later; {}\n",
        things(forgotten.len() as u64, "snapshot"),
        things(collected.removed, "pack"),
        bytes(collected.removed_bytes),
        things(collected.rewritten, "pack"),
        bytes(collected.rewritten_bytes),
        things(collected.kept, "pack"),
        collected.waiting,
        times.text(),
    ))
}
