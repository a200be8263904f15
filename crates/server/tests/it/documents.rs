//! Every command in the documents is run.
//!
//! A page is a story: its blocks of shell are run in order by one shell, in a directory of their own,
//! with `ash` and the examples at hand and the scripted model behind it. Each must end with 0. A block
//! that is marked ```` ```sh skip ```` is not run, and stands in a list here with the reason. A block with a
//! file name behind its language is that file. What is a command and is not marked as shell is found.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ash_server::model::Options;
use tokio::process::{Child, Command};

use crate::fake::{Answer, Fake, problem};
use crate::talk::model;
use crate::world::{bridge_program, can_isolate, end_sandboxes, processes_mentioning};

/// What is not run, by page and first line, and why.
const SKIPPED: [(&str, &str, &str); 7] = [
    ("README.md", "make demo", "it builds, and is run by a test of its own"),
    (
        "README.md",
        "cargo build --release -p ash-server -p ash-bridge",
        "it was built for this test",
    ),
    (
        "docs/quick-start.md",
        "cargo build --release -p ash-server -p ash-bridge",
        "it was built for this test",
    ),
    (
        "docs/agent-runtimes.md",
        "ash agent-runtime install claude            # the release that this version of Ash is tried with",
        "it asks a registry; tests of their own have one",
    ),
    (
        "docs/egress.md",
        "curl http://api.example.com/issues",
        "it is said in a sandbox, and asks a host on the internet",
    ),
    (
        "docs/legacy.md",
        "ASH_BRIDGE_ENTRY=/srv/ash-ai/packages/bridge/dist/index.js ASH_REAL_SDK=1 ash serve",
        "it needs a program of the original; tests of their own have one of ours",
    ),
    (
        "docs/snapshots.md",
        "ash snapshot capture project --store s3://bucket/projects --cache kept",
        "it needs a bucket; a test of its own has one",
    ),
];

/// What a page takes for granted, which is played before it, and what has to be so behind it.
///
/// In place of a server of the original stands one of ours, which answers that request in the same way.
const AROUND: [(&str, &str, &str); 1] = [(
    "docs/migration.md",
    r#"ash serve > ash.log 2>&1 &
until ash health > /dev/null 2>&1; do sleep 0.1; done
ash deploy examples/notes
OLD=http://127.0.0.1:$ASH_PORT
OLD_KEY=$(cat data/initial-api-key)
ID=$(ash session create notes)
ash session exec "$ID" 'mkdir -p of/old && echo herons > of/old/a.txt'
SESSION=$(ash session create notes)
"#,
    r#"[ "$(ash session exec "$SESSION" cat of/old/a.txt)" = herons ]
"#,
)];

/// How a line of a block begins that is to be typed.
const COMMANDS: [&str; 6] = ["$ ", "ash ", "cargo ", "curl ", "export ", "make "];

/// Its blocks of text say how a command is called, and are generated.
const USAGES: &str = "docs/cli-reference.md";

/// Ends with 1 if something is wrong with the machine, which may well be.
const DOCTOR: &str = "ash doctor";

/// What the pages call the ports of a server and of a model. The test has its own.
const PORTS: [&str; 2] = ["4100", "4010"];

/// Below the ports that the system gives out by itself.
const OWN_PORTS: std::ops::Range<u16> = 15_000..25_000;

/// How long a page may take. Reached only if something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A fenced block of a page.
struct Block {
    line: usize,
    /// What stands behind the fence: a language, and maybe more.
    info: Vec<String>,
    text: String,
}

impl Block {
    fn is_shell(&self) -> bool {
        matches!(self.info.first().map(String::as_str), Some("sh" | "bash" | "shell" | "console"))
    }

    fn is_skipped(&self) -> bool {
        self.is_shell() && self.info.get(1).is_some_and(|mark| mark == "skip")
    }

    /// What is to be typed though the block is not shell.
    fn stray_command(&self) -> Option<&str> {
        let is_command = |line: &&str| COMMANDS.iter().any(|start| line.starts_with(start));
        self.text.lines().map(str::trim_start).find(is_command).filter(|_| !self.is_shell())
    }

    /// The name of the file that it is, if it is one.
    fn file(&self) -> Option<&str> {
        self.info.get(1).map(String::as_str).filter(|name| name.contains('.'))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (index, line) in page.lines().enumerate() {
        match line.trim_start().strip_prefix("```") {
            Some(_) if is_inside => is_inside = false,
            Some(info) => {
                is_inside = true;
                let info = info.split_whitespace().map(str::to_owned).collect();
                blocks.push(Block { line: index + 1, info, text: String::new() });
            }
            None if is_inside => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    assert!(!is_inside, "a fence is not closed");
    blocks
}

/// Every page, with its name.
fn pages() -> Vec<(String, Vec<Block>)> {
    let mut names = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned).to_vec();
    for dir in ["docs", "docs/errors"] {
        let found = fs::read_dir(root().join(dir)).unwrap();
        let found =
            found.map(|entry| format!("{dir}/{}", entry.unwrap().file_name().to_string_lossy()));
        names.extend(found.filter(|name| name.ends_with(".md")));
    }
    names.sort();
    let page = |name: String| {
        let blocks = blocks(&fs::read_to_string(root().join(&name)).unwrap());
        (name, blocks)
    };
    names.into_iter().map(page).collect()
}

#[test]
fn what_is_to_be_typed_is_marked_as_shell() {
    let mut found = Vec::new();
    for (name, blocks) in pages().into_iter().filter(|(name, _)| name != USAGES) {
        let lines = blocks.iter().filter_map(Block::stray_command);
        found.extend(lines.map(|line| format!("{name}: {line}")));
    }
    assert_eq!(found, Vec::<String>::new());
    let page = "```text\n$ ls\n```\n```\n  ash ps\n```\n```sh\nash ps\n```\n```text\nashes\n```\n";
    let found: Vec<_> = blocks(page).iter().map(|of| of.stray_command().is_some()).collect();
    assert_eq!(found, [true, true, false, false]);
}

#[test]
fn what_is_not_run_is_known_and_why() {
    let mut skipped = Vec::new();
    for (name, blocks) in pages() {
        for block in blocks.iter().filter(|block| block.is_skipped()) {
            skipped.push((name.clone(), block.text.lines().next().unwrap_or_default().to_owned()));
        }
    }
    let mut known: Vec<_> =
        SKIPPED.iter().map(|(page, line, _)| ((*page).to_owned(), (*line).to_owned())).collect();
    skipped.sort();
    known.sort();
    assert_eq!(skipped, known);
}

#[tokio::test]
async fn every_command_in_the_documents_runs() {
    bridge_program();
    let mut pages = pages();
    pages.retain(|(_, blocks)| blocks.iter().any(Block::is_shell));
    let mut run = 0;
    for (name, blocks) in &pages {
        let model = model(Options::default()).await;
        let place = Place::new(&model.url());
        run += place.play(name, blocks).await;
        drop(place);
        model.shutdown().await;
    }
    assert!(pages.len() >= 4 && run >= 12, "only {run} blocks of {} pages were run", pages.len());
}

#[tokio::test]
async fn the_demonstration_holds_what_it_says() {
    bridge_program();
    let programs = Path::new(env!("CARGO_BIN_EXE_ash")).parent().unwrap();
    let mut demo = Command::new("python3");
    demo.arg(root().join("examples/demo/demo.py")).arg(programs).env_remove("ANTHROPIC_API_KEY");
    let output = demo.output().await.unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("equal, one by one          yes"), "{told}");
}

/// A directory to run commands in.
struct Place {
    dir: tempfile::TempDir,
    model: String,
    ports: [u16; 2],
}

impl Place {
    fn new(model: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy(&root().join("examples"), &dir.path().join("examples"));
        Self { dir, model: model.to_owned(), ports: free_ports() }
    }

    /// Runs the blocks of a page, and returns how many there were.
    async fn play(&self, name: &str, blocks: &[Block]) -> usize {
        for block in blocks {
            if let Some(file) = block.file() {
                fs::write(self.dir.path().join(file), &block.text).unwrap();
            }
        }
        let shown: Vec<&Block> =
            blocks.iter().filter(|block| block.is_shell() && !block.is_skipped()).collect();
        let mut script = String::from("set -eu\n");
        if !can_isolate() {
            script.push_str("export ASH_PERMISSION_MODE=bypassPermissions\n");
        }
        let around = AROUND.iter().find(|(page, ..)| *page == name);
        let (before, behind) = around.map_or(("", ""), |(_, before, behind)| (before, behind));
        before.lines().for_each(|line| script.push_str(&self.line(line)));
        for block in &shown {
            writeln!(script, "echo '>>> {name}, line {}' >&2", block.line).unwrap();
            block.text.lines().for_each(|line| script.push_str(&self.line(line)));
        }
        script.push_str(behind);
        fs::write(self.dir.path().join("script"), script).unwrap();
        let mut shell = self.shell();
        let status = tokio::time::timeout(PATIENCE, shell.wait()).await.ok().map(Result::unwrap);
        let said = fs::read_to_string(self.dir.path().join("said")).unwrap();
        assert!(status.is_some_and(|status| status.success()), "{name}: {status:?}\n{said}");
        shown.len()
    }

    fn line(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for (theirs, ours) in PORTS.iter().zip(self.ports) {
            line = line.replace(theirs, &ours.to_string());
        }
        if !can_isolate() {
            line = line.replace("ash serve", "ash serve --dangerously-no-sandbox");
        }
        match line.strip_prefix(DOCTOR) {
            Some(rest) => {
                let rest = rest.split('#').next().unwrap_or_default();
                format!("{DOCTOR}{rest} || [ $? -eq 1 ]\n")
            }
            None => line + "\n",
        }
    }

    fn shell(&self) -> Child {
        let said = fs::File::create(self.dir.path().join("said")).unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_ash")).parent().unwrap().to_owned();
        let others = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
        let mut path: Vec<PathBuf> = vec![programs];
        path.extend(std::env::split_paths(&others));
        if !path.iter().any(|dir| dir.join("curl").is_file()) {
            path.insert(0, self.dir.path().join("bin"));
            stand_in_for_curl(&path[0]);
        }
        let path = std::env::join_paths(path);
        Command::new("sh")
            .arg("script")
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", path.unwrap())
            .env("HOME", self.dir.path())
            .env("ASH_PORT", self.ports[0].to_string())
            .env("ASH_MIN_FREE_MB", "0")
            .env("ANTHROPIC_BASE_URL", &self.model)
            .env("ANTHROPIC_API_KEY", "any-will-do")
            .stdin(std::process::Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }
}

impl Drop for Place {
    /// Whatever the commands left running has this directory as its home.
    fn drop(&mut self) {
        for pid in processes_mentioning(self.dir.path().as_os_str()) {
            let pid = pid.to_string();
            // It may end by itself in this moment.
            let _gone_already = std::process::Command::new("kill").args(["-9", &pid]).output();
        }
        end_sandboxes(&self.dir.path().join("data"));
    }
}

/// Puts a `curl` into a directory, for machines that have none. Returns where it is.
fn stand_in_for_curl(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    fs::create_dir_all(dir).unwrap();
    let path = dir.join("curl");
    fs::write(&path, include_str!("curl.py")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn the_stand_in_for_curl_does_what_the_pages_ask_of_it() {
    let fake = Fake::start(|asked, _| match asked.line.as_str() {
        "GET /stream" => Answer::Stream("data: 1\n\n".to_owned()),
        "POST /things" => Answer::Json(201, serde_json::json!({ "made": asked.body })),
        "GET /cut" => Answer::Cut("data: 1\n\n".to_owned()),
        _ => problem(404, "not_found", "no"),
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let curl = stand_in_for_curl(dir.path());
    let run = async |words: &[&str]| {
        // By name: on some file systems a program cannot be run right after it was written.
        let output = Command::new("python3").arg(&curl).args(words).output().await.unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let at = |path: &str| format!("{}{path}", fake.url());
    assert_eq!(run(&["-sSfN", &at("/stream")]).await, (0, "data: 1\n\n".to_owned()));
    let posted = run(&["-sSf", &at("/things"), "-H", "A: b", "-d", "x"]).await;
    assert_eq!(posted, (0, r#"{"made":"x"}"#.to_owned()));
    assert_eq!(fake.asked()[1].header("a"), Some("b"));
    assert_eq!(run(&["-sSf", &at("/nowhere")]).await.0, 22);
    let (code, said) = run(&["-s", "-X", "DELETE", &at("/nowhere")]).await;
    assert!(code == 0 && said.contains("not_found"), "{said}");
    assert_eq!(fake.lines()[3], "DELETE /nowhere");
    assert_eq!(run(&["-sN", &at("/cut")]).await.0, 18);
}

/// Ports that nobody listens on. Two tests at once begin their search in different places.
fn free_ports() -> [u16; 2] {
    let skipped = usize::try_from(std::process::id() % 9_000).unwrap();
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut free = OWN_PORTS.skip(skipped).filter(is_free);
    [free.next().unwrap(), free.next().unwrap()]
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}
