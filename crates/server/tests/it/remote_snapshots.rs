//! `ash snapshot` with a store on a server.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::moto::{BUCKET, Keys, Moto};

/// A machine with a home, and a project on it.
struct Machine {
    dir: tempfile::TempDir,
    endpoint: String,
}

impl Machine {
    fn at(endpoint: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("home")).unwrap();
        fs::create_dir_all(dir.path().join("project/src")).unwrap();
        fs::write(dir.path().join("project/src/main.rs"), "fn main() {}").unwrap();
        Self { dir, endpoint: endpoint.to_owned() }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn ash(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ash"))
            .arg("snapshot")
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .env("HOME", self.path().join("home"))
            .env("AWS_ACCESS_KEY_ID", "AKIDOFTHETEST")
            .env("AWS_SECRET_ACCESS_KEY", "hidden-key")
            .env("AWS_SESSION_TOKEN", "hidden-token")
            .env("AWS_REGION", "eu-central-1")
            .env("AWS_ENDPOINT_URL", &self.endpoint)
            .output()
            .unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.ash(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The code and what was said.
    fn refused(&self, args: &[&str]) -> (i32, String) {
        let output = self.ash(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("hidden"), "{said}");
        (output.status.code().unwrap(), said)
    }
}

#[test]
fn a_directory_goes_to_s3_and_comes_back_on_another_machine() {
    let moto = Moto::start(Keys::AllGood);
    let (here, there) = (Machine::at(&moto.endpoint), Machine::at(&moto.endpoint));
    let store = format!("s3://{BUCKET}/some/where");
    let at = ["--store", store.as_str()];
    let (code, said) = here.refused(&["list", at[0], at[1]]);
    assert_eq!((code, said.contains("no store of snapshots")), (4, true), "{said}");

    let first = here.json(&["capture", "project", at[0], at[1]]);
    assert_eq!(first["files"], 1);
    let again = here.json(&["capture", "project", at[0], at[1]]);
    assert_eq!(again["newBytes"], 0);
    assert!(here.path().join("home/.cache/ash/snapshot/state").is_dir(), "it remembers");

    let cached = [at[0], at[1], "--cache", "cache"];
    let restore = [&["restore", "latest", "back"][..], &cached].concat();
    assert_eq!(there.json(&restore)["files"], 1);
    assert_eq!(fs::read(there.path().join("back/src/main.rs")).unwrap(), b"fn main() {}");
    assert!(there.path().join("cache/objects").is_dir());
    assert!(!there.path().join("home/.cache").exists());
    // A cache in the directory does not capture itself.
    let whole = there.json(&[&["capture", "."][..], &cached].concat());
    assert_eq!(whole["files"], 2, "the project, and what came back");
    assert_eq!(there.json(&[&["verify"][..], &cached].concat())["whole"], true);
    let kept = there.json(&[&["gc", "--keep-last", "1", "--alone"][..], &cached].concat());
    assert_eq!(kept["forgotten"], serde_json::json!([first["id"]]), "of each directory one stays");
    assert_eq!(here.json(&["list", at[0], at[1]])["snapshots"].as_array().unwrap().len(), 2);
}

#[test]
fn what_is_wrong_with_a_server_is_said_with_what_to_do() {
    let moto = Moto::start(Keys::AllGood);
    let machine = Machine::at(&moto.endpoint);
    let (code, said) = machine.refused(&["capture", "project", "--store", "s3://nowhere/path"]);
    assert_eq!((code, said.contains("there is no such bucket")), (4, true), "{said}");
    let (code, said) = machine.refused(&["list", "--store", "s3://nowhere/path"]);
    assert_eq!((code, said.contains("there is no such bucket")), (4, true), "{said}");
    drop(moto);
    let store = format!("s3://{BUCKET}/path");
    let (code, said) = machine.refused(&["list", "--store", &store]);
    assert_eq!((code, said.contains("does not answer")), (3, true), "{said}");
    assert!(said.contains("--endpoint"), "{said}");
    let open = ["list", "--store", &store, "--endpoint", "http://host.example:9000"];
    let (code, said) = machine.refused(&open);
    assert_eq!((code, said.contains("https://")), (2, true), "{said}");

    let closed = Moto::start(Keys::NoneGood);
    let machine = Machine::at(&closed.endpoint);
    let (code, said) = machine.refused(&["capture", "project", "--store", &store]);
    assert_eq!((code, said.contains("403")), (6, true), "{said}");
    assert!(said.contains("AWS_ACCESS_KEY_ID"), "{said}");
}
