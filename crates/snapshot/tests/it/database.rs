//! A database that another process writes to while it is captured.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use ash_snapshot::{Capture, Freeze, Repository, Root, Snapshot, State};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::compare::{in_memory, restore};
use crate::tools::{Workplace, must, python};

/// Writes for ever, and says after each commit how many rows there are.
const WRITER: &str = include_str!("database/write.py");

/// Looks into a database that nobody else has open.
const READER: &str = include_str!("database/read.py");

struct Writer {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Writer {
    fn start(database: &Path) -> Self {
        let mut command = python(WRITER, database.as_os_str());
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.expect("this test needs python3");
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said }
    }

    /// Waits for so many commits more; returns how many rows there are since the last of them.
    fn commits(&mut self, count: usize) -> u64 {
        let mut line = String::new();
        for _ in 0..count {
            line.clear();
            self.said.read_line(&mut line).unwrap();
        }
        line.trim().parse().expect("the writer goes on")
    }

    fn process(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Stops the writer, as a session's programs are stopped.
struct Stop(Pid);

impl Freeze for Stop {
    fn freeze(&self) -> io::Result<()> {
        kill_process(self.0, Signal::STOP)?;
        let status = waitpid(Some(self.0), WaitOptions::UNTRACED)?;
        assert!(status.is_some_and(|(_, status)| status.stopped()), "it stands still");
        Ok(())
    }

    fn thaw(&self) -> io::Result<()> {
        Ok(kill_process(self.0, Signal::CONT)?)
    }
}

fn capture(
    repository: &Repository,
    tree: &Path,
    freeze: Option<&dyn Freeze>,
    state: &mut State,
) -> Snapshot {
    let roots = [Root { name: "workspace", path: tree, excluded: &[] }];
    let capture = Capture {
        roots: &roots,
        source: None,
        parent: None,
        label: None,
        unless_like: None,
        freeze: freeze.map(|freeze| (freeze, Duration::from_secs(60))),
        threads: 2,
        progress: &|_| true,
    };
    repository.capture(&capture, state).unwrap().snapshot
}

/// What is in the database that came back: how many rows.
fn rows(repository: &Repository, snapshot: &Snapshot) -> u64 {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("restored");
    restore(repository, snapshot, &target).unwrap();
    let said = must(&mut python(READER, target.join("data.db").as_os_str()));
    let said: Vec<&str> = said.split_whitespace().collect();
    let [integrity, rows, last] = said[..] else { panic!("{said:?}") };
    assert_eq!((integrity, rows), ("ok", last), "nothing is missing");
    rows.parse().unwrap()
}

#[test]
fn a_database_in_use_is_whole_whenever_its_writer_was_stopped() {
    let work = Workplace::new();
    let mut writer = Writer::start(&work.tree.join("data.db"));
    let stop = Stop(writer.process());
    let repository = in_memory();
    let mut state = State::default();
    let mut committed = 0;
    let mut taken = Vec::new();
    for _ in 0..6 {
        committed = writer.commits(40).max(committed);
        let snapshot = capture(&repository, &work.tree, Some(&stop), &mut state);
        assert_eq!((&snapshot.unstable[..], snapshot.unfrozen), (&[][..], 0));
        taken.push((committed, snapshot));
    }
    // The log is part of it: much of what was committed is nowhere else.
    assert!(fs::metadata(work.tree.join("data.db-wal")).unwrap().len() > 0);
    for (committed, snapshot) in taken {
        let rows = rows(&repository, &snapshot);
        assert!(rows >= committed && rows.is_multiple_of(7), "{rows} of {committed}");
    }
}

#[test]
fn a_database_that_nobody_stops_is_captured_and_what_changed_is_named_or_whole() {
    let work = Workplace::new();
    let mut writer = Writer::start(&work.tree.join("data.db"));
    let repository = in_memory();
    let mut state = State::default();
    for _ in 0..6 {
        writer.commits(20);
        let snapshot = capture(&repository, &work.tree, None, &mut state);
        // Whatever is named is what was written to, and nothing else.
        let ours = |name: &String| name.starts_with("workspace/data.db");
        assert!(snapshot.unstable.iter().all(ours), "{:?}", snapshot.unstable);
    }
    // Since nobody writes any more, it is whole again.
    drop(writer);
    let snapshot = capture(&repository, &work.tree, None, &mut state);
    assert_eq!(snapshot.unstable, Vec::<String>::new());
    assert_eq!(rows(&repository, &snapshot) % 7, 0);
}
