//! Asks a program of somebody else which release it is.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::version::Version;

/// How long it may take: a large program that is not in memory yet, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What it may say.
const MAX_ANSWER: u64 = 4096;

/// Runs `program --version`, with nothing of our environment and no home, and says what it answers.
///
/// # Errors
/// It cannot be run, takes too long, or says no version. The sentence says which of it, and begins with "it".
pub async fn version_of(program: &Path) -> Result<Version, String> {
    let mut child = Command::new(program)
        .arg("--version")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/nonexistent")
        .env("DISABLE_AUTOUPDATER", "1")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("it cannot be run: {error}"))?;
    let stdout = child.stdout.take().expect("it was asked for");
    let asked = async {
        let mut said = Vec::new();
        stdout.take(MAX_ANSWER).read_to_end(&mut said).await?;
        std::io::Result::Ok((said, child.wait().await?))
    };
    let (said, status) = timeout(PATIENCE, asked)
        .await
        .map_err(|_elapsed| format!("it did not say its version in {} s", PATIENCE.as_secs()))?
        .map_err(|error| format!("it could not be listened to: {error}"))?;
    if !status.success() {
        return Err(format!("it did not say its version, and ended with {status}"));
    }
    let said = String::from_utf8_lossy(&said);
    let first = said.split_whitespace().next().unwrap_or_default();
    first.parse().map_err(|_| {
        let line: String = said.chars().filter(|c| !c.is_control()).take(60).collect();
        format!("it says `{line}`, which is no version")
    })
}
