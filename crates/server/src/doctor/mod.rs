//! Whether a machine is ready for a server, and what to do if it is not.
//!
//! Each check looks at one thing, says one line about it, and changes nothing that stays. What it
//! looks at is an argument ([`Machine`]), so that a test can show it a machine that has trouble.

mod disk;
mod isolation;
mod kernel;
mod port;
mod runtime;
#[cfg(test)]
mod test;

use std::io;
use std::path::{Path, PathBuf};

use ash_core::time::{Clock, Timestamp};
use ash_engine::bridge::NoSandbox;
use serde::Serialize;

pub use self::isolation::Sandboxes;
use crate::api::rfc3339;
use crate::beside::bridge_beside;
use crate::config::Config;
use crate::secret::{CREDENTIAL_KEY_FILE, Sealer, SecretFileError};

/// The time before which no machine with a clock has seen this program: the start of 2026.
const EARLIEST: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// The time after which a clock is wrong: the start of 2100.
const LATEST: Timestamp = Timestamp::from_millis(4_102_444_800_000);

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found, in one line.
    pub found: String,
    /// What to do about it, if anything is to be done.
    pub fix: Option<String>,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The server runs, and something will be missing or slow.
    Warning,
    /// The server does not run, or not safely.
    Problem,
}

impl Verdict {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Check {
    /// All is well.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, found: found.into(), fix: None }
    }

    /// Something will be missing or slow.
    pub fn warning(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warning, found: found.into(), fix: Some(fix.into()) }
    }

    /// The server does not run, or not safely.
    pub fn problem(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Problem, found: found.into(), fix: Some(fix.into()) }
    }
}

/// Where a machine shows what it is like.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The program that runs; the bridge is sought beside it.
    pub program: PathBuf,
    /// Where the kernel shows its processes.
    pub proc: PathBuf,
    /// Where the kernel shows its control groups.
    pub cgroup: PathBuf,
    /// The time.
    pub now: Timestamp,
    /// How many files a process may have open: what holds, and what it may be raised to. Nothing
    /// means that there is no limit.
    pub descriptors: (Option<u64>, Option<u64>),
    /// Tries out what its sandboxes hold, given the bridge.
    pub sandbox: fn(&Config, &Path) -> Result<Sandboxes, NoSandbox>,
}

impl Machine {
    /// The machine that this program runs on.
    ///
    /// # Errors
    /// The program does not know its own place.
    pub fn this(clock: &dyn Clock) -> io::Result<Self> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Ok(Self {
            program: std::env::current_exe()?,
            proc: "/proc".into(),
            cgroup: "/sys/fs/cgroup".into(),
            now: clock.now(),
            descriptors: (limit.current, limit.maximum),
            sandbox: isolation::try_one,
        })
    }
}

/// Looks at everything that a server with this configuration needs.
pub fn examine(config: &Config, machine: &Machine) -> Vec<Check> {
    let mut checks = settings(config);
    // What the server makes of it.
    let data = std::path::absolute(&config.data_dir).unwrap_or_else(|_| config.data_dir.clone());
    checks.extend(disk::check(&data, config.sandbox_uid_base, config.min_free_mb));
    if let Some(url) = &config.database_url {
        checks.extend(disk::check_database(url.path()));
    }
    checks.push(credential_key(config, &data));
    checks.push(bridge(&machine.program));
    if let Ok(bridge) = bridge_beside(&machine.program) {
        checks.push(isolation::check(config, (machine.sandbox)(config, &bridge)));
    }
    checks.push(port::check(config.host, config.port));
    checks.push(model(config));
    checks.push(runtime::check(config, &data));
    checks.extend(runtime::check_legacy(config, &data));
    checks.push(kernel::descriptors(machine.descriptors));
    checks.push(kernel::processes(&machine.proc));
    checks.push(clock(machine.now));
    checks.extend(kernel::sandboxes(&machine.proc, &machine.cgroup));
    checks
}

fn settings(config: &Config) -> Vec<Check> {
    let fix = "`ash config` shows what holds; docs/configuration.md lists every setting";
    let warnings = config.warnings();
    if warnings.is_empty() {
        return vec![Check::ok("settings", "every setting is understood")];
    }
    warnings.into_iter().map(|warning| Check::warning("settings", warning, fix)).collect()
}

/// Whether the program is there that runs beside each agent.
fn bridge(program: &Path) -> Check {
    use std::os::unix::fs::PermissionsExt as _;
    let found = bridge_beside(program);
    let mode = found.as_ref().map(|path| path.metadata().map(|of| of.permissions().mode()));
    match (&found, mode) {
        (Ok(path), Ok(Ok(mode))) if mode & 0o111 != 0 => {
            Check::ok("bridge", format!("{} is there", path.display()))
        }
        (Ok(path), _) => Check::problem(
            "bridge",
            format!("{} cannot be run", path.display()),
            format!("chmod 755 {}", path.display()),
        ),
        (Err(error), _) => Check::problem(
            "bridge",
            error.to_string(),
            "put ash-bridge of the same version beside ash; from source: cargo build -p ash-bridge",
        ),
    }
}

/// Whether credentials can be sealed, and those that were can be opened.
fn credential_key(config: &Config, data: &Path) -> Check {
    let name = "credential key";
    if config.credential_key.is_some() {
        return Check::ok(name, "it is the one in ASH_CREDENTIAL_KEY");
    }
    let path = data.join(CREDENTIAL_KEY_FILE);
    match Sealer::has_key(data) {
        Ok(true) => Check::ok(name, format!("{} is there, for its owner only", path.display())),
        Ok(false) => Check::ok(name, format!("{} will be made", path.display())),
        Err(error) => {
            let fix = match &error {
                SecretFileError::Exposed { .. } => format!("chmod 600 {}", path.display()),
                SecretFileError::Damaged { .. } => {
                    "put it back from a backup; or remove it, and add every credential anew"
                        .to_owned()
                }
                SecretFileError::Io { .. } => format!("make {} readable", path.display()),
            };
            Check::problem(name, format!("{:#}", anyhow::Error::from(error)), fix)
        }
    }
}

/// Whether agents have a model to ask.
fn model(config: &Config) -> Check {
    let url = config.effective().into_iter().find(|of| of.name == "ANTHROPIC_BASE_URL");
    let url = url.and_then(|of| of.value).unwrap_or_default();
    match &config.anthropic_api_key {
        Some(_) => Check::ok("model", format!("there is a key for {url}")),
        None => Check::warning(
            "model",
            format!("there is no key for the model at {url}: agents cannot answer"),
            "set ANTHROPIC_API_KEY; or without an account: `ash model --port 4200`, then \
             ANTHROPIC_BASE_URL=http://127.0.0.1:4200 ANTHROPIC_API_KEY=any",
        ),
    }
}

fn clock(now: Timestamp) -> Check {
    let shown = rfc3339(now);
    if (EARLIEST..LATEST).contains(&now) {
        return Check::ok("clock", format!("it says {shown}"));
    }
    Check::problem(
        "clock",
        format!("it says {shown}, which cannot be"),
        "set the clock, or start a time service such as chrony or systemd-timesyncd",
    )
}
