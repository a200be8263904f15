//! The files of a session: whose they are, and that they are there when its sandbox is not.

use ash_core::refusal::Refusal;
use ash_core::session::Sandbox;
use ash_engine::files::{Executable, FileError, FilePath, Scope};
use ash_engine::{EngineError, FileSource, WorkspaceError};

use super::path;
use crate::support::{TestEngine, tenant};

#[tokio::test(start_paused = true)]
async fn files_outlive_the_sandbox_and_belong_to_one_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let world = TestEngine::start().await;
    let engine = &world.engine;
    let session = world.session().await;
    let none = engine.workspace(&tenant(), session).await;
    assert!(matches!(none, Err(WorkspaceError::None)));
    world.host.place_workspace(session, dir.path().to_owned());
    let workspace = engine.workspace(&tenant(), session).await.unwrap();
    assert_eq!(workspace.source(), FileSource::Sandbox);
    workspace.write(path("a"), Executable::No, b"x".to_vec()).await.unwrap();
    engine.stop(&tenant(), session).await.unwrap();
    world.until_state(session, |session| session.sandbox() == Sandbox::None).await;
    let workspace = engine.workspace(&tenant(), session).await.unwrap();
    assert_eq!(workspace.source(), FileSource::Snapshot);
    let listing = workspace.list(FilePath::ROOT, Scope::Usual).await.unwrap();
    assert_eq!(listing.files.len(), 1);
    let stranger = "stranger".parse().unwrap();
    let refused = engine.workspace(&stranger, session).await;
    assert!(matches!(refused, Err(WorkspaceError::Engine(EngineError::NotFound(_)))));
}

#[tokio::test(start_paused = true)]
async fn only_so_many_requests_are_worked_on_for_one_session() {
    let dir = tempfile::tempdir().unwrap();
    let world = TestEngine::start().await;
    let session = world.session().await;
    world.host.place_workspace(session, dir.path().to_owned());
    let mut held = Vec::new();
    let refused = loop {
        match world.engine.workspace(&tenant(), session).await {
            Ok(workspace) => held.push(workspace),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, WorkspaceError::Engine(EngineError::Overloaded)));
    assert_eq!(held.len(), 8);
    held.clear();
    world.engine.workspace(&tenant(), session).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_files_of_a_session_that_is_over_can_be_read_and_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let world = TestEngine::start().await;
    let session = world.session().await;
    world.host.place_workspace(session, dir.path().to_owned());
    world.engine.workspace_to_change(&tenant(), session).await.unwrap();
    world.engine.end(&tenant(), session).await.unwrap();
    world.engine.workspace(&tenant(), session).await.unwrap();
    let refused = world.engine.workspace_to_change(&tenant(), session).await;
    let ended = EngineError::Refused(Refusal::Ended).to_string();
    assert_eq!(refused.err().unwrap().to_string(), ended);
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_removed_once_the_engine_has_come_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let world = TestEngine::start().await;
    let session = world.session().await;
    world.host.place_workspace(session, dir.path().to_owned());
    for name in ["before/a/b", "after/a/b"] {
        std::fs::create_dir_all(dir.path().join(name)).unwrap();
    }
    let workspace = world.engine.workspace(&tenant(), session).await.unwrap();
    workspace.remove_all(path("before")).await.unwrap();
    world.engine.abort().await;
    let refused = workspace.remove_all(path("after")).await;
    assert!(matches!(refused, Err(WorkspaceError::File(FileError::Busy))));
    assert!(!dir.path().join("before").exists() && dir.path().join("after/a/b").exists());
}
