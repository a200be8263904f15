//! What a stream looks like, to the byte, and what it does when something happens on the way.

use std::process::Command;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::{Client, Frame};
use super::served::{Served, held, let_go};
use super::spawned::Spawned;
use crate::world::{bridges_of, processes_mentioning};

/// The whole log of a session, as a stream tells it.
pub(crate) async fn log(client: &Client, session: &str) -> Vec<Frame> {
    client.follow(session, "after=0&until=idle").await.all().await
}

#[tokio::test]
async fn pieces_are_told_as_the_model_tells_them_to_those_who_ask() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let path = format!("/api/sessions/{session}/messages");
    let body = json!({ "content": "Hello\n/say one two three", "includePartialMessages": true });
    let frames = client.open("POST", &path, &[], Some(&body)).await.all().await;
    let of_pieces = |frame: &&Frame| frame.data["type"] == "stream_event";
    let told: String = frames
        .iter()
        .filter(of_pieces)
        .filter_map(|frame| frame.data["event"]["delta"]["text"].as_str())
        .collect();
    assert_eq!(told, "one two three");
    for frame in frames.iter().filter(of_pieces) {
        assert_eq!((frame.event.as_str(), frame.seq()), ("message", None), "{frame:?}");
        assert_eq!(frame.data["session_id"], session.as_str());
        assert_eq!(frame.data["runId"], frames[0].data["runId"]);
    }
    // The rest is as it is for everybody, and a replay has nothing of them.
    let logged: Vec<&Frame> = frames.iter().filter(|frame| frame.seq().is_some()).collect();
    let replayed = log(client, &session).await;
    assert_eq!(replayed[replayed.len() - logged.len()..].iter().collect::<Vec<_>>(), logged);
    let usual = client.say(&session, "Hello\n/say one").await.all().await;
    assert!(!usual.iter().any(|frame| of_pieces(&frame)));
    // Who wants no pieces is told whole messages alone.
    let body = json!({ "content": "Hello\n/think Hm.\n/say one", "includePartialMessages": false });
    let whole = client.open("POST", &path, &[], Some(&body)).await.all().await;
    let names: Vec<&str> = whole.iter().map(|frame| frame.event.as_str()).collect();
    assert!(!names.iter().any(|name| name.ends_with("_delta")), "{names:?}");
    assert!(names.contains(&"message") && names.last() == Some(&"done"), "{names:?}");
    served.end().await;
}

#[tokio::test]
async fn a_run_is_told_in_frames_of_one_form() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let prompt =
        "Line\n/think Hm.\n/bash printf 'a\\nb'\n/say \"two\\nlines \\u2028 and \\\"quotes\\\"\"";
    let stream = client.say(&session, prompt).await;
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert!(stream.headers.contains(&(name.to_owned(), value.to_owned())), "{name}");
    }
    let frames = stream.all().await;
    let version = env!("CARGO_PKG_VERSION");
    let run = frames[0].data["runId"].as_str().unwrap();
    // Fields are in the order of the alphabet.
    assert_eq!(
        frames[0].raw,
        format!(
            "event: session_start\ndata: {{\"runId\":\"{run}\",\"sessionId\":\"{session}\",\"version\":\"{version}\"}}\n\n"
        )
    );
    let mut last = None;
    for frame in &frames[1..] {
        let seq = frame.seq().expect("what is in the log has an id");
        let head = format!("id: 1-{seq}\nevent: {}\ndata: ", frame.event);
        let data = frame.raw.strip_prefix(&head).unwrap_or_else(|| panic!("{frame:?}"));
        let data = data.strip_suffix("\n\n").unwrap();
        assert!(!data.contains(['\n', '\r']), "{frame:?}");
        assert!(last.is_none_or(|last| seq == last + 1), "a hole before {frame:?}");
        assert_eq!(frame.data["runId"], run, "{frame:?}");
        last = Some(seq);
    }
    let names: Vec<&str> = frames.iter().map(|frame| frame.event.as_str()).collect();
    assert_eq!(names[..2], ["session_start", "run_started"]);
    assert_eq!(names.iter().filter(|name| **name == "done").count(), 1);
    let done = frames.last().unwrap();
    assert_eq!(done.event, "done");
    assert_eq!(done.data["sessionId"], session);
    assert_eq!(done.data["stopReason"], "end_turn");
    assert!(done.data["usage"]["outputTokens"].as_u64().unwrap() > 0, "{done:?}");
    let first = frames.iter().find(|frame| frame.event == "message").unwrap();
    assert_eq!(first.data["type"], "assistant");
    assert_eq!(first.data["session_id"], session);
    let said: String = frames
        .iter()
        .filter(|frame| frame.event == "text_delta")
        .map(|frame| frame.data["delta"].as_str().unwrap())
        .collect();
    assert_eq!(said, "two\nlines \u{2028} and \"quotes\"");
    served.end().await;
}

#[tokio::test]
async fn a_log_is_told_again_from_any_place_in_it() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    client.say(&session, "one\n/bash echo 1\n/say one").await.all().await;
    client.say(&session, "two\n/say two").await.all().await;
    let whole = log(client, &session).await;
    let from_start = client.follow(&session, "until=idle").await.all().await;
    assert_eq!(whole, from_start);
    let path = format!("/api/sessions/{session}/stream?until=idle");
    for seen in 0..=whole.len() {
        let expected = &whole[seen..];
        for query in [format!("after={seen}"), format!("after=1-{seen}")] {
            let query = format!("{query}&until=idle");
            assert_eq!(client.follow(&session, &query).await.all().await, expected, "{query}");
        }
        let id = format!("last-event-id: 1-{seen}");
        let after = format!("{path}&after=0");
        let told = client.open("GET", &after, &[&id], None).await.all().await;
        assert_eq!(told, expected, "{id}");
    }
    // The lists say the same.
    let path = format!("/api/sessions/{session}");
    let events = client.get(&format!("{path}/events?limit=1000&type=all")).await.ok();
    let events = events["events"].as_array().unwrap();
    let ids: Vec<Value> = whole.iter().map(|frame| json!(frame.id)).collect();
    assert_eq!(events.iter().map(|event| event["cursor"].clone()).collect::<Vec<_>>(), ids);
    #[expect(clippy::needless_range_loop, reason = "it is a place in the log as well")]
    for after in 0..whole.len() {
        let page = client.get(&format!("{path}/events?limit=1&type=all&after={after}")).await.ok();
        assert_eq!(page["events"][0], events[after]);
    }
    // Who does not ask for them has none that a client of the original does not know.
    let known = client.get(&format!("{path}/events?limit=1000")).await.ok();
    let of = |events: &[Value]| -> Vec<String> {
        events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    };
    let known = of(known["events"].as_array().unwrap());
    let theirs = ["text", "tool_start", "tool_result", "lifecycle", "turn_complete"];
    assert!(known.iter().all(|kind| theirs.contains(&kind.as_str())), "{known:?}");
    assert!(known.iter().any(|kind| kind == "text") && known.len() < events.len(), "{known:?}");
    let stored = client.get(&path).await.ok();
    assert_eq!(stored["session"]["lastSeq"], whole.len());
    served.end().await;
}

#[tokio::test]
async fn a_cursor_that_the_log_does_not_hold_is_a_gap() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    client.say(&session, "one\n/say one").await.all().await;
    for number in 0..5 {
        let end = log(client, &session).await.len();
        let (cursor, reason) = match number {
            0 => (format!("{}", end + 1), "beyond_end"),
            1 => (format!("1-{}", end + 1), "beyond_end"),
            2 => ("9999999999999999999".to_owned(), "beyond_end"),
            3 => ("2-1".to_owned(), "other_epoch"),
            _ => ("7-99999".to_owned(), "other_epoch"),
        };
        let mut stream = client.follow(&session, &format!("after={cursor}")).await;
        let gap = stream.next().await.unwrap();
        assert_eq!((gap.event.as_str(), &gap.id), ("gap", &None), "{cursor}");
        assert_eq!(gap.data["reason"], reason, "{cursor}");
        assert!(gap.data["from"].is_string() && gap.data["to"].is_string(), "{gap:?}");
        // What follows is what comes after the place that the gap names, without a hole.
        let to = gap.data["to"].as_str().unwrap().split_once('-').unwrap().1;
        let to: usize = to.parse().unwrap();
        let run = client.say(&session, &format!("more {number}\n/say more")).await.all().await;
        let mut told = stream.until("done").await;
        while told.last().unwrap().data["runId"] != run[0].data["runId"] {
            told.extend(stream.until("done").await);
        }
        assert_eq!(told, log(client, &session).await[to..], "{cursor}: {gap:?}");
    }
    served.end().await;
}

#[tokio::test]
async fn two_messages_at_once_are_two_streams_that_do_not_mix() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let mut first = client.say(&session, &held("First")).await;
    let mut begun = first.until("tool_use").await;
    let mut second = client.say(&session, "Second\n/say second").await;
    let mut third = client.say(&session, "Third\n/say third").await;
    let mut waiting = Vec::new();
    for (stream, position) in [(&mut second, 1), (&mut third, 2)] {
        let start = stream.next().await.unwrap();
        let queued = stream.next().await.unwrap();
        assert_eq!((start.event.as_str(), queued.event.as_str()), ("session_start", "run_queued"));
        assert_eq!(queued.data["position"], position);
        waiting.push(vec![start, queued]);
    }
    let_go(client, &session).await;
    begun.extend(first.all().await);
    waiting[0].extend(second.all().await);
    waiting[1].extend(third.all().await);
    for (frames, word) in [(&begun, "over"), (&waiting[0], "second"), (&waiting[1], "third")] {
        let run = &frames[0].data["runId"];
        assert!(frames.iter().all(|frame| &frame.data["runId"] == run), "{frames:#?}");
        let said: Vec<&str> =
            frames.iter().filter_map(|frame| frame.data["delta"].as_str()).collect();
        assert_eq!(said.concat(), word);
        assert_eq!(frames.last().unwrap().data["stopReason"], "end_turn");
    }
    // One after the other, and all of it in one log.
    let of = |frames: &[Frame]| frames.iter().filter_map(Frame::seq).collect::<Vec<_>>();
    let (one, two, three) = (of(&begun), of(&waiting[0]), of(&waiting[1]));
    assert!(one.last() < two.first() && two.last() < three.first(), "{one:?} {two:?} {three:?}");
    served.end().await;
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_stop_the_run() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let mut watched = client.say(&session, &held("Wait")).await;
    let seen = watched.until("tool_use").await;
    drop(watched);
    let last = seen.last().unwrap().id.clone().unwrap();
    let mut follow = client.follow(&session, &format!("after={last}&until=idle")).await;
    let_go(client, &session).await;
    let rest = follow.until("done").await;
    assert_eq!(rest.last().unwrap().data["stopReason"], "end_turn");
    assert_eq!(follow.next().await, None);
    served.end().await;
}

#[tokio::test]
async fn an_interrupted_run_says_so() {
    let served = Served::start().await;
    let client = &served.client;
    let (session, watched) = served.busy().await;
    let answer = client.ask("POST", &format!("/api/sessions/{session}/interrupt"), &[], None).await;
    assert_eq!(answer.ok()["run"]["status"], "cancelled");
    let done = watched.all().await.pop().unwrap();
    assert_eq!((done.event.as_str(), &done.data["stopReason"]), ("done", &json!("interrupted")));
    // The session goes on.
    let next = client.say(&session, "next\n/say fine").await.all().await;
    assert_eq!(next.last().unwrap().data["stopReason"], "end_turn");
    served.end().await;
}

/// Kills the bridges of a server with -9.
fn kill_bridges(dir: &std::path::Path) {
    let plain = processes_mentioning(dir.as_os_str()).into_iter().filter(|pid| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        program.ends_with("ash-bridge")
    });
    for pid in plain.chain(bridges_of(&dir.join("data"))) {
        let _ended_already = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
}

#[tokio::test]
async fn a_sandbox_that_dies_in_the_middle_is_told_and_not_waited_for() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let mut follow = client.follow(&session, "after=0").await;
    let mut watched = client.say(&session, &held("Wait")).await;
    watched.until("tool_use").await;
    kill_bridges(&served.dir);
    let rest = watched.all().await;
    let names: Vec<&str> = rest.iter().map(|frame| frame.event.as_str()).collect();
    let error =
        rest.iter().find(|frame| frame.event == "error").unwrap_or_else(|| panic!("{names:?}"));
    assert_eq!(error.data["code"], "sandbox_died");
    assert!(!error.data["error"].as_str().unwrap().is_empty());
    let done = rest.last().unwrap();
    assert_eq!((done.event.as_str(), &done.data["stopReason"]), ("done", &json!("error")));
    follow.until("session_failed").await;
    let path = format!("/api/sessions/{session}");
    let failed = client.get(&path).await.ok();
    assert_eq!(failed["session"]["status"], "error");
    assert_eq!(failed["session"]["error"]["code"], "sandbox_died");
    let refused = client.post(&format!("{path}/messages"), &json!({ "content": "x" })).await;
    refused.refused(400);
    assert_eq!(refused.json()["error"], "Session is error");
    let back = client.ask("POST", &format!("{path}/resume"), &[], None).await.ok();
    assert_eq!(
        (&back["session"]["status"], &back["resume"]["path"]),
        (&json!("active"), &json!("cold"))
    );
    let next = client.say(&session, "next\n/recall").await.all().await;
    let said: Vec<&str> = next.iter().filter_map(|frame| frame.data["delta"].as_str()).collect();
    assert!(said.concat().contains("Wait"), "{said:?}");
    served.end().await;
}

#[tokio::test]
async fn a_stream_ends_when_its_session_does() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let follow = client.follow(&session, "").await;
    client.delete(&format!("/api/sessions/{session}")).await.ok();
    assert_eq!(follow.all().await.last().unwrap().event, "session_ended");
    assert_eq!(
        client.follow(&session, "").await.all().await.last().unwrap().event,
        "session_ended"
    );
    let other = served.session().await;
    let follow = client.follow(&other, "").await;
    client.delete("/api/agents/coder").await.ok();
    let names: Vec<String> = follow.all().await.into_iter().map(|frame| frame.event).collect();
    assert!(names.contains(&"session_active".to_owned()), "{names:?}");
    let gone = client.get(&format!("/api/sessions/{other}")).await;
    assert_eq!(gone.refused(404), "not_found");
    served.end().await;
}

#[tokio::test]
async fn a_server_on_its_way_out_sends_streams_elsewhere_and_leaves_the_run_alone() {
    let mut spawned = Spawned::start().await;
    let client = spawned.client.clone();
    let session = super::served::session(&client).await;
    let mut watched = client.say(&session, &held("Wait")).await;
    let mut seen = watched.until("tool_use").await;
    // A request that is not whole yet when the server is told to go.
    let mut late = TcpStream::connect(client.address).await.unwrap();
    late.write_all(b"GET /health/ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n")
        .await
        .unwrap();
    let told = Command::new("kill").args(["-TERM", &spawned.pid().to_string()]).status().unwrap();
    assert!(told.success());
    let reconnect = watched.all().await.pop().unwrap();
    assert_eq!((reconnect.event.as_str(), &reconnect.id), ("reconnect", &None));
    assert_eq!(reconnect.data["reason"], "draining");
    late.write_all(b"\r\n").await.unwrap();
    let mut answer = String::new();
    late.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(
        answer.contains("\"code\":\"draining\"") && answer.contains("retry-after: 1"),
        "{answer}"
    );
    assert!(spawned.wait(), "{}", spawned.said());
    // The next one has the run, and the client its cursor.
    spawned.restart();
    let client = spawned.client.clone();
    let cursor = reconnect.data["cursor"].as_str().unwrap().to_owned();
    let mut follow = client.follow(&session, &format!("after={cursor}")).await;
    let_go(&client, &session).await;
    seen.extend(follow.until("done").await);
    assert_eq!(seen.last().unwrap().data["stopReason"], "end_turn");
    let logged: Vec<u64> = seen.iter().filter_map(Frame::seq).collect();
    assert!(logged.windows(2).all(|pair| pair[1] == pair[0] + 1), "{logged:?}");
    spawned.end().await;
}

#[tokio::test]
async fn what_was_thought_in_one_go_is_one_event_of_a_list() {
    let served = Served::start().await;
    let client = &served.client;
    let session = served.session().await;
    let prompt = "Go.\n/slow 30ms\n/think one two three four five six\n/say ok";
    client.say(&session, prompt).await.all().await;
    let list = async |query: &str| -> Vec<Value> {
        let path = format!("/api/sessions/{session}/events?{query}");
        client.get(&path).await.ok()["events"].as_array().unwrap().clone()
    };
    let told =
        |event: &Value| -> Value { serde_json::from_str(event["data"].as_str().unwrap()).unwrap() };
    let thoughts = list("type=reasoning").await;
    let [thought] = &thoughts[..] else { panic!("one thought: {thoughts:?}") };
    assert_eq!(told(thought)["thinking"], "one two three four five six");
    let mut pieces = list("type=all").await;
    pieces.retain(|event| event["type"] == "reasoning");
    let of_pieces = |pieces: &[Value]| -> String {
        pieces.iter().map(|piece| told(piece)["text"].as_str().unwrap().to_owned()).collect()
    };
    assert!(pieces.len() > 1, "{pieces:?}");
    assert_eq!(of_pieces(&pieces), told(thought)["text"].as_str().unwrap());
    assert_eq!(pieces.last().unwrap()["sequence"], thought["sequence"]);
    // Who has some of it is told the rest.
    let rest = list(&format!("type=reasoning&after={}", pieces[0]["sequence"])).await;
    assert_eq!(told(&rest[0])["text"], of_pieces(&pieces[1..]));
    // Page by page it is the same list.
    let (whole, mut paged, mut after) = (list("limit=1000").await, Vec::new(), 0);
    while let Some(event) = list(&format!("limit=1&after={after}")).await.pop() {
        after = event["sequence"].as_u64().unwrap();
        paged.push(event);
    }
    assert_eq!(paged, whole);
    served.end().await;
}
