//! What a session's files are after the machine was restarted, with the real bridge and its agent.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ash_core::entry::{Entry, ResumePath};
use ash_core::id::SessionId;
use ash_core::number::Turn;
use ash_core::resume::{Native, Receipt, Workspace};
use ash_core::run::RunStatus;
use ash_core::session::{IfRunning, Sandbox, Status};
use ash_core::snapshot::Snapshot;
use ash_engine::files::FilePath;
use ash_engine::{Effective, Point, RequireState};
use ash_snapshot::objects::LocalObjects;
use ash_snapshot::{Damaged, Repository, Restore};

use crate::processes::processes_of;
use crate::world::{World, tenant};

const MAKE: &str = "My name is Ada.\n/bash for n in same torn missing newer; do \
                    head -c 20000 /dev/zero | tr '\\0' x >$n; done; mkdir dir; cp torn dir/torn";

async fn resume(world: &World, session: SessionId) -> Receipt {
    let back = world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    back.receipt.unwrap()
}

/// Waits until nothing of a session runs, and what it left is captured.
async fn at_rest(world: &World, session: SessionId) -> Snapshot {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let stored = world.engine.store().session(&tenant(), session).await.unwrap();
        let persistence = stored.session.persistence();
        let is_over = stored.session.sandbox() == Sandbox::None && persistence.is_settled();
        if let Some(last) = persistence.last().filter(|_| is_over) {
            return last.clone();
        }
        assert!(Instant::now() < deadline, "never at rest: {:?}", stored.session);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Makes zeros of half of a file; nothing else of it looks different.
fn tear(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0);
    fs::write(path, bytes).unwrap();
    File::open(path).unwrap().set_modified(modified).unwrap();
}

/// What a power cut does.
fn harm(workspace: &Path) {
    tear(&workspace.join("torn"));
    tear(&workspace.join("dir/torn"));
    fs::remove_file(workspace.join("missing")).unwrap();
    fs::write(workspace.join("newer"), "written since").unwrap();
    fs::write(workspace.join("extra"), "made since").unwrap();
}

fn is_put_right(workspace: &Path) {
    let whole = "x".repeat(20_000);
    let read = |name: &str| fs::read_to_string(workspace.join(name)).unwrap();
    for name in ["same", "torn", "missing", "dir/torn"] {
        assert_eq!(read(name), whole, "{name}");
    }
    assert_eq!((read("newer"), read("extra")), ("written since".into(), "made since".into()));
    let owner = fs::metadata(workspace).unwrap().uid();
    for name in ["torn", "missing", "dir/torn"] {
        assert_eq!(fs::metadata(workspace.join(name)).unwrap().uid(), owner, "{name}");
    }
}

#[tokio::test]
async fn torn_and_missing_files_come_back_newer_ones_stay_and_all_of_it_can_be_undone() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, MAKE).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    let last = at_rest(&world, session).await;
    world.reboot(|world| harm(&world.host.workspace(session))).await;
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.path, receipt.workspace), (ResumePath::Cold, Workspace::Repaired));
    let from = receipt.snapshot.unwrap();
    assert_eq!((from.id, from.seq, from.unverified), (last.captured.id, last.seq, 2));
    assert_eq!((receipt.conversation.native, receipt.files), (Native::Intact, 6));
    is_put_right(&world.host.workspace(session));

    // What was found is a snapshot as any other, bytes that nobody wants included.
    let all = world.engine.snapshots(&tenant(), session, 10).await.unwrap();
    let found = all.iter().find(|stored| stored.snapshot.captured.unproven).unwrap();
    assert_eq!(found.snapshot.captured.files, 5);
    let place = world.dir.join("data/snapshots").join(tenant().as_str());
    let repository = Repository::open(Box::new(LocalObjects::open(&place).unwrap())).unwrap();
    let id = found.snapshot.captured.id.to_string().parse().unwrap();
    let snapshot = repository.snapshot(id).unwrap();
    let target = world.dir.join("torn");
    let torn = Restore {
        tree: snapshot.root("workspace").unwrap(),
        path: b"torn",
        damaged: Damaged::Refuse,
        target: &target,
        owner: None,
        max_entries: 1,
        max_bytes: u64::MAX,
        threads: 1,
        progress: &|_| true,
    };
    repository.restore(&torn).unwrap();
    assert_eq!(fs::read(&target).unwrap()[10_000..], [0; 10_000]);

    // It was told, and the files are believed from here on; what they are now was captured.
    let now = world.captured(session).await;
    assert!(!now.captured.unproven && now.captured.files == 6);
    world.engine.stop(&tenant(), session).await.unwrap();
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.workspace, receipt.snapshot), (Workspace::Kept, None));
    let answer = world.say(session, "Who am I?\n/recall").await.text();
    assert!(answer.contains("My name is Ada."), "{answer}");
    world.end().await;
}

#[tokio::test]
async fn files_that_nothing_happened_to_are_kept_and_those_that_nobody_knows_of_are_looked_at() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, MAKE).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    let last = at_rest(&world, session).await;
    world.reboot(|_| ()).await;
    let receipt = resume(&world, session).await;
    assert_eq!(receipt.workspace, Workspace::Kept);
    assert_eq!(
        receipt.snapshot.map(|from| (from.id, from.unverified)),
        Some((last.captured.id, 0))
    );
    // A server of before has not written down under which boot it was.
    world.engine.stop(&tenant(), session).await.unwrap();
    at_rest(&world, session).await;
    let mark = world.host.workspace(session).with_file_name("boot");
    fs::remove_file(&mark).unwrap();
    tear(&world.host.workspace(session).join("torn"));
    assert_eq!(resume(&world, session).await.workspace, Workspace::Repaired);
    assert_eq!(fs::read_to_string(mark).unwrap(), "boot 2");
    world.end().await;
}

#[tokio::test]
async fn a_turn_that_a_power_cut_ended_is_cut_and_what_it_had_written_stays() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, MAKE).await;
    let good = world.captured(session).await;
    let cut = world.prompt(session, "/bash printf half >half; sleep 60").await.run;
    let half = world.host.workspace(session).join("half");
    while !half.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let asked = world.requests().len();
    world.reboot(|world| harm(&world.host.workspace(session))).await;
    assert_eq!(world.ended(session, cut).await.status, RunStatus::Interrupted);
    // What the machine left is captured at once, as it was found and as it is when it was put right.
    let left = world.captured_after(session, good.seq).await;
    assert!(!left.captured.unproven);
    is_put_right(&world.host.workspace(session));
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.workspace, receipt.interrupted_run), (Workspace::Repaired, Some(cut)));
    let from = receipt.snapshot.unwrap();
    assert_eq!((from.id, from.unverified), (good.captured.id, 3));
    is_put_right(&world.host.workspace(session));
    assert_eq!(fs::read_to_string(half).unwrap(), "half");
    assert_eq!(world.requests().len(), asked, "nothing is run again by itself");
    world.end().await;
}

#[tokio::test]
async fn a_repair_that_was_killed_is_made_by_the_next_start_and_told() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, MAKE).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    let last = at_rest(&world, session).await;
    // All of it was put right when the server was killed, or half of it.
    for (boot, is_half) in [(2, false), (3, true)] {
        world
            .reboot(|world| {
                let workspace = world.host.workspace(session);
                let from =
                    serde_json::json!({ "id": last.captured.id, "seq": last.seq, "unverified": 7 });
                let note = serde_json::json!({
                    "boot": format!("boot {boot}"), "from": from, "isRepaired": true,
                    "asFound": null, "isDone": !is_half, "told": null,
                });
                fs::write(workspace.with_file_name("mended"), note.to_string()).unwrap();
                if is_half {
                    tear(&workspace.join("torn"));
                    fs::create_dir(
                        workspace.join(".ash-restore-01890a5d-ac96-774b-bcce-b302099a8057"),
                    )
                    .unwrap();
                }
            })
            .await;
        let receipt = resume(&world, session).await;
        assert_eq!(
            (receipt.workspace, receipt.snapshot.unwrap().unverified),
            (Workspace::Repaired, 0)
        );
        let names = fs::read_dir(world.host.workspace(session)).unwrap().count();
        assert_eq!(names, 5, "nothing is left of what was killed");
        world.engine.stop(&tenant(), session).await.unwrap();
        at_rest(&world, session).await;
    }
    world.end().await;
}

#[tokio::test]
async fn what_is_brought_back_from_what_a_power_cut_left_is_put_right_as_well() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, MAKE).await;
    let good = world.captured(session).await;
    world.reboot(|world| harm(&world.host.workspace(session))).await;
    let left = world.captured_after(session, good.seq).await;
    fs::remove_dir_all(world.host.workspace(session)).unwrap();
    let receipt = resume(&world, session).await;
    assert_eq!(receipt.workspace, Workspace::Restored);
    assert_eq!(receipt.snapshot.unwrap().id, left.captured.id);
    is_put_right(&world.host.workspace(session));
    world.end().await;
}

#[tokio::test]
async fn whoever_has_the_files_before_anybody_resumes_has_them_put_right() {
    let mut world = World::start().await;
    let (tenant, session, stopped) = (tenant(), world.session().await, world.session().await);
    for each in [session, stopped] {
        world.say(each, MAKE).await;
    }
    world.engine.stop(&tenant, stopped).await.unwrap();
    at_rest(&world, stopped).await;
    let good = world.captured(session).await;
    world
        .reboot(|world| {
            for each in [session, stopped] {
                harm(&world.host.workspace(each));
                tear(&world.host.home(each).join(".ash/conversation.jsonl"));
            }
        })
        .await;
    world.captured_after(session, good.seq).await;

    // A fork, as it is now and at the turn, has what a resume would have.
    for at in [Point::Latest, Point::Turn(Turn::new(1))] {
        let forked = world.engine.fork(&tenant, session, at, None).await.unwrap().record.id;
        let receipt = resume(&world, forked).await;
        assert_eq!((receipt.workspace, receipt.files), (Workspace::Restored, 6), "{at:?}");
        assert_eq!(receipt.conversation.native, Native::Intact, "{at:?}");
        is_put_right(&world.host.workspace(forked));
        let answer = world.say(forked, "Who am I?\n/recall").await.text();
        assert!(answer.contains("My name is Ada."), "{answer}");
    }
    // So has who looks at the files.
    let path = |name: &str| FilePath::file(name.as_bytes()).unwrap();
    for each in [stopped, session] {
        let files = world.engine.workspace(&tenant, each).await.unwrap();
        let torn = files.read(path("torn"), 1 << 20).await.unwrap();
        assert_eq!(std::io::read_to_string(torn.file).unwrap(), "x".repeat(20_000));
        is_put_right(&world.host.workspace(each));
    }
    // What was found can be had by its name, and nobody takes it for something else.
    let all = world.engine.snapshots(&tenant, session, 10).await.unwrap();
    let found = all.iter().find(|stored| stored.snapshot.captured.unproven).unwrap();
    let at = Point::Snapshot(found.snapshot.captured.id);
    let forked = world.engine.fork(&tenant, session, at, None).await.unwrap().record.id;
    let receipt = resume(&world, forked).await;
    assert_eq!((receipt.workspace, receipt.snapshot.unwrap().unverified), (Workspace::Restored, 5));
    assert!(!world.host.workspace(forked).join("missing").exists());
    // The next start tells of it all the same.
    for each in [session, stopped] {
        let receipt = resume(&world, each).await;
        assert_eq!((receipt.workspace, receipt.files), (Workspace::Repaired, 6));
        is_put_right(&world.host.workspace(each));
    }
    world.end().await;
}

#[tokio::test]
async fn who_goes_back_over_files_that_may_be_torn_goes_by_their_bytes() {
    let mut world = World::start().await;
    let (tenant, session) = (tenant(), world.session().await);
    world.say(session, MAKE).await;
    world.say(session, "/bash rm missing; echo changed >same").await;
    world.engine.stop(&tenant, session).await.unwrap();
    at_rest(&world, session).await;
    world
        .reboot(|world| {
            tear(&world.host.workspace(session).join("torn"));
            tear(&world.host.workspace(session).join("dir/torn"));
        })
        .await;
    let to = Point::Turn(Turn::new(1));
    let rewound = world.engine.rewind(&tenant, session, to, Effective::Yes).await.unwrap();
    assert_eq!((rewound.changes.added, rewound.changes.modified), (1, 1));
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.workspace, receipt.files), (Workspace::Kept, 5));
    let read = |name: &str| fs::read_to_string(world.host.workspace(session).join(name)).unwrap();
    for name in ["same", "torn", "missing", "newer", "dir/torn"] {
        assert_eq!(read(name), "x".repeat(20_000), "{name}");
    }
    world.end().await;
}

#[tokio::test]
async fn a_death_that_nobody_saw_costs_nothing_and_nothing_of_the_dead_runs_on() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, MAKE).await;
    world.say(session, "/bash (sleep 300 </dev/null >/dev/null 2>&1 &) ; true").await;
    let before = world.sandbox(session).await;
    world.engine.abort().await;
    world.kill_bridge(session).await;
    world.kill_engine().await;
    world.log_until(session, |entry| matches!(entry, Entry::SessionPaused { .. })).await;
    let runs = world.engine.store().runs(session, 10).await.unwrap().len();
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.workspace, receipt.snapshot), (Workspace::Kept, None));
    let after = world.sandbox(session).await;
    assert_eq!(after.incarnation, before.incarnation.next());
    let bridge = world.host.bridge_of(after).unwrap();
    let sleeps = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        *pid != bridge && name.trim() == "sleep"
    };
    let left: Vec<u32> =
        processes_of(&world.host.home(session)).into_iter().filter(sleeps).collect();
    assert_eq!(left, Vec::<u32>::new(), "what it left behind is gone with it");
    assert_eq!(world.engine.store().runs(session, 10).await.unwrap().len(), runs);
    // What it is run with is what it was run with.
    let answer = world.say(session, "/bash echo $GREETING").await;
    assert!(answer.outputs("tool_result")[0].to_string().contains("hello"));
    world.end().await;
}

#[tokio::test]
async fn a_resume_and_an_end_at_once_leave_nothing_behind() {
    let world = World::start().await;
    for _ in 0..3 {
        let session = world.session().await;
        world.engine.stop(&tenant(), session).await.unwrap();
        let tenant = tenant();
        let resume = world.engine.resume(&tenant, session, RequireState::No);
        let end = world.engine.end(&tenant, session);
        let (_back_or_not, ended) = tokio::join!(resume, end);
        ended.unwrap();
        world.log_until(session, |entry| matches!(entry, Entry::SessionEnded { .. })).await;
        let deadline = Instant::now() + Duration::from_secs(30);
        while !processes_of(&world.host.home(session)).is_empty() {
            assert!(Instant::now() < deadline, "never: nothing of it runs");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let stored = world.engine.store().session(&tenant, session).await.unwrap();
        assert_eq!(stored.session.status(), Status::Ended);
    }
    world.end().await;
}

#[tokio::test]
async fn a_pause_and_a_message_at_once_lose_no_message() {
    let world = World::start().await;
    let session = world.session().await;
    for number in 0..5 {
        let tenant = tenant();
        let pause = world.engine.pause(&tenant, session, IfRunning::Freeze);
        let (paused, accepted) = tokio::join!(pause, world.prompt(session, "Are you there?"));
        paused.unwrap();
        let stored = world.engine.store().session(&tenant, session).await.unwrap();
        if stored.session.status() == Status::Paused {
            let _back = world.engine.resume(&tenant, session, RequireState::Yes).await.unwrap();
        }
        let run = world.ended(session, accepted.run).await;
        assert_eq!(run.status, RunStatus::Completed, "{number}");
    }
    assert_eq!(world.engine.store().runs(session, 10).await.unwrap().len(), 5);
    world.end().await;
}

#[tokio::test]
async fn what_a_session_is_can_be_read_on_the_disk() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, MAKE).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    let last = at_rest(&world, session).await;
    let path = world.dir.join(format!("data/sessions/{session}/metadata.json"));
    let deadline = Instant::now() + Duration::from_secs(30);
    let told = loop {
        let read = fs::read(&path).unwrap_or_default();
        let told: serde_json::Value = serde_json::from_slice(&read).unwrap_or_default();
        if told["status"] == "stopped" && told["snapshot"]["id"] == last.captured.id.to_string() {
            break told;
        }
        assert!(Instant::now() < deadline, "never written: {told}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(
        (&told["agentName"], &told["sandboxId"]),
        (&"coder".into(), &session.to_string().into())
    );
    assert_eq!(
        (&told["turns"], &told["incarnation"], &told["snapshot"]["files"]),
        (&1.into(), &1.into(), &5.into())
    );
    assert!(told["lastMessageAt"].as_str().unwrap() >= told["createdAt"].as_str().unwrap());
    let beside = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(beside, 1, "one file in one directory");
    world.end().await;
}

#[tokio::test]
async fn files_that_there_is_nothing_to_hold_against_are_said_to_be_unverified() {
    let mut world = World::start().await;
    let session = world.session().await;
    world.say(session, MAKE).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    at_rest(&world, session).await;
    world.reboot(|world| fs::remove_dir_all(world.dir.join("data/snapshots")).unwrap()).await;
    let receipt = resume(&world, session).await;
    assert_eq!((receipt.workspace, receipt.snapshot), (Workspace::Kept, None));
    assert_eq!((receipt.files, receipt.unverified), (5, 5));
    // Under the same boot nobody doubts them.
    world.engine.stop(&tenant(), session).await.unwrap();
    assert_eq!(resume(&world, session).await.unverified, 0);
    world.end().await;
}
