//! Bundles: what is packed comes back, and what is hostile changes nothing.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ash_engine::files::{FileError, MAX_UNPACKED_BYTES};
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{EntryType, Header};

use super::Place;

fn packed(place: &Place) -> Vec<u8> {
    let (mut file, size) = place.tree.pack().unwrap();
    let mut bundle = Vec::new();
    file.read_to_end(&mut bundle).unwrap();
    assert_eq!(bundle.len() as u64, size);
    bundle
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An entry that no well-meaning program would write.
fn entry(name: &[u8], kind: EntryType, target: &[u8], content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    let fields = header.as_gnu_mut().unwrap();
    fields.name[..name.len()].copy_from_slice(name);
    fields.linkname[..target.len()].copy_from_slice(target);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, content: &str) -> Vec<u8> {
    entry(name.as_bytes(), EntryType::Regular, b"", content.as_bytes())
}

fn bundle(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = entries.concat();
    bytes.resize(bytes.len() + 1024, 0);
    compressed(&bytes)
}

#[test]
fn what_is_packed_comes_back() {
    let from = Place::new();
    let long = format!("{}/{}", "long-directory-name".repeat(12), "long-file-name".repeat(15));
    from.put("a.txt", "one");
    from.put(&long, "two");
    from.put("run.sh", "#!/bin/sh");
    from.put("Cargo.lock", "locked");
    from.put("empty/.keep", "");
    fs::set_permissions(from.root().join("run.sh"), Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(from.root().join("nothing")).unwrap();
    from.link("empty/link", "../a.txt");
    for left_out in [".env", ".git/HEAD", "node_modules/x", "tmp/y", ".env.local"] {
        from.put(left_out, "left out");
    }
    from.link("out", "../secret");
    from.link("absolute", "/etc/passwd");
    from.link("late", "empty/../../secret");
    let to = Place::new();
    to.put("a.txt", "before");
    to.put("stays", "here");
    let unpacked = to.tree.unpack(&packed(&from)).unwrap();
    assert_eq!((unpacked.files, unpacked.bytes), (6, 21));
    let mut wanted = ["Cargo.lock", "a.txt", "empty/.keep", &long, "run.sh", "stays"];
    wanted.sort_unstable();
    let listing =
        to.tree.list(&ash_engine::files::FilePath::ROOT, ash_engine::files::Scope::Everything);
    let files = listing.unwrap().files;
    assert_eq!(files.iter().map(|file| file.path.to_string()).collect::<Vec<_>>(), wanted);
    assert_eq!((to.read("a.txt").unwrap(), to.read(&long).unwrap()), ("one".into(), "two".into()));
    assert_eq!(fs::read_link(to.root().join("empty/link")).unwrap(), Path::new("../a.txt"));
    assert!(to.root().join("nothing").is_dir());
    let can_run = files.iter().filter(|file| file.executable);
    assert_eq!(can_run.map(|file| file.path.to_string()).collect::<Vec<_>>(), ["run.sh"]);
    // And again, over itself.
    to.tree.unpack(&packed(&to)).unwrap();
    to.is_unharmed();
}

#[test]
fn what_other_programs_pack_is_taken() {
    let place = Place::new();
    let long = format!("d/{}", "x".repeat(200));
    let pax = format!("{} path={long}\n", 9 + long.len() + 1);
    let extension = entry(b"pax", EntryType::XHeader, b"", pax.as_bytes());
    let comment = entry(b"pax_global_header", EntryType::XGlobalHeader, b"", b"12 comment=a\n");
    let top = entry(b"./", EntryType::Directory, b"", b"");
    place.tree.unpack(&bundle(&[comment, extension, file("short", "x"), top])).unwrap();
    assert_eq!(place.list(), [long]);
}

fn hard(name: &str, target: &str) -> Vec<u8> {
    entry(name.as_bytes(), EntryType::Link, target.as_bytes(), b"")
}

/// Much more than may be unpacked, of very little.
fn huge_copies() -> Vec<Vec<u8>> {
    let (size, copies) = (64 << 20, MAX_UNPACKED_BYTES / (64 << 20));
    let large = file("large", &"\0".repeat(size));
    let copies = (0..copies).map(|number| hard(&format!("copy{number}"), "large"));
    std::iter::once(large).chain(copies).collect()
}

#[test]
fn a_file_that_is_in_a_bundle_twice_is_there_twice() {
    let place = Place::new();
    let program = {
        let mut program = hard("./again/run.sh", "./run.sh");
        program[100..108].copy_from_slice(b"0000755\0");
        let mut header = Header::from_byte_slice(&program[..512]).clone();
        header.set_cksum();
        program[..512].copy_from_slice(header.as_bytes());
        program
    };
    let entries = [file("./run.sh", "#!/bin/sh"), hard("./link.sh", "./run.sh"), program];
    let unpacked = place.tree.unpack(&bundle(&entries)).unwrap();
    assert_eq!((unpacked.files, unpacked.bytes), (3, 27));
    assert_eq!(place.list(), ["again/run.sh", "link.sh", "run.sh"]);
    for (name, mode) in [("run.sh", 0o644), ("link.sh", 0o644), ("again/run.sh", 0o755)] {
        assert_eq!(place.read(name).unwrap(), "#!/bin/sh");
        let there = fs::metadata(place.root().join(name)).unwrap().permissions().mode();
        assert_eq!(there & 0o777, mode, "{name}");
    }
    // Each is a file of its own.
    fs::write(place.root().join("link.sh"), "other").unwrap();
    assert_eq!(place.read("run.sh").unwrap(), "#!/bin/sh");
}

#[test]
fn a_hostile_bundle_changes_nothing() {
    let link = |name: &str, target: &str| {
        entry(name.as_bytes(), EntryType::Symlink, target.as_bytes(), b"")
    };
    let of = |kind| entry(b"special", kind, b"", b"");
    let hostile: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("absolute", vec![file("/etc/passwd", "x")]),
        ("up", vec![file("../evil", "x")]),
        ("up later", vec![file("a/../../evil", "x")]),
        ("no name", vec![file("", "x")]),
        ("a link out", vec![link("l", "../secret")]),
        ("an absolute link", vec![link("l", "/etc/passwd")]),
        ("a link up through another", vec![link("d/e/l", "../.."), link("m", "d/e/l/../x")]),
        ("through its own link", vec![link("l", "sub"), file("l/x", "x")]),
        ("a link over a directory of it", vec![file("l/x", "x"), link("l", "sub")]),
        ("a file twice", vec![file("x", "1"), file("x", "2")]),
        ("a file and a directory", vec![file("x", "1"), file("x/y", "2")]),
        ("a hard link to nothing", vec![hard("y", "x"), file("x", "1")]),
        ("a hard link to what is there", vec![hard("y", "dir/file")]),
        ("a hard link to a link", vec![link("l", "sub"), hard("y", "l")]),
        ("a hard link out", vec![hard("y", "../secret")]),
        ("an absolute hard link", vec![hard("y", "/etc/passwd")]),
        ("hard links to more than fits", huge_copies()),
        ("a device", vec![of(EntryType::Char)]),
        ("a disk", vec![of(EntryType::Block)]),
        ("a fifo", vec![of(EntryType::Fifo)]),
        ("a sparse file", vec![of(EntryType::GNUSparse)]),
        ("over a link that is there", vec![file("there", "x")]),
        ("through a link that is there", vec![file("there/x", "x")]),
        ("over a directory that is there", vec![file("dir", "x")]),
        ("beneath a file that is there", vec![file("dir/file/x", "x")]),
        (
            "a size said twice",
            vec![entry(b"p", EntryType::XHeader, b"", b"10 size=1\n"), file("x", "1")],
        ),
        (
            "a name of a megabyte",
            vec![entry(b"n", EntryType::GNULongName, b"", &vec![b'n'; 1 << 20])],
        ),
    ];
    let place = Place::new();
    place.put("dir/file", "inside");
    place.link("there", "../outside");
    for (what, entries) in hostile {
        // Behind something harmless, which must not be written either.
        let entries = [vec![file("harmless", "x")], entries].concat();
        let refused = place.tree.unpack(&bundle(&entries));
        assert!(matches!(refused, Err(FileError::BadBundle(_))), "{what}: {refused:?}");
        assert_eq!(place.list(), ["dir/file"], "{what}");
        assert_eq!(fs::read_dir(place.root()).unwrap().count(), 2, "{what}");
    }
    place.is_unharmed();
}

#[test]
fn what_is_no_bundle_is_refused() {
    let place = Place::new();
    let good = bundle(&[file("a", "content")]);
    let mut damaged = good.clone();
    let end = damaged.len() - 6;
    damaged[end] ^= 1;
    for (what, bytes) in [
        ("nothing", &[][..]),
        ("text", b"hello"),
        ("a half", &good[..good.len() / 2]),
        ("a wrong sum", &damaged),
        ("no tar", &compressed(&[b'x'; 2048])),
        ("a file without its end", &compressed(&file("a", &"x".repeat(5000))[..2000])),
    ] {
        let refused = place.tree.unpack(bytes);
        assert!(matches!(refused, Err(FileError::BadBundle(_))), "{what}: {refused:?}");
    }
    assert!(place.list().is_empty());
    place.tree.unpack(&good).unwrap();
}

#[test]
fn a_bomb_is_refused_before_it_goes_off() {
    let place = Place::new();
    // It says what it holds: it is not even read.
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_path("bomb").unwrap();
    header.set_size(MAX_UNPACKED_BYTES + 1);
    header.set_cksum();
    let refused = place.tree.unpack(&compressed(header.as_bytes()));
    assert!(matches!(refused, Err(FileError::BadBundle(_))), "{refused:?}");
    // So many files that their names alone would fill the memory.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for number in 0..100_001 {
        encoder.write_all(&file(&format!("{number}"), "")).unwrap();
    }
    encoder.write_all(&[0; 1024]).unwrap();
    let refused = place.tree.unpack(&encoder.finish().unwrap());
    assert!(matches!(refused, Err(FileError::BadBundle(_))), "{refused:?}");
    assert!(place.list().is_empty());
}
