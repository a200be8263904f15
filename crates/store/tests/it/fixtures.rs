//! What was stored once must be readable for ever: `fixtures/v1` holds sessions and log entries as
//! the first version stored them, `fixtures/v2` and so on what was added to them. The files are never edited; a
//! new kind gets a new file, and what a kind is given later goes into the next directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ash_core::entry::Entry;
use ash_core::session::Session;
use serde_json::Value;

fn fixtures(kind: &str) -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut found: Vec<_> = ["v1", "v2", "v3", "v4"]
        .into_iter()
        .flat_map(|version| fs::read_dir(directory.join(version)).unwrap())
        .map(|file| file.unwrap().path())
        .filter_map(|path| {
            let name = path.file_stem()?.to_str()?.strip_prefix(kind)?.to_owned();
            Some((name, fs::read_to_string(&path).unwrap()))
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "there are fixtures of {kind}");
    found
}

/// Everything that was written is still read, and written again as it was.
fn survives(name: &str, stored: &str, read_again: &str) {
    let (stored, read_again): (Value, Value) =
        (serde_json::from_str(stored).unwrap(), serde_json::from_str(read_again).unwrap());
    assert_eq!(stored, read_again, "{name}");
}

#[test]
fn every_session_that_was_ever_stored_is_read() {
    let mut statuses = BTreeSet::new();
    for (name, stored) in fixtures("session-") {
        let session: Session = serde_json::from_str(&stored).unwrap();
        assert_eq!(session.broken_invariant(), None, "{name}");
        statuses.insert(session.status());
        survives(&name, &stored, &serde_json::to_string(&session).unwrap());
    }
    assert_eq!(statuses.len(), ash_core::session::Status::ALL.len(), "{statuses:?}");
}

#[test]
fn every_entry_that_was_ever_stored_is_read() {
    let mut kinds = BTreeSet::new();
    for (name, stored) in fixtures("entry-") {
        let entry: Entry = serde_json::from_str(&stored).unwrap();
        assert_eq!(entry.kind(), name.replace('-', "_"));
        survives(&name, &stored, &serde_json::to_string(&entry).unwrap());
        kinds.insert(entry.kind().to_owned());
    }
    assert_eq!(kinds, kinds_of_entries(), "a new kind gets a new file");
}

/// Every kind of entry. No list of them can be forgotten here: whoever reads one names them all
/// when it comes across a stranger.
fn kinds_of_entries() -> BTreeSet<String> {
    let complaint = serde_json::from_str::<Entry>(r#""stranger""#).unwrap_err().to_string();
    let (_, expected) = complaint.split_once("expected one of ").unwrap();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
