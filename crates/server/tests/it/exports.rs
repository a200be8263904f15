//! `ash session export` and `import`, as a person and a script meet them.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::json;

use crate::commands::{ID, Machine, session, text};
use crate::fake::{Answer, Asked, Fake, problem};

/// A server with one session, whose bundle is said by `bundle`.
async fn with_bundle(bundle: Answer) -> Fake {
    Fake::start(move |asked: &Asked, _| match asked.line.as_str() {
        line if line.contains("/export") => bundle.clone(),
        "POST /api/sessions/import" => Answer::Json(201, json!({ "session": session(ID) })),
        _ => Answer::Json(200, json!({ "sessions": [session(ID)], "nextCursor": null })),
    })
    .await
}

#[tokio::test]
async fn a_session_is_written_to_a_file_that_only_its_owner_reads() {
    let fake = with_bundle(Answer::Stream("the bundle".to_owned())).await;
    let machine = Machine::new();
    let home = machine.home.path();
    let output = machine.ash(&fake, &["session", "export", "0192"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let name = format!("{ID}.tar");
    assert_eq!(std::fs::read_to_string(home.join(&name)).unwrap(), "the bundle");
    let mode = std::fs::metadata(home.join(&name)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(text(&output.stderr), format!("{name}: 10 B\n"));

    let args = ["session", "export", ID, "--history", "-o", "there.tar", "--json"];
    let output = machine.ash(&fake, &args).await;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told, json!({ "file": "there.tar", "bytes": 10 }));
    assert!(home.join("there.tar").exists());
    let asked = fake.lines();
    assert_eq!(asked.last().unwrap(), &format!("GET /api/sessions/{ID}/export?history=true"));

    let output = machine.ash(&fake, &["session", "export", ID, "-o", "-"]).await;
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("the bundle".into(), String::new()));
}

#[tokio::test]
async fn a_bundle_that_is_cut_off_is_no_file() {
    let fake = with_bundle(Answer::Cut("the bun".to_owned())).await;
    let machine = Machine::new();
    std::fs::write(machine.home.path().join("a.tar"), "an earlier one").unwrap();
    let output = machine.ash(&fake, &["session", "export", ID, "-o", "a.tar"]).await;
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let left = std::fs::read_dir(machine.home.path()).unwrap().count();
    assert_eq!(left, 1, "nothing lies about");
    let earlier = std::fs::read_to_string(machine.home.path().join("a.tar")).unwrap();
    assert_eq!(earlier, "an earlier one");
    let fake = with_bundle(problem(409, "no_saved_state", "nothing was captured yet")).await;
    let output = machine.ash(&fake, &["session", "export", ID]).await;
    assert_eq!(output.status.code(), Some(5));
    assert!(text(&output.stderr).starts_with("error: nothing was captured yet\n"));
}

#[tokio::test]
async fn a_session_is_imported_from_a_file_or_from_standard_input() {
    let fake = with_bundle(Answer::Nothing).await;
    let machine = Machine::new();
    let path = machine.home.path().join("a.tar");
    std::fs::write(&path, "the bundle").unwrap();
    let output = machine.ash(&fake, &["session", "import", "a.tar"]).await;
    assert_eq!(text(&output.stdout), format!("{ID} is active\n"), "{}", text(&output.stderr));
    let asked = &fake.asked()[0];
    assert_eq!(
        (asked.line.as_str(), asked.body.as_str()),
        ("POST /api/sessions/import", "the bundle")
    );
    assert_eq!(asked.header("content-type"), Some("application/x-tar"));
    assert!(asked.header("idempotency-key").is_some());

    let mut command = machine.command(&["session", "import", "-", "--json"]);
    command.env("ASH_SERVER_URL", fake.url()).env("ASH_API_KEY", "k");
    command.stdin(Stdio::from(std::fs::File::open(&path).unwrap()));
    let output = command.output().await.unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["session"]["id"], ID);
    assert_eq!(fake.asked()[1].body, "the bundle");

    for (from, why) in [("nowhere.tar", "could not open nowhere.tar"), (".", ". is a directory")] {
        let output = machine.ash(&fake, &["session", "import", from]).await;
        assert_ne!(output.status.code(), Some(0));
        assert!(text(&output.stderr).starts_with(&format!("error: {why}")), "{from}");
    }
}

#[tokio::test]
async fn a_file_is_sent_again_when_the_connection_breaks_and_is_the_same_request() {
    let fake = Fake::start(|_, before| match before {
        0 => Answer::Nothing,
        _ => Answer::Json(201, json!({ "session": session(ID) })),
    })
    .await;
    let machine = Machine::new();
    std::fs::write(machine.home.path().join("a.tar"), "the bundle").unwrap();
    let output = machine.ash(&fake, &["session", "import", "a.tar"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let asked = fake.asked();
    let [first, second] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!((&first.body, &second.body), (&"the bundle".to_owned(), &"the bundle".to_owned()));
    assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"));
}

#[tokio::test]
async fn what_a_session_from_the_bucket_lacks_is_told_beside_the_result() {
    let lost = "turn 3 could not be read in the bucket, and is missing";
    let fake = Fake::start(move |_, _| {
        Answer::Json(201, json!({ "session": session(ID), "warnings": [lost] }))
    })
    .await;
    let machine = Machine::new();
    for json in [false, true] {
        let args = ["session", "import", ID, "--json"];
        let output = machine.ash(&fake, &args[..if json { 4 } else { 3 }]).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr), format!("warning: {lost}\n"));
        let said = text(&output.stdout);
        match json {
            true => assert!(said.contains(lost), "{said}"),
            false => assert_eq!(said, format!("{ID} is active\n")),
        }
    }
}
