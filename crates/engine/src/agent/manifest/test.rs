use super::*;

const EVERYTHING: &str = r#"
runtime = "acp"
command = ["program", "--flag"]
model = "claude-sonnet-4-5"
permission_mode = "bypassPermissions"
egress = ["api.example.com", "LOCAL-host"]
prewarm = 1
[limits]
memory_mb = 2048
cpu_percent = 100
pids = 256
disk_mb = 4096
tmp_mb = 64
open_files = 1024
turn_timeout_ms = 3600000
"#;

#[test]
fn everything_that_can_be_said_is_read() {
    let read = AshToml::parse(EVERYTHING.as_bytes()).unwrap();
    let expected = AshToml {
        runtime: Some(Runtime::Acp),
        command: Some(vec!["program".to_owned(), "--flag".to_owned()]),
        model: Some("claude-sonnet-4-5".to_owned()),
        permission_mode: Some(PermissionMode::BypassPermissions),
        egress: vec!["api.example.com".to_owned(), "LOCAL-host".to_owned()],
        prewarm: Some(1),
        limits: Limits {
            memory_mb: Some(2048),
            cpu_percent: Some(100),
            pids: Some(256),
            disk_mb: Some(4096),
            tmp_mb: Some(64),
            open_files: Some(1024),
            turn_timeout_ms: Some(3_600_000),
        },
    };
    assert_eq!(read, expected);
    let stored = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<AshToml>(&stored).unwrap(), expected);
}

#[test]
fn the_example_of_the_manual_is_read() {
    let manual = include_str!("../../../../../docs/agents.md");
    let (_, rest) = manual.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let read = AshToml::parse(example.as_bytes()).unwrap();
    assert_eq!(read.limits.memory_mb, Some(2048));
}

#[test]
fn nothing_need_be_said() {
    for nothing in ["", "\n# only a comment\n", "[limits]"] {
        assert_eq!(AshToml::parse(nothing.as_bytes()), Ok(AshToml::default()), "{nothing}");
    }
    assert_eq!(serde_json::to_string(&AshToml::default()).unwrap(), "{}");
    assert_eq!(serde_json::from_str::<AshToml>("{}").unwrap(), AshToml::default());
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_the_reason() {
    for (text, line, column, reason) in [
        ("model = 'x'\nmodle = 'y'", 2, 1, "unknown field `modle`"),
        ("[limits]\nmemory = 5", 2, 1, "unknown field `memory`"),
        ("[limit]\nmemory_mb = 64", 1, 2, "unknown field `limit`"),
        ("prewarm = 'two'", 1, 11, "invalid type: string \"two\""),
        ("prewarm = -1", 1, 11, "expected u32"),
        ("\nruntime = 'python'", 2, 11, "unknown variant `python`"),
        ("permission_mode = 'plan'", 1, 19, "unknown variant `plan`"),
        ("model = 'x'\nmodel = 'y'", 2, 1, "duplicate key"),
        ("model = ", 1, 9, ""),
        ("egress = ['a', 5]", 1, 16, "invalid type: integer `5`"),
        ("egress = [\n  'a.example',\n  'https://b'\n]", 3, 3, "\"https://b\" is none"),
        ("egress = ['10.1']", 1, 11, "names of hosts"),
        ("egress = ['a.example', 'preset:x']", 1, 24, "there is no preset"),
        ("[limits]\n\n\nmemory_mb = 15", 4, 13, "memory_mb is 15, and must be 16 or more"),
        ("limits = { cpu_percent = 10001 }", 1, 26, "must be 1 to 10000"),
        ("limits.cpu_percent = 0", 1, 22, "must be 1 to 10000"),
        ("[limits]\npids = 7", 2, 8, "must be 8 or more"),
        ("[limits]\ndisk_mb = 0", 2, 11, "must be 1 or more"),
        ("[limits]\ntmp_mb = 0", 2, 10, "tmp_mb is 0, and must be 1 or more"),
        ("[limits]\nopen_files = 63", 2, 14, "open_files is 63, and must be 64 to 1048576"),
        ("limits.open_files = 1048577", 1, 21, "must be 64 to 1048576"),
        ("[limits]\nturn_timeout_ms = 999", 2, 19, "must be 1000 or more"),
        ("[limits]\nmemory_mb = 99999999999", 2, 13, "expected u32"),
        ("prewarm = 101", 1, 11, "must be 0 to 100"),
        ("model = ''", 1, 9, "1 to 100 printable characters"),
        ("model = \"a\\nb\"", 1, 9, "1 to 100 printable characters"),
        ("runtime = 'acp'", 1, 11, "needs a command"),
        ("command = ['x']\nruntime = 'builtin'", 1, 11, "for the runtimes acp and legacy"),
        ("command = []", 1, 11, "1 to 100 words"),
        ("command = ['']", 1, 11, "1 to 100 words"),
        ("command = ['a', \"\\u0000\"]", 1, 17, "no NUL"),
    ] {
        let error = AshToml::parse(text.as_bytes()).unwrap_err();
        assert_eq!((error.line, error.column), (line, column), "{text}\n{error}");
        assert!(error.reason.contains(reason), "{text}\n{error}");
    }
}

#[test]
fn what_is_no_text_is_refused_where_it_stops_being_one() {
    let error = AshToml::parse(b"model = 'x'\n# \xff").unwrap_err();
    assert_eq!((error.line, error.column), (2, 3), "{error}");
    let error = AshToml::parse(&[b'\n'; MAX_FILE_BYTES + 1]).unwrap_err();
    assert_eq!((error.line, error.column), (1, 1), "{error}");
}

#[test]
fn the_edges_of_every_range_are_in_it() {
    let longest = "é".repeat(MAX_MODEL_CHARS);
    let label = "a".repeat(63);
    for text in [
        "prewarm = 0".to_owned(),
        "prewarm = 100".to_owned(),
        format!("model = '{longest}'"),
        format!("egress = ['{label}.{label}.{label}.x']"),
        "limits = { memory_mb = 16, cpu_percent = 1, pids = 8, disk_mb = 1 }".to_owned(),
        "limits = { tmp_mb = 1, open_files = 64 }".to_owned(),
        "limits = { open_files = 1048576 }".to_owned(),
        "limits = { cpu_percent = 10000, turn_timeout_ms = 1000 }".to_owned(),
        "runtime = 'legacy'".to_owned(),
        "command = ['x']".to_owned(),
    ] {
        assert!(AshToml::parse(text.as_bytes()).is_ok(), "{text}");
    }
}
