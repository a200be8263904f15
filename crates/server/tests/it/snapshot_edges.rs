//! `ash snapshot` where things are odd: names, signals, damage, places.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json as document};

use crate::snapshots::{ash, json, packs, project, refused};

#[test]
fn nothing_is_restored_into_the_store() {
    let dir = project();
    json(dir.path(), &["capture", "project"]);
    for args in [
        &["restore", "latest", "store/new"][..],
        &["restore", "latest", "store/packs/new"],
        &["restore", "latest", "store/packs", "--in-place"],
        &["capture", "store/packs"],
    ] {
        let (code, said) = refused(dir.path(), &[args, &["--store", "store"]].concat());
        assert_eq!(
            (code, said.contains("in the store") || said.contains("store itself")),
            (2, true),
            "{args:?}: {said}"
        );
    }
    // Nor is one made of what is to be captured.
    fs::create_dir(dir.path().join("empty")).unwrap();
    let (code, _) = refused(dir.path(), &["capture", "empty", "--store", "empty"]);
    assert_eq!((code, fs::read_dir(dir.path().join("empty")).unwrap().count()), (2, 0));
}

#[test]
fn names_that_are_no_text_are_told_in_bytes() {
    let dir = project();
    let odd = OsStr::from_bytes(b"caf\xe9");
    fs::write(dir.path().join("project").join(odd), "odd").unwrap();
    json(dir.path(), &["capture", "project"]);
    let shown = json(dir.path(), &["show", "latest"]);
    let entry = &shown["entries"][1];
    assert_eq!(
        (&entry["path"], &entry["pathBytes"]),
        (&document!("caf\u{fffd}"), &document!("Y2Fm6Q=="))
    );
    assert!(shown["entries"][0].get("pathBytes").is_none());
    let diff = json(dir.path(), &["diff", "empty", "latest"]);
    assert_eq!(diff["changes"][1]["pathBytes"], "Y2Fm6Q==");
    fs::write(dir.path().join("project").join(odd), "other").unwrap();
    let mended = json(dir.path(), &["restore", "latest", "project", "--in-place"]);
    assert_eq!(mended["changes"][0]["pathBytes"], "Y2Fm6Q==");
}

#[test]
fn a_store_may_have_a_name_that_is_no_text() {
    let dir = project();
    let ash = |args: &[&OsStr]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ash"));
        let store = OsStr::from_bytes(b"st\xf6re");
        command.arg("snapshot").args(args).arg("--store").arg(store);
        command.current_dir(dir.path()).output().unwrap()
    };
    let odd = OsString::from(OsStr::from_bytes(b"pr\xf6ject"));
    fs::rename(dir.path().join("project"), dir.path().join(&odd)).unwrap();
    let output = ash(&[OsStr::new("capture"), &odd]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(dir.path().join(OsStr::from_bytes(b"st\xf6re")).is_dir());
    let listed = ash(&[OsStr::new("list"), OsStr::new("--json")]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(listed["snapshots"][0]["source"].as_str().unwrap().ends_with("/pr%F6ject"));
}

#[test]
fn a_pipe_among_the_snapshots_is_listed_as_damaged() {
    let dir = project();
    json(dir.path(), &["capture", "project"]);
    let pipe = dir.path().join("store/snapshots/01890000-0000-7000-8000-000000000000");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let list = json(dir.path(), &["list"]);
    assert!(list["snapshots"][0]["error"].is_string(), "{list}");
    assert_eq!(list["snapshots"].as_array().unwrap().len(), 2);
}

#[test]
fn damage_is_told_once_and_with_what_helps() {
    let dir = project();
    let captured = json(dir.path(), &["capture", "project"]);
    for pack in packs(dir.path()) {
        let mut bytes = fs::read(&pack).unwrap();
        bytes[10] ^= 1;
        fs::write(&pack, bytes).unwrap();
    }
    let (_, said) = refused(dir.path(), &["restore", "latest", "new", "--store", "store"]);
    assert!(said.contains("--leave-out-damaged"), "{said}");
    let reason = said.lines().next().unwrap().rsplit(": ").next().unwrap();
    assert_eq!(said.matches(reason).count(), 1, "{said}");
    fs::write(dir.path().join("project/Cargo.lock"), "other").unwrap();
    let over = ["restore", "latest", "project", "--in-place", "--store", "store"];
    let (_, said) = refused(dir.path(), &over);
    assert!(said.contains("verify") && !said.contains("--leave-out-damaged"), "{said}");

    packs(dir.path()).iter().for_each(|pack| fs::remove_file(pack).unwrap());
    let (code, said) = refused(dir.path(), &["restore", "latest", "new", "--store", "store"]);
    assert_eq!((code, said.contains("--leave-out-damaged")), (1, true), "{said}");
    let (code, said) = refused(dir.path(), &over);
    assert_eq!((code, said.contains("nothing was touched")), (1, true), "{said}");
    let (code, said) = refused(dir.path(), &["gc", "--alone", "--store", "store"]);
    let id = captured["id"].as_str().unwrap();
    assert_eq!((code, said.contains(id), said.contains("forget")), (5, true, true), "{said}");
    let (code, said) = refused(dir.path(), &["gc", "--alone", "--store", "store", "--json"]);
    let told: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &told["exitCode"]), (5, &document!(5)));
}

#[test]
fn a_file_with_holes_has_as_many_bytes_on_the_way_back() {
    let dir = project();
    let file = fs::File::create(dir.path().join("project/sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 100_000], 30_000_000).unwrap();
    file.set_len(60_000_000).unwrap();
    let captured = json(dir.path(), &["capture", "project"]);
    let restored = json(dir.path(), &["restore", "latest", "back"]);
    assert_eq!(
        (&captured["bytes"], &restored["bytes"]),
        (&document!(60_000_018), &document!(60_000_018))
    );
}

#[test]
fn every_long_command_says_where_its_time_went() {
    let dir = project();
    json(dir.path(), &["capture", "project"]);
    for (args, steps) in [
        (&["restore", "latest", "back"][..], &["look", "trees", "files", "finish", "sync"][..]),
        (&["restore", "latest", "project", "--in-place"], &["scan", "compare", "write", "look"]),
        (&["verify"], &["look", "packs", "snapshots"]),
        (&["gc"], &["forget", "look", "reach", "weigh", "rewrite", "remove"]),
    ] {
        let told = json(dir.path(), args);
        for step in steps.iter().chain(&["total"]) {
            assert!(told["milliseconds"][step].is_number(), "{args:?}: {told}");
        }
        fs::remove_dir_all(dir.path().join("back")).ok();
        let quiet = ash(dir.path(), &[args, &["--store", "store", "--quiet"]].concat());
        assert_eq!(String::from_utf8(quiet.stderr).unwrap(), "", "no bar where no terminal is");
        assert!(String::from_utf8(quiet.stdout).unwrap().contains(" ms"));
        fs::remove_dir_all(dir.path().join("back")).ok();
    }
}

/// What restores have left beside their targets.
fn left(dir: &Path) -> usize {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.as_bytes().starts_with(b".ash-restore-")).count()
}

/// A restore that has begun, and stands still.
fn begun(dir: &Path) -> Child {
    let restore = Command::new(env!("CARGO_BIN_EXE_ash"))
        .args(["snapshot", "restore", "latest", "back", "--store", "store"])
        .current_dir(dir)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while left(dir) == 0 {
        assert!(!dir.join("back").exists(), "it was done before it was seen");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&restore), Signal::STOP).unwrap();
    restore
}

#[test]
fn a_restore_that_is_stopped_leaves_nothing_and_one_that_is_killed_not_for_long() {
    let dir = project();
    // So many that it is still at work when it is told to stop.
    for number in 0..4000 {
        fs::write(dir.path().join(format!("project/{number}")), "").unwrap();
    }
    json(dir.path(), &["capture", "project"]);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut restore = begun(dir.path());
        let pid = Pid::from_child(&restore);
        kill_process(pid, signal).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        assert_eq!(restore.wait().unwrap().code(), Some(code));
        assert_eq!((left(dir.path()), dir.path().join("back").exists()), (0, false));
    }
    let mut restore = begun(dir.path());
    restore.kill().unwrap();
    restore.wait().unwrap();
    assert_eq!(left(dir.path()), 1);
    // It is captured by nobody, is no hindrance to others, and goes with the next one to the same place.
    assert_eq!(json(dir.path(), &["capture", ".", "--exclude", "project"])["files"], 0);
    json(dir.path(), &["restore", "latest", "elsewhere", "--source", &real(dir.path(), "project")]);
    assert_eq!(left(dir.path()), 1);
    json(dir.path(), &["restore", "latest", "back", "--source", &real(dir.path(), "project")]);
    assert_eq!(left(dir.path()), 0);
    assert!(dir.path().join("back/3999").exists());
}

fn real(dir: &Path, name: &str) -> String {
    dir.join(name).canonicalize().unwrap().to_str().unwrap().to_owned()
}
