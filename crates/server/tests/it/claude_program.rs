//! The real Claude Code, for tests: installed once for each checkout, by our own command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ash_server::runtimes::PINNED;

/// What the registry does not answer ends with.
const UNREACHABLE: i32 = 3;

/// An installed Claude Code.
#[derive(Clone, Debug)]
pub(crate) struct ClaudeProgram {
    /// The program.
    pub(crate) path: PathBuf,
    /// Which release it is.
    pub(crate) version: &'static str,
}

/// The pinned release. Installed by the first test that asks, below the target directory; the others wait, in
/// other processes too. None where the registry cannot be reached, which is said.
pub(crate) fn claude_program() -> Option<ClaudeProgram> {
    static PROGRAM: OnceLock<Option<ClaudeProgram>> = OnceLock::new();
    PROGRAM.get_or_init(|| install(PINNED)).clone()
}

/// The same of another release, for one test.
pub(crate) fn other_claude_program(version: &'static str) -> Option<ClaudeProgram> {
    install(version)
}

fn install(version: &'static str) -> Option<ClaudeProgram> {
    let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("claude-{version}"));
    let output = Command::new(env!("CARGO_BIN_EXE_ash"))
        .args(["--json", "agent-runtime", "install", &format!("claude@{version}")])
        .arg("--data-dir")
        .arg(&data)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(UNREACHABLE) {
        eprintln!("not tried: Claude Code is not here, and cannot be had: {complaint}");
        return None;
    }
    assert!(output.status.success(), "{complaint}");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    Some(ClaudeProgram { path: shown["path"].as_str().unwrap().into(), version })
}

impl ClaudeProgram {
    /// Installs it into the data directory of a test, without a copy where that can be.
    pub(crate) fn install_into(&self, data: &Path) -> PathBuf {
        let place = data.join("runtimes/claude").join(self.version);
        fs::create_dir_all(&place).unwrap();
        let path = place.join("claude");
        if fs::hard_link(&self.path, &path).is_err() {
            fs::copy(&self.path, &path).unwrap();
        }
        let record = self.path.with_file_name("runtime.json");
        fs::copy(record, place.join("runtime.json")).unwrap();
        path
    }
}
