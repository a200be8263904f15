//! Servers in processes of their own: the real one, and the bare one it is compared with.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The key that the measured server takes.
pub(crate) const KEY: &str = "ash_bench";

/// A bridge whose server has gone goes too, after this.
const ORPHAN_TTL: Duration = Duration::from_secs(1);

/// A server that runs until this is dropped.
pub(crate) struct Child {
    process: Process,
    /// Held open: it goes on talking.
    _stdout: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Child {
    /// `ash serve`, over a data directory and a model. Returns when it says where it listens.
    pub(crate) fn ash(data: &Path, model: &str) -> Self {
        Self::outlived(data, model, ORPHAN_TTL, 0)
    }

    /// The same, whose bridges wait so long for the next server, and which keeps so many sandboxes ready at most:
    /// those wait longer than anybody measures, and have to be ended by whoever asks for them.
    pub(crate) fn outlived(data: &Path, model: &str, wait: Duration, ready: u32) -> Self {
        let mut command = Command::new(beside("ash"));
        command.arg("serve").env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", data).env("ASH_DATA_DIR", data).env("ASH_PORT", "0");
        command.env("ASH_API_KEY", KEY).env("ASH_MAX_SANDBOXES", "2000");
        command.env("ASH_ORPHAN_TTL_MS", wait.as_millis().to_string());
        command.env("ASH_MAX_PREWARMED", ready.to_string());
        command.env("ANTHROPIC_BASE_URL", model).env("ANTHROPIC_API_KEY", "none");
        Self::listening(command)
    }

    /// `ash serve` whose agents are plain processes, so that whoever measures can ask as they do.
    pub(crate) fn open(data: &Path, model: &str) -> Self {
        let mut command = Command::new(beside("ash"));
        command.args(["serve", "--dangerously-no-sandbox"]).env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", data).env("ASH_DATA_DIR", data).env("ASH_PORT", "0");
        command.env("ASH_API_KEY", KEY).env("ASH_MAX_PREWARMED", "0");
        command.env("ASH_ORPHAN_TTL_MS", ORPHAN_TTL.as_millis().to_string());
        command.env("ANTHROPIC_BASE_URL", model).env("ANTHROPIC_API_KEY", "none");
        Self::listening(command)
    }

    /// This program again, as a proxy that does nothing but pass on.
    pub(crate) fn reverse(upstream: SocketAddr) -> Self {
        let this = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(this);
        command.arg("reverse").arg(upstream.to_string());
        Self::listening(command)
    }

    /// This program again, as a bare server that answers so many bytes.
    pub(crate) fn bare(bytes: usize) -> Self {
        let this = std::env::current_exe().expect("this program has a path");
        let mut command = Command::new(this);
        command.arg("bare").arg(bytes.to_string());
        Self::listening(command)
    }

    fn listening(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("it is built");
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().expect("it was asked for"));
        stdout.read_line(&mut line).expect("it says where it listens");
        let address = line.trim_end().rsplit_once("http://").and_then(|(_, at)| at.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { process, _stdout: stdout, address }
    }

    /// Memory that is resident, in megabytes.
    pub(crate) fn resident(&self) -> f64 {
        let status = self.read("status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has memory");
        let kilobytes = line.split_ascii_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok());
        kilobytes.expect("a number") / 1e3
    }

    /// Processor time that the process has used, its dead threads included, in steps of 10 ms.
    pub(crate) fn used(&self) -> Duration {
        let stat = self.read("stat");
        let (_, fields) = stat.rsplit_once(") ").expect("the name is in parentheses");
        let ticks = fields.split_ascii_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(ticks * 10)
    }

    /// Processor time that its living threads have used, to the nanosecond.
    pub(crate) fn used_by_threads(&self) -> Duration {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.process.id()));
        let threads = threads.expect("it is alive").filter_map(Result::ok);
        let each = threads.filter_map(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            stat.split_ascii_whitespace().next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(each.sum())
    }

    fn read(&self, file: &str) -> String {
        let path = format!("/proc/{}/{file}", self.process.id());
        std::fs::read_to_string(path).expect("it is alive")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _dead_already = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Waits until the bridges of a server that is gone have gone too.
pub(crate) async fn orphans_gone() {
    tokio::time::sleep(2 * ORPHAN_TTL).await;
}

fn beside(program: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    this.with_file_name(program)
}
