//! Settings, as a person meets them: the page about them, and `ash config`.

use std::path::Path;
use std::process::{Command, Output};

use ash_server::config::settings_table;

const BEGIN: &str =
    "<!-- The table is written by `make docs` from crates/server/src/config/mod.rs. -->\n";
const END: &str = "\n<!-- end of the table -->";

/// With a clean environment, but for what is given.
fn ash(args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ash"))
        .args(args)
        .env_clear()
        .envs(env.to_vec())
        .output()
        .unwrap()
}

#[test]
fn the_page_about_settings_is_what_the_declaration_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let written = format!("{before}{BEGIN}\n{}{END}{after}", settings_table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &written).unwrap();
    } else {
        assert_eq!(page, written, "docs/configuration.md is not up to date: run `make docs`");
    }
}

#[test]
fn config_shows_what_holds_and_who_said_so_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.toml");
    std::fs::write(&file, "port = 1\nhost = '::1'\ndrain_ms = 9\n").unwrap();
    let args = ["config", "--config", file.to_str().unwrap(), "--port", "3"];
    let env =
        [("ASH_PORT", "2"), ("ASH_HOST", "127.0.0.2"), ("ASH_API_KEY", "hush"), ("ASH_X", "")];
    let output = ash(&args, &env);
    assert!(output.status.success());
    let shown = String::from_utf8(output.stdout).unwrap();
    let row = |name: &str| {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("ASH_PORT"), ["3", "flag"]);
    assert_eq!(row("ASH_HOST"), ["127.0.0.2", "environment"]);
    assert_eq!(row("ASH_DRAIN_MS"), ["9", "file"]);
    assert_eq!(row("ASH_DATA_DIR"), ["./data", "default"]);
    assert_eq!(row("ASH_API_KEY"), ["***", "environment"]);
    assert!(!shown.contains("hush"));
    let warnings = String::from_utf8(output.stderr).unwrap();
    assert_eq!(warnings, "warning: ASH_X is not a setting, and is ignored\n");

    let json = ash(&["config", "--json"], &env);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["settings"][0]["name"], "ASH_PORT");
    assert_eq!(json["settings"][0]["source"], "environment");
    assert_eq!(json["warnings"][0], "ASH_X is not a setting, and is ignored");
}

#[test]
fn a_wrong_setting_ends_with_1_and_a_wrong_flag_with_2() {
    let output = ash(&["config"], &[("ASH_PORT", "x")]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "error: ASH_PORT is `x`: expected a port from 0 to 65535\n\
                    hint: docs/configuration.md lists every setting\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
    assert_eq!(ash(&["config", "--port", "x"], &[]).status.code(), Some(2));
}

#[test]
fn doctor_ends_with_1_only_if_there_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let env = [("ASH_DATA_DIR", data.to_str().unwrap()), ("ASH_PORT", "0")];
    let output = ash(&["doctor", "--json"], &env);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = json["checks"].as_array().unwrap();
    let problems = checks.iter().filter(|check| check["verdict"] == "problem").count();
    assert_eq!(json["ready"], problems == 0);
    assert_eq!(output.status.code(), Some(i32::from(problems > 0)), "{json:#}");
    assert!(!data.exists());

    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    // Nobody answers there: a connection that is closed at once is enough to tell.
    let port = taken.local_addr().unwrap().port().to_string();
    let closing = std::thread::spawn(move || drop(taken.accept().unwrap()));
    let output = ash(&["doctor", "--port", &port], &env);
    closing.join().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("is taken by another program") && shown.contains("fix: "), "{shown}");

    let output = ash(&["doctor"], &[("ASH_HOST", "here")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("problem  settings  ASH_HOST"));
}
