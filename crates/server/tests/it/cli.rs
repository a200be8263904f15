//! The executable, as a person meets it.

use std::process::Output;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::client::ask;

const ASH: &str = env!("CARGO_BIN_EXE_ash");

async fn ash(args: &[&str]) -> Output {
    Command::new(ASH).args(args).output().await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn it_says_what_it_is() {
    assert_eq!(
        text(&ash(&["--version"]).await.stdout),
        concat!("ash ", env!("CARGO_PKG_VERSION"), "\n")
    );
    let help = ash(&["--help"]).await;
    assert!(help.status.success());
    let words = text(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("model Serve a scripted stand-in"), "{words}");
}

#[tokio::test]
async fn a_command_line_that_is_not_understood_ends_with_2() {
    for args in [&["model"][..], &["model", "--port", "x"], &["nonsense"], &[]] {
        let output = ash(args).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.is_empty());
    }
}

#[tokio::test]
async fn a_failure_says_what_why_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("demo.script");
    let path = path.to_str().unwrap();
    std::fs::write(path, "# demo\nwhen any\n/slow soon\n").unwrap();
    let output = ash(&["model", "--port", "0", "--script", path]).await;
    assert_eq!(output.status.code(), Some(1));
    let expected = format!(
        "error: could not use the script {path}\n\
         cause: line 3: /slow: `soon` is not a duration such as 50ms or 2s\n\
         hint: docs/scripted-model.md explains what a script can say\n"
    );
    assert_eq!(text(&output.stderr), expected);

    let missing = ash(&["model", "--port", "0", "--script", "/nowhere/x"]).await;
    assert!(text(&missing.stderr).contains("cause: No such file"), "{}", text(&missing.stderr));

    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = ash(&["model", "--port", &port]).await;
    assert!(
        text(&output.stderr).starts_with(&format!("error: could not listen on 127.0.0.1:{port}"))
    );
    let data = dir.path().join("data");
    let output = ash(&["serve", "--port", &port, "--data-dir", data.to_str().unwrap()]).await;
    let told = text(&output.stderr);
    assert!(told.contains(&format!("could not listen on 127.0.0.1:{port}")), "{told}");
    assert!(told.contains("`--port` or ASH_PORT"), "{told}");
}

#[tokio::test]
async fn it_serves_until_it_is_told_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("demo.script");
    std::fs::write(&script, "when any\n/say by the file\n").unwrap();
    let mut child = Command::new(ASH)
        .args(["model", "--port", "0", "--no-key", "--script"])
        .arg(&script)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let start =
        "ash model: a scripted stand-in for the model API, not a model; listening on http://";
    let addr = line.strip_prefix(start).unwrap().parse().unwrap();
    let body = r#"{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}]}"#;
    let response = ask(addr, "POST /v1/messages", &["anthropic-version: 1"], body).await;
    assert_eq!(response.json()["content"][0]["text"], "by the file");
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert!(child.wait().await.unwrap().success());
    assert_eq!(lines.next_line().await.unwrap(), None);
}
