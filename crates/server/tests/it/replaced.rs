//! Files that somebody removed or replaced from outside, with the real bridge and its agent: what is not the session's is
//! not taken for its own, and what was captured comes back.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ash_core::entry::ResumePath;
use ash_core::id::SessionId;
use ash_core::number::Turn;
use ash_core::resume::{Native, Receipt, Workspace};
use ash_core::session::Session;
use ash_engine::{Effective, Point, RequireState};

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

async fn resume(world: &World, session: SessionId) -> Receipt {
    world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap().receipt.unwrap()
}

async fn remembers(world: &World, session: SessionId) {
    let answer = world.say(session, "Who am I?\n/recall").await.text();
    assert!(answer.contains("My name is Ada."), "{answer}");
}

/// A session that has written a file in its first turn, and is stopped and captured after its second.
async fn stopped(world: &World) -> SessionId {
    let session = world.session().await;
    world.say(session, WRITE).await;
    world.captured(session).await;
    world.say(session, "/bash printf two >b.txt").await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    session
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

#[tokio::test]
async fn whatever_is_in_the_place_of_a_workspace_is_moved_aside_and_the_files_come_back() {
    for is_link in [false, true] {
        let world = World::start().await;
        let session = stopped(&world).await;
        let (workspace, foreign) = (world.host.workspace(session), foreign(&world));
        fs::remove_dir_all(&workspace).unwrap();
        match is_link {
            true => symlink(&foreign, &workspace).unwrap(),
            false => fs::write(&workspace, "in the way").unwrap(),
        }
        let receipt = resume(&world, session).await;
        assert_eq!((receipt.path, receipt.workspace), (ResumePath::Cold, Workspace::Restored));
        assert_eq!((receipt.files, receipt.conversation.native), (2, Native::Intact));
        assert_eq!(fs::read_to_string(workspace.join("b.txt")).unwrap(), "two");
        let aside = workspace.with_file_name("workspace.aside-1");
        match is_link {
            true => assert_eq!(fs::read_link(aside).unwrap(), foreign),
            false => assert_eq!(fs::read_to_string(aside).unwrap(), "in the way"),
        }
        assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1, "nobody has touched it");
        remembers(&world, session).await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_session_is_rewound_though_its_workspace_and_its_home_are_something_else() {
    let world = World::start().await;
    let session = stopped(&world).await;
    let (workspace, home) = (world.host.workspace(session), world.host.home(session));
    let foreign = foreign(&world);
    for place in [&workspace, &home] {
        fs::remove_dir_all(place).unwrap();
        symlink(&foreign, place).unwrap();
    }
    let to = Point::Turn(Turn::new(1));
    world.engine.rewind(&tenant(), session, to, Effective::Yes).await.unwrap();
    assert_eq!(fs::read_to_string(workspace.join("a.txt")).unwrap(), "one");
    assert!(!workspace.join("b.txt").exists());
    for place in [&workspace, &home] {
        assert_eq!(fs::read_link(place.with_extension("aside-1")).unwrap(), foreign);
    }
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1, "nobody has touched it");
    world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    remembers(&world, session).await;
    world.end().await;
}
