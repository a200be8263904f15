//! schemathesis reads the OpenAPI document of a real server and sends it everything that the document
//! allows, and much that it does not. The answers have to be what the document says.
//!
//! It is a Python program: the first run makes an environment for it under the target directory, with
//! the versions of `tests/schemathesis/requirements.txt`; later runs use that one.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tested::{AGENT, KEY, Tested};

/// How long it may take unless told otherwise, in seconds: what `make test` can spare.
const SECONDS: &str = "100";

#[tokio::test(flavor = "multi_thread")]
async fn schemathesis_finds_nothing() {
    let tested = Tested::start().await;
    let sessions = tested.prepare().await;
    let status = {
        let address = tested.server.address();
        tokio::task::spawn_blocking(move || schemathesis(&address.to_string(), &sessions)).await
    };
    tested.end().await;
    let (success, report) = status.unwrap();
    assert!(success, "schemathesis has found something:\n{report}");
}

/// Runs it against a server; says whether all was well, and what it had to say.
fn schemathesis(address: &str, sessions: &[String]) -> (bool, String) {
    let seconds = setting("ASH_SCHEMATHESIS_SECONDS", SECONDS);
    let seed = setting("ASH_SCHEMATHESIS_SEED", "1");
    let output = Command::new(environment().join("bin/st"))
        .args(["--config-file", "schemathesis.toml", "run"])
        .arg(format!("http://{address}/docs/json"))
        .args(["--max-time", &seconds, "--seed", &seed, "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {KEY}")])
        .current_dir(given())
        .env("ASH_TEST_AGENT", AGENT)
        .env("ASH_TEST_SESSIONS", sessions.join(","))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let report = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&report).into_owned())
}

fn setting(name: &str, usual: &str) -> String {
    std::env::var_os(name).map_or_else(|| usual.to_owned(), |value| value.into_string().unwrap())
}

/// What it is told.
fn given() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis")
}

/// The Python environment that it is in, made if there is none yet.
fn environment() -> PathBuf {
    let wanted = std::fs::read_to_string(given().join("requirements.txt")).unwrap();
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemathesis");
    let installed = dir.join("installed.txt");
    if std::fs::read_to_string(&installed).is_ok_and(|is| is == wanted) {
        return dir;
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&dir);
    must(make, "could not make a Python environment: this test needs python3 with venv");
    let mut install = Command::new(dir.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    install.arg(given().join("requirements.txt"));
    must(install, "could not install schemathesis: pip needs a package index that it can reach");
    std::fs::write(installed, wanted).unwrap();
    dir
}

fn must(mut command: Command, otherwise: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{otherwise}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{otherwise}\n{complaint}");
}
