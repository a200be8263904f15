//! Bridges that stand still though nobody wants it.

use std::process::Command;

use ash_engine::SandboxHost as _;

use super::{TALKS, World, text};
use crate::support::{prompt, tenant};

#[tokio::test]
async fn a_bridge_that_was_stopped_by_accident_goes_on() {
    let world = World::with(&format!("{TALKS}\nrest()")).await;
    let session = world.session().await;
    world.log(session, "session_active").await;
    let bridge = world.host.bridge_of(world.host.list().await.unwrap()[0]).unwrap();
    let stopped = Command::new("kill").args(["-STOP", &bridge.to_string()]).status().unwrap();
    assert!(stopped.success());
    world.engine.prompt(&tenant(), session, prompt(), None).await.unwrap();
    assert_eq!(text(&world.log(session, "run_ended").await), "hello");
    world.end().await;
}
