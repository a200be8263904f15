//! Programs that are not what they should be, and settings that lead nowhere.

use super::*;
use crate::api::cloud::until as until_async;

#[tokio::test]
async fn whatever_the_program_says_the_session_goes_on() {
    let Some(program) = Program::new() else { return };
    let served = program.served().await;
    let client = &served.client;
    let session = served.session().await;

    let told = say(client, &session, "/error").await;
    assert_eq!(status(&told), "failed");
    assert_eq!(named(&told, "error")[0]["error"], "the agent is not well");
    let told = say(client, &session, "/error-only").await;
    assert_eq!((status(&told), named(&told, "error").len()), ("failed", 1));
    let told = say(client, &session, "/failed").await;
    assert_eq!(named(&told, "error")[0]["error"], "it did not work");

    // An end too many belongs to nothing: neither at once, nor late.
    let told = say(client, &session, "/twice").await;
    assert_eq!((status(&told), answer(&told).as_str()), ("completed", "once"));
    assert_eq!(answer(&say(client, &session, "after two").await), "Turn 5: after two");
    say(client, &session, "/late").await;
    assert_eq!(answer(&say(client, &session, "after late").await), "Turn 7: after late");

    let told = say(client, &session, "/garbage").await;
    assert_eq!((status(&told), answer(&told).as_str()), ("completed", "after the garbage"));
    let notice = named(&told, "notice")[0]["message"].as_str().unwrap();
    assert!(notice.contains("5 lines that say nothing"), "{notice}");
    assert_eq!(named(&told, "log")[0]["text"], "a line of a log");

    let told = say(client, &session, "/large").await;
    assert_eq!((status(&told), named(&told, "report_too_large").len()), ("completed", 1));
    assert_eq!(programs(&program).len(), 1, "it is the same program");
    for (command, why) in [
        ("/die", "code 3, in the middle of a turn: something broke here"),
        ("/hang-up", "closed its connection"),
        ("/giant", "a line of more than 50 MB"),
    ] {
        let told = say(client, &session, command).await;
        assert_eq!(status(&told), "failed", "{command}");
        let said = named(&told, "error")[0]["error"]
            .as_str()
            .unwrap()
            .replace(", in the middle of a turn", "");
        let why = why.replace(", in the middle of a turn", "");
        assert!(said.contains(&why), "{command}: {said}");
        let told = say(client, &session, "and now?").await;
        assert_eq!(status(&told), "completed", "{command}");
        assert!(answer(&told).starts_with("Turn 1: "), "{command}: it is a new one");
        assert_eq!(programs(&program).len(), 1, "{command}");
    }

    // One that does not hear an interrupt is ended.
    let mut watched = client.say(&session, "/deaf").await;
    watched.until("message").await;
    client.post(&format!("/api/sessions/{session}/interrupt"), &json!({})).await.ok();
    let told = watched.all().await;
    assert_eq!(told.last().unwrap().data["stopReason"], "interrupted", "{told:#?}");
    let told = say(client, &session, "and now?").await;
    assert!(answer(&told).starts_with("Turn 1: "), "{}", answer(&told));
    served.end().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_missing_and_the_sentence_says_what_to_do() {
    for (entry, why) in [("/nowhere/bridge.js", "No such file"), ("/etc", "it is no file")] {
        let variables = vec![("ASH_BRIDGE_ENTRY", entry.to_owned())];
        let served = Served::with(With { variables, ..With::default() }).await;
        let client = &served.client;
        let deployed = super::super::served::agent(client, "coder").await;
        assert_eq!(deployed["agent"]["runtime"], "legacy");
        let problem = deployed["agent"]["problem"].as_str().unwrap();
        assert!(problem.contains(why) && problem.contains("ASH_BRIDGE_ENTRY"), "{problem}");
        let refused = client.post("/api/sessions", &json!({ "agent": "coder" })).await;
        assert_eq!(refused.refused(422), "runtime_missing");
        assert!(refused.json()["error"].as_str().unwrap().contains(why));
        let health = client.get("/health").await.ok();
        let legacy = &health["runtimes"][0];
        assert_eq!((&legacy["name"], &legacy["verified"]), (&json!("legacy"), &json!(false)));
        served.end().await;
    }
}

#[tokio::test]
async fn a_program_that_does_not_get_ready_fails_the_run() {
    let Some(program) = Program::new() else { return };
    std::fs::write(program.entry(), "console.error('no such module'); process.exit(7)").unwrap();
    let served = program.served().await;
    let client = &served.client;
    let session = served.session().await;
    for _ in 0..2 {
        let told = say(client, &session, "Hello").await;
        assert_eq!(status(&told), "failed");
        let why = named(&told, "error")[0]["error"].as_str().unwrap();
        assert!(
            why.contains("code 7 before it was ready") && why.contains("no such module"),
            "{why}"
        );
    }
    // Put right, it is taken with the next message.
    std::fs::write(program.entry(), include_bytes!("bridge.mjs")).unwrap();
    assert!(answer(&say(client, &session, "/options").await).contains("query"));
    served.end().await;
}

#[tokio::test]
async fn what_the_program_prints_is_in_the_logs() {
    let Some(program) = Program::new() else { return };
    let served = program.served().await;
    let client = &served.client;
    let session = served.session().await;
    let path = format!("/api/sessions/{session}/logs");
    let lines = async || {
        let logs = client.get(&path).await.ok();
        let lines = logs["logs"].as_array().unwrap().iter();
        let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
        lines.map(|line| (text(line, "level"), text(line, "text"))).collect::<Vec<_>>()
    };
    assert_eq!(answer(&say(client, &session, "/print").await), "printed");
    let has = async |level: &str, text: &str| {
        lines().await.contains(&(level.to_owned(), text.to_owned()))
    };
    until_async("what was printed is there", async || {
        has("stdout", "on its output").await && has("stderr", "on its error").await
    })
    .await;
    assert!(has("stderr", "in its log").await, "{:?}", lines().await);
    // What has no end yet has one when the program has.
    assert!(!has("stderr", "and without an end").await);
    client.post(&format!("/api/sessions/{session}/stop"), &json!({})).await.ok();
    client.post(&format!("/api/sessions/{session}/resume"), &json!({})).await.ok();
    let told = lines().await;
    let place = |text: &str| told.iter().position(|(_, line)| line.starts_with(text));
    assert!(place("on its error").unwrap() < place("Session resumed").unwrap(), "{told:?}");
    served.end().await;
}
