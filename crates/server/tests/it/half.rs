//! A server that dies of -9 at its first step to the store or a sandbox, at its second, and so on, while a bundle is
//! exported or imported: nothing half of either is left, and what was not done can be done again.

use std::fs;
use std::path::Path;

use ash_core::id::SessionId;
use ash_core::json::Json;
use ash_engine::bridge::Enclosure;
use ash_engine::testing::Gate;
use ash_engine::{Extent, RequireState, SandboxHost as _, Understood};
use ash_protocol::Limits;
use ash_server::model::Model;
use ash_store::{PageRequest, SessionFilter, Settings};

use crate::processes::has_died;
use crate::space::{deploy, names};
use crate::world::{World, kill, tenant};

/// Where a test tells the process that dies what to do.
const CHILD: &str = "TEST_HALF_OF";

/// How many sessions are looked at.
const MANY: u32 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Export,
    Import,
}

impl Deed {
    async fn perform(self, world: &World, session: SessionId) {
        match self {
            Self::Export => drop(export(world, session).await),
            Self::Import => drop(import(world).await),
        }
    }
}

async fn export(world: &World, session: SessionId) -> u64 {
    let mut bundle = world.engine.export(&tenant(), session, Extent::History).await.unwrap();
    let mut file = fs::File::create(world.dir.join("whole.tar")).unwrap();
    std::io::copy(&mut bundle.file, &mut file).unwrap()
}

async fn import(world: &World) -> SessionId {
    let file = fs::File::open(world.dir.join("bundle.tar")).unwrap();
    let received = world.engine.receive_bundle(file).await.unwrap();
    let understand = |_: &Settings, _: &Json| Some(Understood::default());
    let us = tenant();
    let imported = world.engine.import_bundle(&us, received, &understand, None);
    imported.await.unwrap().record.id
}

/// Not a test by itself: the server that dies.
#[tokio::test]
async fn the_server_that_dies() {
    let Some(asked) = std::env::var_os(CHILD) else { return };
    let asked = asked.into_string().unwrap();
    let words: Vec<&str> = asked.split('|').collect();
    let [dir, url, session, deed, step] = words[..] else { panic!("{asked}") };
    let deed = if deed == "Export" { Deed::Export } else { Deed::Import };
    let gate = Gate::crashing_at(step.parse().unwrap());
    let lived = async {
        let world = server(Path::new(dir), url, Some(gate.clone())).await;
        deed.perform(&world, session.parse().unwrap()).await;
    };
    tokio::select! {
        biased;
        () = gate.crashed() => kill(std::process::id()),
        () = lived => {}
    }
    std::process::exit(0);
}

async fn server(dir: &Path, url: &str, gate: Option<Gate>) -> World {
    World::behind(dir, url, Limits::default(), Enclosure::Nothing, gate).await
}

/// Lets a server of this process go, as its death would.
async fn let_go(world: World) {
    world.engine.abort().await;
    world.host.abandon().await;
}

/// Has a server do it that dies at a step. Whether it did.
async fn die(dir: &Path, url: &str, session: SessionId, deed: Deed, step: u64) -> bool {
    let asked = format!("{}|{url}|{session}|{deed:?}|{step}", dir.display());
    let context = format!("{deed:?} at {step}");
    has_died("half::the_server_that_dies", (CHILD, &asked), dir, &context).await
}

async fn sessions(world: &World) -> Vec<SessionId> {
    let page = PageRequest { after: None, offset: 0, limit: MANY };
    let listed = world.engine.store().sessions(&tenant(), &SessionFilter::default(), &page).await;
    listed.unwrap().iter().map(|stored| stored.record.id).collect()
}

async fn die_at_every_step(deed: Deed) {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = Model::start(listener, Default::default()).unwrap();
    let url = model.url();
    let mut world = server(dir, &url, None).await;
    deploy(&world, "Be kind.").await;
    let session = world.stopped().await;
    let size = export(&world, session).await;
    fs::rename(dir.join("whole.tar"), dir.join("bundle.tar")).unwrap();
    let (mut step, mut known) = (1, sessions(&world).await);
    loop {
        let_go(world).await;
        let died = die(dir, &url, session, deed, step).await;
        world = server(dir, &url, None).await;
        let context = format!("{deed:?}, killed at step {step}");
        assert_eq!(names(&dir.join("data/bundles")), Vec::<String>::new(), "{context}");
        assert_eq!(names(&dir.join("data/agents")).len(), 1, "{context}");
        let now = sessions(&world).await;
        let new: Vec<SessionId> = now.iter().filter(|id| !known.contains(id)).copied().collect();
        assert!(new.len() <= usize::from(deed == Deed::Import), "{context}: {new:?}");
        assert!(died || deed == Deed::Export || new.len() == 1, "{context}: it is not there");
        for id in &new {
            // What is there is whole.
            for row in world.engine.snapshots(&tenant(), *id, MANY).await.unwrap() {
                let snapshot = row.snapshot.captured.id;
                assert!(world.host.has_snapshot(&tenant(), snapshot).await.unwrap(), "{context}");
            }
            world.engine.resume(&tenant(), *id, RequireState::Yes).await.unwrap();
            let answer = world.say(*id, "Who am I?\n/recall").await;
            assert!(answer.text().contains("My name is Ada."), "{context}: {}", answer.text());
            world.engine.end(&tenant(), *id).await.unwrap();
            crate::world::until("it is over", || world.engine.driven_sessions() == 0).await;
        }
        known = now;
        if !died {
            break;
        }
        step += 1;
    }
    eprintln!("{deed:?}: up to step {step}");
    assert!(step > 4, "{deed:?} has only {step} steps");
    // And it can be done again.
    assert_eq!(export(&world, session).await, size);
    import(&world).await;
    let_go(world).await;
    model.shutdown().await;
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_of_an_export_leaves_nothing_of_it() {
    die_at_every_step(Deed::Export).await;
}

#[tokio::test]
async fn a_server_that_dies_at_any_step_of_an_import_leaves_all_of_it_or_nothing() {
    die_at_every_step(Deed::Import).await;
}
