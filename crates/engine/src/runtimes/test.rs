//! Which program is used, and when none is.

use super::*;

struct Machine {
    dir: tempfile::TempDir,
    path: Option<PathBuf>,
    version: Option<Version>,
    view: View,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, path: None, version: None, view: View::Machine }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A program that says its version.
    fn program(&self, name: &str, version: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\necho '{version} (Claude Code)'\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn install(&self, version: &str) -> PathBuf {
        let path = self.program(&format!("data/runtimes/claude/{version}/claude"), version);
        let (bytes, blake3) = digest_of(&path).unwrap();
        let (package, integrity) = (None, None);
        let record = Record { version: version.to_owned(), package, integrity, bytes, blake3 };
        let text = serde_json::to_vec(&record).unwrap();
        fs::write(path.with_file_name(RECORD), text).unwrap();
        path
    }

    fn runtimes(&self, of_the_machine: &[PathBuf]) -> Runtimes {
        let (path, version) = (self.path.clone(), self.version.clone());
        let options = RuntimeOptions { data: self.data(), view: self.view, path, version };
        Runtimes::looking_at(options, of_the_machine.to_vec())
    }

    async fn claude(&self) -> Result<Found, NoClaude> {
        self.runtimes(&[]).claude().await
    }
}

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

#[tokio::test]
async fn the_newest_that_is_installed_is_used_unless_a_setting_says_otherwise() {
    let mut machine = Machine::new();
    let missing = machine.claude().await.unwrap_err();
    assert_eq!(missing, NoClaude::Missing);
    assert!(missing.to_string().contains("`ash agent-runtime install claude`"), "{missing}");
    machine.install("2.1.9");
    let newest = machine.install("2.1.325");
    machine.install("2.1.325-beta.1");
    let found = machine.claude().await.unwrap();
    assert_eq!((&found.version, found.source), (&version("2.1.325"), Source::Installed));
    assert_eq!((&found.host_path, &found.inside_path), (&newest, &newest));
    machine.view = View::Sandboxes;
    let inside = machine.claude().await.unwrap().inside_path;
    assert_eq!(inside, Path::new("/run/ash/claude/2.1.325/claude"));
    machine.version = Some(version("2.1.9"));
    assert_eq!(machine.claude().await.unwrap().version, version("2.1.9"));
    machine.version = Some(version("2.2.0"));
    let missing = machine.claude().await.unwrap_err();
    assert_eq!(missing, NoClaude::NoSuchVersion(version("2.2.0")));
    assert!(missing.to_string().contains("install claude@2.2.0`"), "{missing}");
}

#[tokio::test]
async fn an_installed_program_that_has_changed_is_not_used() {
    let machine = Machine::new();
    let path = machine.install("2.1.325");
    let runtimes = machine.runtimes(&[]);
    let glimpse = |fit| {
        let version = Some(version("2.1.325"));
        Ok(Glimpse { version, source: Source::Installed, is_fit: fit })
    };
    assert_eq!(runtimes.glimpse(), glimpse(None));
    runtimes.claude().await.unwrap();
    assert_eq!(runtimes.glimpse(), glimpse(Some(true)));
    // As long as before.
    let text = fs::read_to_string(&path).unwrap().replace("echo", "ECHO");
    fs::write(&path, text).unwrap();
    let damaged = runtimes.claude().await.unwrap_err().to_string();
    assert!(damaged.contains("it has another digest"), "{damaged}");
    assert!(damaged.contains("`ash agent-runtime install claude@2.1.325`"), "{damaged}");
    assert_eq!(runtimes.glimpse(), glimpse(Some(false)));
    fs::write(&path, "#!").unwrap();
    let damaged = runtimes.claude().await.unwrap_err().to_string();
    assert!(damaged.contains("it has 2 bytes instead of"), "{damaged}");
    fs::remove_file(&path).unwrap();
    let damaged = runtimes.claude().await.unwrap_err().to_string();
    assert!(damaged.contains("it cannot be read"), "{damaged}");
    machine.install("2.1.325");
    runtimes.claude().await.unwrap();
}

#[tokio::test]
async fn what_is_no_whole_installation_is_passed_over() {
    let machine = Machine::new();
    machine.install("2.1.9");
    let odd = machine.install("2.1.325");
    fs::write(odd.with_file_name(RECORD), "{").unwrap();
    let moved = versions_in(&machine.data()).join("2.1.400");
    fs::rename(machine.install("2.1.10").parent().unwrap(), moved).unwrap();
    fs::create_dir(versions_in(&machine.data()).join("latest")).unwrap();
    let names: Vec<String> = machine
        .runtimes(&[])
        .installed()
        .unwrap()
        .iter()
        .map(|of| of.version.to_string())
        .collect();
    assert_eq!(names, ["2.1.9"]);
}

#[tokio::test]
async fn a_program_that_is_named_goes_before_all_and_the_machines_own_after() {
    let mut machine = Machine::new();
    let own = machine.program("bin/claude", "2.1.100");
    let odd = machine.program("odd/claude", "not a version");
    let runtimes = machine.runtimes(&[odd.clone(), own.clone()]);
    let found = runtimes.claude().await.unwrap();
    assert_eq!((found.version, found.source), (version("2.1.100"), Source::System));
    assert!(!runtimes.is_wanted(), "nobody asked for it");
    machine.install("2.1.9");
    assert_eq!(runtimes.claude().await.unwrap().version, version("2.1.9"));
    assert!(runtimes.is_wanted(), "it was noticed");
    machine.path = Some(own.clone());
    let found = machine.claude().await.unwrap();
    assert_eq!((found.version, found.source), (version("2.1.100"), Source::Setting));
    machine.path = Some(odd);
    let unusable = machine.claude().await.unwrap_err().to_string();
    assert!(unusable.contains("it says `not a version (Claude Code)`"), "{unusable}");
    // Sandboxes see nothing of the directory that it lies in.
    machine.path = Some(own.clone());
    machine.view = View::Sandboxes;
    let unusable = machine.claude().await.unwrap_err().to_string();
    assert!(unusable.contains("sandboxes see only"), "{unusable}");
    machine.path = None;
    fs::remove_dir_all(machine.data()).unwrap();
    assert_eq!(machine.runtimes(&[own]).claude().await, Err(NoClaude::Missing));
}

#[tokio::test]
async fn a_program_that_cannot_say_its_version_is_named_with_the_reason() {
    let machine = Machine::new();
    let cases =
        [("exit 3\n", "ended with exit status: 3"), ("", "it says ``, which is no version")];
    for (script, expected) in cases {
        let path = machine.program("claude", "0.0.0");
        fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
        let why = version_of(&path).await.unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    let path = machine.program("claude", "2.1.3");
    assert_eq!(version_of(&path).await, Ok(version("2.1.3")));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(version_of(&path).await.unwrap_err().starts_with("it cannot be run"));
}
