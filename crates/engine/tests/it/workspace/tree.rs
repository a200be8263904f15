//! What is asked for is done, and told.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use ash_engine::files::{Executable, FileError, FilePath, Scope, Tree};

use super::{Place, path};

fn mode(place: &Place, path: &str) -> u32 {
    fs::metadata(place.root().join(path)).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_is_written_can_be_read_listed_and_removed() {
    let place = Place::new();
    assert_eq!(place.write("notes/deep/one.txt", "one").unwrap(), 3);
    assert_eq!(place.write("./notes//two.txt", "two!").unwrap(), 4);
    assert_eq!(place.read("notes/two.txt").unwrap(), "two!");
    assert_eq!(place.list(), ["notes/deep/one.txt", "notes/two.txt"]);
    place.write("notes/two.txt", "").unwrap();
    assert_eq!(place.read("notes/two.txt").unwrap(), "");
    place.remove("notes/two.txt").unwrap();
    assert!(matches!(place.read("notes/two.txt"), Err(FileError::NotFound)));
    assert!(matches!(place.remove("notes/two.txt"), Err(FileError::NotFound)));
    assert!(matches!(place.remove("notes"), Err(FileError::NotAFile)));
    assert!(matches!(place.remove("notes/deep/one.txt/x"), Err(FileError::NotFound)));
    assert_eq!(place.list(), ["notes/deep/one.txt"]);
    place.is_unharmed();
}

/// Something to be written, which looks what is in a directory while it is.
struct Looking<'a>(&'a std::path::Path, bool);

impl Read for Looking<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let seen: Vec<_> = fs::read_dir(self.0)?.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(seen, Vec::<std::ffi::OsString>::new(), "whoever dies now leaves something");
        if std::mem::replace(&mut self.1, true) {
            return Ok(0);
        }
        bytes[..3].copy_from_slice(b"one");
        Ok(3)
    }
}

#[test]
fn a_file_that_is_on_its_way_is_nowhere_yet() {
    let place = Place::new();
    let root = place.root();
    let written = place.tree.write(&path("a"), Executable::Yes, &mut Looking(&root, false));
    assert_eq!(written.unwrap(), 3);
    assert_eq!((place.read("a").unwrap().as_str(), mode(&place, "a")), ("one", 0o755));
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    place.is_unharmed();
}

#[test]
fn a_list_leaves_out_what_tools_make_unless_everything_is_wanted() {
    let place = Place::new();
    let all = [
        ".DS_Store",
        ".cache/a",
        ".claude/x",
        ".git/HEAD",
        "a.lock",
        "a.pid",
        "a.sock",
        "a.txt",
        "node_modules/m/i.js",
        "src/__pycache__/p",
        "src/main.rs",
        "src/tmp/t",
        "venv/bin/python",
    ];
    for file in all {
        place.put(file, "x");
    }
    let listed = |scope| {
        let listing = place.tree.list(&FilePath::ROOT, scope).unwrap();
        listing.files.iter().map(|file| file.path.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listed(Scope::Everything), all);
    let usual = [".cache/a", ".claude/x", "a.txt", "src/main.rs", "src/tmp/t", "venv/bin/python"];
    assert_eq!(listed(Scope::Usual), usual);
    assert_eq!(listed(Scope::WithoutCaches), [".claude/x", "a.txt", "src/main.rs"]);
}

#[test]
fn a_part_of_a_tree_is_listed_by_its_path() {
    let place = Place::new();
    place.put("src/main.rs", "fn main() {}");
    place.put("other", "x");
    place.link("link", "src");
    let listed = |under: &str| {
        let listing = place.tree.list(&FilePath::directory(under.as_bytes())?, Scope::Usual)?;
        let files = listing.files.iter().map(|file| (file.path.to_string(), file.size));
        Ok::<_, FileError>(files.collect::<Vec<_>>())
    };
    let main = vec![("src/main.rs".to_owned(), 12)];
    assert_eq!(listed("src").unwrap(), main);
    assert_eq!(listed("src/main.rs").unwrap(), main);
    assert!(matches!(listed("nowhere"), Err(FileError::NotFound)));
    assert!(matches!(listed("link"), Err(FileError::NotAFile)));
    assert!(listed("link/main.rs").is_err() && listed("..").is_err());
}

#[test]
fn a_file_keeps_its_mode_unless_told_otherwise() {
    let place = Place::new();
    place.put("run.sh", "true");
    fs::set_permissions(place.root().join("run.sh"), Permissions::from_mode(0o750)).unwrap();
    place.write("run.sh", "false").unwrap();
    assert_eq!(mode(&place, "run.sh"), 0o750);
    place.tree.write(&path("run.sh"), Executable::No, &mut &b"x"[..]).unwrap();
    assert_eq!(mode(&place, "run.sh"), 0o640);
    place.tree.write(&path("dir/new.sh"), Executable::Yes, &mut &b"x"[..]).unwrap();
    assert_eq!((mode(&place, "dir/new.sh"), mode(&place, "dir")), (0o755, 0o755));
    place.write("plain", "x").unwrap();
    assert_eq!(mode(&place, "plain"), 0o644);
    let listing = place.tree.list(&FilePath::ROOT, Scope::Usual).unwrap();
    let can_run: Vec<bool> = listing.files.iter().map(|file| file.executable).collect();
    assert_eq!(can_run, [true, false, false]);
}

/// Only where we may give files away, which is as root.
#[test]
fn what_is_made_belongs_to_whoever_owns_the_workspace() {
    let place = Place::new();
    if std::os::unix::fs::chown(place.root(), Some(201_234), Some(201_234)).is_err() {
        return;
    }
    let tree = Tree::open(&place.root()).unwrap();
    tree.write(&path("a/b/c"), Executable::No, &mut &b"x"[..]).unwrap();
    for made in ["a", "a/b", "a/b/c"] {
        let found = fs::symlink_metadata(place.root().join(made)).unwrap();
        assert_eq!((found.uid(), found.gid()), (201_234, 201_234), "{made}");
    }
}

#[test]
fn a_file_is_replaced_and_not_changed() {
    let place = Place::new();
    place.put("a", "before");
    fs::hard_link(place.root().join("a"), place.root().join("b")).unwrap();
    fs::hard_link(place.top.path().join("secret"), place.root().join("c")).unwrap();
    place.write("a", "after").unwrap();
    place.write("c", "after").unwrap();
    assert_eq!(place.read("b").unwrap(), "before");
    assert_eq!(place.read("c").unwrap(), "after");
    place.is_unharmed();
}

#[test]
fn a_file_that_is_larger_than_wanted_is_not_opened() {
    let place = Place::new();
    place.put("big", "12345");
    assert_eq!(place.tree.read(&path("big"), 5).unwrap().size, 5);
    let refused = place.tree.read(&path("big"), 4).unwrap_err();
    assert_eq!(refused.to_string(), "File too large (5 bytes, max 4)");
}

#[test]
fn a_content_that_breaks_off_leaves_nothing() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("it broke"))
        }
    }
    let place = Place::new();
    place.put("a", "before");
    assert!(place.tree.write(&path("a"), Executable::No, &mut Broken).is_err());
    assert_eq!(place.read("a").unwrap(), "before");
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 1);
}
