//! Looking into snapshots: what is in them, how they differ, and one path of them alone.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use ash_snapshot::{Change, Difference, Kind, Repository, Restore, SnapshotError, State, Tree};

use crate::compare::{capture, in_memory, picture, whole};

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Changes in one line each.
fn lines(changes: &[Change]) -> Vec<String> {
    let line = |change: &Change| {
        let path = text(&change.path);
        let (was, is) = (change.size_before, change.size_after);
        match (&change.what, was, is) {
            (Difference::Added(_), None, Some(is)) => format!("+ {path} {is}"),
            (Difference::Removed(_), Some(was), None) => format!("- {path} {was}"),
            (Difference::Modified(..), Some(was), Some(is)) => format!("M {path} {was} {is}"),
            (Difference::Added(_) | Difference::Removed(_) | Difference::Modified(..), ..) => {
                panic!("{change:?}")
            }
        }
    };
    changes.iter().map(line).collect()
}

fn taken(repository: &Repository, tree: &Path) -> Tree {
    capture(repository, tree, &mut State::default()).snapshot.roots[0].clone()
}

fn some_tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let at = |name: &str| tree.path().join(name);
    fs::create_dir_all(at("src/deep")).unwrap();
    fs::create_dir(at("target")).unwrap();
    fs::write(at("src/main.rs"), "fn main() {}").unwrap();
    fs::write(at("src/deep/er"), "1").unwrap();
    fs::write(at("src.txt"), "beside").unwrap();
    fs::write(at("target/out"), "built").unwrap();
    fs::hard_link(at("src/main.rs"), at("target/also")).unwrap();
    fs::hard_link(at("src/main.rs"), at("target/again")).unwrap();
    fs::hard_link(at("target/out"), at("target/zz")).unwrap();
    symlink("src", at("link")).unwrap();
    tree
}

#[test]
fn the_difference_of_two_snapshots_is_what_was_done_between() {
    let (tree, repository) = (some_tree(), in_memory());
    let at = |name: &str| tree.path().join(name);
    let before = taken(&repository, tree.path());
    fs::write(at("src/main.rs"), "fn main() { todo() }").unwrap();
    fs::remove_dir_all(at("target")).unwrap();
    fs::create_dir(at("new")).unwrap();
    fs::write(at("new/file"), "123").unwrap();
    fs::set_permissions(at("src/deep/er"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(at("link")).unwrap();
    symlink("new", at("link")).unwrap();
    fs::set_permissions(tree.path(), fs::Permissions::from_mode(0o750)).unwrap();
    // Written again as it was: no difference.
    fs::write(at("src.txt"), "beside").unwrap();
    let after = taken(&repository, tree.path());

    let there = lines(&repository.diff(Some(&before), Some(&after), 1000).unwrap());
    let expected = [
        "M  0 0",
        "M link 0 0",
        "+ new 0",
        "+ new/file 3",
        "M src/deep/er 1 1",
        "M src/main.rs 12 20",
        "- target 0",
        "- target/again 12",
        "- target/also 12",
        "- target/out 5",
        "- target/zz 5",
    ];
    assert_eq!(there, expected);
    let back = lines(&repository.diff(Some(&after), Some(&before), 1000).unwrap());
    assert_eq!(back.len(), expected.len());
    assert!(back.contains(&"M src/main.rs 20 12".to_owned()));
    assert_eq!(repository.diff(Some(&after), Some(&after), 1000).unwrap(), []);
    let all = repository.diff(None, Some(&after), 1000).unwrap();
    assert_eq!(all.len() as u64, after.files + after.directories + after.links);
    let refused = repository.diff(None, Some(&after), 3).unwrap_err();
    assert!(matches!(refused, SnapshotError::TooMuch { .. }), "{refused}");
}

#[test]
fn a_tree_is_walked_in_the_order_of_paths() {
    let (tree, repository) = (some_tree(), in_memory());
    let taken = taken(&repository, tree.path());
    let mut found = Vec::new();
    let mut each = |path: &[u8], entry: &ash_snapshot::Entry| {
        let kind = match &entry.kind {
            Kind::File(_) => "file".to_owned(),
            Kind::Directory(_) => "directory".to_owned(),
            Kind::Symlink(target) => format!("-> {}", text(target)),
            Kind::HardLink(target) => format!("= {}", text(target)),
        };
        found.push(format!("{} {kind} {}", text(path), entry.size()));
        Ok(())
    };
    repository.walk(&taken, 1000, &mut each).unwrap();
    let expected = [
        "link -> src 0",
        "src directory 0",
        "src/deep directory 0",
        "src/deep/er file 1",
        "src/main.rs file 12",
        "src.txt file 6",
        "target directory 0",
        "target/again = src/main.rs 0",
        "target/also = src/main.rs 0",
        "target/out file 5",
        "target/zz = target/out 0",
    ];
    assert_eq!(found, expected);
    assert!(repository.walk(&taken, 10, &mut |_, _| Ok(())).is_err(), "there are eleven");
}

#[test]
fn one_path_alone_is_restored() {
    let (tree, repository) = (some_tree(), in_memory());
    let taken = taken(&repository, tree.path());
    let place = tempfile::tempdir().unwrap();
    let one = |path: &'static str, name: &str| {
        let target = place.path().join(name);
        repository.restore(&Restore { path: path.as_bytes(), ..whole(&taken, &target) })
    };
    let restored = one("src", "a directory").unwrap();
    assert_eq!((restored.files, restored.bytes), (2, 13));
    assert_eq!(picture(&place.path().join("a directory")), picture(&tree.path().join("src")));
    let times = |path: &Path| fs::symlink_metadata(path).map(|meta| (meta.mtime(), meta.mode()));
    let as_it_was = times(&tree.path().join("src")).unwrap();
    assert_eq!(times(&place.path().join("a directory")).unwrap(), as_it_was);

    // The file that links in it lead to is outside: the links are one file here.
    assert_eq!(one("target", "links").unwrap().files, 2);
    let at = |name: &str| fs::metadata(place.path().join("links").join(name)).unwrap();
    assert_eq!(at("also").ino(), at("again").ino());
    assert_eq!(at("out").ino(), at("zz").ino());
    assert_eq!(fs::read(place.path().join("links/also")).unwrap(), b"fn main() {}");

    assert_eq!(one("src/deep/er", "a file").unwrap().files, 1);
    assert_eq!(fs::read(place.path().join("a file")).unwrap(), b"1");
    one("target/zz", "a hard link").unwrap();
    assert_eq!(fs::read(place.path().join("a hard link")).unwrap(), b"built");
    one("link", "a symbolic link").unwrap();
    assert_eq!(fs::read_link(place.path().join("a symbolic link")).unwrap(), Path::new("src"));

    assert!(matches!(one("src", "a file").unwrap_err(), SnapshotError::Exists(_)));
    for nothing in
        ["nothing", "src/nothing", "src.txt/below", "src/../src", "/src", "src/", "link/main.rs"]
    {
        let refused = one(nothing, "new").unwrap_err();
        assert!(matches!(refused, SnapshotError::Missing(_)), "{nothing}: {refused}");
    }
    let names = fs::read_dir(place.path()).unwrap().count();
    assert_eq!(names, 5, "nothing is left beside them");
}
