//! Repositories on servers, and servers that fail, stall, truncate and lie.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ash_snapshot::objects::{
    CachedObjects, Limits, Objects, Options, Put, Unfit, is_transient, open, probe,
};
use ash_snapshot::{Damaged, Others, Repository, Restore, State, Verify};

use crate::compare::{capture, picture, restored, try_capture, whole};
use crate::moto::{self, Keys, Moto};
use crate::objects::{far_memory, reaching};
use crate::server::{self, Manner, Request, Server, Whose};

/// How long a pack may be on a server.
const LONGEST: usize = 32 << 20;

const BOTH: [Whose; 2] = [Whose::Amazon, Whose::Google];

/// How to reach a server without waiting for long.
fn quickly(endpoint: &str) -> Options {
    let limits =
        Limits { attempts: 3, timeout: Duration::from_secs(20), pause: Duration::from_millis(1) };
    Options { limits, ..reaching(endpoint) }
}

fn objects(server: &Server, whose: Whose) -> Box<dyn Objects> {
    let scheme = match whose {
        Whose::Amazon => "s3",
        Whose::Google => "gs",
    };
    let url = format!("{scheme}://{}/prefix", server::BUCKET);
    open(&url, &quickly(&server.endpoint())).unwrap()
}

/// Decides by the number of the request, among those that it is about.
fn at(
    number: u64,
    about: impl Fn(&Request) -> bool + Send + Sync + 'static,
    manner: Manner,
) -> impl Fn(&Request) -> Manner + Send + Sync + 'static {
    let seen = AtomicU64::new(0);
    move |request| {
        let is_it = about(request) && seen.fetch_add(1, Ordering::Relaxed) == number;
        if is_it { manner } else { Manner::Right }
    }
}

fn method(wanted: &'static str) -> impl Fn(&Request) -> bool + Send + Sync + 'static {
    move |request| request.method == wanted
}

fn verify(repository: &Repository) -> ash_snapshot::Verified {
    repository.verify(&Verify { threads: 2, max_entries: 1000, progress: &|_| true }).unwrap()
}

/// Captures, looks, restores, collects and verifies, with one file of this many bytes.
fn live_with(length: usize, make: &dyn Fn() -> Box<dyn Objects>) {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir(tree.path().join("deep")).unwrap();
    fs::write(tree.path().join("deep/small"), "small").unwrap();
    // Not to be compressed.
    let mut noise = vec![0; length];
    let mut next = 1_u64;
    for part in noise.chunks_mut(8) {
        next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        part.copy_from_slice(&(next ^ next >> 29).to_le_bytes());
    }
    fs::write(tree.path().join("noise"), noise).unwrap();
    let mut state = State::default();
    let repository = Repository::open(make()).unwrap();
    let first = capture(&repository, tree.path(), &mut state).snapshot;
    let before = picture(tree.path());
    fs::write(tree.path().join("deep/small"), "other").unwrap();
    fs::remove_file(tree.path().join("noise")).unwrap();
    let second = capture(&repository, tree.path(), &mut state).snapshot;

    // By somebody else, elsewhere.
    let other = Repository::open(make()).unwrap();
    assert_eq!(other.snapshots().unwrap(), [first.id, second.id]);
    assert_eq!(restored(&other, &first), before);
    assert_eq!(restored(&other, &second), picture(tree.path()));
    assert!(make().list("packs/").unwrap().iter().all(|pack| pack.size <= LONGEST as u64));
    assert!(verify(&other).is_whole());
    other.forget(first.id).unwrap();
    assert_eq!(other.gc(Others::MayCapture).unwrap().removed, 0, "others may rely on it");
    let packs = if length > LONGEST { 2 } else { 1 };
    assert!(other.gc(Others::AreAway).unwrap().removed >= packs);
    assert!(verify(&other).is_whole());
    assert_eq!(restored(&Repository::open(make()).unwrap(), &second), picture(tree.path()));
    assert!(repository.snapshot(first.id).is_err());
}

fn live_with_and_without_cache(make: &dyn Fn(&str) -> Box<dyn Objects>) {
    live_with(LONGEST + LONGEST / 8, &|| make("plain"));
    let cache = tempfile::tempdir().unwrap();
    live_with(3 << 20, &|| {
        Box::new(CachedObjects::open(make("cached"), "here", cache.path(), 20 << 20).unwrap())
    });
}

#[test]
fn a_repository_lives_on_s3() {
    let moto = Moto::start(Keys::AllGood);
    live_with_and_without_cache(&|prefix| {
        open(&format!("s3://{}/{prefix}", moto::BUCKET), &reaching(&moto.endpoint)).unwrap()
    });
}

#[test]
fn a_repository_lives_on_google() {
    let server = Server::start(Whose::Google);
    live_with_and_without_cache(&|prefix| {
        open(&format!("gs://{}/{prefix}", server::BUCKET), &reaching(&server.endpoint())).unwrap()
    });
}

#[test]
fn a_repository_lives_in_any_store_of_the_library() {
    let store = Arc::default();
    live_with(LONGEST + LONGEST / 8, &|| Box::new(far_memory(&store)));
}

#[test]
fn what_fails_for_a_while_is_tried_again() {
    for whose in BOTH {
        for manner in [
            Manner::Status(500),
            Manner::Status(503),
            Manner::Status(429),
            Manner::Status(408),
            Manner::Status(409),
            Manner::DoneButStatus(500),
            Manner::DoneThenCut,
            Manner::Truncate,
        ] {
            for call in ["PUT", "GET", "HEAD", "DELETE"] {
                let server = Server::odd(whose, at(0, method(call), manner));
                let objects = objects(&server, whose);
                let what = format!("{whose:?} {call} {manner:?}");
                assert_eq!(objects.put("packs/aa/one", b"one").unwrap(), Put::Created, "{what}");
                assert_eq!(objects.put("packs/aa/one", b"two").unwrap(), Put::Existed, "{what}");
                assert_eq!(objects.get("packs/aa/one", 9).unwrap(), b"one", "{what}");
                assert_eq!(objects.get_range("packs/aa/one", 9, 9).unwrap(), b"", "{what}");
                assert_eq!(objects.list("packs/").unwrap().len(), 1, "{what}");
                objects.delete("packs/aa/one").unwrap();
                assert_eq!(objects.list("packs/").unwrap().len(), 0, "{what}");
            }
        }
    }
}

#[test]
fn a_put_whose_answer_is_lost_was_done_by_whoever_has_the_same_bytes() {
    for whose in BOTH {
        for lost in [Manner::DoneButStatus(503), Manner::DoneThenCut, Manner::Status(500)] {
            // The second put is the one whose first answer is lost.
            let server = Server::odd(whose, at(1, method("PUT"), lost));
            let objects = objects(&server, whose);
            let what = format!("{whose:?} {lost:?}");
            assert_eq!(objects.put("packs/aa/theirs", b"theirs").unwrap(), Put::Created);
            assert_eq!(objects.put("packs/aa/theirs", b"ours").unwrap(), Put::Existed, "{what}");
            assert_eq!(objects.get("packs/aa/theirs", 9).unwrap(), b"theirs", "{what}");
            let server = Server::odd(whose, at(0, method("PUT"), lost));
            let objects = self::objects(&server, whose);
            let mut new = objects.begin().unwrap();
            new.write(b"ours").unwrap();
            assert_eq!(new.finish("packs/aa/ours").unwrap(), Put::Created, "{what}");
            assert_eq!(objects.put("packs/aa/ours", b"ours").unwrap(), Put::Existed, "{what}");
        }
    }
}

#[test]
fn what_goes_on_failing_is_named_and_worth_trying_again() {
    for whose in BOTH {
        for (manner, kind) in [
            (Manner::Status(503), io::ErrorKind::ResourceBusy),
            (Manner::Status(429), io::ErrorKind::ResourceBusy),
            (Manner::DoneThenCut, io::ErrorKind::NotConnected),
        ] {
            let server = Server::odd(whose, move |_| manner);
            let objects = objects(&server, whose);
            let errors = [
                objects.put("packs/aa/one", b"one").unwrap_err(),
                objects.get("packs/aa/one", 9).unwrap_err(),
                objects.get_range("packs/aa/one", 0, 9).unwrap_err(),
                objects.get_end("packs/aa/one", 9).unwrap_err(),
                objects.delete("packs/aa/one").unwrap_err(),
                objects.list("packs/aa/").unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.kind(), kind, "{error}");
                let said = error.to_string();
                assert!(said.contains("://bucket/prefix/packs/aa/"), "{said}");
                assert!(said.contains("3 attempts") && is_transient(&error), "{said}");
                assert!(!said.contains("hidden") && !said.contains("secret"), "{said}");
            }
        }
    }
}

#[test]
fn what_is_refused_is_not_tried_again() {
    for whose in BOTH {
        let seen = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&seen);
        let server = Server::odd(whose, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Manner::Right
        });
        let scheme = if whose == Whose::Amazon { "s3" } else { "gs" };
        let elsewhere =
            open(&format!("{scheme}://nowhere/p"), &quickly(&server.endpoint())).unwrap();
        let error = elsewhere.get("format", 9).unwrap_err();
        assert!(error.to_string().contains("no such bucket"), "{error}");
        assert_ne!(error.kind(), io::ErrorKind::NotFound, "the bucket is missing, not the object");
        let stranger = Options {
            access_key: Some("stranger".to_owned()),
            google: ash_snapshot::objects::GoogleCredentials::Bearer(
                ash_snapshot::objects::Secret::new("stranger-hidden"),
            ),
            ..quickly(&server.endpoint())
        };
        let refused = open(&format!("{scheme}://bucket/p"), &stranger).unwrap();
        let error = refused.put("format", b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("AccessDenied"), "{error}");
        assert!(!error.to_string().contains("hidden") && !is_transient(&error), "{error}");
        assert_eq!(seen.load(Ordering::Relaxed), 2);
    }
}

#[test]
fn s3_refuses_a_key_that_it_does_not_know() {
    let moto = Moto::start(Keys::NoneGood);
    let url = format!("s3://{}/path", moto::BUCKET);
    let objects = open(&url, &quickly(&moto.endpoint)).unwrap();
    let error = objects.get("format", 9).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("InvalidAccessKeyId"), "{error}");
}

#[test]
fn what_is_to_be_secret_is_not_said_to_a_server_without_tls() {
    let server = Server::odd(Whose::Amazon, |request| panic!("it was understood: {request:?}"));
    let endpoint = server.endpoint().replace("http://", "https://");
    let objects = open("s3://bucket/path", &quickly(&endpoint)).unwrap();
    let error = objects.get("format", 9).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotConnected, "{error}");
}

#[test]
fn nobody_waits_for_ever() {
    for whose in BOTH {
        let server = Server::odd(whose, |_| Manner::Stall);
        let limits = Limits {
            attempts: 2,
            timeout: Duration::from_millis(100),
            pause: Duration::from_millis(1),
        };
        let options = Options { limits, ..reaching(&server.endpoint()) };
        let scheme = if whose == Whose::Amazon { "s3" } else { "gs" };
        let objects = open(&format!("{scheme}://bucket/p"), &options).unwrap();
        let errors = [
            objects.put("packs/aa/one", b"one").unwrap_err(),
            objects.get("packs/aa/one", 9).unwrap_err(),
            objects.delete("packs/aa/one").unwrap_err(),
            objects.list("packs/").unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
            assert!(is_transient(&error) && error.to_string().contains("packs/"), "{error}");
        }
    }
    // Nobody listens at all.
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let objects = open("s3://bucket/p", &quickly(&format!("http://{unused}"))).unwrap();
    let error = objects.get("format", 9).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotConnected, "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn a_server_that_does_not_do_what_is_relied_on_is_refused() {
    let odd: [(Manner, &str, &str); 5] = [
        (Manner::Overwrite, "PUT", "If-None-Match"),
        (Manner::AllOfIt, "GET", "Range"),
        (Manner::Wrong, "GET", "another server"),
        (Manner::ListNothing, "GET", "lists"),
        (Manner::KeepIt, "DELETE", "deletes"),
    ];
    for whose in BOTH {
        for (manner, call, remedy) in odd {
            let server = Server::odd(whose, move |request| {
                // A list with wrong bytes is no list.
                let is_list = request.method == "GET" && request.name.is_empty();
                let is_it = request.method == call && !(is_list && manner == Manner::Wrong);
                if is_it { manner } else { Manner::Right }
            });
            let store = objects(&server, whose);
            let unfit: Unfit = probe(&*store).unwrap_err();
            assert!(unfit.to_string().contains(remedy), "{whose:?} {manner:?}: {unfit:?}");
            let Err(refused) = Repository::open(objects(&server, whose)) else {
                panic!("a repository was made: {whose:?} {manner:?}");
            };
            let source = std::error::Error::source(&refused).unwrap().to_string();
            assert!(source.contains(remedy), "{refused}: {source}");
            server.change(|objects| {
                assert!(!objects.contains_key("prefix/format"), "nothing was stored");
            });
        }
    }
}

#[test]
fn a_server_that_comes_to_overwrite_is_refused_when_it_is_opened_again() {
    for whose in BOTH {
        let bad = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = Arc::clone(&bad);
        let server = Server::odd(whose, move |_| {
            if seen.load(Ordering::Relaxed) { Manner::Overwrite } else { Manner::Right }
        });
        drop(Repository::open(objects(&server, whose)).unwrap());
        drop(Repository::open(objects(&server, whose)).unwrap());
        bad.store(true, Ordering::Relaxed);
        assert!(Repository::open(objects(&server, whose)).is_err());
        server.change(|objects| {
            let names: Vec<&String> = objects.keys().collect();
            assert_eq!(names, ["prefix/format"], "nothing is left of trying it out");
        });
    }
}

fn change(tree: &Path, step: u64) {
    for file in 0..3 {
        let text = format!("file {file} at {}\n", (step + file) / 2).repeat(300);
        fs::write(tree.join(file.to_string()), text).unwrap();
    }
}

/// Whatever request of a capture goes wrong for good: nothing half is there, and the next one succeeds.
#[test]
fn whatever_request_fails_for_good_nothing_half_is_left() {
    let manners = [
        Manner::Status(503),
        Manner::Status(403),
        Manner::DoneButStatus(500),
        Manner::DoneThenCut,
        Manner::Truncate,
        Manner::Wrong,
    ];
    for whose in BOTH {
        for manner in manners {
            for point in 0.. {
                let tree = tempfile::tempdir().unwrap();
                let from = Arc::new(AtomicU64::new(u64::MAX));
                let (seen, counted) = (Arc::clone(&from), Arc::new(AtomicU64::new(0)));
                let calls = Arc::clone(&counted);
                // From that request on all that are made while it captures.
                let server = Server::odd(whose, move |_| {
                    let from = seen.load(Ordering::Relaxed);
                    if from == u64::MAX {
                        return Manner::Right;
                    }
                    let call = calls.fetch_add(1, Ordering::Relaxed);
                    if call >= from && call < from + 3 { manner } else { Manner::Right }
                });
                let mut state = State::default();
                change(tree.path(), 0);
                let sound = Repository::open(objects(&server, whose)).unwrap();
                capture(&sound, tree.path(), &mut state);
                change(tree.path(), 1);
                from.store(point, Ordering::Relaxed);
                let taken = Repository::open(objects(&server, whose))
                    .and_then(|repository| try_capture(&repository, tree.path(), &mut state));
                from.store(u64::MAX, Ordering::Relaxed);
                let what = format!("{whose:?} {manner:?} at {point}: {taken:?}");
                let sound = Repository::open(objects(&server, whose)).unwrap();
                let verified = verify(&sound);
                assert!(verified.is_whole(), "{what}: {verified:?}");
                if let Ok(taken) = taken {
                    assert_eq!(restored(&sound, &taken.snapshot), picture(tree.path()), "{what}");
                }
                let next = capture(&sound, tree.path(), &mut state).snapshot;
                assert_eq!(restored(&sound, &next), picture(tree.path()), "{what}");
                if counted.load(Ordering::Relaxed) <= point {
                    break;
                }
            }
        }
    }
}

#[test]
fn wrong_bytes_of_a_server_are_damage_and_another_pack_or_attempt_is_not_guessed() {
    for whose in BOTH {
        let server = Server::start(whose);
        let tree = tempfile::tempdir().unwrap();
        change(tree.path(), 0);
        let repository = Repository::open(objects(&server, whose)).unwrap();
        capture(&repository, tree.path(), &mut State::default());
        server.change(|objects| {
            for (_, (bytes, _)) in objects.iter_mut().filter(|(name, _)| name.contains("packs/")) {
                bytes[20] ^= 1;
            }
        });
        let verified = verify(&Repository::open(objects(&server, whose)).unwrap());
        assert!(!verified.is_whole());
    }
}

#[test]
fn a_snapshot_that_cannot_be_read_for_now_is_not_forgotten_as_if_it_were_nothing() {
    let bad = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&bad);
    let server = Server::odd(Whose::Amazon, move |request| {
        let reads = request.method == "GET" && request.name.contains("snapshots/");
        if reads && seen.load(Ordering::Relaxed) { Manner::Status(503) } else { Manner::Right }
    });
    let tree = tempfile::tempdir().unwrap();
    change(tree.path(), 0);
    let repository = Repository::open(objects(&server, Whose::Amazon)).unwrap();
    let taken = capture(&repository, tree.path(), &mut State::default()).snapshot;
    bad.store(true, Ordering::Relaxed);
    assert!(repository.forget(taken.id).unwrap_err().is_transient());
    bad.store(false, Ordering::Relaxed);
    assert_eq!(restored(&repository, &taken), picture(tree.path()));
}

#[test]
fn a_busy_server_is_not_taken_for_damage() {
    // How many reads of packs are answered.
    let answered = Arc::new(AtomicU64::new(u64::MAX));
    let left = Arc::clone(&answered);
    let server = Server::odd(Whose::Amazon, move |request| {
        let reads = request.method == "GET" && request.name.contains("packs/");
        let take = |left: u64| left.checked_sub(1);
        let is_busy =
            reads && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err();
        if is_busy { Manner::Status(503) } else { Manner::Right }
    });
    let tree = tempfile::tempdir().unwrap();
    change(tree.path(), 0);
    let repository = Repository::open(objects(&server, Whose::Amazon)).unwrap();
    let taken = capture(&repository, tree.path(), &mut State::default()).snapshot;
    let everything = Verify { threads: 2, max_entries: 1000, progress: &|_| true };
    let root = taken.root("workspace").unwrap();
    let mut busy = 0;
    for number in 0..20 {
        answered.store(number, Ordering::Relaxed);
        match repository.verify(&everything) {
            Ok(verified) => assert!(verified.is_whole(), "{number}: {verified:?}"),
            Err(error) => {
                busy += 1;
                assert!(error.is_transient(), "{number}: {error}");
            }
        }
        answered.store(number, Ordering::Relaxed);
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("target");
        let lenient = Restore { damaged: Damaged::LeaveOut, ..whole(root, &target) };
        match repository.restore(&lenient) {
            Ok(restored) => assert_eq!(restored.left_out, Vec::<Vec<u8>>::new(), "{number}"),
            Err(error) => assert!(error.is_transient(), "{number}: {error}"),
        }
    }
    assert!(busy > 2, "{busy} times");
}
