//! Whatever dies or fails when: what was acknowledged can be restored, and nothing half is to be seen.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ash_snapshot::objects::{LocalObjects, MemoryObjects, Objects};
use ash_snapshot::{Others, Repository, SnapshotId, State, Verify};

use crate::compare::{capture, on_disk, picture, restored, try_capture};
use crate::objects::reaching;
use crate::server::{BUCKET, Server, Whose};
use crate::stores::{Answer, Odd};

/// Names the directory that the process that dies works in, and the call at which it does.
const PLACE: &str = "ASH_SNAPSHOT_CRASH_PLACE";
const POINT: &str = "ASH_SNAPSHOT_CRASH_POINT";
/// Names the server that has the store, if it is not in the directory.
const ENDPOINT: &str = "ASH_SNAPSHOT_CRASH_ENDPOINT";

/// The objects of a store on a server.
fn on_server(endpoint: &str) -> Box<dyn Objects> {
    ash_snapshot::objects::open(&format!("s3://{BUCKET}/store"), &reaching(endpoint)).unwrap()
}

/// What the tree is at a step. Some files stay, some come again.
fn change(tree: &Path, step: u64) {
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    for file in 0..4 {
        let text = format!("file {file} at {}\n", (step + file) / 3).repeat(300);
        fs::write(tree.join(format!("deep/er/{file}")), text).unwrap();
    }
    fs::write(tree.join("step"), step.to_string()).unwrap();
}

/// A line that is there whatever dies next.
fn record(place: &Path, line: &str) {
    let file = fs::File::options().append(true).create(true).open(place.join("record"));
    file.unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// What the process that dies does: captures, forgets and collects, and puts down what it was told.
fn work(place: &Path, objects: Box<dyn Objects>, steps: u64) {
    let repository = Repository::open(objects).unwrap();
    let saved = place.join("state");
    for step in 0..steps {
        change(&place.join("tree"), step);
        let mut state = State::load(&saved);
        let taken = capture(&repository, &place.join("tree"), &mut state).snapshot;
        record(place, &format!("taken {step} {}", taken.id));
        state.save(&saved).unwrap();
        if step % 3 == 2 {
            let oldest = repository.snapshots().unwrap()[0];
            record(place, &format!("forgotten {oldest}"));
            repository.forget(oldest).unwrap();
            repository.gc(Others::AreAway).unwrap();
        }
    }
}

/// Not a test: the process that dies. It does nothing unless it is told to.
#[test]
fn the_process_that_dies() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let place = Path::new(&place);
    let point = std::env::var_os(POINT).and_then(|point| point.to_str()?.parse().ok());
    let point: u64 = point.unwrap_or(u64::MAX);
    let objects: Arc<dyn Objects> = match std::env::var_os(ENDPOINT) {
        Some(endpoint) => on_server(endpoint.to_str().unwrap()).into(),
        None => Arc::new(LocalObjects::open(&place.join("store")).unwrap()),
    };
    let calls = AtomicU64::new(0);
    // Points come in pairs: before a call, and after it.
    let odd = Odd::new(&objects, move |_, _| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        // Whoever wants to know is told of every call.
        io::stdout().write_all(b".").and_then(|()| io::stdout().flush()).unwrap();
        if call * 2 == point {
            std::process::abort();
        }
        if call * 2 + 1 == point { Answer::DoneThenStop } else { Answer::Right }
    });
    let steps = if point == u64::MAX { 10_000 } else { 3 };
    work(place, odd, steps);
    record(place, "ended");
}

/// Looks at what is left on the disk, and goes on with it.
fn check(place: &Path, what: &str) {
    check_repository(&on_disk(&place.join("store")), place, what);
    assert_eq!(fs::read_dir(place.join("store/tmp")).unwrap().count(), 0, "{what}");
}

fn check_repository(repository: &Repository, place: &Path, what: &str) {
    let verify = Verify { threads: 1, max_entries: 1000, progress: &|_| true };
    let verified = repository.verify(&verify).unwrap();
    assert!(verified.is_whole(), "{what}: {verified:?}");
    let record = fs::read_to_string(place.join("record")).unwrap_or_default();
    let is_forgotten = |id: &str| record.contains(&format!("forgotten {id}"));
    let expected = place.join("expected");
    for line in record.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["taken", step, id] = words[..]
            && !is_forgotten(id)
        {
            let id: SnapshotId = id.parse().unwrap();
            let snapshot = repository.snapshot(id).unwrap();
            change(&expected, step.parse().unwrap());
            let target = place.join("restored");
            crate::compare::restore(repository, &snapshot, &target).unwrap();
            for file in ["deep/er/0", "deep/er/1", "deep/er/2", "deep/er/3", "step"] {
                let read = |root: &Path| fs::read(root.join(file)).unwrap();
                assert_eq!(read(&target), read(&expected), "{what}: {file}");
            }
            fs::remove_dir_all(&target).unwrap();
        }
    }
    let tree = place.join("tree");
    fs::create_dir_all(&tree).unwrap();
    let mut state = State::load(&place.join("state"));
    let next = capture(repository, &tree, &mut state).snapshot;
    assert_eq!(restored(repository, &next), picture(&tree), "{what}");
    repository.gc(Others::AreAway).unwrap();
}

fn dying(place: &Path) -> Command {
    let mut dying = Command::new(std::env::current_exe().unwrap());
    dying.args(["--exact", "crashes::the_process_that_dies", "--test-threads=1", "-q"]);
    dying.env(PLACE, place).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    dying
}

#[test]
fn whenever_the_process_dies_what_was_acknowledged_is_there() {
    // Several at a time: most of it is waiting for the disk.
    let (next, last) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let play = || {
        loop {
            let point = next.fetch_add(1, Ordering::Relaxed);
            if point >= last.load(Ordering::Relaxed) {
                break;
            }
            let place = tempfile::tempdir().unwrap();
            let status = dying(place.path()).env(POINT, point.to_string()).status().unwrap();
            check(place.path(), &format!("point {point}"));
            if status.success() {
                last.fetch_min(point, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| (0..6).for_each(|_| drop(scope.spawn(play))));
    let points = last.into_inner();
    assert!(points > 60, "only {points} points");
}

#[test]
fn whenever_the_process_dies_what_a_server_acknowledged_is_there() {
    let (next, last) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let play = || {
        loop {
            let point = next.fetch_add(1, Ordering::Relaxed);
            if point >= last.load(Ordering::Relaxed) {
                break;
            }
            let (place, server) = (tempfile::tempdir().unwrap(), Server::start(Whose::Amazon));
            let mut dying = dying(place.path());
            dying.env(POINT, point.to_string()).env(ENDPOINT, server.endpoint());
            let status = dying.status().unwrap();
            let left = Repository::open(on_server(&server.endpoint())).unwrap();
            check_repository(&left, place.path(), &format!("point {point}"));
            if status.success() {
                last.fetch_min(point, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(play))));
    let points = last.into_inner();
    assert!(points > 60, "only {points} points");
}

#[test]
fn killed_at_random_again_and_again_nothing_is_lost() {
    let place = tempfile::tempdir().unwrap();
    for round in 0..12 {
        let mut child = dying(place.path()).stdout(std::process::Stdio::piped()).spawn().unwrap();
        // Killed some calls later than is known: it does not wait for us.
        let mut calls = vec![0; 20 + round * 37 % 250];
        child.stdout.as_mut().unwrap().read_exact(&mut calls).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        check(place.path(), &format!("round {round}"));
        fs::remove_file(place.path().join("record")).ok();
    }
}

#[test]
fn whatever_call_fails_or_reads_wrongly_nothing_half_is_left() {
    let answers: [fn() -> Answer; 5] = [
        || Answer::Fail(io::ErrorKind::StorageFull.into()),
        || Answer::Fail(io::Error::other("injected")),
        || Answer::DoneButFail(io::ErrorKind::TimedOut.into()),
        || Answer::Short,
        || Answer::Wrong,
    ];
    for (kind, answer) in answers.into_iter().enumerate() {
        for point in 0.. {
            let tree = tempfile::tempdir().unwrap();
            let objects: Arc<dyn Objects> = Arc::new(MemoryObjects::default());
            change(tree.path(), 0);
            let mut state = State::default();
            let sound = Repository::open(Odd::shared(&objects)).unwrap();
            capture(&sound, tree.path(), &mut state);
            change(tree.path(), 1);
            let calls = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&calls);
            let odd = Odd::new(&objects, move |_, _| {
                let call = counted.fetch_add(1, Ordering::Relaxed);
                if call == point { answer() } else { Answer::Right }
            });
            let taken = Repository::open(odd)
                .and_then(|repository| try_capture(&repository, tree.path(), &mut state));
            let what = format!("answer {kind} at call {point}: {taken:?}");
            // Whoever looks now sees the store as it is.
            let sound = Repository::open(Odd::shared(&objects)).unwrap();
            let verify = Verify { threads: 1, max_entries: 1000, progress: &|_| true };
            let verified = sound.verify(&verify).unwrap();
            assert!(verified.is_whole(), "{what}: {verified:?}");
            if let Ok(taken) = taken {
                assert_eq!(restored(&sound, &taken.snapshot), picture(tree.path()), "{what}");
            }
            let next = capture(&sound, tree.path(), &mut state).snapshot;
            assert_eq!(restored(&sound, &next), picture(tree.path()), "{what}");
            if calls.load(Ordering::Relaxed) <= point {
                break;
            }
        }
    }
}
