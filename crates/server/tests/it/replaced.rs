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
use ash_core::run::RunStatus;
use ash_core::session::{IfRunning, Sandbox, Session, Status};
use ash_engine::bridge::Resources;
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

/// Removes a session's workspace, or its home, as somebody would who does not know that it is in use.
fn remove(world: &World, session: SessionId, gone: Gone) {
    match gone {
        Gone::Workspace => fs::remove_dir_all(world.host.workspace(session)).unwrap(),
        Gone::Home => fs::remove_dir_all(world.host.home(session)).unwrap(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    Workspace,
    Home,
}

/// A session that came back cold has what was captured of it, and works.
async fn is_whole(world: &World, session: SessionId, receipt: &Receipt, gone: Gone) {
    let workspace = match gone {
        Gone::Workspace => Workspace::Restored,
        Gone::Home => Workspace::Kept,
    };
    assert_eq!((receipt.path, receipt.workspace), (ResumePath::Cold, workspace), "{gone:?}");
    assert_eq!(receipt.conversation.native, Native::Intact, "{gone:?}");
    let place = world.host.workspace(session);
    assert_eq!(fs::read_to_string(place.join("a.txt")).unwrap(), "one");
    world.say(session, "/bash printf more >more.txt").await;
    assert_eq!(fs::read_to_string(place.join("more.txt")).unwrap(), "more", "{gone:?}");
    remembers(world, session).await;
}

/// A session that is paused where it is, and captured.
async fn paused(world: &World) -> SessionId {
    let session = world.session().await;
    world.say(session, WRITE).await;
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    until_it(world, session, |it| {
        matches!(it.sandbox(), Sandbox::Frozen { .. }) && it.persistence().is_settled()
    })
    .await;
    session
}

#[tokio::test]
async fn a_paused_session_whose_files_were_removed_does_not_come_back_warm() {
    for gone in [Gone::Workspace, Gone::Home] {
        for restarts in [false, true] {
            let mut world = World::start().await;
            let session = paused(&world).await;
            remove(&world, session, gone);
            if restarts {
                world.kill_engine().await;
            }
            let receipt = resume(&world, session).await;
            is_whole(&world, session, &receipt, gone).await;
            world.end().await;
        }
    }
}

#[tokio::test]
async fn a_server_does_not_adopt_a_sandbox_whose_files_were_removed() {
    for gone in [Gone::Workspace, Gone::Home] {
        let mut world = World::start().await;
        let session = world.session().await;
        world.say(session, WRITE).await;
        world.captured(session).await;
        world.engine.abort().await;
        remove(&world, session, gone);
        world.kill_engine().await;
        let stored = until_it(&world, session, |it| it.sandbox() == Sandbox::None).await;
        assert_eq!(stored.status(), Status::Paused);
        let receipt = resume(&world, session).await;
        is_whole(&world, session, &receipt, gone).await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_paused_session_whose_files_were_replaced_has_those_that_are_there() {
    let Some(world) = World::sandboxed(Resources::default()).await else { return };
    let session = paused(&world).await;
    let workspace = world.host.workspace(session);
    fs::rename(&workspace, world.dir.join("moved")).unwrap();
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("other.txt"), "another").unwrap();
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.path, receipt.workspace), (ResumePath::Cold, Workspace::Kept));
    let answer = world.say(session, "/bash cat other.txt && printf more >more.txt").await;
    assert_eq!(answer.status, RunStatus::Completed);
    assert_eq!(fs::read_to_string(workspace.join("more.txt")).unwrap(), "more");
    assert!(!world.dir.join("moved/more.txt").exists());
    world.end().await;
}

#[tokio::test]
async fn what_is_being_removed_is_not_captured_as_what_is_there() {
    let world = World::start().await;
    for is_stopped in [false, true, false] {
        let session = world.session().await;
        world.say(session, "/bash for i in $(seq 3000); do echo $i > f$i; done").await;
        let whole = world.captured(session).await;
        assert_eq!(whole.captured.files, 3_000);
        let place = world.host.workspace(session);
        // Whatever ends it has what it left captured, and that is going away.
        if is_stopped {
            let tenant = tenant();
            let stopped = world.engine.stop(&tenant, session);
            let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(place));
            let (stopped, removed) = tokio::join!(stopped, removed);
            let _it_may_be_captured_first = (stopped.unwrap(), removed.unwrap());
        } else {
            world.kill_bridge(session).await;
            let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(place));
            removed.await.unwrap().unwrap();
        }
        let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
        let receipt = back.receipt.unwrap();
        assert_eq!((receipt.workspace, receipt.files), (Workspace::Restored, 3_000), "{receipt:?}");
        world.engine.end(&tenant(), session).await.unwrap();
    }
    world.end().await;
}
