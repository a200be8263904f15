//! What is in a store, in a snapshot, and between two of them.

use ash_core::time::{Clock as _, Timestamp};
use ash_engine::SystemClock;
use ash_snapshot::{Difference, Entry, Kind};
use serde_json::{Value, json};

use super::store::{Store, root_of};
use super::{MAX_ENTRIES, of};
use crate::cli::exit::Exit;
use crate::cli::format::{age, bytes, count, table};
use crate::cli::output::{Screen, plain, print};

pub(super) fn list(screen: &Screen, store: &Store) -> anyhow::Result<Exit> {
    let mut rows = Vec::new();
    let mut documents = Vec::new();
    let now = SystemClock.now();
    for id in store.repository.snapshots().map_err(of)? {
        match store.repository.snapshot(id) {
            Ok(snapshot) => {
                documents.push(json!({
                    "id": id, "createdAt": snapshot.created_at, "label": snapshot.label,
                    "files": snapshot.files(), "bytes": snapshot.bytes(),
                    "newBytes": snapshot.new_bytes, "storedBytes": snapshot.stored_bytes,
                }));
                rows.push(vec![
                    id.to_string(),
                    age(now.since(Timestamp::from_millis(snapshot.created_at))),
                    count(snapshot.files()),
                    bytes(snapshot.bytes()),
                    bytes(snapshot.stored_bytes),
                    snapshot.label.unwrap_or_default(),
                ]);
            }
            // One that is damaged does not hide the others.
            Err(error) => {
                documents.push(json!({ "id": id, "error": error.to_string() }));
                rows.push(vec![id.to_string(), String::new(), "damaged".to_owned()]);
            }
        }
    }
    if screen.json {
        Screen::document(&json!({ "snapshots": documents }))?;
    } else {
        print(&table(&["SNAPSHOT", "AGE", "FILES", "SIZE", "STORED", "LABEL"], &rows))?;
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
fn target(entry: &Entry) -> Option<String> {
    match &entry.kind {
        Kind::Symlink(target) | Kind::HardLink(target) => {
            Some(String::from_utf8_lossy(target).into_owned())
        }
        Kind::File(_) | Kind::Directory(_) => None,
    }
}

pub(super) fn show(screen: &Screen, store: &Store, name: &str) -> anyhow::Result<Exit> {
    let snapshot = store.find(name)?;
    let mut entries: Vec<Value> = Vec::new();
    let mut lines = String::new();
    let mut each = |path: &[u8], entry: &Entry| {
        let path = String::from_utf8_lossy(path);
        if screen.json {
            entries.push(json!({
                "path": path, "kind": kind(entry), "mode": format!("{:04o}", entry.mode),
                "size": entry.size(), "target": target(entry),
            }));
        } else {
            let leads = target(entry).map(|target| format!(" -> {target}")).unwrap_or_default();
            let line = format!("{path}{leads}").replace(['\n', '\t'], " ");
            let (kind, mode, size) = (kind(entry), entry.mode, entry.size());
            lines.push_str(&format!("{mode:04o} {kind:<9} {size:>12} {}\n", plain(&line)));
        }
        Ok(())
    };
    store.repository.walk(root_of(&snapshot)?, MAX_ENTRIES, &mut each).map_err(of)?;
    if screen.json {
        Screen::document(&json!({ "id": snapshot.id, "entries": entries }))?;
    } else {
        print(&lines)?;
    }
    Ok(Exit::Ok)
}

pub(super) fn diff(
    screen: &Screen,
    store: &Store,
    before: &str,
    after: &str,
) -> anyhow::Result<Exit> {
    let earlier = if before == "empty" { None } else { Some(store.find(before)?) };
    let later = store.find(after)?;
    let before = earlier.as_ref().map(root_of).transpose()?;
    let changes = store.repository.diff(before, Some(root_of(&later)?), MAX_ENTRIES);
    let mut documents: Vec<Value> = Vec::new();
    let mut lines = String::new();
    for change in changes.map_err(of)? {
        let path = String::from_utf8_lossy(&change.path).into_owned();
        let (what, sign, was, is) = match &change.what {
            Difference::Added(is) => ("added", '+', None, Some(is.size())),
            Difference::Removed(was) => ("removed", '-', Some(was.size()), None),
            Difference::Modified(was, is) => ("modified", 'M', Some(was.size()), Some(is.size())),
        };
        if screen.json {
            documents.push(json!({ "path": path, "change": what, "before": was, "after": is }));
        } else {
            let path = plain(&path).replace(['\n', '\t'], " ");
            let sizes = match (was, is) {
                (Some(was), Some(is)) => format!("{was} -> {is}"),
                (Some(size), None) | (None, Some(size)) => size.to_string(),
                (None, None) => String::new(),
            };
            lines.push_str(&format!("{sign} {path} {sizes}\n"));
        }
    }
    if screen.json {
        let from = earlier.as_ref().map(|snapshot| snapshot.id);
        Screen::document(&json!({ "before": from, "after": later.id, "changes": documents }))?;
    } else {
        print(&lines)?;
    }
    Ok(Exit::Ok)
}
