//! What is in a store, in a snapshot, and between two of them.

use ash_core::time::{Clock as _, Timestamp};
use ash_engine::SystemClock;
use ash_snapshot::{Change, Difference, Entry, Kind, Snapshot};
use serde_json::json;

use super::said::{Printing, path_text, put_path};
use super::store::Store;
use super::whose::{Whose, shown};
use super::{MAX_ENTRIES, ROOT, of};
use crate::cli::exit::Exit;
use crate::cli::format::{age, bytes, count, table};
use crate::cli::output::{Screen, print};

pub(super) fn list(screen: &Screen, store: &Store, whose: &Whose) -> anyhow::Result<Exit> {
    let mut rows = Vec::new();
    let mut documents = Vec::new();
    let now = SystemClock.now();
    for (id, read) in store.repository.history().map_err(of)? {
        match read {
            Ok(snapshot) => {
                if whose.source.is_some() && snapshot.source != whose.source {
                    continue;
                }
                documents.push(json!({
                    "id": id, "createdAt": snapshot.created_at, "label": snapshot.label,
                    "source": snapshot.source, "parent": snapshot.parent,
                    "files": snapshot.files(), "bytes": snapshot.bytes(),
                    "newBytes": snapshot.new_bytes, "storedBytes": snapshot.stored_bytes,
                }));
                rows.push(vec![
                    id.to_string(),
                    age(now.since(Timestamp::from_millis(snapshot.created_at))),
                    count(snapshot.files()),
                    bytes(snapshot.bytes()),
                    bytes(snapshot.stored_bytes),
                    shown(snapshot.source.as_deref()),
                    snapshot.label.unwrap_or_default(),
                ]);
            }
            Err(error) if error.is_transient() => return Err(of(error)),
            // One that is damaged does not hide the others; and it may be of anybody.
            Err(error) => {
                documents.push(json!({ "id": id, "error": error.to_string() }));
                rows.push(vec![id.to_string(), String::new(), "damaged".to_owned()]);
            }
        }
    }
    documents.reverse();
    rows.reverse();
    if screen.json {
        Screen::document(&json!({ "snapshots": documents }))?;
    } else {
        let headings = ["SNAPSHOT", "AGE", "FILES", "SIZE", "STORED", "SOURCE", "LABEL"];
        print(&table(&headings, &rows))?;
    }
    Ok(Exit::Ok)
}

fn kind(entry: &Entry) -> &'static str {
    match entry.kind {
        Kind::File(_) => "file",
        Kind::Directory(_) => "directory",
        Kind::Symlink(_) => "symlink",
        Kind::HardLink(_) => "hardlink",
    }
}

/// Where a link leads.
fn target(entry: &Entry) -> Option<&[u8]> {
    match &entry.kind {
        Kind::Symlink(target) | Kind::HardLink(target) => Some(target),
        Kind::File(_) | Kind::Directory(_) => None,
    }
}

/// What is put before a path to tell which tree it is of: nothing, if there is only one.
fn beginning(root: &str, roots: usize) -> String {
    if roots > 1 { format!("{root}/") } else { String::new() }
}

pub(super) fn show(
    screen: &Screen,
    store: &Store,
    name: &str,
    whose: &Whose,
) -> anyhow::Result<Exit> {
    let snapshot = store.find(name, whose.source.as_deref())?;
    let beside = json!({ "id": snapshot.id, "source": snapshot.source });
    let mut printing = Printing::begin(screen, &beside, "entries");
    let done = snapshot.roots.iter().try_for_each(|root| {
        let beginning = beginning(&root.name, snapshot.roots.len());
        let mut each = |path: &[u8], entry: &Entry| {
            if printing.is_json() {
                let mut item = json!({
                    "root": root.name, "kind": kind(entry), "mode": format!("{:04o}", entry.mode),
                    "size": entry.size(), "target": null,
                });
                put_path(&mut item, "path", path);
                if let Some(target) = target(entry) {
                    put_path(&mut item, "target", target);
                }
                return printing.item(&item);
            }
            let leads = target(entry).map(|target| format!(" -> {}", path_text(target)));
            let (kind, mode, size) = (kind(entry), entry.mode, entry.size());
            let (path, leads) = (path_text(path), leads.unwrap_or_default());
            printing.line(&format!("{mode:04o} {kind:<9} {size:>12} {beginning}{path}{leads}"))
        };
        store.repository.walk(root, MAX_ENTRIES, &mut each)
    });
    printing.end(done)?;
    Ok(Exit::Ok)
}

pub(super) fn diff(
    screen: &Screen,
    store: &Store,
    [before, after]: [&str; 2],
    whose: &Whose,
) -> anyhow::Result<Exit> {
    let source = whose.source.as_deref();
    let earlier = if before == "empty" { None } else { Some(store.find(before, source)?) };
    // The latest of those that the earlier one is of.
    let of_earlier = earlier.as_ref().and_then(|earlier| earlier.source.as_deref());
    let later = store.find(after, source.or(of_earlier))?;
    let roots = roots(earlier.as_ref(), &later);
    let from = earlier.as_ref().map(|snapshot| snapshot.id);
    let beside = json!({ "before": from, "after": later.id });
    let mut printing = Printing::begin(screen, &beside, "changes");
    let done = roots.iter().try_for_each(|root| {
        let beginning = beginning(root, roots.len());
        let was = earlier.as_ref().and_then(|earlier| earlier.root(root).ok());
        let is = later.root(root).ok();
        store.repository.each_change(was, is, MAX_ENTRIES, &mut |change| {
            let Change { path, what, size_before, size_after } = change;
            let (what, sign) = match what {
                Difference::Added(_) => ("added", '+'),
                Difference::Removed(_) => ("removed", '-'),
                Difference::Modified(..) => ("modified", 'M'),
            };
            if printing.is_json() {
                let mut item = json!({
                    "root": root, "change": what, "before": size_before, "after": size_after,
                });
                put_path(&mut item, "path", &path);
                return printing.item(&item);
            }
            let sizes = match (size_before, size_after) {
                (Some(was), Some(is)) => format!("{was} -> {is}"),
                (Some(size), None) | (None, Some(size)) => size.to_string(),
                (None, None) => String::new(),
            };
            let path = format!("{beginning}{}", path_text(&path));
            let path = if path.is_empty() { "." } else { &path };
            printing.line(&format!("{sign} {path} {sizes}"))
        })
    });
    printing.end(done)?;
    Ok(Exit::Ok)
}

/// The trees of two snapshots by name, the workspace first.
fn roots<'a>(earlier: Option<&'a Snapshot>, later: &'a Snapshot) -> Vec<&'a str> {
    let both = earlier.into_iter().chain([later]).flat_map(|snapshot| &snapshot.roots);
    let mut names: Vec<&str> = both.map(|root| root.name.as_str()).collect();
    names.sort_by_key(|name| (*name != ROOT, *name));
    names.dedup();
    names
}
