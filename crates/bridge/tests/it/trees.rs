//! Trees of processes that can be found again: each has a mark in its environment, which whatever
//! it forks inherits, wherever it hides.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ash_bridge::exec::Env;
use ash_bridge::process::{CommandSpec, Processes, Stream};

/// How long anything may take that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn processes() -> Processes {
    Processes::new(env!("CARGO_BIN_EXE_ash-bridge").into())
}

/// A mark that no other test has.
pub(crate) struct Mark(String);

impl Mark {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("mark-{}-{number}-end", std::process::id()))
    }

    /// One that another process chose.
    pub(crate) fn given(mark: String) -> Self {
        Self(mark)
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    pub(crate) fn env(&self) -> Env {
        let own = BTreeMap::from([("MARK".to_owned(), self.0.clone())]);
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        Env::new(Path::new("/tmp"), Some(path), None, None, &own).0
    }

    /// A command for a shell, with its output piped.
    pub(crate) fn shell(&self, script: &str) -> CommandSpec {
        CommandSpec {
            program: "/bin/bash".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            cwd: "/tmp".into(),
            env: self.env().variables().clone(),
            stdin: Stream::Null,
            stdout: Stream::Pipe,
            stderr: Stream::Null,
        }
    }

    /// Everything alive that has the mark.
    pub(crate) fn alive(&self) -> Vec<i32> {
        let mark = format!("MARK={}", self.0);
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| {
                // The environment of a zombie is empty.
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                environment.split(|&byte| byte == 0).any(|one| one == mark.as_bytes())
            })
            .collect()
    }

    /// Waits until so many are alive.
    pub(crate) async fn until_alive(&self, count: usize) {
        until(&format!("{count} processes of {} are alive", self.0), || {
            self.alive().len() == count
        })
        .await;
    }

    /// Waits until nothing is left.
    pub(crate) async fn until_gone(&self) {
        self.until_alive(0).await;
    }
}

/// Waits for something that must come true.
pub(crate) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "it never came true that {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
