//! A disk that is full, and one that cannot be written to.

use std::path::Path;

use serde_json::{Value, json};

use super::client::Client;
use super::served::session;
use super::spawned::Spawned;

/// Twenty megabytes that take little room in a snapshot.
const LARGE: &str = "My name is Ada.\n/bash yes 0123456789 | head -c 20000000 >large";

/// Fills the disk, and whatever becomes free on it, and does not end by itself.
const FILL: &str = "/tool bash {\"command\": \"while :; do cat /dev/zero >>fill 2>/dev/null; sleep 0.1; done\",     \"timeoutMs\": 600000}";

async fn say(client: &Client, session: &str, prompt: &str) -> String {
    let frames = client.say(session, prompt).await.all().await;
    assert_eq!(frames.last().unwrap().event, "done", "{frames:#?}");
    frames.into_iter().map(|frame| frame.raw).collect()
}

async fn post(client: &Client, session: &str, what: &str) -> Value {
    client.post(&format!("/api/sessions/{session}/{what}"), &json!({})).await.ok()
}

#[tokio::test]
async fn a_disk_that_is_full_ends_no_session_and_room_is_made() {
    // A hundred and more are needed before room is kept for records.
    let Some(server) = Spawned::on_a_small_disk(256, &[("ASH_MIN_FREE_MB", "40")]).await else {
        return eprintln!("not tried: nothing can be mounted here");
    };
    let client = server.client.clone();
    let (rests, fills) = (session(&client).await, session(&client).await);
    say(&client, &rests, LARGE).await;
    post(&client, &rests, "stop").await;
    super::cloud::until("it is captured", async || {
        let session = client.get(&format!("/api/sessions/{rests}")).await.ok()["session"].clone();
        session["snapshot"]["files"].as_u64().is_some_and(|files| files > 0)
    })
    .await;
    super::cloud::until("room is kept", async || seen(&server, "reserve")).await;
    // It takes everything there is. Whatever becomes of its turn, that is recorded.
    let frames = client.say(&fills, "/bash cat /dev/zero >fill; true").await.all().await;
    assert!(matches!(&*frames.last().unwrap().event, "done" | "error"), "{frames:#?}");
    let large = format!("sandboxes/{rests}/workspace/large");
    super::cloud::until("room is made", async || {
        // Whatever is recorded finds the disk full, until there is room.
        client.post(&format!("/api/sessions/{fills}/resume"), &json!({})).await;
        !seen(&server, &large)
    })
    .await;
    // What was removed comes back, once there is room for it.
    super::cloud::until("the other one is back", async || {
        client.post(&format!("/api/sessions/{fills}/resume"), &json!({})).await.status == 200
    })
    .await;
    let command = json!({ "command": "rm fill" });
    client.post(&format!("/api/sessions/{fills}/exec"), &command).await.ok();
    let receipt = post(&client, &rests, "resume").await["resume"].clone();
    assert_eq!(receipt["workspace"], "restored", "{receipt}");
    let said = say(&client, &rests, "Who am I?\n/recall\n/bash wc -c <large").await;
    assert!(said.contains("My name is Ada.") && said.contains("20000000"), "{said}");
    server.end().await;
}

#[tokio::test]
async fn a_sandbox_that_goes_on_filling_the_disk_is_ended_so_that_the_server_goes_on() {
    let Some(server) = Spawned::on_a_small_disk(256, &[("ASH_MIN_FREE_MB", "0")]).await else {
        return eprintln!("not tried: nothing can be mounted here");
    };
    let client = server.client.clone();
    let fills = session(&client).await;
    super::cloud::until("room is kept", async || {
        seen(&server, "reserve") && seen(&server, "reserve.last")
    })
    .await;
    let filling = client.say(&fills, FILL).await;
    // Something has to be recorded meanwhile, so that it is found out.
    let nudging = async {
        let path = format!("/api/sessions/{fills}/config");
        for number in 0_u64.. {
            let change = json!({ "title": format!("title {number}") });
            client.ask("PATCH", &path, &[], Some(&change)).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let frames = tokio::select! {
        frames = filling.all() => frames,
        () = nudging => unreachable!("it never ends"),
    };
    assert!(matches!(&*frames.last().unwrap().event, "done" | "error"), "{frames:#?}");
    super::cloud::until("everything can be recorded", async || {
        let health = client.get("/health").await;
        assert_eq!(health.ok()["status"], "ok");
        health.json()["canRecord"] == true && client.get("/health/ready").await.status == 200
    })
    .await;
    super::cloud::until("it does not run any more", async || {
        let session = client.get(&format!("/api/sessions/{fills}")).await.ok()["session"].clone();
        session["status"] == "error" || session["status"] == "paused"
    })
    .await;
    assert!(seen(&server, &format!("sandboxes/{fills}/workspace/fill")), "its files stay");
    server.end().await;
}

/// Whether something of its data is there. Only a process of its namespace sees it.
fn seen(server: &Spawned, name: &str) -> bool {
    let data = server.dir.path().join("data");
    Path::new(&format!("/proc/{}/root{}", server.pid(), data.display())).join(name).exists()
}

#[tokio::test]
async fn a_server_whose_data_cannot_be_written_to_says_so_and_the_next_one_has_everything() {
    let mut server = Spawned::start().await;
    let of = session(&server.client).await;
    say(&server.client, &of, "My name is Ada.\n/bash echo one >a").await;
    post(&server.client, &of, "stop").await;
    server.stop();
    let Some(said) = server.try_read_only() else {
        return eprintln!("not tried: nothing can be mounted here");
    };
    assert!(said.contains("error: ") && said.contains("Read-only file system"), "{said}");
    server.start_again();
    post(&server.client, &of, "resume").await;
    let said = say(&server.client, &of, "Who am I?\n/recall\n/bash cat a").await;
    assert!(said.contains("My name is Ada.") && said.contains("one"), "{said}");
    server.end().await;
}

/// A server is killed on a disk that is full to the last byte, and the next one is asked whether it is well.
const KILLED_WHEN_FULL: &str = r#"
set -eu
mount -t tmpfs -o "size=$SIZE" tmpfs "$HOME"
trap 'kill -9 $server 2>/dev/null || true' EXIT
serve() {
    "$0" serve --dangerously-no-sandbox > "$HOME/said" 2>&1 &
    server=$!
    for _ in $(seq 300); do
        if "$0" health > "$HOME/health" 2>&1; then return 0; fi
        kill -0 $server || break
        sleep 0.1
    done
    cat "$HOME/said"
    return 1
}
serve
for _ in $(seq 300); do if [ -e data/reserve.last ]; then break; fi; sleep 0.1; done
[ -e data/reserve ]
cat /dev/zero > "$HOME/fill" 2>/dev/null || true
kill -9 $server
wait $server || true
# Nothing can be written, not even that.
if echo more > "$HOME/more" 2>/dev/null; then exit 3; fi
serve
[ ! -e data/reserve ]
kill $server
wait $server
"#;

#[tokio::test]
async fn a_server_that_was_killed_on_a_full_disk_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let unshare = |flags: &str, script: &str| {
        let mut unshare = tokio::process::Command::new("unshare");
        unshare.args([flags, "sh", "-c", script, env!("CARGO_BIN_EXE_ash")]);
        unshare.env("HOME", &home).env("ASH_DATA_DIR", home.join("data")).env("ASH_PORT", &port);
        unshare.env("ASH_MIN_FREE_MB", "0").current_dir(&home);
        unshare
    };
    for flags in ["-m", "-rm"] {
        let probe = unshare(flags, "mount -t tmpfs tmpfs \"$HOME\"").output().await;
        if probe.is_ok_and(|probe| probe.status.success()) {
            let script = KILLED_WHEN_FULL.replace(" data/", " \"$HOME\"/data/");
            for size in ["300m", "64m"] {
                let done = unshare(flags, &script).env("SIZE", size).output().await.unwrap();
                assert!(done.status.success(), "{size}: {done:?}");
            }
            return;
        }
    }
    eprintln!("not tried: nothing can be mounted here");
}
