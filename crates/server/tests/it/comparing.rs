//! What `make bench-compare` measures, played once against two servers of ours.

use std::path::Path;

use serde_json::Value;
use tokio::process::Command;

use crate::api::served::Served;
use crate::world::bridge_program;

/// The last thing that is measured at all, and some of each kind before it.
const MEASURED: [&str; 6] = [
    "create a session",
    "message: done",
    "resume, warm",
    "resume, cold",
    "1,000 files, 50 MB: another request, longest",
    "messages, 4 sessions at once",
];

fn compare() -> Command {
    bridge_program();
    let programs = Path::new(env!("CARGO_BIN_EXE_ash")).parent().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut compare = Command::new("python3");
    compare.arg(root.join("benches/compare/compare.py")).arg(programs);
    compare.env("ASH_MIN_FREE_MB", "0");
    compare
}

#[tokio::test]
async fn two_servers_are_measured_side_by_side() {
    let base = Served::start().await;
    let figures = base.dir.join("figures.json");
    let mut compare = compare();
    let url = format!("http://{}", base.client.address);
    compare.args(["--rounds", "1", "--base", &url, "--key", &base.client.key]).arg("--json");
    let output = compare.arg(&figures).output().await.unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("how many times better ours is"), "{told}");
    let figures: Value = serde_json::from_slice(&std::fs::read(figures).unwrap()).unwrap();
    for what in MEASURED {
        for server in ["ours", "base"] {
            let values = figures[what]["of"][server].as_array();
            let is_measured = values.is_some_and(|values| {
                !values.is_empty() && values.iter().all(|value| value.as_f64() > Some(0.0))
            });
            assert!(is_measured, "{what} of {server}: {values:?}");
        }
        let row = told.lines().find(|line| line.starts_with(what)).unwrap();
        assert!(row.trim_end().ends_with('x'), "{row}");
    }
    base.end().await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_named() {
    let output = compare().args(["--base", "http://127.0.0.1:1"]).output().await.unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("http://127.0.0.1:1 does not answer"), "{told}");
}

#[tokio::test]
async fn what_is_no_address_is_said_to_be_none() {
    for address in ["nonsense", "https://127.0.0.1", "http://127.0.0.1:99999"] {
        let output = compare().args(["--base", address]).output().await.unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("error: --base: ") && !told.contains("Traceback"), "{told}");
    }
}

#[tokio::test]
async fn a_difference_that_cannot_be_told_is_not_shown_as_a_figure() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let script = "import compare, memory\n\
                  for after in ((995, 2), (900, 2)):\n    \
                  print(compare.shown(memory.taken((1000, 4), after), 'MB'))";
    let mut python = Command::new("python3");
    python.args(["-c", script]).current_dir(root.join("benches/compare"));
    let output = python.env("PYTHONDONTWRITEBYTECODE", "1").output().await.unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "too small to tell\n100 MB\n", "{}", String::from_utf8_lossy(&output.stderr));
}
