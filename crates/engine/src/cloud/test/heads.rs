//! What sets in a bucket are worth when something of it is missing, damaged, or another server's.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use ash_core::id::{SessionId, SnapshotId, TenantId};
use ash_core::number::{LogEpoch, Seq};
use ash_core::time::{Clock as _, Timestamp};
use ash_snapshot::objects::Options;
use ash_store::UsedCloud;

use crate::clock::SystemClock;
use crate::cloud::error::CloudError;
use crate::cloud::place::{Remote, Shelf};
use crate::cloud::set::{Head, Segment, VERSION, digest_of, place_of};
use crate::cloud::tidy::tidy_up;

struct Bucket {
    remote: Remote,
    dir: tempfile::TempDir,
}

fn session() -> SessionId {
    SessionId::from_parts(Timestamp::from_millis(1), [1; 10])
}

fn whose() -> (TenantId, SessionId) {
    (TenantId::default_tenant(), session())
}

impl Bucket {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}/bucket", dir.path().display());
        Self { remote: Remote::new(&url, Options::default(), None).unwrap(), dir }
    }

    fn shelf(&self) -> Arc<Shelf> {
        self.remote.shelf(&TenantId::default_tenant()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("bucket/tenants/default").join(name)
    }

    fn damage(&self, name: &str) {
        let whole = fs::read(self.path(name)).unwrap();
        fs::remove_file(self.path(name)).unwrap();
        fs::write(self.path(name), &whole[..whole.len() / 2]).unwrap();
    }

    fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// A head whose log is one part of these bytes.
    fn put(&self, number: u64, log: &[u8]) -> Head {
        let (shelf, (tenant, session)) = (self.shelf(), whose());
        let place = place_of(session);
        let part = shelf.put_part(&format!("{place}log/1"), log).unwrap();
        let one = Seq::new(1);
        let head = Head {
            version: VERSION,
            session,
            tenant,
            epoch: LogEpoch::new(1),
            number,
            seq: one,
            end: Some(digest_of(log)),
            snapshot: SnapshotId::from_parts(Timestamp::from_millis(1), [9; 10]),
            snapshot_seq: one,
            at: Timestamp::from_millis(1),
            writer: "me".to_owned(),
            agent_name: "coder".parse().unwrap(),
            title: None,
            turns: 0,
            status: Some("paused".to_owned()),
            log: vec![Segment { first: one, last: one, part: part.clone() }],
            record: shelf.put_part(&format!("{place}records/1"), log).unwrap(),
            agent: crate::cloud::set::Part { name: "agents/x.json".to_owned(), ..part },
            attachments: Vec::new(),
        };
        shelf.put(&head.name(), &head.encode()).unwrap();
        head
    }
}

fn now() -> Timestamp {
    SystemClock.now()
}

#[test]
fn a_head_that_cannot_be_read_leaves_the_one_before_it_and_its_place_in_the_line() {
    let bucket = Bucket::new();
    let (tenant, session) = whose();
    let (first, second) = (bucket.put(1, b"one"), bucket.put(2, b"two"));
    bucket.damage(&second.name());
    let standing = bucket.shelf().standing(&tenant, session).unwrap();
    assert_eq!(standing.head, Some(first.clone()));
    assert_eq!(standing.latest, Some((LogEpoch::new(1), 2)), "the next one comes after it");
    bucket.damage(&first.name());
    assert_eq!(bucket.shelf().standing(&tenant, session).unwrap().head, None);
}

#[test]
fn a_part_that_is_put_again_gets_a_name_of_its_own_whatever_has_the_first() {
    let bucket = Bucket::new();
    let shelf = bucket.shelf();
    let part = shelf.put_part("sessions/x/log/1", b"some entries").unwrap();
    bucket.damage(&part.name);
    assert!(matches!(shelf.get_part(&part, 100), Err(CloudError::Damaged(_))));
    let again = shelf.put_part("sessions/x/log/1", b"some entries").unwrap();
    assert_ne!(again.name, part.name);
    assert_eq!(shelf.get_part(&again, 100).unwrap(), b"some entries");
    fs::remove_file(bucket.path(&again.name)).unwrap();
    let missing = shelf.get_part(&again, 100);
    assert!(matches!(missing, Err(CloudError::Damaged(_))), "a head has named it: {missing:?}");
}

#[test]
fn what_another_server_has_put_and_not_named_yet_stays() {
    let bucket = Bucket::new();
    let heads: Vec<Head> =
        (1..=7).map(|number| bucket.put(number, &number.to_be_bytes())).collect();
    let theirs = bucket.shelf().put_part(&format!("{}log/2", place_of(session())), b"!").unwrap();
    let latest = heads.last().unwrap();
    tidy_up(&bucket.shelf(), latest, now()).unwrap();
    for (index, head) in heads.iter().enumerate() {
        let is_kept = index >= 5;
        for name in [&head.name(), &head.log[0].part.name, &head.record.name] {
            assert_eq!(bucket.has(name), is_kept, "{name} of head {}", index + 1);
        }
    }
    assert!(bucket.has(&theirs.name));
    // Nobody comes to a head a day later.
    (8..=13).for_each(|number| drop(bucket.put(number, &number.to_be_bytes())));
    let latest = bucket.put(14, b"last");
    let tomorrow = now().plus(std::time::Duration::from_secs(25 * 60 * 60));
    tidy_up(&bucket.shelf(), &latest, tomorrow).unwrap();
    assert!(!bucket.has(&theirs.name));
    assert!(bucket.has(&latest.log[0].part.name), "what is named stays, however old");
}

#[test]
fn a_head_that_cannot_be_read_is_none_of_those_that_are_kept() {
    let bucket = Bucket::new();
    let heads: Vec<Head> =
        (1..=7).map(|number| bucket.put(number, &number.to_be_bytes())).collect();
    bucket.damage(&heads[5].name());
    tidy_up(&bucket.shelf(), &heads[6], now()).unwrap();
    let kept: Vec<bool> = heads.iter().map(|head| bucket.has(&head.name())).collect();
    assert_eq!(kept, [false, false, false, false, true, false, true]);
    assert!(bucket.has(&heads[4].log[0].part.name));
}

#[test]
fn a_bucket_keeps_its_id_and_another_one_has_another() {
    let (one, other) = (Bucket::new(), Bucket::new());
    let id = one.remote.bucket().unwrap();
    assert_eq!(one.remote.bucket().unwrap(), id);
    assert_ne!(other.remote.bucket().unwrap(), id);
}

#[test]
fn where_a_bucket_was_used_none_is_made_and_elsewhere_one_is() {
    let bucket = Bucket::new();
    let used = |url: Option<&str>| {
        let url = url.map(str::to_owned);
        Some(UsedCloud { bucket: "0".repeat(32), url })
    };
    let of = |url: &str| Remote::new(url, Options::default(), None).unwrap();
    let url = bucket.remote.url().to_owned();
    let away = of(&url);
    away.remember(used(Some(&url)));
    assert!(matches!(away.bucket(), Err(CloudError::Unavailable(_))));
    assert!(matches!(away.shelf(&whose().0), Err(CloudError::Unavailable(_))));
    assert!(!bucket.dir.path().join("bucket").exists(), "nothing is made");
    for known in [None, used(None), used(Some("file:///elsewhere"))] {
        let other = of(&url);
        other.remember(known);
        let id = other.bucket().unwrap();
        other.use_bucket(&id);
        assert!(other.is_here().is_ok());
        fs::rename(bucket.dir.path().join("bucket"), bucket.dir.path().join("away")).unwrap();
        assert!(matches!(other.is_here(), Err(CloudError::Unavailable(_))));
        fs::remove_dir_all(bucket.dir.path().join("away")).unwrap();
    }
}
