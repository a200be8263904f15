//! What every store must do, and that every one does.

use std::sync::{Arc, Mutex};

use ash_snapshot::objects::{
    CachedObjects, GoogleCredentials, Limits, LocalObjects, MemoryObjects, Objects, Options, Put,
    RemoteObjects, Secret, is_transient, open, probe,
};

use crate::moto::{self, Keys, Moto};
use crate::server::{self, Manner, Server, Whose};

/// What every implementation must do.
fn keeps_what_it_is_given(objects: &dyn Objects) {
    assert_eq!(objects.put("packs/aa/one", b"one").unwrap(), Put::Created);
    assert_eq!(objects.put("packs/aa/one", b"other").unwrap(), Put::Existed);
    assert_eq!(objects.put("packs/aa/one", b"one").unwrap(), Put::Existed, "the same is no other");
    assert_eq!(objects.get("packs/aa/one", 3).unwrap(), b"one");
    assert!(objects.get("packs/aa/one", 2).is_err(), "it is longer than allowed");
    assert_eq!(objects.get_range("packs/aa/one", 1, 1).unwrap(), b"n");
    assert_eq!(objects.get_range("packs/aa/one", 1, 99).unwrap(), b"ne");
    assert_eq!(objects.get_range("packs/aa/one", 99, 1).unwrap(), b"");
    assert_eq!(objects.get_range("packs/aa/one", 3, 1).unwrap(), b"");
    assert_eq!(objects.get_range("packs/aa/one", 1, 0).unwrap(), b"");
    assert_eq!(objects.get_range("packs/aa/one", 0, u64::MAX).unwrap(), b"one");
    assert_eq!(objects.get_end("packs/aa/one", 2).unwrap(), (b"ne".to_vec(), 3));
    assert_eq!(objects.get_end("packs/aa/one", 99).unwrap(), (b"one".to_vec(), 3));
    assert_eq!(objects.get_end("packs/aa/one", 0).unwrap(), (b"".to_vec(), 3));

    let mut new = objects.begin().unwrap();
    new.write(b"t").unwrap();
    new.write(b"wo").unwrap();
    assert_eq!(objects.list("packs/").unwrap().len(), 1, "what is begun is not there");
    assert_eq!(new.finish("packs/bb/two").unwrap(), Put::Created);
    let mut never = objects.begin().unwrap();
    never.write(b"three").unwrap();
    drop(never);
    let mut late = objects.begin().unwrap();
    late.write(b"late").unwrap();
    assert_eq!(late.finish("packs/bb/two").unwrap(), Put::Existed);
    assert_eq!(objects.get("packs/bb/two", 9).unwrap(), b"two");

    let names = |prefix| {
        let listed = objects.list(prefix).unwrap();
        listed.into_iter().map(|one| (one.name, one.size)).collect::<Vec<_>>()
    };
    let both = [("packs/aa/one".to_owned(), 3), ("packs/bb/two".to_owned(), 3)];
    assert_eq!(names("packs/"), both);
    assert_eq!(names("packs/aa/"), both[..1]);
    assert_eq!(names("snapshots/"), []);

    objects.delete("packs/aa/one").unwrap();
    objects.delete("packs/aa/one").unwrap();
    objects.delete("gone/one").unwrap();
    let gone = objects.get("packs/aa/one", 9).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    assert_eq!(objects.get_range("packs/aa/one", 0, 9).unwrap_err().kind(), gone.kind());

    assert_eq!(objects.get_end("packs/aa/one", 9).unwrap_err().kind(), gone.kind());
    assert_eq!(objects.put("packs/aa/one", b"again").unwrap(), Put::Created);
    assert_eq!(objects.get("packs/aa/one", 9).unwrap(), b"again");
    assert_eq!(objects.get_end("packs/aa/one", 2).unwrap(), (b"in".to_vec(), 5));

    // Marks are empty.
    assert_eq!(objects.put("gc/mark.1", b"").unwrap(), Put::Created);
    assert_eq!(objects.put("gc/mark.1", b"").unwrap(), Put::Existed);
    assert_eq!(objects.get("gc/mark.1", 9).unwrap(), b"");
    assert_eq!(objects.get_range("gc/mark.1", 0, 9).unwrap(), b"");
    assert_eq!(objects.get_end("gc/mark.1", 9).unwrap(), (b"".to_vec(), 0));
    assert_eq!(objects.list("gc/").unwrap()[0].size, 0);

    // Lists come in pages, and all of them count.
    let many: Vec<String> = (0..7).map(|number| format!("snapshots/{number}")).collect();
    for name in &many {
        objects.put(name, name.as_bytes()).unwrap();
    }
    let listed = names("snapshots/").into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(listed, many);
    assert!(objects.list("snapshots/").unwrap().iter().all(|one| one.put_at > 1_500_000_000_000));

    for name in ["../out", "a/../b", "/etc/passwd", "", "a//b", ".hidden", "a b", "a%2fb"] {
        assert!(objects.put(name, b"").is_err(), "{name}");
    }
    let before = objects.list("packs/").unwrap();
    probe(objects).unwrap();
    assert_eq!(objects.list("packs/").unwrap(), before);
    assert_eq!(names("probe/"), []);
    let long = vec![7; 3_000_000];
    let mut new = objects.begin().unwrap();
    long.chunks(700_000).for_each(|part| new.write(part).unwrap());
    assert_eq!(new.finish("packs/cc/long").unwrap(), Put::Created);
    assert_eq!(objects.get("packs/cc/long", 3_000_000).unwrap(), long);
    assert_eq!(objects.get_range("packs/cc/long", 65_000, 70_000).unwrap(), long[..70_000]);
}

/// A store by itself, and with a cache in front of it.
fn both_ways(make: impl Fn(&str) -> Box<dyn Objects>) {
    keeps_what_it_is_given(&*make("plain"));
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("deep/cache");
    let cached = CachedObjects::open(make("cached"), "here", &cache, 50_000_000).unwrap();
    keeps_what_it_is_given(&cached);
}

/// How to reach a server that was started here.
pub(crate) fn reaching(endpoint: &str) -> Options {
    Options {
        endpoint: Some(endpoint.to_owned()),
        access_key: Some(server::KEY.to_owned()),
        secret_key: Some(Secret::new("hidden")),
        google: GoogleCredentials::Bearer(Secret::new(server::TOKEN)),
        ..Options::default()
    }
}

/// A remote store in memory.
pub(crate) fn far_memory(store: &Arc<object_store::memory::InMemory>) -> RemoteObjects {
    let store = Arc::clone(store) as Arc<dyn object_store::ObjectStore>;
    RemoteObjects::over(store, "some/where", "memory", Limits::default()).unwrap()
}

#[test]
fn memory_keeps_what_it_is_given() {
    both_ways(|_| open("memory:", &Options::default()).unwrap());
    assert_eq!(MemoryObjects::default().max_object(), u64::MAX);
}

#[test]
fn a_directory_keeps_what_it_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep");
    both_ways(|name| {
        let path = path.join(name);
        let url = if name == "plain" { String::new() } else { "file://".to_owned() };
        open(&format!("{url}{}", path.to_str().unwrap()), &Options::default()).unwrap()
    });
    let aside = path.join("plain/tmp");
    assert_eq!(std::fs::read_dir(&aside).unwrap().count(), 0, "nothing is left aside");
    let begun = aside.join("01890000-0000-7000-8000-000000000000");
    std::fs::write(&begun, "of one that died").unwrap();
    std::fs::write(aside.join("notes.txt"), "of somebody else").unwrap();
    let objects = LocalObjects::open(&path.join("plain")).unwrap();
    objects.clear(std::time::Duration::ZERO).unwrap();
    assert_eq!((begun.exists(), aside.join("notes.txt").exists()), (false, true));
}

#[test]
fn a_remote_store_in_memory_keeps_what_it_is_given() {
    both_ways(|_| Box::new(far_memory(&Arc::default())));
    let store = Arc::default();
    let objects = far_memory(&store);
    assert!(objects.put("packs/aa/long", &vec![0; 33 << 20]).is_err(), "it is not held in memory");
    let mut new = objects.begin().unwrap();
    new.write(&vec![0; 32 << 20]).unwrap();
    assert!(new.write(b"more").is_err());
}

#[test]
fn s3_keeps_what_it_is_given() {
    let moto = Moto::start(Keys::AllGood);
    both_ways(|name| {
        let url = format!("s3://{}/some/{name}", moto::BUCKET);
        open(&url, &reaching(&moto.endpoint)).unwrap()
    });
}

#[test]
fn s3_of_our_own_keeps_what_it_is_given() {
    let server = Server::start(Whose::Amazon);
    both_ways(|name| {
        open(&format!("s3://{}/{name}", server::BUCKET), &reaching(&server.endpoint())).unwrap()
    });
    // Without a prefix too.
    let bare = Server::start(Whose::Amazon);
    let url = format!("s3://{}", server::BUCKET);
    keeps_what_it_is_given(&*open(&url, &reaching(&bare.endpoint())).unwrap());
}

#[test]
fn google_keeps_what_it_is_given() {
    let server = Server::start(Whose::Google);
    both_ways(|name| {
        open(&format!("gs://{}/{name}", server::BUCKET), &reaching(&server.endpoint())).unwrap()
    });
}

#[test]
fn what_a_server_has_kept_otherwise_was_not_put() {
    for (whose, scheme) in [(Whose::Amazon, "s3"), (Whose::Google, "gs")] {
        let manner = Arc::new(Mutex::new(Manner::Right));
        let told = Arc::clone(&manner);
        let server = Server::odd(whose, move |request| match request.method.as_str() {
            "PUT" => *told.lock().unwrap(),
            _ => Manner::Right,
        });
        let url = format!("{scheme}://{}/prefix", server::BUCKET);
        let objects = open(&url, &reaching(&server.endpoint())).unwrap();
        let streamed = |name: &str| {
            let mut new = objects.begin().unwrap();
            new.write(b"all of it").unwrap();
            new.finish(name)
        };
        let whole = |name: &str| objects.put(name, b"all of it");
        // Of what is written piece by piece, which can be much, only the length is looked at.
        let tried = [
            (&streamed as &dyn Fn(&str) -> _, "streamed", &[Manner::Halve, Manner::Lose][..]),
            (&whole, "whole", &[Manner::Halve, Manner::Lose, Manner::Alter]),
        ];
        for (put, how, manners) in tried {
            let name = format!("packs/aa/{how}");
            for wrong in manners {
                *manner.lock().unwrap() = *wrong;
                let error = put(&name).unwrap_err();
                assert!(is_transient(&error), "{how}, {wrong:?}: {error}");
                assert!(objects.list("packs/").unwrap().is_empty(), "nobody finds it");
            }
            *manner.lock().unwrap() = Manner::Right;
            assert_eq!(put(&name).unwrap(), Put::Created);
            assert_eq!(objects.get(&name, 99).unwrap(), b"all of it");
            objects.delete(&name).unwrap();
        }
    }
}

#[test]
fn a_service_account_signs_for_itself() {
    let make = "from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives import serialization as s
key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
print(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()).decode())";
    let made = moto::python().args(["-c", make]).output().unwrap();
    let key = String::from_utf8(made.stdout).unwrap();
    let account = serde_json::json!({
        "type": "service_account", "private_key": key, "private_key_id": "1",
        "client_email": "test@example.org",
    });
    let server = Server::start(Whose::Google);
    let url = format!("gs://{}/account", server::BUCKET);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("account.json");
    std::fs::write(&path, account.to_string()).unwrap();
    let json = GoogleCredentials::Json(Secret::new(account.to_string()));
    for (number, google) in [GoogleCredentials::File(path), json].into_iter().enumerate() {
        let objects = open(&url, &Options { google, ..reaching(&server.endpoint()) }).unwrap();
        assert_eq!(objects.put(&format!("packs/aa/{number}"), b"one").unwrap(), Put::Created);
    }
}
