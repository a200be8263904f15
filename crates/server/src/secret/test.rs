//! What is sealed opens for its own context only, and whoever owns the machine gets in.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ash_core::id::TenantId;
use ash_core::time::{Clock, Timestamp};
use ash_store::memory::MemoryStore;
use ash_store::{ApiKey, Store as _};
use proptest::prelude::*;

use super::*;

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(43_200_000)
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn sealer(key: &str) -> Sealer {
    Sealer::open_or_create(Path::new("/nowhere"), Some(key)).unwrap()
}

proptest! {
    #[test]
    fn what_was_sealed_opens_and_anything_else_does_not(
        plain: Vec<u8>, context: String, other: String, at: prop::sample::Index, flip in 1..=255_u8,
    ) {
        let ours = sealer("one key");
        let sealed = ours.seal(&plain, &context);
        prop_assert_eq!(ours.open(&sealed, &context), Ok(plain.clone()));
        prop_assert_ne!(&ours.seal(&plain, &context), &sealed, "a nonce is used once");
        if other != context {
            prop_assert_eq!(ours.open(&sealed, &other), Err(SealError::DoesNotOpen));
        }
        prop_assert_eq!(sealer("another").open(&sealed, &context), Err(SealError::DoesNotOpen));
        let mut changed = sealed.clone();
        changed[at.index(sealed.len())] ^= flip;
        prop_assert!(ours.open(&changed, &context).is_err());
        prop_assert!(ours.open(&sealed[..at.index(sealed.len())], &context).is_err());
    }
}

/// `sk-ant-1` for `credential 1`, with a nonce of sevens and the key `kept`. It is never edited.
const SEALED_WITH_SEVENS: &str = "41e6a629f09da63af5b8c80a41e0e52631b37978980b4daa";

#[test]
fn the_format_of_what_is_sealed_does_not_change() {
    let mut sealed = vec![1];
    sealed.extend([7; 24]);
    let tail = SEALED_WITH_SEVENS;
    sealed.extend(
        (0..tail.len()).step_by(2).map(|at| u8::from_str_radix(&tail[at..at + 2], 16).unwrap()),
    );
    assert_eq!(sealer("kept").open(&sealed, "credential 1").unwrap(), b"sk-ant-1");
    assert_eq!(sealer("kept").open(&[2; 60], ""), Err(SealError::TooNew(2)));
}

#[test]
fn a_key_is_made_once_for_its_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let sealed = Sealer::open_or_create(dir.path(), None).unwrap().seal(b"x", "c");
    assert_eq!(names(dir.path()), [CREDENTIAL_KEY_FILE]);
    assert_eq!(mode(&dir.path().join(CREDENTIAL_KEY_FILE)), 0o600);
    let again = Sealer::open_or_create(dir.path(), None).unwrap();
    assert_eq!(again.open(&sealed, "c").unwrap(), b"x");
    assert_eq!(format!("{again:?}"), "Sealer(..)");
}

#[test]
fn a_key_that_others_can_read_or_that_is_damaged_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(CREDENTIAL_KEY_FILE);
    Sealer::open_or_create(dir.path(), None).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = Sealer::open_or_create(dir.path(), None).unwrap_err().to_string();
    assert!(error.contains("mode is 0640") && error.contains("chmod 600"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    for damaged in ["", &whole[..40], &"0".repeat(64), &"g".repeat(64), &whole.repeat(2)] {
        fs::write(&path, damaged).unwrap();
        let error = Sealer::open_or_create(dir.path(), None).unwrap_err();
        assert!(matches!(error, SecretFileError::Damaged { .. }), "{damaged}: {error}");
    }
    assert!(!whole.trim().is_empty() && names(dir.path()).len() == 1);
}

#[test]
fn many_at_once_make_one_key() {
    let dir = tempfile::tempdir().unwrap();
    let sealers: Vec<Sealer> = std::thread::scope(|scope| {
        let start = || scope.spawn(|| Sealer::open_or_create(dir.path(), None).unwrap());
        let threads: Vec<_> = (0..8).map(|_| start()).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sealed = sealers[0].seal(b"x", "c");
    assert!(sealers.iter().all(|sealer| sealer.open(&sealed, "c").is_ok()));
    assert_eq!(names(dir.path()), [CREDENTIAL_KEY_FILE]);
}

#[test]
fn an_api_secret_is_long_shows_its_beginning_and_is_never_printed() {
    let secret = ApiSecret::make();
    assert_eq!(secret.expose().len(), 4 + 32);
    assert_eq!(secret.prefix(), format!("{}…", &secret.expose()[..8]));
    assert_eq!(format!("{secret:?}"), "ApiSecret(..)");
    assert!(secret.matches(&ApiSecret::from_text(secret.expose()).hash()));
    assert!(!secret.matches(&ApiSecret::make().hash()));
    // Of a short one of the operator's, most stays hidden.
    assert_eq!(ApiSecret::from_text("hunter2").prefix(), "hu…");
}

async fn keys(store: &MemoryStore) -> Vec<ApiKey> {
    store.api_keys(&TenantId::default_tenant()).await.unwrap()
}

async fn start(store: &MemoryStore, dir: &Path) -> InitialKey {
    initial_key(store, dir, &Noon).await.unwrap()
}

/// Whether the file lets its reader in.
async fn opens(store: &MemoryStore, dir: &Path) -> bool {
    let text = fs::read_to_string(dir.join(INITIAL_KEY_FILE)).unwrap();
    store.api_key_by_hash(&ApiSecret::from_text(text.trim()).hash()).await.is_ok()
}

#[tokio::test]
async fn the_first_start_makes_a_key_and_later_ones_keep_it() {
    let (store, dir) = (MemoryStore::new(), tempfile::tempdir().unwrap());
    let path = dir.path().join(INITIAL_KEY_FILE);
    assert_eq!(start(&store, dir.path()).await, InitialKey::Made(path.clone()));
    assert_eq!(mode(&path), 0o600);
    assert_eq!(start(&store, dir.path()).await, InitialKey::Kept(path));
    assert!(opens(&store, dir.path()).await);
    let keys = keys(&store).await;
    assert_eq!(keys.len(), 1);
    assert_eq!(keys[0].label, "auto-generated");
    assert_eq!(names(dir.path()), [INITIAL_KEY_FILE]);
}

#[tokio::test]
async fn a_crash_between_the_store_and_the_file_locks_nobody_out() {
    let (store, dir) = (MemoryStore::new(), tempfile::tempdir().unwrap());
    // The file cannot be written: as far as the store can tell, that is a crash.
    let gone = dir.path().join("not there yet");
    assert!(initial_key(&store, &gone, &Noon).await.is_err());
    assert_eq!(keys(&store).await.len(), 1);
    let path = dir.path().join(INITIAL_KEY_FILE);
    assert_eq!(start(&store, dir.path()).await, InitialKey::Recovered(path.clone()));
    assert!(opens(&store, dir.path()).await);
    assert!(keys(&store).await.iter().any(|key| key.label == "cli-recovery"));
    // What a power cut may leave of a file is not taken for a key.
    fs::write(&path, "\n").unwrap();
    assert_eq!(start(&store, dir.path()).await, InitialKey::Recovered(path));
    assert!(opens(&store, dir.path()).await);
}

#[tokio::test]
async fn an_old_file_beside_a_new_database_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    start(&MemoryStore::new(), dir.path()).await;
    let store = MemoryStore::new();
    assert!(matches!(start(&store, dir.path()).await, InitialKey::Made(_)));
    assert!(opens(&store, dir.path()).await);
}

#[tokio::test]
async fn a_key_that_was_revoked_is_not_made_again() {
    let (store, dir) = (MemoryStore::new(), tempfile::tempdir().unwrap());
    start(&store, dir.path()).await;
    let first = keys(&store).await.remove(0);
    let other = ApiKey {
        id: "018f0000-0000-7000-8000-000000000001".parse().unwrap(),
        hash: ApiSecret::make().hash(),
        ..first.clone()
    };
    store.create_api_key(&other, None).await.unwrap();
    store.revoke_api_key(&first.tenant, first.id).await.unwrap();
    assert!(matches!(start(&store, dir.path()).await, InitialKey::Revoked(_)));
    assert_eq!(keys(&store).await.len(), 1);
}

#[test]
fn whoever_comes_second_does_not_replace_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    assert_eq!(file::create_private(&path, b"first").unwrap(), file::Created::ByUs);
    assert_eq!(file::create_private(&path, b"second").unwrap(), file::Created::BySomebodyElse);
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!((mode(&path), names(dir.path()).len()), (0o600, 1));
}
