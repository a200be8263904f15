//! `ash snapshot` where a mistake would cost something: files of others, half a restore, a wrong answer.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json as document};

use crate::snapshots::{ash, json, packs, project, refused};

/// Bytes that are not compressed: it is known where they lie in a pack.
fn noise(seed: u64) -> Vec<u8> {
    let number = |n: u64| n.wrapping_mul(n.wrapping_add(seed)) ^ (n >> 3);
    (0..100_000).map(|n| (number(n) >> 5) as u8).collect()
}

/// Damages the beginning of packs that were not there before.
fn damage_new(dir: &Path, before: &[PathBuf]) {
    for pack in packs(dir).iter().filter(|pack| !before.contains(pack)) {
        let mut bytes = fs::read(pack).unwrap();
        bytes[100] ^= 1;
        fs::write(pack, bytes).unwrap();
    }
}

#[test]
fn what_others_have_in_a_directory_is_no_empty_store_and_is_not_removed() {
    let dir = project();
    let notes = dir.path().join("store/tmp/notes.txt");
    for holder in ["store/tmp", "store/state"] {
        fs::create_dir_all(dir.path().join(holder)).unwrap();
        fs::write(dir.path().join(holder).join("notes.txt"), "mine").unwrap();
        let (code, said) = refused(dir.path(), &["capture", "project", "--store", "store"]);
        assert_eq!((code, said.contains("not empty")), (2, true), "{said}");
        fs::remove_dir_all(dir.path().join("store")).unwrap();
    }
    json(dir.path(), &["capture", "project"]);
    // Nor is it removed if it comes later.
    fs::write(&notes, "mine").unwrap();
    fs::create_dir_all(dir.path().join("store/tmp/more")).unwrap();
    let left = dir.path().join("store/tmp/01890000-0000-7000-8000-000000000000");
    fs::write(&left, "half an object").unwrap();
    json(dir.path(), &["gc", "--alone"]);
    assert_eq!((notes.exists(), left.exists()), (true, false));
    let notes = dir.path().join("store/state/notes.txt");
    fs::write(&notes, "mine").unwrap();
    fs::create_dir_all(dir.path().join("store/state/more")).unwrap();
    let states = || fs::read_dir(dir.path().join("store/state")).unwrap().count();
    assert_eq!(states(), 3);
    damage_new(dir.path(), &[]);
    assert_eq!(refused(dir.path(), &["verify", "--repair", "--store", "store"]).0, 1);
    assert_eq!((notes.exists(), states()), (true, 2));
}

#[test]
fn a_home_that_is_damaged_in_the_store_leaves_the_workspace_alone() {
    let dir = project();
    fs::create_dir(dir.path().join("me")).unwrap();
    json(dir.path(), &["capture", "project", "--home", "me"]);
    let before = packs(dir.path());
    fs::write(dir.path().join("me/noise"), noise(1)).unwrap();
    json(dir.path(), &["capture", "project", "--home", "me"]);
    damage_new(dir.path(), &before);
    let lock = dir.path().join("project/Cargo.lock");
    fs::write(&lock, "changed").unwrap();
    fs::remove_file(dir.path().join("me/noise")).unwrap();
    let over = ["restore", "latest", "project", "--in-place", "--home", "me", "--store", "store"];
    let (code, said) = refused(dir.path(), &over);
    assert_eq!((code, said.contains("nothing was touched")), (1, true), "{said}");
    assert_eq!(fs::read(&lock).unwrap(), b"changed");
    for tree in ["project", "me"] {
        let names = fs::read_dir(dir.path().join(tree)).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(!names.into_iter().any(|name| name.starts_with(".ash-restore")), "{tree}");
    }
}

#[test]
fn what_is_not_kept_is_told() {
    let dir = project();
    let at = |name: &str| dir.path().join("project").join(name);
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), kind, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    for number in 0..65 {
        let name = format!("user.number{number:02}");
        rustix::fs::setxattr(at("Cargo.lock"), name, b"x", flags).unwrap();
    }
    let captured = json(dir.path(), &["capture", "project"]);
    assert_eq!(captured["stripped"], document!(["workspace/Cargo.lock"]));
    assert_eq!(captured["unfrozenScan"], false);
    let told = ash(dir.path(), &["capture", "project", "--store", "store"]);
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("left out: 1 socket, 1 pipe"), "{told}");
    assert!(told.contains("attributes of workspace/Cargo.lock"), "{told}");
    let restored = json(dir.path(), &["restore", "latest", "back"]);
    assert_eq!(restored["copied"], 0);
    let mended = json(dir.path(), &["restore", "latest", "project", "--in-place"]);
    assert_eq!(mended["copied"], 0);
}

#[test]
fn a_store_that_was_copied_without_its_empty_directories_is_read_as_it_is() {
    let dir = project();
    json(dir.path(), &["capture", "project"]);
    let beside = ["tmp", "state"].map(|name| dir.path().join("store").join(name));
    beside.iter().for_each(|path| fs::remove_dir_all(path).unwrap());
    for args in [&["list"][..], &["verify"], &["show", "latest"], &["restore", "latest", "back"]] {
        json(dir.path(), args);
        assert!(!beside.iter().any(|path| path.exists()), "{args:?}");
    }
    json(dir.path(), &["gc", "--alone"]);
    json(dir.path(), &["capture", "project"]);
}

#[test]
fn a_home_in_the_directory_comes_back_in_it() {
    let dir = project();
    fs::create_dir_all(dir.path().join("project/of/me")).unwrap();
    fs::write(dir.path().join("project/of/me/settings"), "mine").unwrap();
    json(dir.path(), &["capture", "project", "--home", "project/of/me"]);
    json(dir.path(), &["restore", "latest", "back", "--home", "./back/of/me"]);
    assert_eq!(fs::read(dir.path().join("back/of/me/settings")).unwrap(), b"mine");
    assert_eq!(fs::read(dir.path().join("back/Cargo.lock")).unwrap(), b"locked");
}

#[test]
fn only_its_owner_reads_what_is_remembered() {
    let dir = project();
    let store = dir.path().join("store");
    fs::create_dir(&store).unwrap();
    fs::set_permissions(&store, fs::Permissions::from_mode(0o755)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    json(dir.path(), &["capture", "project"]);
    let saved = fs::read_dir(store.join("state")).unwrap().next().unwrap().unwrap().path();
    assert_eq!((mode(&store.join("state")), mode(&saved)), (0o700, 0o600));
    // One that was made before is closed too.
    fs::set_permissions(store.join("state"), fs::Permissions::from_mode(0o755)).unwrap();
    json(dir.path(), &["capture", "project"]);
    assert_eq!(mode(&store.join("state")), 0o700);
}

#[test]
fn a_path_of_a_snapshot_is_meant_however_it_is_spelled() {
    let dir = project();
    json(dir.path(), &["capture", "project"]);
    let spelled = ["src/main.rs", "./src/main.rs", "src//main.rs", "/src/main.rs"];
    for (number, path) in spelled.into_iter().enumerate() {
        let target = format!("file{number}");
        json(dir.path(), &["restore", "latest", &target, "--path", path]);
        assert_eq!(fs::read(dir.path().join(target)).unwrap(), b"fn main() {}", "{path}");
    }
    for (number, path) in [".", "/", "./"].into_iter().enumerate() {
        let target = format!("all{number}");
        json(dir.path(), &["restore", "latest", &target, "--path", path]);
        assert!(dir.path().join(target).join("src/main.rs").exists(), "{path}");
    }
    let above = ["restore", "latest", "new", "--path", "../src", "--store", "store"];
    assert_eq!(refused(dir.path(), &above).0, 2);
}

#[test]
fn what_is_left_out_of_a_home_is_told_as_of_the_home() {
    let dir = project();
    fs::create_dir(dir.path().join("me")).unwrap();
    json(dir.path(), &["capture", "project", "--home", "me"]);
    let before = packs(dir.path());
    fs::write(dir.path().join("me/noise"), noise(1)).unwrap();
    json(dir.path(), &["capture", "project", "--home", "me"]);
    damage_new(dir.path(), &before);
    let lenient = ["restore", "latest", "back", "--home", "back-me", "--leave-out-damaged"];
    let (code, said) = refused(dir.path(), &[&lenient[..], &["--store", "store"]].concat());
    assert_eq!((code, said.contains("left out: home/noise")), (1, true), "{said}");
}

#[test]
fn to_keep_the_last_ones_of_nobody_is_a_mistake() {
    let dir = project();
    json(dir.path(), &["capture", "project"]);
    let typo = ["gc", "--keep-last", "1", "--source", "typo", "--store", "store"];
    let (code, said) = refused(dir.path(), &typo);
    assert_eq!((code, said.contains("no snapshot of typo")), (4, true), "{said}");
}

#[test]
fn no_capture_mends_a_damaged_record_and_none_is_advised() {
    let dir = project();
    let captured = json(dir.path(), &["capture", "project"]);
    let record = dir.path().join("store/snapshots").join(captured["id"].as_str().unwrap());
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace("workspace", "workplace")).unwrap();
    for args in [&["gc"][..], &["gc", "--keep-last", "1"]] {
        let (code, said) = refused(dir.path(), &[args, &["--store", "store"]].concat());
        assert_eq!((code, said.contains("snapshot forget")), (5, true), "{said}");
        assert!(!said.contains("--repair"), "{said}");
    }
    fs::write(&record, text).unwrap();
    packs(dir.path()).iter().for_each(|pack| fs::remove_file(pack).unwrap());
    let (code, said) = refused(dir.path(), &["gc", "--store", "store"]);
    assert_eq!((code, said.contains("--repair")), (5, true), "{said}");
}

#[test]
fn another_mode_of_the_directory_itself_is_a_difference() {
    let dir = project();
    let first = json(dir.path(), &["capture", "project"]);
    let root = dir.path().join("project");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o700)).unwrap();
    json(dir.path(), &["capture", "project"]);
    let first = first["id"].as_str().unwrap();
    let diff = json(dir.path(), &["diff", first, "latest"]);
    let expected = document!([
        { "root": "workspace", "change": "modified", "before": 0, "after": 0, "path": "" }
    ]);
    assert_eq!(diff["changes"], expected);
    let said = ash(dir.path(), &["diff", first, "latest", "--store", "store"]);
    assert_eq!(String::from_utf8(said.stdout).unwrap(), "M . 0 -> 0\n");
}

#[test]
fn finding_caches_counts_as_time() {
    let dir = project();
    fs::create_dir(dir.path().join("me")).unwrap();
    let captured = json(dir.path(), &["capture", "project", "--home", "me"]);
    let took = &captured["milliseconds"];
    assert!(took["caches"].is_number(), "{took}");
    let at_least = |name: &str| took[name].as_f64().unwrap();
    assert!(at_least("total") >= at_least("caches") + at_least("scan") - 0.2, "{took}");
    let alone: Value = json(dir.path(), &["capture", "project"]);
    assert!(alone["milliseconds"].is_object());
}
