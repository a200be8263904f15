//! `ash snapshot`, as a person and a script meet it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub(crate) fn ash(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ash"))
        .arg("snapshot")
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap()
}

pub(crate) fn json(dir: &Path, args: &[&str]) -> Value {
    let output = ash(dir, &[args, &["--store", "store", "--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The code and what was said.
pub(crate) fn refused(dir: &Path, args: &[&str]) -> (i32, String) {
    let output = ash(dir, args);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

pub(crate) fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("project/src")).unwrap();
    fs::write(dir.path().join("project/src/main.rs"), "fn main() {}").unwrap();
    fs::write(dir.path().join("project/Cargo.lock"), "locked").unwrap();
    dir
}

#[test]
fn a_directory_goes_into_a_store_and_comes_back() {
    let dir = project();
    let first = json(dir.path(), &["capture", "project", "--label", "first"]);
    assert_eq!((first["files"].as_u64(), first["bytes"].as_u64()), (Some(2), Some(18)));
    assert!(first["storedBytes"].as_u64() > Some(0) && first["milliseconds"]["scan"].is_number());
    fs::write(dir.path().join("project/src/main.rs"), "fn main() { more() }").unwrap();
    let second = json(dir.path(), &["capture", "project"]);
    let list = json(dir.path(), &["list"]);
    assert_eq!(list["snapshots"][0]["label"], "first");
    assert_eq!(list["snapshots"][1]["id"], second["id"]);

    let (before, after) = (first["id"].as_str().unwrap(), second["id"].as_str().unwrap());
    let diff = json(dir.path(), &["diff", before, after]);
    let expected = serde_json::json!([
        { "root": "workspace", "path": "src/main.rs", "change": "modified", "before": 12, "after": 20 }
    ]);
    assert_eq!(diff["changes"], expected);
    let shown = json(dir.path(), &["show", before]);
    assert_eq!(shown["entries"].as_array().unwrap().len(), 3);
    assert_eq!(shown["entries"][2]["size"], 12);

    let restored = json(dir.path(), &["restore", before, "back"]);
    assert_eq!(restored["files"], 2);
    assert_eq!(fs::read(dir.path().join("back/src/main.rs")).unwrap(), b"fn main() {}");
    json(dir.path(), &["restore", "latest", "alone", "--path", "src/main.rs"]);
    assert_eq!(fs::read(dir.path().join("alone")).unwrap(), b"fn main() { more() }");

    assert_eq!(json(dir.path(), &["verify"])["whole"], true);
    let collected = json(dir.path(), &["gc", "--keep-last", "1", "--alone"]);
    assert_eq!(collected["forgotten"].as_array().unwrap().len(), 1);
    let left = json(dir.path(), &["restore", "latest", "again"]);
    assert_eq!(left["files"], 2);
}

#[test]
fn a_store_in_the_directory_does_not_capture_itself() {
    let dir = project();
    let first = json(dir.path(), &["capture", "."]);
    assert_eq!(first["files"], 2);
    let (code, said) = refused(dir.path(), &["capture", "store", "--store", "store"]);
    assert_eq!((code, said.contains("the store itself")), (2, true), "{said}");
}

#[test]
fn what_cannot_be_done_is_said_with_its_code() {
    let dir = project();
    for (url, why) in [
        ("ftp://host/path", "s3://bucket/prefix"),
        ("memory:", "a directory"),
        ("file://elsewhere/path", "this machine"),
        ("s3://", "not understood"),
        ("s3://bucket//path", "not understood"),
    ] {
        let (code, said) = refused(dir.path(), &["capture", "project", "--store", url]);
        assert_eq!((code, said.contains(why)), (2, true), "{url}: {said}");
    }
    let cached = ["list", "--store", "store", "--cache", "cache"];
    assert_eq!(refused(dir.path(), &cached).0, 2, "a directory has no cache");
    let (code, said) = refused(dir.path(), &["list", "--store", "nowhere"]);
    assert_eq!((code, said.contains("no store of snapshots")), (4, true), "{said}");
    assert!(!dir.path().join("nowhere").exists(), "nothing is made by looking");
    let (code, said) = refused(dir.path(), &["capture", "project", "--store", "project/src"]);
    assert_eq!((code, said.contains("not empty")), (2, true), "{said}");
    for nothing in ["nothing", "project/Cargo.lock"] {
        let (code, said) = refused(dir.path(), &["capture", nothing, "--store", "store"]);
        assert_eq!(code, 4, "{said}");
        assert!(!dir.path().join("store").exists(), "no store is left behind");
    }
    json(dir.path(), &["capture", "project"]);
    let (code, _) = refused(dir.path(), &["show", "0000", "--store", "store"]);
    assert_eq!(code, 4);
    let (code, _) = refused(dir.path(), &["restore", "latest", "project", "--store", "store"]);
    assert_eq!(code, 1, "it is there already");
    let missing = ["restore", "latest", "new", "--path", "nothing", "--store", "store"];
    assert_eq!(refused(dir.path(), &missing).0, 4);
}

#[test]
fn damage_is_named_and_the_rest_is_restored() {
    let dir = project();
    json(dir.path(), &["capture", "project"]);
    let before: Vec<_> = packs(dir.path());
    // Not to be compressed, so that it is known where it lies.
    let noise: Vec<u8> = (0..100_000_u64).map(|n| (n.wrapping_mul(n) ^ (n >> 3)) as u8).collect();
    fs::write(dir.path().join("project/noise"), noise).unwrap();
    json(dir.path(), &["capture", "project"]);
    let pack = packs(dir.path()).into_iter().find(|pack| !before.contains(pack)).unwrap();
    let mut bytes = fs::read(&pack).unwrap();
    bytes[100] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let output = ash(dir.path(), &["verify", "--store", "store", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let verified: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(verified["damagedPacks"].as_array().unwrap().len(), 1);
    assert_eq!(
        verified["damagedSnapshots"][0]["paths"],
        serde_json::json!([{ "root": "workspace", "path": "noise" }])
    );
    let lenient = ["restore", "latest", "back", "--leave-out-damaged", "--store", "store"];
    let (code, said) = refused(dir.path(), &lenient);
    assert_eq!((code, said.contains("left out: noise")), (1, true), "{said}");
    assert_eq!(fs::read(dir.path().join("back/Cargo.lock")).unwrap(), b"locked");

    // Stored again by who still has it.
    assert_eq!(json(dir.path(), &["capture", "project"])["newBytes"], 0);
    let repaired = ash(dir.path(), &["verify", "--repair", "--store", "store", "--json"]);
    let repaired: Value = serde_json::from_slice(&repaired.stdout).unwrap();
    assert_eq!(repaired["distrustedPacks"], 1);
    assert!(json(dir.path(), &["capture", "project"])["newBytes"].as_u64() >= Some(100_000));
    json(dir.path(), &["restore", "latest", "whole"]);
    json(dir.path(), &["gc", "--alone"]);
    assert_eq!(json(dir.path(), &["verify"])["whole"], true, "the damaged one is gone");
}

#[test]
fn a_directory_that_is_there_becomes_what_the_snapshot_says() {
    let dir = project();
    let main = dir.path().join("project/src/main.rs");
    json(dir.path(), &["capture", "project"]);
    fs::write(&main, "fn other() {}").unwrap();
    fs::create_dir(dir.path().join("project/target")).unwrap();
    fs::write(dir.path().join("project/target/built"), "built").unwrap();

    let over = ["restore", "latest", "project", "--in-place"];
    let said = json(dir.path(), &[&over[..], &["--dry-run"]].concat());
    let expected = serde_json::json!([
        { "path": "src/main.rs", "change": "written" }, { "path": "target", "change": "removed" },
    ]);
    assert_eq!((&said["changes"], &said["dryRun"]), (&expected, &Value::Bool(true)));
    assert_eq!(fs::read(&main).unwrap(), b"fn other() {}", "it is only said");

    let kept = json(dir.path(), &[&over[..], &["--exclude", "target"]].concat());
    assert_eq!((kept["written"].as_u64(), kept["removed"].as_u64()), (Some(1), Some(0)));
    assert_eq!(fs::read(&main).unwrap(), b"fn main() {}");
    let done = json(dir.path(), &over);
    assert_eq!((done["written"].as_u64(), done["removed"].as_u64()), (Some(0), Some(2)));
    assert!(!dir.path().join("project/target").exists());

    // Torn: it looks as it should.
    let modified = fs::metadata(&main).unwrap().modified().unwrap();
    fs::write(&main, [0; 12]).unwrap();
    fs::File::options().append(true).open(&main).unwrap().set_modified(modified).unwrap();
    let output = ash(dir.path(), &[&over[..], &["--check", "--store", "store"]].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.starts_with("repaired src/main.rs\n1 name written (1 looked right), 12 B;"),
        "{said}"
    );
    assert_eq!(fs::read(&main).unwrap(), b"fn main() {}");

    let refusals: [(&[&str], i32, &str); 5] = [
        (&["restore", "latest", "nothing", "--in-place"], 4, "is no directory"),
        (&["restore", "latest", "project/Cargo.lock", "--in-place"], 4, "is no directory"),
        (&["restore", "latest", "store", "--in-place"], 2, "the store itself"),
        (
            &["restore", "latest", "project", "--in-place", "--path", "src"],
            2,
            "cannot be used with",
        ),
        (&["restore", "latest", "new", "--dry-run"], 2, "--in-place"),
    ];
    for (args, code, text) in refusals {
        let (ended, said) = refused(dir.path(), &[args, &["--store", "store"]].concat());
        assert_eq!((ended, said.contains(text)), (code, true), "{args:?}: {said}");
    }
    let (_, said) = refused(dir.path(), &["restore", "latest", "project", "--store", "store"]);
    assert!(said.contains("--in-place"), "{said}");
}

#[test]
fn a_store_in_the_directory_survives_what_is_restored_from_it() {
    let dir = project();
    json(dir.path(), &["capture", "."]);
    fs::remove_file(dir.path().join("project/Cargo.lock")).unwrap();
    let done = json(dir.path(), &["restore", "latest", ".", "--in-place"]);
    assert_eq!((done["written"].as_u64(), done["removed"].as_u64()), (Some(1), Some(0)));
    assert_eq!(json(dir.path(), &["verify"])["whole"], true);
}

pub(crate) fn packs(dir: &Path) -> Vec<std::path::PathBuf> {
    let shards = fs::read_dir(dir.join("store/packs")).unwrap();
    let packs = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    packs.map(|pack| pack.unwrap().path()).collect()
}

#[test]
fn what_is_left_out_is_meant_however_it_is_spelled() {
    let dir = project();
    fs::create_dir(dir.path().join("project/target")).unwrap();
    fs::write(dir.path().join("project/target/built"), "large").unwrap();
    let whole = dir.path().join("project").canonicalize().unwrap().join("target");
    for spelled in ["target", "target/", "./target", whole.to_str().unwrap()] {
        let captured = json(dir.path(), &["capture", "project", "--exclude", spelled]);
        assert_eq!(captured["files"], 2, "{spelled}");
    }
    for wrong in ["../target", "/etc", ""] {
        let told = ["capture", "project", "--store", "store", "--exclude", wrong];
        let (code, said) = refused(dir.path(), &told);
        assert_eq!(code, 2, "{wrong}: {said}");
    }
}

#[test]
fn a_store_that_somebody_died_making_is_made() {
    let dir = project();
    fs::create_dir_all(dir.path().join("store/tmp")).unwrap();
    assert_eq!(json(dir.path(), &["capture", "project"])["files"], 2);
}

#[test]
fn a_snapshot_whose_record_is_damaged_can_be_forgotten() {
    let dir = project();
    let first = json(dir.path(), &["capture", "project"]);
    let id = first["id"].as_str().unwrap();
    let record = dir.path().join("store/snapshots").join(id);
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace("workspace", "workplace")).unwrap();
    json(dir.path(), &["forget", id]);
    json(dir.path(), &["gc", "--alone"]);
}
