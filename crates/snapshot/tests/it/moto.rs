//! moto, an S3 server in memory that honours create-only puts.
//!
//! It is a Python program: the first test that needs it makes an environment for it under the target
//! directory, with the versions of `tests/moto/requirements.txt`; later ones use that one.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The bucket that is there.
pub(crate) const BUCKET: &str = "snapshots";

/// Whether it looks at keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Every key is good.
    AllGood,
    /// None is.
    NoneGood,
}

/// A server that runs until this is dropped.
pub(crate) struct Moto {
    child: Child,
    /// Where it is.
    pub(crate) endpoint: String,
}

impl Moto {
    pub(crate) fn start(keys: Keys) -> Self {
        let mut command = python();
        command.arg(given().join("serve.py")).arg(BUCKET).env("PYTHONDONTWRITEBYTECODE", "1");
        match keys {
            Keys::AllGood => command.env_remove("INITIAL_NO_AUTH_ACTION_COUNT"),
            Keys::NoneGood => command.env("INITIAL_NO_AUTH_ACTION_COUNT", "1"),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut port).unwrap();
        let port: u16 = port.trim().parse().expect("moto says its port");
        Self { child, endpoint: format!("http://127.0.0.1:{port}") }
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        // It would end by itself when its input does: this is sooner.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The Python that it runs in, with what it needs.
pub(crate) fn python() -> Command {
    Command::new(environment().join("bin/python"))
}

/// What it is told.
fn given() -> PathBuf {
    // Also the tests of the executable use this file.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../snapshot/tests/moto")
}

/// The Python environment that it is in, made if there is none yet.
fn environment() -> PathBuf {
    let wanted = std::fs::read_to_string(given().join("requirements.txt")).unwrap();
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(all).unwrap();
    // Tests are processes of their own, and begin together.
    let lock = File::create(all.join("moto.lock")).unwrap();
    lock.lock().unwrap();
    let dir = all.join("moto");
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
    must(install, "could not install moto: pip needs a package index that it can reach");
    std::fs::write(installed, wanted).unwrap();
    dir
}

fn must(mut command: Command, otherwise: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{otherwise}: {error}"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{otherwise}\n{complaint}");
}
