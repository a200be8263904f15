//! Trees that somebody made to be let out, to hang a server, or to bring it down.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ash_engine::files::{Executable, FileError, FilePath, Scope};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, openat, renameat};

use super::{Place, SECRET, path};

#[test]
fn links_are_neither_followed_nor_listed_nor_written_through() {
    let place = Place::new();
    place.put("sub/file", "inside");
    place.link("out", "../secret");
    place.link("up", "..");
    place.link("absolute", place.top.path().join("secret"));
    place.link("in", "sub/file");
    place.link("dir", "sub");
    place.link("outside", "../outside");
    place.link("dangling", "../outside/new");
    place.link("magic", "/proc/self/root");
    place.link("loop", "loop");
    let links = ["out", "absolute", "in", "dangling", "loop", "up", "dir"];
    for link in links {
        assert!(matches!(place.read(link), Err(FileError::NotAFile)), "{link} was read");
        assert!(place.write(link, "evil").is_err(), "{link} was written");
    }
    for through in ["up/secret", "dir/file", "magic/etc/passwd", "outside/new", "outside/a/b"] {
        assert!(place.read(through).is_err(), "{through} was read");
        assert!(place.write(through, "evil").is_err(), "{through} was written");
        assert!(place.remove(through).is_err(), "{through} was removed");
    }
    assert_eq!(place.list(), ["sub/file"]);
    for link in links {
        place.remove(link).unwrap();
    }
    assert_eq!(place.read("sub/file").unwrap(), "inside", "a link is removed, and not its target");
    place.is_unharmed();
}

#[test]
fn what_is_no_file_is_never_opened() {
    let place = Place::new();
    let make = |name: &str, kind, device| {
        mknodat(CWD, place.root().join(name), kind, Mode::from_raw_mode(0o666), device)
    };
    make("fifo", FileType::Fifo, 0).unwrap();
    let _socket = UnixListener::bind(place.root().join("socket")).unwrap();
    fs::create_dir(place.root().join("dir")).unwrap();
    let mut special = vec!["fifo", "socket", "dir"];
    // Only root can, and not everywhere.
    if make("zero", FileType::CharacterDevice, rustix::fs::makedev(1, 5)).is_ok() {
        special.push("zero");
    }
    for name in special {
        assert!(matches!(place.read(name), Err(FileError::NotAFile)), "{name} was read");
        assert!(matches!(place.write(name, "x"), Err(FileError::NotAFile)), "{name} was written");
        assert!(place.write(&format!("{name}/x/y"), "x").is_ok() == (name == "dir"), "{name}");
    }
    assert_eq!(place.list(), ["dir/x/y"]);
    place.tree.pack().expect("what is no file is left out");
    place.remove("fifo").unwrap();
    place.remove("socket").unwrap();
}

#[test]
fn names_that_are_no_text_are_shown_and_can_be_used() {
    let place = Place::new();
    let name = b"caf\xe9 \xff.txt";
    fs::write(place.root().join(OsStr::from_bytes(name)), "x").unwrap();
    place.put("new\nline\x1b[2J", "y");
    let listing = place.tree.list(&FilePath::ROOT, Scope::Usual).unwrap();
    let found = &listing.files[0].path;
    assert_eq!(found.to_string(), "caf\u{fffd} \u{fffd}.txt");
    assert_eq!((found.to_text(), found.encoded()), (None, "caf%E9%20%FF.txt".to_owned()));
    assert_eq!(place.tree.read(found, 10).unwrap().size, 1);
    place.tree.remove(found).unwrap();
    assert_eq!(place.list(), ["new\nline\x1b[2J"]);
}

#[test]
fn ten_thousand_levels_are_a_list_that_says_it_is_a_part() {
    let place = Place::new();
    place.put("top", "x");
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let mut here = rustix::fs::open(place.root(), flags, Mode::empty()).unwrap();
    for level in 0..10_000 {
        mkdirat(&here, "d", Mode::from_raw_mode(0o755)).unwrap();
        here = openat(&here, "d", flags, Mode::empty()).unwrap();
        if level == 1_000 || level == 9_999 {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            openat(&here, "leaf", flags, Mode::from_raw_mode(0o644)).unwrap();
        }
    }
    let listing = place.tree.list(&FilePath::ROOT, Scope::Usual).unwrap();
    assert!(listing.truncated);
    let names: Vec<_> = listing.files.iter().map(|file| file.path.as_bytes().len()).collect();
    assert_eq!(names, [2 * 1_001 + 4, 3]);
    assert!(matches!(place.tree.pack(), Err(FileError::TooMuch(_))), "a bundle is whole");
    assert!(matches!(place.remove("d"), Err(FileError::NotAFile)), "only if it is asked for");
    assert_eq!(place.tree.directories(&FilePath::ROOT).unwrap().paths, [path("d")]);
    place.tree.remove_all(&path("d")).unwrap();
    assert_eq!(place.list(), ["top"]);
    assert!(place.tree.directories(&FilePath::ROOT).unwrap().paths.is_empty());
}

#[test]
fn a_removal_that_is_called_off_leaves_the_rest_where_it_was_and_goes_on_when_it_is_asked_again() {
    let place = Place::new();
    place.put("kept", "x");
    for number in 0..20 {
        place.put(&format!("dir/{number}/deep/er/than/that/file"), "x");
    }
    let left = || entries_below(&place.root().join("dir"));
    let mut rounds = 0;
    loop {
        let (before, asked) = (left(), AtomicU32::new(0));
        let is_called_off = || asked.fetch_add(1, Ordering::Relaxed) >= 30;
        match place.tree.remove_all_unless(&path("dir"), &is_called_off) {
            Ok(()) => break,
            Err(FileError::Busy) => assert!(left() < before, "{before} in round {rounds}"),
            Err(error) => panic!("{error}"),
        }
        assert_eq!(fs::read_dir(place.root()).unwrap().count(), 2, "nothing is put elsewhere");
        rounds += 1;
    }
    assert!(rounds > 1, "it was called off");
    assert_eq!(place.list(), ["kept"]);
}

/// How many entries there are below a directory.
fn entries_below(dir: &std::path::Path) -> usize {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let below = |entry: fs::DirEntry| {
        let is_dir = entry.file_type().unwrap().is_dir();
        1 + if is_dir { entries_below(&entry.path()) } else { 0 }
    };
    entries.map(below).sum()
}

#[test]
fn a_removal_looks_at_every_directory_a_few_times_however_deep_it_is() {
    let place = Place::new();
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let mut here = rustix::fs::open(place.root(), flags, Mode::empty()).unwrap();
    for _level in 0..2_000 {
        mkdirat(&here, "d", Mode::from_raw_mode(0o755)).unwrap();
        here = openat(&here, "d", flags, Mode::empty()).unwrap();
    }
    let asked = AtomicU32::new(0);
    let count = || {
        asked.fetch_add(1, Ordering::Relaxed);
        false
    };
    place.tree.remove_all_unless(&path("d"), &count).unwrap();
    assert!(asked.into_inner() <= 4 * 2_000 + 4);
}

#[test]
fn a_directory_goes_with_all_that_is_in_it_and_with_nothing_else() {
    let place = Place::new();
    for number in 0..50 {
        place.put(&format!("dir/{number}/deep/er/file"), "x");
        fs::create_dir_all(place.root().join(format!("dir/{number}/empty/one"))).unwrap();
    }
    place.put("kept", "x");
    place.link("dir/3/deep/out", "../../../../outside");
    place.link("dir/up", "../..");
    place.link("link", "dir");
    place.link("elsewhere", "../outside");
    fs::write(place.top.path().join("outside/file"), SECRET).unwrap();
    let fifo = place.root().join("dir/7/deep/fifo");
    mknodat(CWD, fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    let locked = std::os::unix::fs::PermissionsExt::from_mode(0o000);
    fs::set_permissions(place.root().join("dir/9/deep"), locked).unwrap();
    let remove_all = |text: &str| place.tree.remove_all(&path(text));
    assert!(remove_all("link/3").is_err() && remove_all("elsewhere/file").is_err());
    assert!(matches!(remove_all("none"), Err(FileError::NotFound)));
    remove_all("link").unwrap();
    remove_all("elsewhere").unwrap();
    assert!(place.root().join("dir/3").exists(), "a link is removed, and not its target");
    remove_all("dir").unwrap();
    assert_eq!(place.list(), ["kept"]);
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 1);
    remove_all("kept").unwrap();
    assert_eq!(fs::read_to_string(place.top.path().join("outside/file")).unwrap(), SECRET);
}

/// Somebody inside swaps what is removed for a link to the outside, and puts new things into it.
#[test]
fn whoever_swaps_directories_while_they_are_removed_loses_nothing_outside() {
    let place = Place::new();
    fs::write(place.top.path().join("outside/file"), SECRET).unwrap();
    place.link("link", "../outside");
    let root = rustix::fs::open(place.root(), OFlags::PATH, Mode::empty()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for name in ["dir/a", "dir/b/c"] {
                    let _maybe = renameat(&root, name, &root, "aside");
                    let _maybe = renameat(&root, "link", &root, name);
                    let _maybe = renameat(&root, name, &root, "link");
                    let _maybe = renameat(&root, "aside", &root, name);
                }
            }
        });
        for _ in 0..200 {
            for name in ["dir/a/file", "dir/b/c/d/file"] {
                let _maybe = place.write(name, "x");
            }
            let _maybe = place.tree.remove_all(&path("dir"));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_to_string(place.top.path().join("outside/file")).unwrap(), SECRET);
}

#[test]
fn a_huge_directory_is_listed_up_to_a_bound() {
    let place = Place::new();
    let root = rustix::fs::open(place.root(), OFlags::PATH, Mode::empty()).unwrap();
    let flags = OFlags::CREATE | OFlags::WRONLY;
    for number in 0..100_001 {
        openat(&root, format!("{number}"), flags, Mode::from_raw_mode(0o644)).unwrap();
    }
    let listing = place.tree.list(&FilePath::ROOT, Scope::Usual).unwrap();
    assert!(listing.truncated);
    assert_eq!(listing.files.len(), 100_000);
}

/// Somebody inside swaps a directory for a link to the outside, over and over.
#[test]
fn a_swap_in_the_middle_of_anything_leads_nowhere() {
    let place = Place::new();
    fs::write(place.top.path().join("outside/secret"), SECRET).unwrap();
    place.put("real/secret", "harmless");
    place.link("link", "../outside");
    place.put("file", "harmless");
    place.link("file-link", "../secret");
    let root = rustix::fs::open(place.root(), OFlags::PATH, Mode::empty()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let swap = |from: &str, to: &str| {
                let _maybe = renameat(&root, from, &root, to);
            };
            while !over.load(Ordering::Relaxed) {
                swap("real", "dir");
                swap("file", "name");
                swap("dir", "real");
                swap("name", "file");
                swap("link", "dir");
                swap("file-link", "name");
                swap("dir", "link");
                swap("name", "file-link");
            }
        });
        for _ in 0..1_000 {
            for name in ["dir/secret", "name"] {
                if let Ok(content) = place.read(name) {
                    assert!(matches!(content.as_str(), "harmless" | "written"), "{content}");
                }
            }
            let _maybe = place.write("dir/written", "written");
            let _maybe = place.write("dir/deep/written", "written");
            let _maybe = place.remove("dir/secret-that-is-not-there");
            let listing = place.tree.list(&FilePath::ROOT, Scope::Usual).unwrap();
            assert!(listing.files.iter().all(|file| file.size != SECRET.len() as u64));
        }
        over.store(true, Ordering::Relaxed);
    });
    let outside: Vec<_> = fs::read_dir(place.top.path().join("outside")).unwrap().collect();
    assert_eq!(outside.len(), 1);
    let secret = fs::read_to_string(place.top.path().join("outside/secret")).unwrap();
    assert_eq!(secret, SECRET);
}

/// Names that lead everywhere, put together at random.
fn any_path() -> impl Strategy<Value = String> {
    let names =
        ["..", ".", "", "up", "out", "abs", "sub", "new", "file", "a\0b", "secret", "outside"];
    let name = prop::sample::select(names.to_vec());
    let long = Just("n".repeat(300));
    let names =
        prop::collection::vec(prop_oneof![20 => name.prop_map(str::to_owned), 1 => long], 1..6);
    (any::<bool>(), names).prop_map(|(is_absolute, names)| {
        format!("{}{}", if is_absolute { "/" } else { "" }, names.join("/"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_path_stays_beneath_or_is_refused(paths in prop::collection::vec(any_path(), 1..8)) {
        let place = Place::new();
        place.put("sub/file", "inside");
        place.link("up", "..");
        place.link("out", "../secret");
        place.link("sub/out", "../../secret");
        place.link("sub/up", "../..");
        place.link("abs", place.top.path());
        for text in &paths {
            if let Ok(content) = place.read(text) {
                prop_assert_ne!(content, SECRET);
            }
            let _maybe = place.write(text, "written");
            let under = FilePath::directory(text.as_bytes());
            if let Ok(listing) = under.and_then(|under| place.tree.list(&under, Scope::Everything)) {
                prop_assert!(listing.files.iter().all(|file| file.size != SECRET.len() as u64));
            }
            let _maybe = place.remove(text);
            if let Ok(path) = FilePath::file(text.as_bytes()) {
                let _maybe = place.tree.remove_all(&path);
            }
        }
        place.is_unharmed();
    }
}

#[test]
fn a_name_that_only_has_to_be_there_for_a_moment_is_not_shown() {
    let place = Place::new();
    place.put(".ash-new-0123", "half");
    place.put("whole", "x");
    assert_eq!(place.list(), ["whole"]);
    let tree = &place.tree;
    assert!(tree.write(&path("whole"), Executable::No, &mut &b"y"[..]).is_ok());
}
