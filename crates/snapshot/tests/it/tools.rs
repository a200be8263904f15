//! Trees that real tools make: what comes back is what was there, and the tools go on with it.
//!
//! A test that needs git says that it was not run where git is not installed: a fresh machine need not have it. One
//! that needs another tool fails, and says which.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ash_snapshot::State;

use crate::compare::{capture, on_disk, picture, restore};

/// A directory that a tool works in, with room beside it.
pub(crate) struct Workplace {
    place: tempfile::TempDir,
    pub(crate) tree: PathBuf,
}

impl Workplace {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        // Tools write down where they are.
        let tree = place.path().canonicalize().unwrap().join("tree");
        fs::create_dir(&tree).unwrap();
        Self { place, tree }
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.tree.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Captures the tree, moves it away and restores it where it was. Returns where the old one is.
    fn comes_back(&self) -> PathBuf {
        let repository = on_disk(&self.place.path().join("store"));
        let captured = capture(&repository, &self.tree, &mut State::default()).snapshot;
        assert_eq!((&captured.unstable[..], &captured.unreadable[..]), (&[][..], &[][..]));
        let before = self.place.path().join("before");
        fs::rename(&self.tree, &before).unwrap();
        restore(&repository, &captured, &self.tree).unwrap();
        assert!(picture(&before) == picture(&self.tree), "another tree came back");
        compare_by_rsync(&before, &self.tree);
        before
    }
}

/// Asks rsync what it would have to do; it is not to be found everywhere.
fn compare_by_rsync(one: &Path, other: &Path) {
    let mut rsync = Command::new("rsync");
    rsync.args(["-nacHX", "--delete", "--itemize-changes"]);
    rsync.arg(one.join("")).arg(other.join(""));
    match rsync.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(said, "", "rsync finds a difference");
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("not compared by rsync, which is not installed");
        }
        Err(error) => panic!("rsync: {error}"),
    }
}

/// Runs a tool, which must be there.
fn run(command: &mut Command) -> Output {
    let name = command.get_program().to_owned();
    command.output().unwrap_or_else(|error| panic!("this test needs {}: {error}", name.display()))
}

/// The same, and it must do what it is asked; what it said is returned.
pub(crate) fn must(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}{complaint}");
    said + &complaint
}

/// Something that is made once under the target directory, and kept for the tests to come.
fn once(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(all).unwrap();
    // Tests are processes of their own, and begin together.
    let lock = File::create(all.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let dir = all.join(name);
    let made = dir.join("made.txt");
    if !made.exists() {
        let _nothing_there = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        make(&dir);
        fs::write(made, "").unwrap();
    }
    dir
}

fn git(tree: &Path, args: &[&str]) -> Command {
    let mut git = Command::new("git");
    // Nobody's settings but these.
    git.current_dir(tree).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for who in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{who}_NAME"), "somebody");
        git.env(format!("GIT_{who}_EMAIL"), "somebody@example.org");
    }
    git.env("GIT_EDITOR", "true").env("LC_ALL", "C");
    git.args(["-c", "init.defaultBranch=main"]).args(args);
    git
}

/// Whether git is installed; says so if it is not.
fn is_git_there() -> bool {
    match Command::new("git").arg("--version").output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("not run: git is not installed");
            false
        }
        Err(error) => panic!("git: {error}"),
    }
}

/// A repository with two branches that cannot be brought together by themselves, one of its packs made; nothing
/// where git is not installed.
fn diverged() -> Option<Workplace> {
    if !is_git_there() {
        return None;
    }
    let work = Workplace::new();
    let commit = |message: &str| {
        must(&mut git(&work.tree, &["add", "."]));
        must(&mut git(&work.tree, &["commit", "-q", "-m", message]));
    };
    must(&mut git(&work.tree, &["init", "-q"]));
    for number in 0..40 {
        work.write(&format!("src/{number}.txt"), &format!("file {number}\n").repeat(50));
    }
    work.write("shared.txt", "one\ntwo\nthree\n");
    commit("begin");
    must(&mut git(&work.tree, &["gc", "-q"]));
    must(&mut git(&work.tree, &["checkout", "-q", "-b", "topic"]));
    work.write("src/topic.txt", "first\n");
    commit("no trouble");
    work.write("shared.txt", "one\ntwo by topic\nthree\n");
    commit("trouble");
    work.write("src/topic.txt", "first\nsecond\n");
    commit("after the trouble");
    must(&mut git(&work.tree, &["checkout", "-q", "main"]));
    work.write("shared.txt", "one\ntwo by main\nthree\n");
    commit("elsewhere");
    must(&mut git(&work.tree, &["checkout", "-q", "topic"]));
    Some(work)
}

/// Whether git finds everything in order; dangling objects are no disorder.
fn check_by_git(tree: &Path, before: &Path) {
    let said = must(&mut git(tree, &["fsck", "--full", "--strict", "--no-dangling"]));
    assert!(!said.contains("error") && !said.contains("missing"), "{said}");
    let all = [
        &["status", "--porcelain=v2"][..],
        &["log", "--oneline", "--all"],
        &["ls-files", "--stage"],
    ];
    for asked in all {
        assert_eq!(must(&mut git(tree, asked)), must(&mut git(before, asked)));
    }
}

#[test]
fn a_rebase_that_stopped_at_a_conflict_goes_on_and_can_be_given_up() {
    let Some(work) = diverged() else { return };
    let topic = must(&mut git(&work.tree, &["rev-parse", "topic"]));
    let stopped = run(&mut git(&work.tree, &["rebase", "main"]));
    assert!(!stopped.status.success(), "there is a conflict");
    let before = work.comes_back();
    check_by_git(&work.tree, &before);
    // In what came back somebody goes on.
    work.write("shared.txt", "one\ntwo by both\nthree\n");
    must(&mut git(&work.tree, &["add", "shared.txt"]));
    must(&mut git(&work.tree, &["rebase", "--continue"]));
    let log = must(&mut git(&work.tree, &["log", "--format=%s"]));
    assert_eq!(log, "after the trouble\ntrouble\nno trouble\nelsewhere\nbegin\n");
    assert_eq!(must(&mut git(&work.tree, &["status", "--porcelain"])), "");
    // And elsewhere somebody gives up, again in a copy of a copy.
    fs::remove_dir_all(&work.tree).unwrap();
    fs::rename(&before, &work.tree).unwrap();
    fs::remove_dir_all(work.place.path().join("store")).unwrap();
    work.comes_back();
    must(&mut git(&work.tree, &["rebase", "--abort"]));
    assert_eq!(must(&mut git(&work.tree, &["rev-parse", "HEAD"])), topic);
    assert_eq!(must(&mut git(&work.tree, &["symbolic-ref", "HEAD"])), "refs/heads/topic\n");
    assert_eq!(must(&mut git(&work.tree, &["status", "--porcelain"])), "");
}

#[test]
fn a_merge_that_stopped_at_a_conflict_is_ended() {
    let Some(work) = diverged() else { return };
    let stopped = run(&mut git(&work.tree, &["merge", "main"]));
    assert!(!stopped.status.success(), "there is a conflict");
    assert!(work.tree.join(".git/MERGE_HEAD").exists());
    let before = work.comes_back();
    check_by_git(&work.tree, &before);
    work.write("shared.txt", "one\ntwo by both\nthree\n");
    must(&mut git(&work.tree, &["add", "shared.txt"]));
    must(&mut git(&work.tree, &["commit", "-q", "--no-edit"]));
    let parents = must(&mut git(&work.tree, &["log", "-1", "--format=%P"]));
    assert_eq!(parents.split_whitespace().count(), 2);
    must(&mut git(&work.tree, &["fsck", "--full", "--strict"]));
}

fn npm(at: &Path, args: &[&str]) -> Command {
    let mut npm = Command::new("npm");
    npm.current_dir(at).args(args);
    npm.args(["--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts"]);
    npm
}

/// A project that uses a package with a program, and one that uses others.
const PACKAGE: &str = r#"{"name": "tried", "version": "1.0.0", "private": true,
    "dependencies": {"semver": "7.6.3", "is-odd": "3.0.1"}}"#;

/// Whether Node finds what was installed.
fn use_packages(tree: &Path) {
    let program = "console.log(require('semver').inc('1.2.3', 'minor'), require('is-odd')(3))";
    assert_eq!(must(Command::new("node").current_dir(tree).args(["-e", program])), "1.3.0 true\n");
    let linked = tree.join("node_modules/.bin/semver");
    assert_eq!(must(Command::new(linked).args(["-i", "patch", "1.2.3"])), "1.2.4\n");
}

#[test]
fn what_npm_installs_comes_back_and_npm_finds_nothing_to_do() {
    let work = Workplace::new();
    work.write("package.json", PACKAGE);
    must(&mut npm(&work.tree, &["install"]));
    work.comes_back();
    use_packages(&work.tree);
    let said = must(&mut npm(&work.tree, &["install", "--offline"]));
    assert!(said.contains("up to date"), "{said}");
}

#[test]
fn what_pnpm_links_to_its_store_stays_linked() {
    let pnpm = once("pnpm-9.15.9", |dir| {
        must(&mut npm(dir, &["install", "--prefix", ".", "pnpm@9.15.9"]));
    });
    let work = Workplace::new();
    work.write("package.json", PACKAGE);
    let pnpm = |args: &[&str]| {
        let mut command = Command::new(pnpm.join("node_modules/.bin/pnpm"));
        command.current_dir(&work.tree).args(args).args(["--store-dir", ".store"]);
        command.args(["--config.ignore-scripts=true", "--config.package-import-method=hardlink"]);
        command
    };
    must(&mut pnpm(&["install"]));
    work.comes_back();
    use_packages(&work.tree);
    let module = fs::metadata(work.tree.join("node_modules/semver/index.js")).unwrap();
    assert_eq!(module.nlink(), 2, "one name here and one in the store");
    must(&mut pnpm(&["store", "status"]));
    let said = must(&mut pnpm(&["install", "--offline", "--frozen-lockfile"]));
    assert!(said.contains("Already up to date"), "{said}");
}

#[test]
fn what_cargo_built_is_fresh_when_it_comes_back() {
    let work = Workplace::new();
    work.write("Cargo.toml", "[package]\nname = \"tried\"\nedition = \"2021\"\n[workspace]\n");
    work.write("src/main.rs", "fn main() { println!(\"{}\", tried::said()); }\n");
    work.write("src/lib.rs", "pub fn said() -> &'static str { \"built\" }\n");
    work.write("build.rs", "fn main() { println!(\"cargo::rerun-if-changed=build.rs\"); }\n");
    let cargo = |args: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(&work.tree).args(args).arg("--offline");
        // What the tests were built with is of no concern here.
        for name in ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR", "RUSTFLAGS", "CARGO_INCREMENTAL"]
        {
            cargo.env_remove(name);
        }
        cargo
    };
    must(&mut cargo(&["build"]));
    work.comes_back();
    let said = must(&mut cargo(&["build", "--verbose"]));
    assert!(said.contains("Fresh tried") && !said.contains("Compiling"), "{said}");
    assert!(said.contains("Finished"), "{said}");
    let built = Command::new(work.tree.join("target/debug/tried")).output().unwrap();
    assert_eq!(built.stdout, b"built\n");
}

/// A program of uv's package, and how it is told where packages are: where pip finds them.
fn uv() -> Command {
    let dir = once("uv-0.9.5", |dir| {
        must(Command::new("python3").args(["-m", "venv"]).arg(dir));
        let mut install = Command::new(dir.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        must(install.arg("uv==0.9.5"));
    });
    let asked = Command::new(dir.join("bin/python"))
        .args(["-m", "pip", "config", "get", "global.index-url"])
        .output()
        .unwrap();
    let mut uv = Command::new(dir.join("bin/uv"));
    if asked.status.success() {
        uv.env("UV_INDEX_URL", String::from_utf8(asked.stdout).unwrap().trim());
    }
    uv
}

#[test]
fn an_environment_that_uv_made_works_when_it_comes_back() {
    let work = Workplace::new();
    let uv = |args: &[&str]| {
        let mut uv = uv();
        uv.current_dir(&work.tree).args(args).args(["--cache-dir", ".cache"]);
        uv.env("UV_LINK_MODE", "hardlink").env_remove("VIRTUAL_ENV");
        uv
    };
    must(&mut uv(&["venv", "--python", "python3", ".venv"]));
    must(&mut uv(&["pip", "install", "idna==3.10"]));
    work.comes_back();
    let python = work.tree.join(".venv/bin/python");
    let program = "import idna; print(idna.encode('b\u{fc}cher.example').decode(), idna.__file__)";
    let said = must(Command::new(&python).arg("-B").args(["-c", program]));
    let (encoded, file) = said.trim().split_once(' ').unwrap();
    assert_eq!(encoded, "xn--bcher-kva.example");
    assert!(Path::new(file).starts_with(&work.tree), "{file}");
    assert!(fs::metadata(file).unwrap().nlink() > 1, "linked to the cache");
    must(&mut uv(&["pip", "check"]));
}

/// What a Python program prints.
pub(crate) fn python(program: &str, argument: &OsStr) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", program]).arg(argument);
    python
}
