//! Permission questions at the command line.

use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::served::{Served, agent};
use crate::commands::{Machine, text};

struct Person<'a> {
    machine: Machine,
    served: &'a Served,
}

impl Person<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.machine.command(args);
        let client = &self.served.client;
        command.env("ASH_SERVER_URL", format!("http://{}", client.address));
        command.env("ASH_API_KEY", &client.key);
        command
    }

    async fn ash(&self, args: &[&str]) -> Output {
        self.command(args).output().await.unwrap()
    }

    async fn said(&self, args: &[&str]) -> String {
        let output = self.ash(args).await;
        assert!(output.status.success(), "{args:?}: {output:?}");
        text(&output.stdout).trim().to_owned()
    }
}

#[tokio::test]
async fn whoever_sends_from_a_script_is_told_how_to_answer() {
    let served = Served::start().await;
    agent(&served.client, "coder").await;
    let person = Person { machine: Machine::new(), served: &served };
    let id = person.said(&["session", "create", "coder", "--permission-mode", "default"]).await;
    let mut sending = person.command(&["session", "send", &id, "/bash touch made\n/results"]);
    let mut sending = sending.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(sending.stderr.take().unwrap()).lines();
    let mut question = None;
    while let Some(line) = told.next_line().await.unwrap() {
        if let Some(how) = line.trim().strip_prefix("answer with: ash session allow ") {
            question = how.split(' ').nth(1).map(str::to_owned);
            break;
        }
    }
    let question = question.expect("it says how to answer");

    let table = person.said(&["session", "permissions", &id]).await;
    assert!(table.contains(&question) && table.contains("bash touch made"), "{table}");
    let listed = person.said(&["session", "permissions", &id, "--json"]).await;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["permissions"][0]["id"], question.as_str());
    assert!(person.said(&["session", "show", &id]).await.contains("1 question"));
    let wrong = person.ash(&["session", "allow", &id, "zzzz"]).await;
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let wrong = person.ash(&["session", "allow", &id, &question, "--input", "[1]"]).await;
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");

    let allowed = person
        .said(&[
            "session",
            "allow",
            &id,
            &question[..8],
            "--input",
            r#"{"command": "echo instead"}"#,
        ])
        .await;
    assert_eq!(allowed, format!("{question}: allowed"));
    let sent = sending.wait_with_output().await.unwrap();
    assert!(sent.status.success(), "{sent:?}");
    assert!(text(&sent.stdout).contains("instead"), "{sent:?}");

    let late = person.ash(&["session", "deny", &id, &question, "--message", "no"]).await;
    assert!(!late.status.success());
    assert!(text(&late.stderr).contains("not open any more"), "{late:?}");
    served.end().await;
}
