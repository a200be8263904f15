//! What a session works on is captured, and brought back when it is gone, with the real bridge and its agent.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use ash_core::entry::{Entry, ResumePath};
use ash_core::id::SessionId;
use ash_core::number::{Seq, Turn};
use ash_core::resume::{Native, Receipt, Source, Workspace};
use ash_core::session::{IfRunning, PauseReason, State};
use ash_engine::files::{Executable, FilePath};
use ash_engine::{Point, RequireState};

use crate::world::{World, tenant};

const WRITE: &str = "My name is Ada.\n/tool write_file {\"path\": \"a.txt\", \"content\": \"one\"}";

async fn resume(world: &World, session: SessionId) -> Receipt {
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    back.receipt.unwrap()
}

async fn remembers(world: &World, session: SessionId) {
    let answer = world.say(session, "Who am I?\n/recall").await.text();
    assert!(answer.contains("My name is Ada."), "{answer}");
}

fn remove(path: &Path) {
    std::fs::remove_dir_all(path).unwrap();
}

#[tokio::test]
async fn what_every_turn_left_is_captured_and_bound_to_it() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    let first = world.captured(session).await;
    assert_eq!((first.turn, first.captured.files, first.captured.bytes), (Turn::new(1), 1, 3));
    assert!(first.transcript.is_some() && first.completed_runs == 1);
    world.say(session, "/bash printf more >b.txt; ln a.txt c.txt").await;
    let second = world.captured(session).await;
    assert_eq!((second.turn, second.captured.files), (Turn::new(2), 3));
    assert!(second.seq > first.seq && second.captured.id != first.captured.id);
    let all = world.engine.snapshots(&tenant(), session, 10).await.unwrap();
    let ids: Vec<_> = all.iter().map(|stored| stored.snapshot.captured.id).collect();
    assert_eq!(ids, [second.captured.id, first.captured.id]);
    world.end().await;
}

#[tokio::test]
async fn a_session_whose_files_are_gone_comes_back_from_its_snapshot() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    world
        .say(
            session,
            "/bash mkdir -p deep/er; printf x >deep/er/run; chmod 750 deep/er/run; ln -s deep d",
        )
        .await;
    world.engine.stop(&tenant(), session).await.unwrap();
    let last = world.captured(session).await;
    // The workspace alone, the home alone, and both.
    for lost in [&["workspace"][..], &["home"], &["workspace", "home"]] {
        for name in lost {
            remove(&world.host.workspace(session).with_file_name(name));
        }
        let receipt = resume(&world, session).await;
        assert_eq!((receipt.path, receipt.source), (ResumePath::Cold, Some(Source::Local)));
        // What is told is what became of the workspace.
        let (workspace, from) = match lost.contains(&"workspace") {
            true => (Workspace::Restored, Some(last.captured.id)),
            false => (Workspace::Kept, None),
        };
        assert_eq!((receipt.workspace, receipt.files), (workspace, 3), "{lost:?}");
        assert_eq!(receipt.snapshot.map(|snapshot| snapshot.id), from, "{lost:?}");
        assert_eq!(receipt.conversation.native, Native::Intact);
        let place = world.host.workspace(session);
        assert_eq!(std::fs::read_to_string(place.join("d/er/run")).unwrap(), "x");
        let mode = std::fs::metadata(place.join("deep/er/run")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
        world.engine.stop(&tenant(), session).await.unwrap();
        world.captured(session).await;
    }
    let _again = resume(&world, session).await;
    remembers(&world, session).await;
    world.say(session, "/bash printf mine >deep/er/run").await;
    world.end().await;
}

#[tokio::test]
async fn a_frozen_session_is_captured_and_survives_the_loss_of_everything_but_its_snapshots() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    let before = world.captured(session).await;
    let cut = world.prompt(session, "/bash printf half >half.txt; sleep 60").await.run;
    let half = world.host.workspace(session).join("half.txt");
    while !half.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    // Once it is frozen, and not before.
    let frozen = world.captured_after(session, before.seq).await;
    assert_eq!((frozen.turn, frozen.captured.files), (Turn::new(2), 2), "it was in mid-turn");
    world.kill_engine().await;
    world.engine.evict(session, PauseReason::Evicted).await.unwrap();
    world.ended(session, cut).await;
    let last = world.captured(session).await;
    for name in ["workspace", "home"] {
        remove(&world.host.workspace(session).with_file_name(name));
    }
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.workspace, receipt.interrupted_run), (Workspace::Restored, Some(cut)));
    assert_eq!(receipt.snapshot.unwrap().id, last.captured.id);
    assert_eq!(std::fs::read_to_string(half).unwrap(), "half");
    remembers(&world, session).await;
    world.end().await;
}

#[tokio::test]
async fn commands_and_files_from_outside_are_captured_when_they_have_stopped() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    let first = world.captured(session).await;
    let files = world.engine.workspace_to_change(&tenant(), session).await.unwrap();
    let path = FilePath::file(b"from/outside.txt").unwrap();
    files.write(path, Executable::No, b"hello".to_vec()).await.unwrap();
    let second = world.captured(session).await;
    assert_eq!((second.turn, second.captured.files), (first.turn, 2));
    world.end().await;
}

#[tokio::test]
async fn what_cannot_be_captured_is_told_and_tried_again_and_costs_no_turn() {
    let world = World::start().await;
    let session = world.session().await;
    // Something that is no directory is where snapshots should be.
    let place = world.dir.join("data/snapshots");
    std::fs::write(&place, "in the way").unwrap();
    world.say(session, WRITE).await;
    let why = failure(&world, session).await;
    assert!(why.contains("snapshots"), "{why}");
    std::fs::remove_file(&place).unwrap();
    let last = world.captured(session).await;
    assert_eq!(last.captured.files, 1);
    let log = world.engine.store().events_after(session, Seq::ZERO, 100).await.unwrap();
    assert!(!log.iter().any(|logged| matches!(logged.entry, Entry::RunError { .. })));
    world.end().await;
}

/// Waits until a capture has failed, and says why.
async fn failure(world: &World, session: SessionId) -> String {
    loop {
        let stored = world.engine.store().session(&tenant(), session).await.unwrap();
        if let Some(failed) = stored.session.persistence().failed() {
            return failed.message.clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn files_that_go_while_it_works_are_missed_and_what_was_captured_before_comes_back() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    let good = world.captured(session).await;
    remove(&world.host.workspace(session));
    world.say(session, "And I like tea.").await;
    let why = failure(&world, session).await;
    assert!(why.contains("not there"), "{why}");
    let all = world.engine.snapshots(&tenant(), session, 10).await.unwrap();
    assert_eq!(all.len(), 1, "nothing is bound to the turn: {all:?}");
    // Nothing works on where nothing is: the next message would bring it back, as this does.
    let stored = world.engine.store().session(&tenant(), session).await.unwrap();
    let state = stored.session.state();
    assert!(matches!(state, State::Paused { reason: PauseReason::Evicted, .. }), "{state:?}");
    let receipt = resume(&world, session).await;
    assert_eq!(receipt.workspace, Workspace::Restored);
    let from = receipt.snapshot.unwrap();
    assert!(from.id == good.captured.id && from.outdated, "{from:?}");
    let place = world.host.workspace(session).join("a.txt");
    assert_eq!(std::fs::read_to_string(place).unwrap(), "one");
    remembers(&world, session).await;
    // What came back is captured, and nothing is wrong any more.
    world.captured_after(session, good.seq).await;
    let stored = world.engine.store().session(&tenant(), session).await.unwrap();
    assert_eq!(stored.session.persistence().failed(), None);
    world.end().await;
}

#[tokio::test]
async fn a_rebase_that_was_interrupted_goes_on_after_a_resume_without_the_workspace() {
    if std::process::Command::new("git").arg("--version").output().is_err() {
        eprintln!("not tried: there is no git");
        return;
    }
    let git = "export GIT_CONFIG_GLOBAL=/dev/null GIT_EDITOR=true; \
        g='git -c user.name=a -c user.email=a@example.com'";
    for pauses in [true, false] {
        let world = World::start().await;
        let session = world.session().await;
        let begin = format!(
            "/bash {git}; $g init -q -b main; printf base >f; $g add f; $g commit -qm base; \
             $g checkout -q -b topic; printf topic >f; $g commit -qam topic; \
             $g checkout -q main; printf main >f; $g commit -qam main; \
             $g checkout -q topic; $g rebase main; printf both >f; $g add f"
        );
        world.say(session, &begin).await;
        let turn = world.captured(session).await;
        if pauses {
            world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
            world.engine.evict(session, PauseReason::Evicted).await.unwrap();
        } else {
            world.engine.stop(&tenant(), session).await.unwrap();
        }
        world.until_it(session, |it| it.is_at_rest() && it.stored_by().is_some()).await;
        remove(&world.host.workspace(session));
        let receipt = resume(&world, session).await;
        assert_eq!(receipt.workspace, Workspace::Restored);
        assert!(receipt.snapshot.unwrap().seq >= turn.seq);
        let on = format!("/bash {git}; $g rebase --continue && $g log --format=%s && $g status");
        world.say(session, &on).await;
        let place = world.host.workspace(session);
        assert_eq!(std::fs::read_to_string(place.join("f")).unwrap(), "both");
        assert!(!place.join(".git/rebase-merge").exists(), "the rebase is over");
        let head = std::fs::read_to_string(place.join(".git/HEAD")).unwrap();
        assert_eq!(head.trim(), "ref: refs/heads/topic");
        world.end().await;
    }
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_read_for_now_is_no_reason_to_start_fresh() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    remove(&world.host.workspace(session));
    let (place, aside) = (world.dir.join("data/snapshots"), world.dir.join("data/aside"));
    std::fs::rename(&place, &aside).unwrap();
    std::fs::write(&place, "in the way").unwrap();
    let refused = world.engine.resume(&tenant(), session, RequireState::No).await;
    assert!(refused.is_err(), "{refused:?}");
    assert!(!world.host.workspace(session).exists(), "nothing fresh is put in its place");
    std::fs::remove_file(&place).unwrap();
    std::fs::rename(&aside, &place).unwrap();
    assert_eq!(resume(&world, session).await.workspace, Workspace::Restored);
    remembers(&world, session).await;
    world.end().await;
}

#[tokio::test]
async fn whoever_forks_or_pauses_does_not_wait_until_all_is_calm() {
    let mut world = World::start().await;
    // So long that it would be noticed.
    world.policy.persist_debounce = Duration::from_secs(60 * 60);
    world.policy.persist_interval = Duration::from_secs(60 * 60);
    world.kill_engine().await;
    let session = world.session().await;
    world.say(session, WRITE).await;
    let before = world.captured(session).await;
    let write = async |name: &str| {
        let files = world.engine.workspace_to_change(&tenant(), session).await.unwrap();
        let path = FilePath::file(name.as_bytes()).unwrap();
        files.write(path, Executable::No, b"new".to_vec()).await.unwrap();
    };
    write("forked.txt").await;
    let fork = world.engine.fork(&tenant(), session, Point::Latest, None).await.unwrap().record.id;
    world.engine.resume(&tenant(), fork, RequireState::Yes).await.unwrap();
    assert!(world.host.workspace(fork).join("forked.txt").exists());
    write("paused.txt").await;
    let paused = world.engine.pause(&tenant(), session, IfRunning::Freeze).await.unwrap();
    assert!(!paused.is_yet_to_be_captured());
    let last = paused.persistence().last().unwrap();
    assert_eq!((last.captured.files, last.turn), (before.captured.files + 2, before.turn));
    world.end().await;
}
