//! Runs the kill test: the process dies, the disk fills up, writes fail.

use std::path::Path;
use std::process::{Command, Output};

const KILL_TEST: &str = env!("CARGO_BIN_EXE_ash-kill-test");

/// Prints what it said, and fails the test if it found something.
#[expect(clippy::print_stdout, reason = "shown only with a failure, or to whoever asks for it")]
fn passed(output: &Output) {
    println!("{}", String::from_utf8_lossy(&output.stdout));
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {complaints}", output.status);
}

#[test]
fn every_acknowledged_commit_survives_three_hundred_kills() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(KILL_TEST)
        .arg("run")
        .arg(directory.path())
        .args(["--kills", "300"])
        .output()
        .unwrap();
    passed(&output);
}

#[test]
fn a_full_disk_loses_nothing_and_passes() {
    let directory = tempfile::tempdir().unwrap();
    // In a mount namespace of its own, so that the host does not see the small file system.
    let script = "mount -t tmpfs -o size=4m tmpfs \"$2\" && exec \"$1\" full \"$2\"";
    let in_namespace = |flags: &str, command: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args([flags, "sh", "-c", command, "sh", KILL_TEST]).arg(directory.path());
        unshare
    };
    let may_mount = |flags: &str| {
        let probe = in_namespace(flags, "mount -t tmpfs tmpfs \"$2\"").output();
        probe.is_ok_and(|probe| probe.status.success())
    };
    match ["-m", "-rm"].into_iter().find(|flags| may_mount(flags)) {
        Some(flags) => passed(&in_namespace(flags, script).output().unwrap()),
        None => {
            println!("no mount namespace here: a file size limit stands in for the full disk");
            passed(&limited(directory.path()));
        }
    }
}

#[test]
fn writes_that_fail_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    passed(&limited(directory.path()));
}

fn limited(directory: &Path) -> Output {
    Command::new(KILL_TEST).arg("limited").arg(directory).output().unwrap()
}
