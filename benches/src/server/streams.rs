//! Many streams at once: turns that are told, and followers that watch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::client::{self, Client};
use super::{AT_A_TIME, Stage};
use crate::figures::{Figures, heading, millis};
use crate::model::{Model, Pace};

const TURNS: usize = 50;
const FOLLOWERS: usize = 1_000;

/// What a client saw of a turn.
struct Seen {
    /// From the model's byte to the client's, for each delta.
    each: Vec<Duration>,
    logged: usize,
    last: Instant,
}

/// Reads a stream until the run is over.
async fn watch(client: &mut Client, model: &Model) -> Seen {
    let mut seen = Seen { each: Vec::new(), logged: 0, last: Instant::now() };
    while let Some(event) = client.event().await {
        seen.last = Instant::now();
        seen.logged += usize::from(event.is_logged);
        if event.name == "text_delta" {
            let departures = model.departures(&event.data).into_iter();
            seen.each.extend(departures.map(|from| seen.last - from));
        }
        if event.name == "done" {
            break;
        }
    }
    seen
}

/// Fifty turns at once, at the pace of a model and as fast as it goes.
pub(super) async fn turns(stage: &Stage, sessions: &[String]) {
    heading("50 turns streaming at once, from the model's byte to the client's");
    let calm = Pace { deltas: 200, apart: Duration::from_millis(20) };
    play(stage, sessions, calm, "a delta each 20 ms").await;
    let flood = Pace { deltas: 5_000, apart: Duration::ZERO };
    play(stage, sessions, flood, "as fast as they go").await;
}

async fn play(stage: &Stage, sessions: &[String], pace: Pace, what: &str) {
    stage.model.answer_with(pace);
    let used = stage.server.used();
    let begin = Instant::now();
    let mut turns = JoinSet::new();
    for session in sessions.iter().take(TURNS) {
        let (address, model) = (stage.server.address, Arc::clone(&stage.model));
        let request = client::send(session);
        turns.spawn(async move {
            let mut client = Client::connect(address).await;
            client.open(&request).await;
            watch(&mut client, &model).await
        });
    }
    let seen = turns.join_all().await;
    let took = begin.elapsed();
    let used = stage.server.used() - used;
    let logged: usize = seen.iter().map(|turn| turn.logged).sum();
    let each: Vec<Duration> = seen.into_iter().flat_map(|turn| turn.each).collect();
    assert_eq!(each.len(), pace.deltas * TURNS, "every delta arrived");
    Figures::new(each, took).print(&format!("deltas, {what}"));
    println!(
        "committed events: {logged} in {}, {:.0}/s; the server used {} of processor time",
        millis(took),
        logged as f64 / took.as_secs_f64(),
        millis(used),
    );
}

/// A thousand followers of one session.
pub(super) async fn followers_of_one(stage: &Stage, session: &str) {
    heading("1,000 followers on one session");
    let pace = Pace { deltas: 100, apart: Duration::from_millis(20) };
    let sessions = vec![session.to_owned(); FOLLOWERS];
    follow(stage, &sessions, &sessions[..1], pace).await;
}

/// A thousand followers, each on a session of its own.
pub(super) async fn followers_of_many(stage: &Stage, sessions: &[String]) {
    heading("1,000 followers on 1,000 sessions, all of them in a turn");
    let pace = Pace { deltas: 20, apart: Duration::from_millis(100) };
    follow(stage, &sessions[..FOLLOWERS], &sessions[..FOLLOWERS], pace).await;
}

/// One follower for each of `followed`, and a turn in each of `prompted`.
async fn follow(stage: &Stage, followed: &[String], prompted: &[String], pace: Pace) {
    stage.model.answer_with(pace);
    let before = stage.server.resident();
    let ready = Arc::new(Barrier::new(followed.len() + 1));
    let mut following = JoinSet::new();
    for session in followed {
        let (address, model, ready) =
            (stage.server.address, Arc::clone(&stage.model), Arc::clone(&ready));
        let mut look = Client::connect(address).await;
        let path = format!("/api/sessions/{session}");
        let end = look.json(&client::get(&path)).await["session"]["lastSeq"].to_string();
        let request = client::get(&format!("{path}/stream?after={end}"));
        drop(look);
        following.spawn(async move {
            let mut client = Client::connect(address).await;
            client.open(&request).await;
            ready.wait().await;
            watch(&mut client, &model).await
        });
    }
    ready.wait().await;
    let connected = stage.server.resident();
    let used = stage.server.used();
    let begin = Instant::now();
    prompt(stage, prompted).await;
    let sent = begin.elapsed();
    let seen = following.join_all().await;
    let took = begin.elapsed();
    let used = stage.server.used() - used;
    let delivered: usize = seen.iter().map(|follower| follower.logged).sum();
    let first = seen.iter().map(|follower| follower.last).min().expect("there are followers");
    let last = seen.iter().map(|follower| follower.last).max().expect("there are followers");
    let each: Vec<Duration> = seen.into_iter().flat_map(|follower| follower.each).collect();
    assert_eq!(each.len(), pace.deltas * followed.len(), "every delta arrived everywhere");
    Figures::new(each, took).print("deltas, from the model's byte to the follower's");
    println!(
        "delivered {delivered} events in {} ({:.0}/s); {} turns were asked for in {}",
        millis(took),
        delivered as f64 / took.as_secs_f64(),
        prompted.len(),
        millis(sent),
    );
    println!(
        "from the first follower's last event to the last one's: {}; the server used {} of processor time",
        millis(last - first),
        millis(used),
    );
    println!(
        "resident: {before:.1} MB before, {connected:.1} MB with followers, {:.1} MB after",
        stage.server.resident(),
    );
}

/// Asks for a turn in each session, several at a time, and does not wait for what comes of it.
async fn prompt(stage: &Stage, sessions: &[String]) {
    let mut asking = JoinSet::new();
    for share in sessions.chunks(sessions.len().div_ceil(AT_A_TIME)) {
        let (address, share) = (stage.server.address, share.to_vec());
        asking.spawn(async move {
            let mut client = Client::connect(address).await;
            for session in share {
                let body = r#"{"content":"go","detach":true}"#;
                let request = client::post(&format!("/api/sessions/{session}/messages"), body);
                client.ask(&request).await;
            }
        });
    }
    asking.join_all().await;
}
