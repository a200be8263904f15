//! Turns that follow each other faster than what they leave can be stored: each can be gone back to.

use ash_core::id::SessionId;
use ash_core::number::Turn;
use ash_engine::files::{Executable, FilePath};
use ash_engine::{Point, RequireState};

use crate::world::{World, tenant};

const TURNS: u32 = 12;

/// Much to be stored, of which nothing is known yet.
const MUCH: &str = "mkdir big; head -c 60000000 /dev/urandom | split -b 20000 -a 4 - big/f";

async fn said_at(world: &World, session: SessionId, turn: u32) -> String {
    let point = Point::Turn(Turn::new(turn));
    let fork = world.engine.fork(&tenant(), session, point, None).await;
    let fork = fork.unwrap_or_else(|error| panic!("turn {turn}: {error}")).record.id;
    world.engine.resume(&tenant(), fork, RequireState::Yes).await.unwrap();
    let said = std::fs::read_to_string(world.host.workspace(fork).join("n.txt"));
    world.engine.end(&tenant(), fork).await.unwrap();
    said.unwrap_or_default()
}

#[tokio::test]
async fn turns_that_follow_a_large_one_at_once_have_snapshots_of_their_own() {
    let world = World::start().await;
    let session = world.session().await;
    let mut last = None;
    for turn in 1..=TURNS {
        let much = if turn == 1 { format!("{MUCH}; ") } else { String::new() };
        last = Some(world.prompt(session, &format!("/bash {much}echo {turn} > n.txt")).await);
    }
    world.ended(session, last.unwrap().run).await;
    for turn in 1..=TURNS {
        assert_eq!(said_at(&world, session, turn).await, format!("{turn}\n"));
    }
    world.end().await;
}

#[tokio::test]
async fn what_was_done_from_outside_belongs_to_the_turn_before_though_the_next_begins_at_once() {
    let world = World::start().await;
    let session = world.session().await;
    for turn in 1..=3 {
        let files = world.engine.workspace_to_change(&tenant(), session).await.unwrap();
        let path = FilePath::file(b"n.txt").unwrap();
        files.write(path, Executable::No, format!("before {turn}").into_bytes()).await.unwrap();
        world.say(session, &format!("/bash echo {turn} > n.txt")).await;
    }
    for turn in 0..=2 {
        assert_eq!(said_at(&world, session, turn).await, format!("before {}", turn + 1));
    }
    world.end().await;
}
