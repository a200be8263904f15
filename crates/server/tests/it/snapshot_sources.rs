//! Whose snapshots `ash snapshot` means, and homes beside directories.

use std::fs;
use std::path::Path;

use serde_json::{Value, json as document};

use crate::snapshots::{ash, json, project, refused};

/// Two directories in one store, the first of them twice.
fn two() -> (tempfile::TempDir, [Value; 3]) {
    let dir = project();
    fs::create_dir(dir.path().join("other")).unwrap();
    fs::write(dir.path().join("other/notes"), "notes").unwrap();
    let first = json(dir.path(), &["capture", "project"]);
    let other = json(dir.path(), &["capture", "other"]);
    fs::write(dir.path().join("project/more"), "more").unwrap();
    let second = json(dir.path(), &["capture", "project"]);
    (dir, [first, other, second])
}

fn ids(list: &Value) -> Vec<Value> {
    list["snapshots"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect()
}

#[test]
fn a_capture_comes_after_the_last_one_of_the_same_directory() {
    let (dir, [first, other, second]) = two();
    let real = dir.path().join("project").canonicalize().unwrap();
    assert_eq!((&first["source"], &first["parent"]), (&document!(real), &Value::Null));
    assert_eq!((&other["parent"], &second["parent"]), (&Value::Null, &first["id"]));
    // It was moved, and goes on.
    fs::rename(&real, dir.path().join("moved")).unwrap();
    let source = real.to_str().unwrap();
    let moved = json(dir.path(), &["capture", "moved", "--source", source]);
    assert_eq!((&moved["source"], &moved["parent"]), (&document!(source), &second["id"]));
    let list = json(dir.path(), &["list", "--source", source]);
    assert_eq!(ids(&list), [first["id"].clone(), second["id"].clone(), moved["id"].clone()]);
}

#[test]
fn the_latest_is_that_of_a_source() {
    let (dir, [first, other, second]) = two();
    let other_source = other["source"].as_str().unwrap();
    for args in
        [&["show", "latest"][..], &["restore", "latest", "back"], &["diff", "empty", "latest"]]
    {
        let (code, said) = refused(dir.path(), &[args, &["--store", "store"]].concat());
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(other_source) && said.contains("--source"), "{said}");
        assert!(!dir.path().join("back").exists());
    }
    let shown = json(dir.path(), &["show", "latest", "--source", other_source]);
    assert_eq!(shown["id"], other["id"]);
    let (code, said) =
        refused(dir.path(), &["show", "latest", "--source", "nobody", "--store", "store"]);
    assert_eq!((code, said.contains("nobody")), (4, true), "{said}");
    // The latest of those that the first is of.
    let diff = json(dir.path(), &["diff", first["id"].as_str().unwrap(), "latest"]);
    assert_eq!((&diff["after"], &diff["changes"][0]["path"]), (&second["id"], &document!("more")));
}

#[test]
fn a_directory_does_not_become_another_by_mistake() {
    let (dir, [_, other, second]) = two();
    fs::remove_file(dir.path().join("project/more")).unwrap();
    let done = json(dir.path(), &["restore", "latest", "project", "--in-place"]);
    assert_eq!((&done["id"], &done["written"]), (&second["id"], &document!(1)));

    let id = other["id"].as_str().unwrap();
    let over = ["restore", id, "project", "--in-place", "--store", "store"];
    let (code, said) = refused(dir.path(), &over);
    assert_eq!((code, said.contains("--any-source")), (5, true), "{said}");
    assert!(dir.path().join("project/more").exists(), "nothing was done");
    fs::create_dir(dir.path().join("new")).unwrap();
    let (code, said) =
        refused(dir.path(), &["restore", "latest", "new", "--in-place", "--store", "store"]);
    assert_eq!((code, said.contains("no snapshot of")), (4, true), "{said}");
    // Who says whose it is means it.
    let source = second["source"].as_str().unwrap();
    let named = ["restore", "latest", "new", "--in-place", "--source", source];
    assert_eq!(json(dir.path(), &named)["id"], second["id"]);
    json(dir.path(), &["restore", id, "project", "--in-place", "--any-source"]);
    assert_eq!(fs::read(dir.path().join("project/notes")).unwrap(), b"notes");
    assert!(!dir.path().join("project/more").exists());
}

#[test]
fn the_last_ones_of_each_directory_are_kept() {
    let (dir, [first, other, second]) = two();
    let (code, said) = refused(dir.path(), &["gc", "--keep-last", "0", "--store", "store"]);
    assert_eq!((code, said.contains("--forget-all")), (2, true), "{said}");
    let (code, said) = refused(dir.path(), &["gc", "--source", "x", "--store", "store"]);
    assert_eq!((code, said.contains("--keep-last")), (2, true), "{said}");
    assert_eq!(ids(&json(dir.path(), &["list"])).len(), 3, "nothing was forgotten");

    let kept = json(dir.path(), &["gc", "--keep-last", "1", "--alone"]);
    assert_eq!(kept["forgotten"], document!([first["id"]]));
    assert!(kept["milliseconds"]["reach"].is_number(), "{kept}");
    let source = other["source"].as_str().unwrap();
    let all = ["gc", "--keep-last", "0", "--forget-all", "--source", source, "--alone"];
    assert_eq!(json(dir.path(), &all)["forgotten"], document!([other["id"]]));
    assert_eq!(ids(&json(dir.path(), &["list"])), [second["id"].clone()]);
}

#[test]
fn what_was_excluded_stays_when_it_is_restored_over() {
    let dir = project();
    fs::create_dir(dir.path().join("project/target")).unwrap();
    fs::write(dir.path().join("project/target/built"), "large").unwrap();
    json(dir.path(), &["capture", "project", "--exclude", "target"]);
    let done = json(dir.path(), &["restore", "latest", "project", "--in-place"]);
    assert_eq!((&done["written"], &done["removed"]), (&document!(0), &document!(0)));
    assert!(dir.path().join("project/target/built").exists());
}

fn home(dir: &Path) {
    for made in [".cache/pip", ".config", "built"] {
        fs::create_dir_all(dir.join("me").join(made)).unwrap();
    }
    fs::write(dir.join("me/.cache/pip/large"), "large").unwrap();
    fs::write(dir.join("me/.config/settings"), "mine").unwrap();
    let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
    fs::write(dir.join("me/built/CACHEDIR.TAG"), tag).unwrap();
}

#[test]
fn a_home_is_captured_without_its_caches_and_comes_back() {
    let dir = project();
    home(dir.path());
    let captured = json(dir.path(), &["capture", "project", "--home", "me"]);
    assert_eq!(captured["files"], 3);
    let shown = ash(dir.path(), &["show", "latest", "--store", "store"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    let paths: Vec<&str> = shown.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    let expected = [
        "workspace/Cargo.lock",
        "workspace/src",
        "workspace/src/main.rs",
        "home/.config",
        "home/.config/settings",
    ];
    assert_eq!(paths, expected);
    let diff = json(dir.path(), &["diff", "empty", "latest"]);
    assert_eq!(
        (&diff["changes"][0]["root"], &diff["changes"][4]["root"]),
        (&document!("workspace"), &document!("home"))
    );

    let told = ash(dir.path(), &["restore", "latest", "alone", "--store", "store"]);
    assert!(String::from_utf8(told.stderr).unwrap().contains("--home DIR"));
    let restored = json(dir.path(), &["restore", "latest", "back", "--home", "you"]);
    assert_eq!((&restored["files"], &restored["home"]["files"]), (&document!(2), &document!(1)));
    assert_eq!(fs::read(dir.path().join("you/.config/settings")).unwrap(), b"mine");
    assert!(!dir.path().join("you/.cache").exists());
    json(
        dir.path(),
        &["restore", "latest", "settings", "--root", "home", "--path", ".config/settings"],
    );
    assert_eq!(fs::read(dir.path().join("settings")).unwrap(), b"mine");

    fs::write(dir.path().join("me/.config/settings"), "others").unwrap();
    fs::write(dir.path().join("me/new"), "new").unwrap();
    let over = ["restore", "latest", "project", "--in-place", "--home", "me"];
    let mended = json(dir.path(), &over);
    assert_eq!((&mended["written"], &mended["home"]["written"]), (&document!(0), &document!(1)));
    assert_eq!(fs::read(dir.path().join("me/.config/settings")).unwrap(), b"mine");
    assert!(!dir.path().join("me/new").exists());
    assert!(dir.path().join("me/.cache/pip/large").exists(), "caches are left alone");
    assert!(dir.path().join("me/built/CACHEDIR.TAG").exists());
    // What is remembered of both saves reading them.
    assert_eq!(json(dir.path(), &["capture", "project", "--home", "me"])["newBytes"], 0);

    json(dir.path(), &["capture", "project", "--source", "bare"]);
    let none = ["restore", "latest", "new", "--home", "x", "--source", "bare", "--store", "store"];
    let (code, said) = refused(dir.path(), &none);
    assert_eq!((code, said.contains("has no home")), (4, true), "{said}");
    let (code, _) = refused(dir.path(), &["capture", "me", "--home", "me", "--store", "store"]);
    assert_eq!(code, 2);
}

#[test]
fn a_directory_in_its_home_is_captured_once_and_not_removed_with_it() {
    let dir = project();
    home(dir.path());
    fs::rename(dir.path().join("project"), dir.path().join("me/project")).unwrap();
    assert_eq!(json(dir.path(), &["capture", "me/project", "--home", "me"])["files"], 3);
    fs::rename(dir.path().join("me/project"), dir.path().join("me/renamed")).unwrap();
    json(
        dir.path(),
        &["restore", "latest", "me/renamed", "--in-place", "--home", "me", "--any-source"],
    );
    assert!(dir.path().join("me/renamed/src/main.rs").exists());
}
