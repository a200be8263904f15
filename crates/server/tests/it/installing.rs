//! `ash agent-runtime`, against a registry that has everything that can be wrong with one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ash_server::runtimes::{self, InstallError, Origin, PINNED, Stage, Wanted};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::claude_program::claude_program;
use crate::programs::{Put, package, program, published};
use crate::world::until;

const VERSION: &str = "2.1.400";

/// The end of a head without a body. Whoever is not told that the connection ends asks on it again.
const EMPTY: &str = "content-length: 0\r\nconnection: close\r\n\r\n";

/// How something is answered.
#[derive(Clone)]
enum Reply {
    Body(Vec<u8>),
    /// Half of it, and then the end.
    Half(Vec<u8>),
    /// Half of it, and then nothing.
    Stall(Vec<u8>),
    To(String),
}

/// A registry on this machine.
struct Registry {
    url: String,
    shared: Arc<Shared>,
    _served: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    replies: Mutex<BTreeMap<String, Reply>>,
    asked: Mutex<Vec<String>>,
    /// Rung when something stalls.
    stalled: tokio::sync::Notify,
}

/// The package for this machine, as in addresses.
fn name() -> String {
    let arch = if cfg!(target_arch = "x86_64") { "x64" } else { "arm64" };
    let musl = Path::new("/lib/ld-musl-x86_64.so.1").exists()
        && !Path::new("/lib64/ld-linux-x86-64.so.2").exists();
    format!("claude-code-linux-{arch}{}", if musl { "-musl" } else { "" })
}

fn manifest_path(version: &str) -> String {
    format!("/@anthropic-ai%2f{}/{version}", name())
}

fn integrity(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA512, bytes);
    format!("sha512-{}", BASE64_STANDARD.encode(digest))
}

impl Registry {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::<Shared>::default();
        let mut served = JoinSet::new();
        let its_own = Arc::clone(&shared);
        served.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(answer(stream, Arc::clone(&its_own)));
            }
        });
        Self { url, shared, _served: served }
    }

    fn set(&self, path: &str, reply: Reply) {
        self.shared.replies.lock().unwrap().insert(path.to_owned(), reply);
    }

    fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// Publishes a package under a version, as a registry does.
    fn publish(&self, version: &str, package: &[u8]) {
        let dist = json!({
            "integrity": integrity(package), "tarball": format!("{}/file-{version}.tgz", self.url),
        });
        self.say(version, &json!({ "version": version, "dist": dist }));
        self.set(&format!("/file-{version}.tgz"), Reply::Body(package.to_owned()));
    }

    fn say(&self, version: &str, manifest: &Value) {
        self.set(&manifest_path(version), Reply::Body(manifest.to_string().into_bytes()));
    }
}

async fn answer(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let reply = shared.replies.lock().unwrap().get(&path).cloned();
    shared.asked.lock().unwrap().push(path);
    let fine = |length: usize| {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n")
    };
    let (head, body, stalls) = match &reply {
        Some(Reply::Body(body)) => (fine(body.len()), &body[..], false),
        Some(Reply::Half(body)) => (fine(body.len()), &body[..body.len() / 2], false),
        Some(Reply::Stall(body)) => (fine(body.len()), &body[..body.len() / 2], true),
        Some(Reply::To(to)) => {
            let head = format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\n{EMPTY}");
            (head, &[][..], false)
        }
        None => (format!("HTTP/1.1 404 Not Found\r\n{EMPTY}"), &[][..], false),
    };
    // Whoever asked may be gone.
    let _unheard = stream.write_all(head.as_bytes()).await;
    let _unheard = stream.write_all(body).await;
    if stalls {
        shared.stalled.notify_one();
        let _gone = stream.read_u8().await;
    }
}

struct Machine {
    dir: tempfile::TempDir,
    url: String,
}

impl Machine {
    fn of(registry: &Registry) -> Self {
        Self { dir: tempfile::tempdir().unwrap(), url: registry.url.clone() }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ash"));
        command.arg("agent-runtime").args(args).env_clear().env("HOME", self.dir.path());
        command.env("ASH_NPM_REGISTRY", &self.url).env("ASH_DATA_DIR", self.data());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.current_dir(self.dir.path()).kill_on_drop(true);
        command
    }

    async fn ash(&self, args: &[&str]) -> Output {
        self.command(args).output().await.unwrap()
    }

    async fn json(&self, args: &[&str]) -> Value {
        let output = self.ash(&[args, &["--json"]].concat()).await;
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What is visible, and what is left lying about.
    fn left(&self) -> (Vec<String>, Vec<String>) {
        let names = |below: &str| {
            let entries = std::fs::read_dir(self.data().join("runtimes").join(below));
            let names = entries.into_iter().flatten();
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        (names("claude"), names("staging"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn a_release_is_installed_found_repaired_and_removed() {
    let registry = Registry::start().await;
    let bytes = published(VERSION);
    registry.publish(VERSION, &bytes);
    let front = json!({ "version": VERSION, "dist": { "tarball": "http://127.0.0.1/nowhere" } });
    let front = Reply::Body(front.to_string().into_bytes());
    registry.set("/@anthropic-ai%2fclaude-code/latest", front);
    let machine = Machine::of(&registry);

    let listed = machine.json(&["list"]).await;
    assert_eq!(listed["installed"], json!([]));
    assert!(listed["used"]["problem"].as_str().unwrap().contains("install claude`"), "{listed}");
    let missing = machine.ash(&["path"]).await;
    assert_eq!(missing.status.code(), Some(4), "{}", text(&missing.stderr));

    let output = machine.ash(&["install", "claude@latest"]).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    let path = machine.data().join("runtimes/claude").join(VERSION).join("claude");
    let said = format!("claude {VERSION} is installed: {}\n", path.display());
    assert_eq!(text(&output.stdout), said);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o7777, 0o755);
    let record = std::fs::read(path.with_file_name("runtime.json")).unwrap();
    let record: Value = serde_json::from_slice(&record).unwrap();
    assert_eq!(record["integrity"], integrity(&bytes));
    assert_eq!(record["package"], format!("@anthropic-ai/{}", name()));
    assert_eq!(text(&machine.ash(&["path"]).await.stdout), format!("{}\n", path.display()));

    let asked = registry.asked().len();
    let again = machine.json(&["install", &format!("claude@{VERSION}")]).await;
    assert_eq!((&again["alreadyThere"], &again["version"]), (&json!(true), &json!(VERSION)));
    assert_eq!(registry.asked().len(), asked, "nobody was asked for what is there");

    std::fs::write(&path, "damaged").unwrap();
    let listed = machine.json(&["list"]).await;
    assert!(listed["used"]["problem"].as_str().unwrap().contains("bytes instead of"), "{listed}");
    let again = machine.json(&["install", &format!("claude@{VERSION}")]).await;
    assert_eq!(again["alreadyThere"], json!(false));
    let listed = machine.json(&["list"]).await;
    assert_eq!(listed["used"]["source"], "installed", "{listed}");
    let inside = format!("/run/ash/claude/{VERSION}/claude");
    assert_eq!(listed["used"]["inside"], json!(inside));

    registry.publish("2.1.401", &published("2.1.401"));
    machine.json(&["install", "claude@2.1.401"]).await;
    let several = machine.ash(&["remove", "claude"]).await;
    assert_eq!(several.status.code(), Some(2));
    assert!(text(&several.stderr).contains("2.1.401, 2.1.400"), "{}", text(&several.stderr));
    machine.json(&["remove", "claude@2.1.401"]).await;
    machine.json(&["remove", "claude"]).await;
    assert_eq!(machine.ash(&["remove", "claude"]).await.status.code(), Some(4));
    assert_eq!(machine.left(), (vec![], vec![]));
}

#[tokio::test]
async fn what_is_not_what_it_should_be_is_refused_and_nothing_is_left() {
    let registry = Registry::start().await;
    let good = published(VERSION);
    let ours = program(&format!("{VERSION} (Claude Code)\n"));
    let script = format!("#!/bin/sh\necho {VERSION}\n");
    let mut foreign = ours.clone();
    foreign[18] ^= 1;
    let of = |put: &[Put<'_>]| package(put);
    let packages: [(&str, Vec<u8>, &str); 10] = [
        ("another version", published("2.1.399"), "it says that it is 2.1.399, and not 2.1.400"),
        ("no version", of(&[Put::File("package/claude", &program("hello\n"))]), "it says `hello`"),
        ("no program", of(&[Put::File("package/x", b"x")]), "the package has no program in it"),
        ("a script", of(&[Put::File("package/claude", script.as_bytes())]), "no executable file"),
        ("another processor", of(&[Put::File("package/claude", &foreign)]), "another processor"),
        (
            "a way out",
            of(&[Put::File("package/claude", &ours), Put::File("package/../../../out", b"x")]),
            "leads out of it",
        ),
        ("an absolute path", of(&[Put::File("/tmp/ash-out", b"x")]), "leads out of it"),
        ("a link", of(&[Put::Link("package/claude", "/bin/true")]), "is a link, or something else"),
        (
            "two programs",
            of(&[Put::File("package/claude", &ours), Put::File("package/claude", &ours)]),
            "is in it twice",
        ),
        ("no package", b"\x1f\x8bnot a package at all".to_vec(), "the package is damaged"),
    ];
    let machine = Machine::of(&registry);
    let install = ["install", "claude@2.1.400"];
    let refused = async |what: &str, code: i32, expected: &str| {
        let output = machine.ash(&install).await;
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{what}: {complaint}");
        assert!(complaint.contains(expected), "{what}: {complaint}");
        assert_eq!(machine.left(), (vec![], vec![]), "{what}");
        assert!(!machine.dir.path().join("out").exists(), "{what}");
    };
    refused("nothing", 4, "has no @anthropic-ai/claude-code-linux").await;
    for (what, package, expected) in packages {
        registry.publish(VERSION, &package);
        refused(what, 1, expected).await;
    }
    registry.publish(VERSION, &good);
    let file = format!("/file-{VERSION}.tgz");
    registry.set(&file, Reply::Half(good.clone()));
    refused("half a package", 3, "stopped in the middle").await;
    registry.set(&file, Reply::Body(published("2.1.1")));
    refused("another package", 1, "the package that came is not").await;
    let tarball = format!("{}{file}", registry.url);
    let dist = json!({ "integrity": integrity(&good), "tarball": tarball });
    registry.say(VERSION, &json!({ "version": "2.1.399", "dist": dist }));
    refused("another answer", 1, "answers with 2.1.399 instead of 2.1.400").await;
    let weak = json!({ "shasum": "74d8", "integrity": "sha1-AAAA", "tarball": tarball });
    registry.say(VERSION, &json!({ "version": VERSION, "dist": weak }));
    refused("a weak digest", 1, "does not say the SHA-512 digest").await;
    registry.set(&manifest_path(VERSION), Reply::Body(b"<html>".to_vec()));
    refused("no registry", 3, "does not answer as an npm registry").await;
    registry.set(&manifest_path(VERSION), Reply::To(manifest_path(VERSION)));
    refused("a circle", 3, "sends us from place to place").await;
    let elsewhere = Registry::start().await;
    elsewhere.publish(VERSION, &good);
    let there = format!("{}{}", elsewhere.url, manifest_path(VERSION));
    registry.set(&manifest_path(VERSION), Reply::To(there));
    refused("another host", 1, "sends us to where we do not go").await;
    assert!(elsewhere.asked().is_empty());

    registry.publish(VERSION, &good);
    registry.set(&file, Reply::To(format!("{}{file}", elsewhere.url)));
    let output = machine.ash(&install).await;
    assert!(output.status.success(), "its digest is compared: {}", text(&output.stderr));
}

#[tokio::test]
async fn the_pinned_release_is_what_we_know_it_to_be() {
    let registry = Registry::start().await;
    registry.publish(PINNED, &published(PINNED));
    let machine = Machine::of(&registry);
    let output = machine.ash(&["install", "claude"]).await;
    let complaint = text(&output.stderr);
    assert!(complaint.contains("the registry has something else under the name"), "{complaint}");
    assert_eq!(registry.asked(), [manifest_path(PINNED)], "nothing was downloaded");
    // One that says nothing of it is no better.
    let tarball = format!("{}/file-{PINNED}.tgz", registry.url);
    registry.say(PINNED, &json!({ "version": PINNED, "dist": { "tarball": tarball } }));
    let output = machine.ash(&["install", "claude"]).await;
    let complaint = text(&output.stderr);
    assert!(complaint.contains("the package that came is not"), "{complaint}");
    assert_eq!(machine.left(), (vec![], vec![]));
}

#[tokio::test]
async fn a_registry_that_falls_silent_is_given_up() {
    let registry = Registry::start().await;
    let bytes = published(VERSION);
    registry.publish(VERSION, &bytes);
    registry.set(&format!("/file-{VERSION}.tgz"), Reply::Stall(bytes));
    let machine = Machine::of(&registry);
    let origin = Origin::Registry(registry.url.parse().unwrap(), Duration::from_millis(200));
    let wanted = Wanted::Version(VERSION.parse().unwrap());
    let (progress, stage) = tokio::sync::watch::channel(Stage::Waiting);
    let failed = runtimes::install(&machine.data(), &wanted, &origin, &progress).await;
    let failed = failed.unwrap_err();
    assert!(
        matches!(&failed, InstallError::Unreachable(why) if why.contains("silent")),
        "{failed}"
    );
    assert!(matches!(*stage.borrow(), Stage::Fetching { total: Some(_), .. }));
    assert_eq!(machine.left(), (vec![], vec![]));
}

#[tokio::test]
async fn one_that_is_killed_leaves_nothing_visible_and_can_be_repeated() {
    let registry = Registry::start().await;
    let bytes = published(VERSION);
    registry.publish(VERSION, &bytes);
    let file = format!("/file-{VERSION}.tgz");
    registry.set(&file, Reply::Stall(bytes.clone()));
    let machine = Machine::of(&registry);
    let install = ["install", "claude@2.1.400"];
    let mut first = machine.command(&install).spawn().unwrap();
    registry.shared.stalled.notified().await;
    let is_half = || machine.left() == (vec![], vec!["package.tgz".to_owned()]);
    until("half of it is there, and not to be seen", is_half).await;
    // A second one waits for it, and goes on when it is gone.
    let second = machine.command(&install).spawn().unwrap();
    registry.set(&file, Reply::Body(bytes));
    first.kill().await.unwrap();
    let output = second.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(machine.left(), (vec![VERSION.to_owned()], vec![]));
}

#[tokio::test]
async fn two_at_once_are_one() {
    let registry = Registry::start().await;
    registry.publish(VERSION, &published(VERSION));
    let machine = Machine::of(&registry);
    let install = ["install", "claude@2.1.400", "--json"];
    let (one, other) = tokio::join!(machine.ash(&install), machine.ash(&install));
    assert!(one.status.success() && other.status.success());
    let fetched = registry.asked().iter().filter(|path| path.ends_with(".tgz")).count();
    assert_eq!(fetched, 1);
    assert_eq!(machine.left(), (vec![VERSION.to_owned()], vec![]));
}

#[tokio::test]
async fn a_file_can_be_installed_without_a_registry() {
    let registry = Registry::start().await;
    let machine = Machine::of(&registry);
    let file = machine.dir.path().join("file");
    let file_arg = file.to_str().unwrap();
    std::fs::write(&file, published(VERSION)).unwrap();
    let shown = machine.json(&["install", "claude", "--from", file_arg]).await;
    assert_eq!(shown["version"], VERSION);
    assert_eq!(shown["integrity"], integrity(&published(VERSION)));
    std::fs::write(&file, program("2.1.401 (Claude Code)\n")).unwrap();
    let shown = machine.json(&["install", "claude@2.1.401", "--from", file_arg]).await;
    assert_eq!((&shown["version"], &shown["package"]), (&json!("2.1.401"), &Value::Null));
    for (content, args, code, expected) in [
        (&b"neither"[..], "claude", 1, "neither a package"),
        (&program("2.1.402\n")[..], "claude@2.1.403", 1, "and not 2.1.403"),
        (&program("2.1.402\n")[..], "claude@latest", 2, "a file has no latest"),
    ] {
        std::fs::write(&file, content).unwrap();
        let output = machine.ash(&["install", args, "--from", file_arg]).await;
        assert_eq!(output.status.code(), Some(code));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
    let missing = machine.ash(&["install", "claude", "--from", "/nowhere/x"]).await;
    assert!(
        text(&missing.stderr).contains("could not use /nowhere/x"),
        "{}",
        text(&missing.stderr)
    );
    assert!(registry.asked().is_empty());
}

#[tokio::test]
async fn the_real_program_is_installed_and_says_its_version() {
    let Some(claude) = claude_program() else { return };
    let output = Command::new(&claude.path).arg("--version").env_clear().output().await.unwrap();
    assert_eq!(text(&output.stdout).trim(), format!("{PINNED} (Claude Code)"));
    assert_eq!(claude.version, PINNED);
}
