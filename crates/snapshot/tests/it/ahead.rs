//! Moments that follow each other faster than they can be stored: each is looked at while the one before is not stored
//! yet, and is what it was.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use ash_snapshot::{Ahead, Capture, Freeze, Look, Repository, Root, Snapshot, State};
use proptest::prelude::*;

use crate::compare::{Picture, in_memory, picture, restored, settle};

const ROOM: u64 = 1 << 20;

/// Nobody writes while a test looks.
struct Still;

impl Freeze for Still {
    fn freeze(&self) -> io::Result<()> {
        Ok(())
    }

    fn thaw(&self) -> io::Result<()> {
        Ok(())
    }
}

fn with_capture<T>(tree: &Path, then: impl FnOnce(&Capture<'_>) -> T) -> T {
    let roots = [Root { name: "workspace", path: tree, excluded: &[] }];
    then(&Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: Some((&Still, Duration::from_secs(600))),
        threads: 2,
        progress: &|_| true,
    })
}

fn look(repository: &Repository, tree: &Path, state: &State, ahead: Option<&Ahead>) -> Look {
    with_capture(tree, |capture| repository.look(capture, state, ahead, ROOM)).unwrap()
}

fn store(repository: &Repository, tree: &Path, look: Look, state: &mut State) -> Snapshot {
    let stored = with_capture(tree, |capture| repository.store_seen(capture, look, state));
    stored.unwrap().snapshot
}

#[test]
fn what_a_later_look_sees_is_stored_as_it_was() {
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    fs::create_dir(at("below")).unwrap();
    for name in ["a", "below/b", "c"] {
        fs::write(at(name), format!("one of {name}")).unwrap();
    }
    symlink("a", at("link")).unwrap();
    settle(tree.path());
    let repository = in_memory();
    let mut state = State::default();
    let one = look(&repository, tree.path(), &state, None);
    let was_one = picture(tree.path());

    fs::write(at("a"), "two of a").unwrap();
    fs::write(at("below/new"), "new").unwrap();
    fs::remove_file(at("c")).unwrap();
    settle(tree.path());
    let two = look(&repository, tree.path(), &state, Some(&one.ahead()));
    let was_two = picture(tree.path());
    assert_eq!(two.held(), 11, "what looks the same is not read again");

    fs::remove_file(at("link")).unwrap();
    symlink("c", at("link")).unwrap();
    fs::write(at("a"), "three of a").unwrap();
    let three = look(&repository, tree.path(), &state, Some(&two.ahead()));
    let was_three = picture(tree.path());
    fs::write(at("a"), "four of a").unwrap();
    fs::write(at("below/new"), "newer").unwrap();

    for (look, was) in [(one, was_one), (two, was_two), (three, was_three)] {
        let snapshot = store(&repository, tree.path(), look, &mut state);
        assert!(restored(&repository, &snapshot) == was, "it is of another moment");
        assert_eq!((snapshot.unfrozen, &snapshot.unstable[..]), (0, &[][..]));
    }
}

#[test]
fn what_was_relied_on_and_was_not_stored_is_read_late_and_counted() {
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    fs::write(at("a"), "a").unwrap();
    fs::write(at("b"), "b").unwrap();
    symlink("a", at("link")).unwrap();
    settle(tree.path());
    let repository = in_memory();
    let mut state = State::default();
    let one = look(&repository, tree.path(), &state, None);
    fs::write(at("b"), "two").unwrap();
    let two = look(&repository, tree.path(), &state, Some(&one.ahead()));
    let was_two = picture(tree.path());
    // Whoever was to store it died.
    drop(one);
    let snapshot = store(&repository, tree.path(), two, &mut state);
    assert!(restored(&repository, &snapshot) == was_two);
    assert_eq!(snapshot.unfrozen, 1, "only what changed was read in time");
}

#[test]
fn what_is_forgotten_meanwhile_is_looked_up_again() {
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    fs::create_dir(at("below")).unwrap();
    fs::write(at("below/a"), "a").unwrap();
    symlink("a", at("below/link")).unwrap();
    let value = |path: &Path| {
        rustix::fs::setxattr(path, "user.kept", b"yes", rustix::fs::XattrFlags::empty()).unwrap();
    };
    value(&at("below"));
    settle(tree.path());
    let repository = in_memory();
    let mut state = State::default();
    let first = look(&repository, tree.path(), &state, None);
    let first = store(&repository, tree.path(), first, &mut state);
    let again = look(&repository, tree.path(), &state, None);
    assert_eq!(again.held(), 0, "all of it is known");
    let was = picture(tree.path());
    // What is remembered is gone, as when the file of it is.
    let snapshot = store(&repository, tree.path(), again, &mut State::default());
    assert!(restored(&repository, &snapshot) == was);
    assert_eq!(snapshot.unstable, Vec::<String>::new());
    assert_eq!(snapshot.roots[0].tree, first.roots[0].tree);
}

/// Something that is done to one of a few names.
#[derive(Clone, Debug)]
enum Change {
    Write(u8, u8),
    Link(u8, u8),
    Remove(u8),
    Directory(u8),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        4 => any::<(u8, u8)>().prop_map(|(name, text)| Change::Write(name, text)),
        1 => any::<(u8, u8)>().prop_map(|(name, to)| Change::Link(name, to)),
        1 => any::<u8>().prop_map(Change::Remove),
        1 => any::<u8>().prop_map(Change::Directory),
    ];
    proptest::collection::vec(change, 0..6)
}

fn apply(tree: &Path, change: &Change) {
    let name = |name: &u8| tree.join(["a", "b", "d", "d/a", "d/b", "d/e/a"][usize::from(name % 6)]);
    // What cannot be done, as a name is something else by now, is left.
    let _done = match change {
        Change::Write(at, text) => fs::write(name(at), vec![*text; usize::from(*text)]),
        Change::Link(at, to) => symlink(name(to), name(at)),
        Change::Remove(at) => fs::remove_file(name(at)).or_else(|_| fs::remove_dir_all(name(at))),
        Change::Directory(at) => fs::create_dir(name(at)),
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// However many are looked at before one is stored, each is what it was when it was looked at, and nothing of it
    /// is read later.
    #[test]
    fn every_moment_is_its_own(
        moments in proptest::collection::vec((changes(), any::<bool>(), any::<bool>()), 1..7)
    ) {
        let tree = tempfile::tempdir().unwrap();
        let repository = in_memory();
        let mut state = State::default();
        let mut waiting: Vec<(Look, Picture)> = Vec::new();
        for (changes, is_settled, is_stored) in &moments {
            for change in changes {
                apply(tree.path(), change);
            }
            if *is_settled {
                settle(tree.path());
            }
            let ahead = waiting.last().map(|(look, _)| look.ahead());
            let seen = look(&repository, tree.path(), &state, ahead.as_ref());
            waiting.push((seen, picture(tree.path())));
            if *is_stored {
                let (look, was) = waiting.remove(0);
                let snapshot = store(&repository, tree.path(), look, &mut state);
                prop_assert!(restored(&repository, &snapshot) == was);
                prop_assert_eq!((snapshot.unfrozen, snapshot.unstable.len()), (0, 0));
            }
        }
        for (look, was) in waiting {
            let snapshot = store(&repository, tree.path(), look, &mut state);
            prop_assert!(restored(&repository, &snapshot) == was);
                prop_assert_eq!((snapshot.unfrozen, snapshot.unstable.len()), (0, 0));
        }
    }
}
