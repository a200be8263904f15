//! `ash session files` and `ash session cp`, against a whole server and against one that lies.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Stdio;

use ash_server::api::{FileInfo, NewFile, WriteFiles};
use ash_server::client::{Client, Transfer};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::api::served::Served;
use crate::commands::{ID, Machine, text};
use crate::fake::{Answer, Fake};

/// Runs a command against a server, with something on its standard input.
async fn ash(
    machine: &Machine,
    served: &Served,
    args: &[&str],
    input: &[u8],
) -> (Option<i32>, Vec<u8>, String) {
    let mut command = machine.command(args);
    command.env("ASH_SERVER_URL", format!("http://{}", served.client.address));
    command.env("ASH_API_KEY", &served.client.key);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _not_wanted = stdin.write_all(input).await;
    drop(stdin);
    let output = child.wait_with_output().await.unwrap();
    (output.status.code(), output.stdout, text(&output.stderr))
}

#[tokio::test]
async fn files_go_in_and_out_as_they_are() {
    let served = Served::start().await;
    let session = served.session().await;
    let machine = Machine::new();
    let home = machine.home.path();
    let at = |path: &str| format!("{session}:{path}");
    fs::create_dir_all(home.join("tree/sub/.git")).unwrap();
    fs::write(home.join("tree/sub/bytes"), [0, 255, 10]).unwrap();
    fs::write(home.join("tree/sub/.git/HEAD"), "ref").unwrap();
    fs::write(home.join("tree/run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(home.join("tree/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("/etc/passwd", home.join("tree/link")).unwrap();
    let (code, _, told) = ash(&machine, &served, &["session", "cp", "tree", &at("")], b"").await;
    assert_eq!((code, told.as_str()), (Some(0), "copied 3 files, 16 B\n"));
    let (code, _, told) =
        ash(&machine, &served, &["session", "cp", "-", &at("in.txt")], b"piped").await;
    assert_eq!(code, Some(0), "{told}");
    let (code, out, _) = ash(&machine, &served, &["session", "cp", &at("in.txt"), "-"], b"").await;
    assert_eq!((code, out.as_slice()), (Some(0), &b"piped"[..]));
    let (code, _, told) =
        ash(&machine, &served, &["session", "cp", &at("tree"), "back"], b"").await;
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(fs::read(home.join("back/sub/bytes")).unwrap(), [0, 255, 10]);
    assert_eq!(fs::read_to_string(home.join("back/sub/.git/HEAD")).unwrap(), "ref");
    let mode = fs::metadata(home.join("back/run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o100, 0o100);
    fs::create_dir(home.join("dir")).unwrap();
    ash(&machine, &served, &["session", "cp", &at("in.txt"), "dir"], b"").await;
    assert_eq!(fs::read_to_string(home.join("dir/in.txt")).unwrap(), "piped");
    // Lists.
    let (code, out, _) = ash(&machine, &served, &["session", "files", &session], b"").await;
    let out = text(&out);
    assert_eq!(code, Some(0));
    assert!(out.starts_with("SIZE") && out.contains("tree/sub/bytes") && !out.contains(".git"));
    let (_, out, _) =
        ash(&machine, &served, &["session", "files", &session, "--all", "--json"], b"").await;
    let listed: Value = serde_json::from_slice(&out).unwrap();
    assert!(listed.to_string().contains("tree/sub/.git/HEAD"), "{listed}");
    let (_, out, _) = ash(&machine, &served, &["session", "files", &session, "in.txt"], b"").await;
    assert_eq!(out, b"piped");
    // What is not there, and what makes no sense.
    let (code, _, _) = ash(&machine, &served, &["session", "cp", &at("nothing"), "x"], b"").await;
    assert_eq!(code, Some(4));
    for wrong in [["a", "b"], [&at("a"), &at("b")]] {
        let (code, _, _) =
            ash(&machine, &served, &["session", "cp", wrong[0], wrong[1]], b"").await;
        assert_eq!(code, Some(2));
    }
    let (code, _, told) = ash(&machine, &served, &["session", "cp", "-", &at("tree")], b"x").await;
    assert_eq!(code, Some(5));
    assert!(told.starts_with("tree was not copied: Path is not a file\n"), "{told}");
    served.end().await;
}

#[tokio::test]
async fn a_server_that_lies_writes_nowhere_else() {
    let file =
        |path: &str| json!({ "path": path, "size": 4, "modifiedAt": "2026-11-16T08:15:30.250Z" });
    let files = json!([
        file("../evil"),
        file("/evil"),
        file("a/../../evil"),
        file("link/evil"),
        file("good")
    ]);
    let fake = Fake::start(move |asked, _| match asked.line.contains("/files?") {
        true => Answer::Json(200, json!({ "files": files, "source": "sandbox" })),
        false => Answer::Json(200, json!(11)),
    })
    .await;
    let machine = Machine::new();
    let home = machine.home.path();
    fs::create_dir_all(home.join("inside/target")).unwrap();
    symlink("../..", home.join("inside/target/link")).unwrap();
    let from = format!("{ID}:dir");
    let output = machine.ash(&fake, &["session", "cp", &from, "inside/target"]).await;
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(home.join("inside/target/good")).unwrap(), "11");
    assert!(!home.join("evil").exists() && !home.join("inside/evil").exists());
    assert_eq!(fs::read_dir(home.join("inside")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(home.join("inside/target")).unwrap().count(), 3);
}

#[tokio::test]
async fn what_is_sent_and_what_comes_is_counted_by_bytes() {
    let fake = Fake::start(|asked, _| match asked.line.starts_with("POST ") {
        true => Answer::Json(200, json!({ "files": [], "source": "sandbox" })),
        false => Answer::Json(200, json!("x".repeat(100_000))),
    })
    .await;
    let client = Client::new(&fake.url(), None).unwrap();
    let (id, transfer) = (ID.parse().unwrap(), Transfer::default());
    let file = NewFile { path: "a".into(), content: "eHh4".repeat(50_000), executable: None };
    let files = WriteFiles { files: vec![file], target_path: None };
    client.write_files(id, &files, &transfer).await.unwrap();
    let sent = fake.asked()[0].body.len() as u64;
    assert!(sent > 200_000);
    assert_eq!(transfer.so_far(), (sent, sent));
    let file = json!({ "path": "a", "size": 7, "modifiedAt": "2026-11-16T08:15:30.250Z" });
    let file: FileInfo = serde_json::from_value(file).unwrap();
    let content = client.file(id, &file, &transfer).await.unwrap();
    // With its quotes.
    assert_eq!((content.len(), transfer.so_far()), (100_002, (100_002, 100_002)));
}
