//! One session that is paused and resumed again and again while its files grow: warm, cold, and with its files gone.
//! `make cycles CYCLES=n` does so more often.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ash_core::entry::ResumePath;
use ash_core::id::SessionId;
use ash_core::resume::Workspace;
use ash_core::run::RunStatus;
use ash_core::session::IfRunning;
use ash_engine::RequireState;
use ash_engine::bridge::Enclosure;
use ash_protocol::Limits;
use ash_server::model::Model;

use crate::world::{World, tenant, until};

/// How often in an ordinary run.
const CYCLES: usize = 1_000;

/// How many cycles.
const MANY: &str = "ASH_TEST_CYCLES";

/// What should be there, byte for byte.
type Tree = BTreeMap<String, Vec<u8>>;

/// The tree grows by a file, and another one changes.
fn grow(tree: &mut Tree, place: &Path, cycle: usize) {
    let fill = u8::try_from(cycle % 251).unwrap();
    let written = [
        (format!("{}/{cycle}", cycle % 9), vec![fill; cycle * 37 % 5_000]),
        (format!("changes-{}", cycle % 4), format!("{cycle}\n").repeat(50).into_bytes()),
    ];
    for (name, bytes) in written {
        let path = place.join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &bytes).unwrap();
        tree.insert(name, bytes);
    }
}

fn read(place: &Path, below: &str, tree: &mut Tree) {
    for entry in fs::read_dir(place.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type().unwrap().is_dir() {
            read(place, &name, tree);
        } else {
            tree.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

fn compare(place: &Path, expected: &Tree, cycle: usize) {
    let mut found = Tree::new();
    read(place, "", &mut found);
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(expected), "cycle {cycle}");
    for (name, bytes) in expected {
        assert!(found[name] == *bytes, "cycle {cycle}: {name} is not what it was");
    }
}

async fn rest(world: &World) {
    until("it is at rest", || world.engine.driven_sessions() == 0).await;
}

/// Pauses it, mostly; every tenth time its sandbox goes, every fiftieth time its files do.
async fn put_to_rest(world: &World, session: SessionId, cycle: usize) -> (ResumePath, Workspace) {
    if !cycle.is_multiple_of(10) {
        world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
        // A resume may come at once, too.
        if cycle.is_multiple_of(2) {
            rest(world).await;
        }
        return (ResumePath::Warm, Workspace::Kept);
    }
    world.engine.stop(&tenant(), session).await.unwrap();
    rest(world).await;
    if !cycle.is_multiple_of(50) {
        return (ResumePath::Cold, Workspace::Kept);
    }
    fs::remove_dir_all(world.host.workspace(session)).unwrap();
    (ResumePath::Cold, Workspace::Restored)
}

#[tokio::test]
async fn many_pauses_and_resumes_leave_every_byte_where_it_was() {
    let cycles =
        std::env::var_os(MANY).map_or(CYCLES, |many| many.to_str().unwrap().parse().unwrap());
    let temp = tempfile::tempdir().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = Model::start(listener, Default::default()).unwrap();
    let (url, limits) = (model.url(), Limits::default());
    let mut world = World::behind(temp.path(), &url, limits, Enclosure::Nothing, None).await;
    world.model = Some(model);
    let session = world.session().await;
    world.say(session, "My name is Ada.\n/bash printf planted >name").await;
    let place = world.host.workspace(session);
    let mut tree = Tree::from([("name".to_owned(), b"planted".to_vec())]);
    for cycle in 1..=cycles {
        grow(&mut tree, &place, cycle);
        let expected = put_to_rest(&world, session, cycle).await;
        let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
        let receipt = back.receipt.unwrap();
        assert_eq!((receipt.path, receipt.workspace), expected, "cycle {cycle}");
        if cycle.is_multiple_of(25) {
            compare(&place, &tree, cycle);
        }
    }
    compare(&place, &tree, cycles);
    let answer = world.say(session, "Who am I?\n/recall").await;
    assert_eq!(answer.status, RunStatus::Completed);
    assert!(answer.text().contains("My name is Ada."), "{}", answer.text());
    world.end().await;
}
