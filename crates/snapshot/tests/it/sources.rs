//! Whose a snapshot is, and what its record remembers of how it was captured.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use ash_snapshot::{
    Capture, Effect, InPlace, Newer, Others, Repository, Root, Snapshot, SnapshotError, SnapshotId,
    State, Trust,
};

use crate::compare::{in_memory, on_disk};

fn capture(
    repository: &Repository,
    tree: &Path,
    source: Option<&str>,
    excluded: &[Vec<u8>],
) -> ash_snapshot::Result<Snapshot> {
    let capture = Capture {
        roots: &[Root { name: "workspace", path: tree, excluded }],
        source,
        parent: None,
        label: None,
        unless_like: None,
        freeze: None,
        threads: 1,
        progress: &|_| true,
    };
    Ok(repository.capture(&capture, &mut State::default())?.snapshot)
}

fn restore_in_place(repository: &Repository, snapshot: &Snapshot, target: &Path) {
    let in_place = InPlace {
        snapshot,
        root: Root { name: "workspace", path: target, excluded: &[] },
        trust: Trust::Looks,
        newer: Newer::Replace,
        effect: Effect::Write,
        owner: None,
        max_entries: 1000,
        max_bytes: u64::MAX,
        threads: 1,
        progress: &|_| true,
    };
    repository.restore_in_place(&in_place, &State::default()).unwrap();
}

#[test]
fn the_last_ones_are_kept_of_each_source() {
    let (tree, repository) = (tempfile::tempdir().unwrap(), in_memory());
    let take = |source| capture(&repository, tree.path(), source, &[]).unwrap().id;
    let taken: Vec<SnapshotId> =
        [Some("one"), None, Some("one"), Some("other"), Some("one"), None].map(take).to_vec();
    assert_eq!(repository.keep_last_of("other", 1, Others::AreAway).unwrap(), []);
    assert_eq!(repository.keep_last_of("nobody", 0, Others::AreAway).unwrap(), []);
    let forgotten = repository.keep_last(1, Others::AreAway).unwrap();
    assert_eq!(forgotten, [taken[0], taken[1], taken[2]]);
    let left: Vec<_> =
        repository.history().unwrap().map(|(_, read)| read.unwrap().source).collect();
    assert_eq!(left, [None, Some("one".to_owned()), Some("other".to_owned())]);
    assert_eq!(repository.keep_last_of("one", 0, Others::AreAway).unwrap(), [taken[4]]);
}

#[test]
fn a_source_has_a_bound_and_so_have_excluded_paths() {
    let (tree, repository) = (tempfile::tempdir().unwrap(), in_memory());
    let source = "s".repeat(4096);
    let taken = capture(&repository, tree.path(), Some(&source), &[]).unwrap();
    assert_eq!(repository.snapshot(taken.id).unwrap().source, Some(source.clone()));
    let refused = capture(&repository, tree.path(), Some(&(source + "s")), &[]).unwrap_err();
    assert!(matches!(refused, SnapshotError::TooMuch { most: 4096, .. }), "{refused}");
    let many = vec![vec![b'x'; 200]; 200];
    let refused = capture(&repository, tree.path(), None, &many).unwrap_err();
    assert!(matches!(refused, SnapshotError::TooMuch { most: 32768, .. }), "{refused}");
}

#[test]
fn what_was_left_out_of_a_capture_stays_when_it_is_restored_over() {
    let (tree, repository) = (tempfile::tempdir().unwrap(), in_memory());
    let odd = OsStr::from_bytes(b"50%\xff");
    fs::create_dir_all(tree.path().join("target/debug")).unwrap();
    for name in ["kept", "target/debug/built"] {
        fs::write(tree.path().join(name), name).unwrap();
    }
    fs::write(tree.path().join(odd), "odd").unwrap();
    let excluded = [b"target".to_vec(), odd.as_bytes().to_vec()];
    let taken = capture(&repository, tree.path(), None, &excluded).unwrap();
    assert_eq!(taken.roots[0].excluded().collect::<Vec<_>>(), excluded);
    fs::remove_file(tree.path().join("kept")).unwrap();
    fs::write(tree.path().join("new"), "new").unwrap();
    restore_in_place(&repository, &taken, tree.path());
    let there = |name: &OsStr| tree.path().join(name).exists();
    let names = ["kept", "target/debug/built", "new"].map(|name| there(OsStr::new(name)));
    assert_eq!((names, there(odd)), ([true, true, false], true));
}

#[test]
fn a_record_with_something_that_is_not_known_is_refused() {
    let (tree, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let repository = on_disk(store.path());
    let taken = capture(&repository, tree.path(), Some("one"), &[]).unwrap();
    let path = store.path().join(format!("snapshots/{}", taken.id));
    let signed = |record: &str| {
        let digest = blake3_of(record);
        fs::write(&path, format!("{record}\n{digest}")).unwrap();
        repository.snapshot(taken.id).map_err(|error| error.to_string())
    };
    let record = fs::read_to_string(&path).unwrap();
    let record = record.split_once('\n').unwrap().0.to_owned();
    assert!(signed(&record).is_ok());
    for (known, unknown) in [
        (r#""version":1"#, r#""version":1,"more":0"#),
        (r#""roots":[{"#, r#""roots":[{"more":0,"#),
        (r#""tree":{"#, r#""tree":{"more":0,"#),
        (r#""modified":{"#, r#""modified":{"more":0,"#),
        (r#""skipped":{"#, r#""skipped":{"more":0,"#),
        (r#""excluded":[]"#, r#""excluded":["50%"]"#),
    ] {
        assert!(record.contains(known), "{record}");
        signed(&record.replace(known, unknown)).unwrap_err();
    }
    let later = record.replace(r#""version":1"#, r#""version":2,"more":0"#);
    let refused = signed(&later).unwrap_err();
    assert!(refused.contains("a version that is not known"), "{refused}");
}

fn blake3_of(text: &str) -> String {
    ash_snapshot::Id::of(text.as_bytes()).to_string()
}

#[test]
fn what_a_killed_restore_left_behind_is_not_captured() {
    let (tree, repository) = (tempfile::tempdir().unwrap(), in_memory());
    let id = SnapshotId::new();
    for name in [format!(".ash-restore-{id}"), format!(".ash-restore-0123456789abcdef-{id}")] {
        fs::create_dir(tree.path().join(&name)).unwrap();
        fs::write(tree.path().join(&name).join("half"), "half").unwrap();
    }
    fs::write(tree.path().join(".ash-restore-notes"), "mine").unwrap();
    let taken = capture(&repository, tree.path(), None, &[]).unwrap();
    assert_eq!((taken.roots[0].files, taken.roots[0].directories), (1, 0));
    restore_in_place(&repository, &taken, tree.path());
    assert_eq!(
        fs::read_dir(tree.path()).unwrap().count(),
        1,
        "they are removed from what is restored over"
    );
}

#[test]
fn a_file_that_is_called_like_what_restores_leave_is_captured() {
    let (tree, repository) = (tempfile::tempdir().unwrap(), in_memory());
    let name = format!(".ash-restore-{}", SnapshotId::new());
    fs::write(tree.path().join(&name), "mine").unwrap();
    std::os::unix::fs::symlink(&name, tree.path().join(format!("{name}-link"))).unwrap();
    let other = format!(".ash-restore-0123456789abcdef-{}", SnapshotId::new());
    std::os::unix::fs::symlink(&name, tree.path().join(other)).unwrap();
    let taken = capture(&repository, tree.path(), None, &[]).unwrap();
    assert_eq!((taken.roots[0].files, taken.roots[0].links), (1, 2));
}

#[test]
fn a_pipe_among_the_snapshots_makes_nobody_wait() {
    let (tree, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let repository = on_disk(store.path());
    capture(&repository, tree.path(), None, &[]).unwrap();
    let pipe = SnapshotId::new();
    let path = store.path().join(format!("snapshots/{pipe}"));
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, rustix::fs::Mode::RUSR, 0).unwrap();
    assert!(repository.snapshot(pipe).is_err());
    assert_eq!(repository.history().unwrap().filter(|(_, read)| read.is_ok()).count(), 1);
    repository.forget(pipe).unwrap();
    assert_eq!(repository.snapshots().unwrap().len(), 1);
}

#[test]
fn one_snapshot_with_too_many_names_does_not_keep_the_others_from_being_verified() {
    let (tree, repository) = (tempfile::tempdir().unwrap(), in_memory());
    let small = capture(&repository, tree.path(), None, &[]).unwrap();
    for number in 0..10 {
        fs::write(tree.path().join(format!("{number}")), "x").unwrap();
    }
    let large = capture(&repository, tree.path(), None, &[]).unwrap();
    let verify = ash_snapshot::Verify { threads: 1, max_entries: 5, progress: &|_| true };
    let verified = repository.verify(&verify).unwrap();
    assert_eq!((verified.snapshots, verified.damaged.len()), (2, 1), "{small:?}");
    assert_eq!(verified.damaged[0].id, large.id);
    assert_eq!(verified.damaged[0].record.as_deref(), Some("the snapshot has more than 5 names"));
}
