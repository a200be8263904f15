//! Files that somebody removed or replaced from outside, with the real bridge and its agent: what is not the session's is
//! not taken for its own, and what was captured comes back.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ash_core::id::SessionId;
use ash_core::session::Session;

use crate::world::{World, tenant};

const WRITE: &str = "My name is Ada.\n/tool write_file {\"path\": \"a.txt\", \"content\": \"one\"}";

/// Waits until something is so of a session.
async fn until_it(world: &World, session: SessionId, wanted: impl Fn(&Session) -> bool) -> Session {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let stored = world.engine.store().session(&tenant(), session).await.unwrap();
        if wanted(&stored.session) {
            return stored.session.clone();
        }
        assert!(Instant::now() < deadline, "never: {:?}", stored.session);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A directory of somebody else.
fn foreign(world: &World) -> PathBuf {
    let foreign = world.dir.join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("secret"), "not the session's").unwrap();
    foreign
}

#[tokio::test]
async fn a_link_in_place_of_a_workspace_is_not_captured() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    let last = world.captured(session).await;
    let workspace = world.host.workspace(session);
    fs::rename(&workspace, world.dir.join("moved")).unwrap();
    symlink(foreign(&world), &workspace).unwrap();
    // What a sandbox leaves behind is captured.
    world.kill_bridge(session).await;
    let stored = until_it(&world, session, |it| it.persistence().failed().is_some()).await;
    assert_eq!(stored.persistence().last().map(|last| last.captured.id), Some(last.captured.id));
    let all = world.engine.snapshots(&tenant(), session, 10).await.unwrap();
    assert_eq!(all[0].snapshot.captured.id, last.captured.id);
    world.end().await;
}
