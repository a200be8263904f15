//! Processes that tests started: which of them live, and how they end.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Runs a test of this program in a process of its own, which is told what to do by a variable. Whether it died of -9; otherwise it
/// has to end well.
pub(crate) async fn has_died(test: &str, told: (&str, &str), dir: &Path, context: &str) -> bool {
    let complaints = dir.join("told");
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(told.0, told.1)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&complaints).unwrap())
        .kill_on_drop(true)
        .status();
    let status = tokio::time::timeout(Duration::from_secs(60), child).await;
    let status = status.expect("it does what it was asked, or dies").unwrap();
    let died = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    let complaints = std::fs::read_to_string(complaints).unwrap();
    assert!(died || status.success(), "{context}: {status} {complaints}");
    died
}

/// Kills a process of this test with -9.
pub(crate) fn kill(pid: u32) {
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
}

/// The bridges of a server's sandboxes that are alive, by what it wrote down of them.
pub(crate) fn bridges_of(data: &Path) -> Vec<u32> {
    let mut all = bridges_in(data);
    all.extend(bridges_in(&data.join("warm")));
    all
}

/// Those in one place: of sessions, or of none.
pub(crate) fn bridges_in(place: &Path) -> Vec<u32> {
    let runs = std::fs::read_dir(place.join("run")).into_iter().flatten().flatten();
    let files = runs.flat_map(|run| std::fs::read_dir(run.path()).into_iter().flatten().flatten());
    let notes = files.filter(|file| file.path().extension().is_some_and(|kind| kind == "process"));
    let pids = notes.filter_map(|note| {
        let note: serde_json::Value =
            serde_json::from_slice(&std::fs::read(note.path()).ok()?).ok()?;
        u32::try_from(note["pid"].as_u64()?).ok()
    });
    let is_bridge = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim().ends_with("bridge") && !is_zombie(*pid)
    };
    pids.filter(is_bridge).collect()
}

/// Ends whatever sandboxes a server over these files left, and what was around them.
pub(crate) fn end_sandboxes(data: &Path) {
    let Ok(data) = data.canonicalize() else { return };
    for pid in bridges_of(&data) {
        // It may end by itself at this moment.
        let _status = Command::new("kill").args(["-9", &pid.to_string()]).output();
    }
    let cgroups = ash_engine::bridge::cgroups_of(&data);
    for name in cgroups.list().unwrap_or_default() {
        if let Ok(Some(cgroup)) = cgroups.open(&name) {
            let _left = cgroup.kill().and_then(|()| cgroup.remove());
        }
    }
    let _left = cgroups.remove();
}

/// Every live process of a session: by its home, or by the cgroup of its sandbox.
pub(crate) fn processes_of(home: &Path) -> Vec<u32> {
    let session = home.parent().and_then(Path::file_name).unwrap().to_str().unwrap();
    let mut found = processes_mentioning(home.as_os_str());
    let is_in_it = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .is_ok_and(|cgroup| cgroup.contains(session))
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    found.extend(pids.filter(is_in_it).filter(|pid| !is_zombie(*pid)));
    found
}

fn is_zombie(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.rsplit_once(')').is_none_or(|(_, rest)| rest.starts_with(" Z"))
}

/// Every live process whose environment or command mentions something, but this one.
pub(crate) fn processes_mentioning(marker: &std::ffi::OsStr) -> Vec<u32> {
    let marker = marker.as_encoded_bytes();
    let mentions = |pid: &u32| {
        !is_zombie(*pid)
            && ["environ", "cmdline"].iter().any(|file| {
                std::fs::read(format!("/proc/{pid}/{file}")).is_ok_and(|content| {
                    content.windows(marker.len()).any(|window| window == marker)
                })
            })
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id()).filter(mentions).collect()
}
