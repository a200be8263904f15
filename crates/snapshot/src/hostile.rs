//! What is read is believed by nobody: any bytes, and trees that were made to do harm.

use std::collections::HashSet;

use proptest::prelude::*;

use crate::content::{Content, Item, MAX_CHUNK, decode_list, encode_list};
use crate::error::{Result, SnapshotError};
use crate::id::{ChunkKind, Id};
use crate::objects::MemoryObjects;
use crate::pack::{self, FrameBuilder};
use crate::repository::Repository;
use crate::restore::{Damaged, Restore, Restored};
use crate::snapshot::{Snapshot, SnapshotId, Tree};
use crate::state::State;
use crate::tree::{self, Entry, Kind, Modified};
use crate::writer::{Cutter, Writer};

fn entry(name: &[u8], kind: Kind) -> Entry {
    let modified = Modified { seconds: 1, nanoseconds: 2 };
    Entry { name: name.to_owned(), kind, mode: 0o755, modified, attributes: Vec::new() }
}

fn some_content(size: u64, depth: u8) -> Content {
    Content { size, depth, id: Id::of(b"something") }
}

/// Bytes that are nearly right: some of them changed, left out or put in.
fn mutated(right: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    // Kinds, flags and lengths are small.
    let byte = prop_oneof![any::<u8>(), 0..8_u8];
    let change = (any::<prop::sample::Index>(), byte, 0..3_u8);
    prop::collection::vec(change, 0..4).prop_map(move |changes| {
        let mut bytes = right.clone();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len().max(1)).min(bytes.len());
            match how {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        bytes
    })
}

fn tree_bytes() -> Vec<u8> {
    let mut first = entry(b"a", Kind::File(some_content(300, 0)));
    first.attributes = vec![(b"user.a".to_vec(), b"1".to_vec())];
    tree::encode(&[
        first,
        entry(b"b", Kind::Directory(some_content(9_000_000, 2))),
        entry(b"c", Kind::Symlink(b"../x".to_vec())),
        entry(b"d", Kind::HardLink(b"b/a".to_vec())),
    ])
}

fn list_bytes() -> Vec<u8> {
    encode_list(&[
        Item::Zeros(100),
        Item::Bytes(some_content(300, 0)),
        Item::Bytes(some_content(99, 1)),
    ])
}

fn either(right: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..400), mutated(right)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn a_directory_that_can_be_read_has_one_spelling(bytes in either(tree_bytes())) {
        if let Ok(Some(entries)) = tree::decode(&bytes, 100) {
            prop_assert!(entries.len() <= 100);
            prop_assert_eq!(tree::encode(&entries), bytes);
        }
    }

    #[test]
    fn a_list_that_can_be_read_has_one_spelling(bytes in either(list_bytes()), size in 0..1000_u64) {
        for size in [size, 499] {
            if let Ok(items) = decode_list(&bytes, some_content(size, 2)) {
                prop_assert_eq!(items.iter().map(Item::size).sum::<u64>(), size);
                prop_assert_eq!(encode_list(&items), &bytes[..]);
            }
        }
    }

    #[test]
    fn no_state_breaks_its_reader(bytes in either(state_bytes())) {
        if let Ok(state) = crate::state::decode_body(&bytes) {
            let encoded = state.encode();
            prop_assert_eq!(&encoded[..encoded.len() - 32], &bytes[..]);
        }
        prop_assert!(State::decode(&bytes).is_err(), "it has no digest");
    }

    #[test]
    fn no_index_breaks_its_reader(bytes in either(index_bytes()), offset in 0..2000_u64) {
        if let Ok(frames) = pack::decode_index(&bytes, offset) {
            prop_assert!(frames.iter().map(|frame| u64::from(frame.stored)).sum::<u64>() + 8 == offset);
        }
    }

    #[test]
    fn no_record_breaks_its_reader(bytes in either(b"{\"version\":1,\"roots\":[]}".to_vec())) {
        prop_assert!(Snapshot::decode(&bytes, SnapshotId::new()).is_err());
        let digest = format!("\n{}", Id::of(&bytes));
        let signed = [&bytes[..], digest.as_bytes()].concat();
        prop_assert!(Snapshot::decode(&signed, SnapshotId::new()).is_err(), "it has no such id");
    }
}

fn state_bytes() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("below")).unwrap();
    std::fs::write(directory.path().join("below/file"), "text").unwrap();
    std::os::unix::fs::symlink("below", directory.path().join("link")).unwrap();
    let mut state = State::default();
    let roots = [crate::Root { name: "r", path: directory.path(), excluded: &[] }];
    let capture = crate::Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: None,
        threads: 1,
        progress: &|_| true,
    };
    repository().capture(&capture, &mut state).unwrap();
    let mut bytes = state.encode();
    bytes.truncate(bytes.len() - 32);
    bytes
}

fn index_bytes() -> Vec<u8> {
    let mut builder = FrameBuilder::default();
    builder.add(ChunkKind::Data, Id::of(b"x"), b"some bytes");
    let frame = builder.finish().index;
    let (end, _) = pack::end_of(&[frame], 18, [7; 16]);
    zstd::bulk::decompress(&end[..end.len() - pack::FOOTER], 1000).unwrap()
}

fn repository() -> Repository {
    Repository::open(Box::new(MemoryObjects::default())).unwrap()
}

/// Stores directories as they are told to be, and restores the last.
fn restored(make: impl FnOnce(&mut Cutter<'_, '_>) -> Content) -> (Result<Restored>, bool) {
    let repository = repository();
    let writer = Writer::to(&repository, HashSet::new());
    let mut cutter = Cutter::of(&writer);
    let content = make(&mut cutter);
    cutter.flush().unwrap();
    drop(cutter);
    writer.finish().unwrap();
    let tree = Tree {
        name: "t".to_owned(),
        escaped: Vec::new(),
        tree: content,
        mode: 0o755,
        modified: Modified::default(),
        files: 0,
        directories: 0,
        links: 0,
        bytes: 0,
        attributes: Vec::new(),
    };
    let place = tempfile::tempdir().unwrap();
    let restore = Restore {
        tree: &tree,
        path: b"",
        damaged: Damaged::Refuse,
        target: &place.path().join("target"),
        owner: None,
        max_entries: 1000,
        max_bytes: 1 << 20,
        threads: 2,
        progress: &|_| true,
    };
    let result = repository.restore(&restore);
    let others = std::fs::read_dir(place.path()).unwrap().count();
    (result, others == 0)
}

fn directory(cutter: &mut Cutter<'_, '_>, entries: &[Entry]) -> Content {
    cutter.whole(ChunkKind::Tree, &tree::encode(entries)).unwrap()
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in ["..", ".", "", "a/b", "/etc", "../x", "a\0b", &"x".repeat(256)] {
        let (result, nothing) = restored(|cutter| {
            directory(cutter, &[entry(name.as_bytes(), Kind::File(Content::EMPTY))])
        });
        assert!(matches!(result, Err(SnapshotError::Damaged { .. })) && nothing, "{name:?}");
    }
}

#[test]
fn a_link_is_not_written_through() {
    let (result, nothing) = restored(|cutter| {
        let text = cutter.whole(ChunkKind::Data, b"text").unwrap();
        let below = directory(cutter, &[entry(b"passwd", Kind::File(text))]);
        directory(
            cutter,
            &[entry(b"a", Kind::Symlink(b"/etc".to_vec())), entry(b"a", Kind::Directory(below))],
        )
    });
    assert!(result.is_err() && nothing, "no name is there twice");
}

#[test]
fn hard_links_to_nothing_are_refused() {
    for target in ["nothing", "dir", "link", "link/passwd", "../x", "hard"] {
        let (result, nothing) = restored(|cutter| {
            let entries = [
                entry(b"dir", Kind::Directory(Content::EMPTY)),
                entry(b"hard", Kind::HardLink(target.as_bytes().to_vec())),
                entry(b"link", Kind::Symlink(b"/etc".to_vec())),
            ];
            directory(cutter, &entries)
        });
        assert!(matches!(result, Err(SnapshotError::Damaged { .. })) && nothing, "{target}");
    }
}

#[test]
fn a_few_directories_that_are_as_many_as_there_are_atoms_are_refused() {
    let (result, nothing) = restored(|cutter| {
        let mut below = Content::EMPTY;
        for _ in 0..200 {
            let both = [entry(b"a", Kind::Directory(below)), entry(b"b", Kind::Directory(below))];
            below = directory(cutter, &both);
        }
        below
    });
    assert!(matches!(result, Err(SnapshotError::TooMuch { .. })) && nothing, "{result:?}");
}

#[test]
fn more_bytes_than_any_disk_has_are_refused_before_one_is_written() {
    let (repository, snapshot) = taken(|cutter| {
        let mut content = cutter.whole(ChunkKind::Data, &[7; 60_000]).unwrap();
        for _ in 0..4 {
            content = cutter.list(vec![Item::Bytes(content); 1024]).unwrap();
        }
        directory(cutter, &[entry(b"a", Kind::File(content))])
    });
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target");
    let restore = Restore {
        tree: &snapshot.roots[0],
        path: b"",
        damaged: Damaged::Refuse,
        target: &target,
        owner: None,
        max_entries: 10,
        max_bytes: u64::MAX,
        threads: 2,
        progress: &|_| panic!("something was written"),
    };
    let refused = repository.restore(&restore).unwrap_err();
    assert!(refused.to_string().contains("no space for more"), "{refused}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    // A hole of that size needs no space, and is made.
    let (repository, snapshot) = taken(|cutter| {
        let some = cutter.whole(ChunkKind::Data, &[7; 60_000]).unwrap();
        let hole = cutter.list(vec![Item::Bytes(some), Item::Zeros(1 << 43)]).unwrap();
        directory(cutter, &[entry(b"a", Kind::File(hole))])
    });
    repository
        .restore(&Restore { tree: &snapshot.roots[0], progress: &|_| true, ..restore })
        .unwrap();
    assert_eq!(std::fs::metadata(target.join("a")).unwrap().len(), (1 << 43) + 60_000);
}

#[test]
fn sizes_that_lie_are_refused() {
    let file =
        |content| restored(move |cutter| directory(cutter, &[entry(b"a", Kind::File(content))]));
    let huge = [some_content(1 << 60, 1), some_content(MAX_CHUNK as u64 + 1, 0)];
    for content in huge {
        let (result, nothing) = file(content);
        assert!(result.is_err() && nothing, "{content:?}: {result:?}");
    }
    // A list of zeros that is short itself.
    let (result, nothing) = restored(|cutter| {
        let zeros = cutter.list(vec![Item::Zeros(1 << 60)]).unwrap();
        directory(cutter, &[entry(b"a", Kind::File(zeros))])
    });
    assert!(matches!(result, Err(SnapshotError::TooMuch { .. })) && nothing, "{result:?}");
    // Longer or shorter than what is there; a directory of zeros, or that is a file.
    for wrong in [3, 5] {
        let (result, nothing) = restored(|cutter| {
            let text = cutter.whole(ChunkKind::Data, b"text").unwrap();
            let content = Content { size: wrong, ..text };
            directory(cutter, &[entry(b"a", Kind::File(content))])
        });
        assert!(matches!(result, Err(SnapshotError::Damaged { .. })) && nothing, "{result:?}");
    }
    let (result, nothing) = restored(|cutter| cutter.list(vec![Item::Zeros(1 << 20)]).unwrap());
    assert!(matches!(result, Err(SnapshotError::Damaged { .. })) && nothing, "{result:?}");
    let (result, nothing) =
        restored(|cutter| cutter.whole(ChunkKind::Data, &tree_bytes()).unwrap());
    assert!(result.is_err() && nothing, "{result:?}");
}

/// A snapshot of a tree that is as it is told to be, in a repository of its own.
fn taken(make: impl FnOnce(&mut Cutter<'_, '_>) -> Content) -> (Repository, Snapshot) {
    let repository = repository();
    let writer = Writer::to(&repository, HashSet::new());
    let mut cutter = Cutter::of(&writer);
    let tree = make(&mut cutter);
    cutter.flush().unwrap();
    drop(cutter);
    writer.finish().unwrap();
    let name = "t".to_owned();
    let root = Tree {
        name,
        escaped: Vec::new(),
        tree,
        mode: 0o755,
        modified: Modified::default(),
        files: 0,
        directories: 0,
        links: 0,
        bytes: 0,
        attributes: Vec::new(),
    };
    let snapshot = Snapshot {
        version: Snapshot::VERSION,
        id: SnapshotId::new(),
        created_at: 0,
        source: None,
        parent: None,
        label: None,
        roots: vec![root],
        new_bytes: 0,
        stored_bytes: 0,
        skipped: crate::Skipped::default(),
        unstable: Vec::new(),
        unreadable: Vec::new(),
        stripped: Vec::new(),
        unfrozen: 0,
        unfrozen_scan: false,
    };
    repository.put_snapshot(&snapshot).unwrap();
    (repository, snapshot)
}

/// Bytes that become a list of several chunks.
fn long_bytes() -> Vec<u8> {
    let mut bytes = vec![0; 300_000];
    blake3::Hasher::new().update(b"long").finalize_xof().fill(&mut bytes);
    bytes
}

#[test]
fn a_list_that_is_named_as_if_it_were_data_is_followed_all_the_same() {
    let mut list = Content::EMPTY;
    let (repository, _) = taken(|cutter| {
        list = cutter.whole(ChunkKind::Data, &long_bytes()).unwrap();
        assert!(list.depth > 0);
        let data = Content { size: 100, depth: 0, ..list };
        let entries = [entry(b"a", Kind::File(data)), entry(b"b", Kind::File(list))];
        directory(cutter, &entries)
    });
    repository.gc(crate::Others::AreAway).unwrap();
    let mut read = Vec::new();
    let mut chunks = crate::chunks::Chunks::of(&repository);
    let each = chunks.each(ChunkKind::Data, list, &mut |part| {
        if let crate::chunks::Part::Bytes(bytes) = part {
            read.extend_from_slice(&bytes);
        }
        Ok(())
    });
    each.unwrap();
    assert!(read == long_bytes());
}

#[test]
fn whatever_cannot_be_restored_is_named() {
    let (repository, snapshot) = taken(|cutter| {
        let text = cutter.whole(ChunkKind::Data, b"text").unwrap();
        let list = cutter.whole(ChunkKind::Data, &long_bytes()).unwrap();
        let below = directory(cutter, &[entry(b"file", Kind::File(text))]);
        let entries = [
            entry(b"a whole one", Kind::File(text)),
            entry(b"a whole list", Kind::File(list)),
            entry(b"list too long", Kind::File(Content { size: list.size + 1, ..list })),
            entry(b"lost", Kind::Directory(some_content(100, 0))),
            entry(b"link to a whole one", Kind::HardLink(b"a whole one".to_vec())),
            entry(b"link to lost", Kind::HardLink(b"lost/file".to_vec())),
            entry(b"link to nothing", Kind::HardLink(b"nothing".to_vec())),
            entry(b"link to too long", Kind::HardLink(b"too long".to_vec())),
            entry(b"too long", Kind::File(Content { size: 5, ..text })),
            entry(b"tree", Kind::File(below)),
        ];
        let mut entries = entries.to_vec();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        directory(cutter, &entries)
    });
    let verify = crate::Verify { threads: 1, max_entries: 100, progress: &|_| true };
    let verified = repository.verify(&verify).unwrap();
    assert_eq!(verified.damaged_packs, []);
    assert_eq!(verified.damaged[0].id, snapshot.id);
    let paths = verified.damaged[0].paths.iter();
    let paths: Vec<_> = paths.map(|(_, path)| String::from_utf8_lossy(path)).collect();
    let expected = [
        "link to lost",
        "link to nothing",
        "link to too long",
        "list too long",
        "lost",
        "too long",
        "tree",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn a_chunk_of_no_bytes_is_refused() {
    let mut builder = FrameBuilder::default();
    builder.add(ChunkKind::Data, Id::of(b"x"), b"some bytes");
    builder.add(ChunkKind::Data, Id::of_chunk(ChunkKind::Data, b""), b"");
    let frame = builder.finish().index;
    let offset = 8 + u64::from(frame.stored);
    let (end, _) = pack::end_of(&[frame], offset, [7; 16]);
    let index = zstd::bulk::decompress(&end[..end.len() - pack::FOOTER], 1000).unwrap();
    assert!(pack::decode_index(&index, offset).is_err());
}
