//! Forks, rewinds and differences, with the real bridge and its agent: the conversation and the files go together.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use ash_core::entry::Entry;
use ash_core::id::SessionId;
use ash_core::number::{Seq, Turn};
use ash_core::refusal::Refusal;
use ash_core::resume::{Native, Workspace};
use ash_core::session::{Sandbox, Session, Status};
use ash_core::snapshot::Snapshot;
use ash_engine::{
    Against, Effective, EngineError, HowChanged, Point, RequireState, Rewound, TextDiff,
};

use crate::world::{World, tenant, until};

const WORDS: [&str; 3] = ["alpha", "bravo", "charlie"];

/// Everything in a directory, by path: mode, and what it is.
type Tree = BTreeMap<String, (u32, String)>;

fn tree(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut rest = vec![root.to_owned()];
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let about = std::fs::symlink_metadata(&path).unwrap();
            let what = if about.is_dir() {
                rest.push(path.clone());
                "directory".to_owned()
            } else if about.is_symlink() {
                format!("to {}", std::fs::read_link(&path).unwrap().display())
            } else {
                format!("{:?}", String::from_utf8_lossy(&std::fs::read(&path).unwrap()))
            };
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            found.insert(name, (about.mode(), what));
        }
    }
    found
}

/// Whether a session is at some step.
type Seen = fn(&Session) -> bool;

/// What a turn left: its files and its snapshot.
struct Left {
    tree: Tree,
    snapshot: Snapshot,
}

/// Three turns, each of which changes files and tells the agent a word.
async fn three_turns(world: &World, session: SessionId) -> Vec<Left> {
    let mut left = Vec::new();
    for (number, word) in WORDS.iter().enumerate() {
        let steps = format!(
            "The word is {word}.\n/bash printf {word} >same.txt; printf x >only-{word}; \
             rm -f only-alph; mkdir -p d{number}/deep; printf {word} >d{number}/deep/f; \
             ln -sfn d{number} link; chmod 7{number}5 d{number}/deep/f; touch only-alph",
        );
        world.say(session, &steps).await;
        let snapshot = world.captured(session).await;
        assert_eq!(snapshot.turn.get() as usize, number + 1);
        left.push(Left { tree: tree(&world.host.workspace(session)), snapshot });
    }
    left
}

/// Asks the agent which words it knows.
async fn knows(world: &World, session: SessionId) -> Vec<&'static str> {
    let answer = world.say(session, "Which words were there?\n/recall").await.text();
    WORDS.into_iter().filter(|word| answer.contains(&format!("The word is {word}."))).collect()
}

async fn stored(world: &World, session: SessionId) -> Session {
    world.engine.store().session(&tenant(), session).await.unwrap().session.clone()
}

async fn rewind(world: &World, session: SessionId, turn: u32) -> Rewound {
    let to = Point::Turn(Turn::new(turn));
    world.engine.rewind(&tenant(), session, to, Effective::Yes).await.unwrap()
}

#[tokio::test]
async fn a_fork_has_the_files_and_the_conversation_of_its_turn_and_leaves_its_parent_alone() {
    let world = World::start().await;
    let parent = world.session().await;
    let left = three_turns(&world, parent).await;
    let before = stored(&world, parent).await;
    for (number, left) in left.iter().enumerate() {
        let turn = Turn::new(u32::try_from(number).unwrap() + 1);
        let fork = world.engine.fork(&tenant(), parent, Point::Turn(turn), None).await.unwrap();
        let id = fork.record.id;
        assert_eq!((fork.session.status(), fork.record.parent), (Status::Paused, Some(parent)));
        let written = world.dir.join(format!("data/sessions/{id}/metadata.json"));
        let says = || std::fs::read_to_string(&written).is_ok_and(|it| it.contains("paused"));
        until("it is written down before anything is done with it", says).await;
        assert_eq!(fork.session.lineage().turns() as usize, number + 1);
        assert_ne!(fork.session.log_epoch(), before.log_epoch());
        let back = world.engine.resume(&tenant(), id, RequireState::Yes).await.unwrap();
        let receipt = back.receipt.unwrap();
        assert_eq!(receipt.workspace, Workspace::Restored);
        assert_eq!(receipt.snapshot.unwrap().id, left.snapshot.captured.id);
        assert_eq!(receipt.conversation.native, Native::Intact);
        assert_eq!(tree(&world.host.workspace(id)), left.tree);
        assert_eq!(knows(&world, id).await, WORDS[..=number]);
        let runs = world.engine.store().runs(id, 9).await.unwrap();
        assert_eq!(runs.len(), number + 2);
        let kept = world.engine.snapshots(&tenant(), id, 99).await.unwrap();
        assert!(kept.iter().any(|kept| kept.snapshot == left.snapshot));
        world.engine.end(&tenant(), id).await.unwrap();
    }
    assert_eq!(stored(&world, parent).await, before);
    assert_eq!(tree(&world.host.workspace(parent)), left[2].tree);
    world.end().await;
}

#[tokio::test]
async fn a_rewind_goes_back_and_forth_and_loses_nothing() {
    let world = World::start().await;
    let session = world.session().await;
    let left = three_turns(&world, session).await;
    let dry = Point::Turn(Turn::new(1));
    let dry = world.engine.rewind(&tenant(), session, dry, Effective::No).await.unwrap();
    assert_eq!(tree(&world.host.workspace(session)), left[2].tree, "nothing was done");
    let back = rewind(&world, session, 1).await;
    assert_eq!(back.changes, dry.changes);
    assert_eq!((back.changes.added, back.changes.modified, back.changes.removed), (0, 2, 4));
    assert_eq!(back.session.session.status(), Status::Active, "it was active");
    assert_eq!(tree(&world.host.workspace(session)), left[0].tree);
    let forth = rewind(&world, session, 3).await;
    assert_eq!(forth.session.session.lineage().turns(), 3);
    assert_eq!(tree(&world.host.workspace(session)), left[2].tree);
    assert_eq!(knows(&world, session).await, WORDS);
    rewind(&world, session, 1).await;
    assert_eq!(tree(&world.host.workspace(session)), left[0].tree);
    assert_eq!(knows(&world, session).await, WORDS[..1]);
    let runs = world.engine.store().runs(session, 9).await.unwrap();
    assert_eq!((runs[0].turn, runs[0].parent_turn), (Some(Turn::new(5)), Some(Turn::new(1))));
    let now = stored(&world, session).await;
    assert_eq!((now.lineage().turns(), now.lineage().last()), (2, Turn::new(5)));
    let branch = world.engine.branch(&now).await.unwrap();
    let log = world.engine.store().events_after(session, Seq::ZERO, 9_999).await.unwrap();
    let prompts = log.iter().filter(|logged| matches!(logged.entry, Entry::Prompt { .. }));
    let told = prompts.map(|logged| branch.has(logged)).collect::<Vec<_>>();
    assert_eq!(told, [true, false, false, false, true], "turns 2, 3 and 4 were left");
    // A fork of an abandoned turn is that turn.
    let at = Point::Turn(Turn::new(3));
    let fork = world.engine.fork(&tenant(), session, at, None).await.unwrap().record.id;
    world.engine.resume(&tenant(), fork, RequireState::Yes).await.unwrap();
    assert_eq!(tree(&world.host.workspace(fork)), left[2].tree);
    assert_eq!(knows(&world, fork).await, WORDS);
    world.end().await;
}

#[tokio::test]
async fn what_nobody_captured_yet_is_captured_before_a_rewind() {
    let world = World::start().await;
    let session = world.session().await;
    let left = three_turns(&world, session).await;
    world.engine.stop(&tenant(), session).await.unwrap();
    world.captured(session).await;
    let place = world.host.workspace(session);
    let files = world.engine.workspace_to_change(&tenant(), session).await.unwrap();
    let path = ash_engine::files::FilePath::file(b"late").unwrap();
    files.write(path, ash_engine::files::Executable::No, b"mine".to_vec()).await.unwrap();
    let back = rewind(&world, session, 2).await;
    assert_eq!(back.session.session.status(), Status::Stopped, "it stays what it was");
    assert_eq!(tree(&place), left[1].tree);
    rewind(&world, session, 3).await;
    assert_eq!(std::fs::read_to_string(place.join("late")).unwrap(), "mine");
    world.end().await;
}

#[tokio::test]
async fn a_rewind_that_is_killed_at_any_step_ends_in_one_state_or_the_other() {
    let mut world = World::start().await;
    let session = world.session().await;
    let left = three_turns(&world, session).await;
    let steps: [Seen; 4] = [
        |session| matches!(session.sandbox(), Sandbox::Stopping { .. }),
        |session| session.sandbox() == Sandbox::None && !session.persistence().is_settled(),
        |session| serde_json::to_string(session).unwrap().contains("putting_back"),
        |session| session.rewinding().is_none() && session.lineage().head() == Turn::new(1),
    ];
    for step in steps {
        world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
        rewind(&world, session, 3).await;
        let engine = world.engine.clone();
        let (us, to) = (tenant(), Point::Turn(Turn::new(1)));
        let rewinding = engine.rewind(&us, session, to, Effective::Yes);
        let seen = async {
            // One that is missed is as good as the next one.
            while !step(&stored(&world, session).await) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = seen => {}
            done = rewinding => drop(done.unwrap()),
        }
        world.kill_engine().await;
        let now = loop {
            let now = stored(&world, session).await;
            let rests = now.rewinding().is_none() && now.persistence().is_settled();
            // It was active, and is again, whoever brings it to its end.
            if rests && now.status() == Status::Active {
                break now;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        let expected = match now.lineage().head().get() {
            1 => &left[0].tree,
            3 => &left[2].tree,
            other => panic!("it is at turn {other}"),
        };
        assert_eq!(tree(&world.host.workspace(session)), *expected);
        assert_eq!(now.persistence().last().unwrap().turn, now.lineage().head());
    }
    rewind(&world, session, 3).await;
    world.engine.resume(&tenant(), session, RequireState::Yes).await.unwrap();
    assert_eq!(knows(&world, session).await, WORDS);
    world.end().await;
}

#[tokio::test]
async fn a_rewind_that_cannot_be_done_says_why_and_changes_nothing() {
    let world = World::start().await;
    let session = world.session().await;
    let left = three_turns(&world, session).await;
    let us = tenant();
    let to = |point| world.engine.rewind(&us, session, point, Effective::Yes);
    let refused = to(Point::Turn(Turn::new(9))).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::NoSuchTurn))), "{refused:?}");
    let unknown = ash_core::id::SnapshotId::from_uuid(uuid::Uuid::nil());
    let refused = to(Point::Snapshot(unknown)).await;
    assert!(matches!(refused, Err(EngineError::NotFound("snapshot"))), "{refused:?}");
    let stranger = "stranger".parse().unwrap();
    for point in [Point::Latest, Point::Turn(Turn::new(1))] {
        let theirs = world.engine.rewind(&stranger, session, point, Effective::No).await;
        assert!(matches!(theirs, Err(EngineError::NotFound("session"))), "{theirs:?}");
        let theirs = world.engine.fork(&stranger, session, point, None).await;
        assert!(matches!(theirs, Err(EngineError::NotFound("session"))), "{theirs:?}");
    }
    let run = world.prompt(session, "/bash sleep 60").await.run;
    let refused = to(Point::Turn(Turn::new(1))).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::RunInProgress))), "{refused:?}");
    // Whoever forks does not wait for it.
    let fork = world.engine.fork(&tenant(), session, Point::Turn(Turn::new(3)), None).await;
    assert_eq!(fork.unwrap().session.lineage().turns(), 3);
    world.engine.interrupt(&tenant(), session, Some(run)).await.unwrap();
    world.captured(session).await;
    // What is not kept any more cannot be brought back.
    let gone = left[0].snapshot.captured.id;
    world.engine.store().forget_snapshot(session, gone).await.unwrap();
    for refused in [
        to(Point::Turn(Turn::new(1))).await.map(drop),
        world.engine.fork(&tenant(), session, Point::Turn(Turn::new(1)), None).await.map(drop),
    ] {
        assert!(matches!(refused, Err(EngineError::SnapshotExpired)), "{refused:?}");
    }
    world.engine.end(&tenant(), session).await.unwrap();
    let refused = to(Point::Turn(Turn::new(2))).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::Ended))), "{refused:?}");
    let fork = world.engine.fork(&tenant(), session, Point::Turn(Turn::new(2)), None).await;
    assert_eq!(fork.unwrap().session.lineage().turns(), 2, "what has ended can be forked");
    world.end().await;
}

#[tokio::test]
async fn two_snapshots_are_compared_file_by_file_and_line_by_line() {
    let world = World::start().await;
    let session = world.session().await;
    world.say(session, "/bash printf 'one\\ntwo\\n' >text; printf gone >gone").await;
    let first = world.captured(session).await;
    let change = "/bash printf 'one\\n2\\n' >text; rm gone; printf 'a\\0b' >binary; \
                  head -c 300000 /dev/zero | tr '\\0' x >large";
    world.say(session, change).await;
    let second = world.captured(session).await;
    let compare = |against| {
        let id = second.captured.id;
        let engine = world.engine.clone();
        async move { engine.compare(&tenant(), session, id, against, None).await.unwrap() }
    };
    let compared = compare(Against::Previous).await;
    assert_eq!(compared.before.unwrap().captured.id, first.captured.id);
    let changes = compared.changes;
    assert_eq!((changes.added, changes.modified, changes.removed), (2, 1, 1));
    let text = |path: &str| {
        let file = changes.files.iter().find(|file| file.path == path).unwrap();
        (file.how, file.text.clone())
    };
    let lines = "--- a/text\n+++ b/text\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";
    assert_eq!(text("text"), (HowChanged::Modified, TextDiff::Lines(lines.to_owned())));
    assert_eq!(text("binary"), (HowChanged::Added, TextDiff::Binary));
    assert_eq!(text("large"), (HowChanged::Added, TextDiff::TooLarge));
    assert_eq!(text("gone").0, HowChanged::Removed);
    assert_eq!(compare(Against::Empty).await.changes.added, 3);
    assert_eq!(compare(Against::Current).await.changes.files, []);
    let same = compare(Against::Snapshot(first.captured.id)).await;
    assert_eq!(same.changes, changes);
    world.end().await;
}

#[tokio::test]
async fn a_workspace_in_the_middle_of_a_rebase_forks_and_rewinds_exactly() {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("not tried: there is no git");
        return;
    }
    let world = World::start().await;
    let session = world.session().await;
    let place = world.host.workspace(session);
    // Looking must not change anything, and the files are the agent's.
    let git = |place: &Path, arguments: &str| {
        let mut command = Command::new("git");
        command.args(["-c", "safe.directory=*", "--no-optional-locks"]).args(arguments.split(' '));
        let run = command.current_dir(place).env("GIT_CONFIG_GLOBAL", "/dev/null").output();
        let run = run.unwrap();
        (run.status.success(), String::from_utf8(run.stdout).unwrap())
    };
    let begin = "/bash export GIT_CONFIG_GLOBAL=/dev/null; \
        g='git -c user.name=a -c user.email=a@example.com'; $g init -q -b main; \
        printf base >f; $g add f; $g commit -qm base; \
        $g checkout -q -b topic; printf topic >f; $g commit -qam topic; \
        $g checkout -q main; printf main >f; $g commit -qam main; \
        $g checkout -q topic; $g rebase main; printf half >half";
    world.say(session, begin).await;
    world.captured(session).await;
    let (status, before) = (git(&place, "status").1, tree(&place));
    assert!(status.contains("rebase in progress"), "{status}");
    world.say(session, "/bash rm -rf .git f; printf other >f").await;
    world.captured(session).await;
    let fork =
        world.engine.fork(&tenant(), session, Point::Turn(Turn::new(1)), None).await.unwrap();
    let fork = fork.record.id;
    world.engine.resume(&tenant(), fork, RequireState::Yes).await.unwrap();
    rewind(&world, session, 1).await;
    for place in [world.host.workspace(fork), place.clone()] {
        assert_eq!(tree(&place), before);
        assert_eq!(git(&place, "status").1, status);
        assert!(git(&place, "fsck --strict").0);
    }
    world.end().await;
}

#[tokio::test]
async fn the_log_of_a_fork_tells_everything_up_to_its_beginning_and_that_it_began() {
    let world = World::start().await;
    let parent = world.session().await;
    let left = three_turns(&world, parent).await;
    let at = Point::Snapshot(left[1].snapshot.captured.id);
    let fork = world.engine.fork(&tenant(), parent, at, None).await.unwrap().record.id;
    let store = world.engine.store();
    let mut theirs = store.events_after(parent, Seq::ZERO, 9_999).await.unwrap();
    theirs.retain(|logged| logged.seq <= left[1].snapshot.seq);
    let mut ours = store.events_after(fork, Seq::ZERO, 9_999).await.unwrap();
    let last = ours.pop().unwrap();
    assert_eq!(ours, theirs);
    let Entry::SessionForked { parent: of, turn, snapshot } = last.entry else {
        panic!("{last:?}")
    };
    assert_eq!((of, turn), (parent, Turn::new(2)));
    assert_eq!(snapshot, Some(left[1].snapshot.captured.id));
    world.end().await;
}
