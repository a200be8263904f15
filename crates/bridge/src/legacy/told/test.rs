//! What is in the files of a workspace, whatever was there and is done to it.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, symlink};

use ash_protocol::Limits;
use tempfile::TempDir;

use super::*;
use crate::builtin::model::Patience;
use crate::exec::Env;
use crate::questions::Questions;

const MINE: &str = r#"{"b":{"command":"mine"},"c":{"url":"https://x.example/mcp"}}"#;

/// A session's files.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("workspace")).unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        Self(dir)
    }

    fn place(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join("workspace").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.place(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.place(name)).unwrap()
    }

    fn servers(&self) -> Value {
        serde_json::from_str(&self.read(SERVERS)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.place("")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A start in which the session says this.
    fn tell(&self, prompt: Option<&str>, servers: Option<&str>) -> Vec<String> {
        let raw = |servers: &str| RawValue::from_string(servers.to_owned()).unwrap();
        tell(&Settings {
            workspace: self.place(""),
            home: self.0.path().join("home"),
            env: Env::new(Path::new("/"), None, None, None, &BTreeMap::new()).0,
            refused_variables: Vec::new(),
            model: String::new(),
            limits: Limits::default(),
            system_prompt: prompt.map(str::to_owned),
            remark: Some("a file is lost".to_owned()),
            mcp_servers: servers.map(raw),
            allowed_tools: Vec::new(),
            disallowed_tools: Vec::new(),
            permission_mode: None,
            questions: Questions::default(),
            endpoint: ([127, 0, 0, 1], 1).into(),
            patience: Patience::default(),
        })
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_session_that_says_nothing_leaves_everything_as_it_is() {
    let files = Files::new();
    assert_eq!(files.tell(None, None), NOTHING);
    assert_eq!(files.names(), NOTHING);
    assert!(!files.0.path().join("home").join(REMEMBERED).exists());
}

#[test]
fn instructions_are_replaced_and_servers_are_added() {
    let files = Files::new();
    files.write(INSTRUCTIONS, "Be kind.");
    files.write(
        SERVERS,
        r#"{"other":1,"mcpServers":{"a":{"command":"its"},"b":{"command":"its"}}}"#,
    );
    assert_eq!(files.tell(Some("Be brief."), Some(MINE)), NOTHING);
    assert_eq!(files.read(INSTRUCTIONS), "Be brief.");
    let merged = json!({
        "other": 1,
        "mcpServers": {
            "a": { "command": "its" }, "b": { "command": "mine" }, "c": { "url": "https://x.example/mcp" },
        },
    });
    assert_eq!(files.servers(), merged);
    assert_eq!(files.names(), [SERVERS, INSTRUCTIONS], "nothing else is left");

    let files = Files::new();
    assert_eq!(files.tell(Some("Be brief."), Some(r#"{"a":{"command":"x"}}"#)), NOTHING);
    assert_eq!(files.servers(), json!({ "mcpServers": { "a": { "command": "x" } } }));
}

#[test]
fn what_is_there_already_is_not_written() {
    let files = Files::new();
    files.write(INSTRUCTIONS, "Be brief.");
    files.write(SERVERS, r#"{"mcpServers": {"a": {"command": "x"}}}"#);
    let inodes = || [INSTRUCTIONS, SERVERS].map(|name| files.place(name).metadata().unwrap().ino());
    let before = inodes();
    for _start in 0..2 {
        assert_eq!(files.tell(Some("Be brief."), Some(r#"{"a":{"command":"x"}}"#)), NOTHING);
    }
    assert_eq!(inodes(), before);
}

#[test]
fn an_edit_stays_until_the_session_says_something_else_or_the_file_is_gone() {
    let files = Files::new();
    let start = |prompt: &str| assert_eq!(files.tell(Some(prompt), Some(MINE)), NOTHING);
    start("Be brief.");
    files.write(INSTRUCTIONS, "Be as you like.");
    files.write(SERVERS, "edited");
    start("Be brief.");
    assert_eq!(
        (files.read(INSTRUCTIONS), files.read(SERVERS)),
        ("Be as you like.".into(), "edited".into())
    );
    start("Be loud.");
    assert_eq!(
        (files.read(INSTRUCTIONS), files.read(SERVERS)),
        ("Be loud.".into(), "edited".into())
    );
    fs::remove_file(files.place(INSTRUCTIONS)).unwrap();
    fs::remove_file(files.place(SERVERS)).unwrap();
    start("Be loud.");
    assert_eq!(files.read(INSTRUCTIONS), "Be loud.");
    assert_eq!(files.servers()["mcpServers"]["b"]["command"], "mine");
    // What the session says no more stays, and is said anew if it says it again.
    assert_eq!(files.tell(None, None), NOTHING);
    files.write(INSTRUCTIONS, "Be as you like.");
    start("Be loud.");
    assert_eq!(files.read(INSTRUCTIONS), "Be loud.");
}

#[test]
fn nothing_is_written_through_what_is_no_file() {
    let files = Files::new();
    files.write("outside", "untouched");
    for name in [INSTRUCTIONS, SERVERS] {
        symlink("outside", files.place(name)).unwrap();
    }
    let problems = files.tell(Some("Be brief."), Some(MINE));
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(
        problem.contains("not in .mcp.json") && problem.contains("no ordinary file"),
        "{problem}"
    );
    assert_eq!(files.read("outside"), "untouched");
    assert_eq!(files.read(INSTRUCTIONS), "Be brief.", "the link itself is replaced");
    assert!(!files.place(INSTRUCTIONS).is_symlink() && files.place(SERVERS).is_symlink());

    let files = Files::new();
    for name in [INSTRUCTIONS, SERVERS] {
        fs::create_dir(files.place(name)).unwrap();
    }
    for _start in 0..2 {
        assert_eq!(files.tell(Some("Be brief."), Some(MINE)).len(), 2, "it is said at every start");
    }
    assert_eq!(files.names(), [SERVERS, INSTRUCTIONS]);
    // It is done as soon as it can be.
    fs::remove_dir(files.place(INSTRUCTIONS)).unwrap();
    assert_eq!(files.tell(Some("Be brief."), None), NOTHING);
    assert_eq!(files.read(INSTRUCTIONS), "Be brief.");
}

#[test]
fn servers_are_not_added_to_what_is_not_understood() {
    let files = Files::new();
    for text in ["", "nonsense", "[1]", r#"{"mcpServers":[]}"#] {
        files.write(SERVERS, text);
        let problems = files.tell(None, Some(MINE));
        assert_eq!(problems.len(), 1, "{text}");
        assert!(problems[0].contains("what is there is not understood"), "{text}: {problems:?}");
        assert_eq!(files.read(SERVERS), text);
    }
    for text in ["{}", r#"{"mcpServers":null}"#] {
        files.write(SERVERS, text);
        assert_eq!(files.tell(None, Some(MINE)), NOTHING, "{text}");
        assert_eq!(files.servers()["mcpServers"]["b"]["command"], "mine");
        assert_eq!(files.tell(None, None), NOTHING);
    }
    File::create(files.place(SERVERS)).unwrap().set_len(1 << 40).unwrap();
    let problems = files.tell(None, Some(MINE));
    assert!(problems[0].contains("more than"), "{problems:?}");
}

#[test]
fn a_memory_that_is_no_file_is_out_of_the_way() {
    for plant in [
        |path: &Path| fs::create_dir(path).unwrap(),
        |path: &Path| symlink("/nowhere", path).unwrap(),
        |path: &Path| fs::write(path, "nonsense").unwrap(),
    ] {
        let files = Files::new();
        plant(&files.0.path().join("home").join(REMEMBERED));
        assert_eq!(files.tell(Some("Be brief."), None), NOTHING);
        files.write(INSTRUCTIONS, "Be as you like.");
        assert_eq!(files.tell(Some("Be brief."), None), NOTHING);
        assert_eq!(files.read(INSTRUCTIONS), "Be as you like.");
    }
}
