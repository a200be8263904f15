//! Opening a database: new, old, from the future, by two at once, damaged.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use ash_core::number::{Owner, Seq};
use ash_store::sqlite::SqliteStore;
use ash_store::{Store as _, StoreError};
use rusqlite::{Connection, TransactionBehavior};
use tempfile::TempDir;

use crate::support::{
    Conversation, agent_id, at, credential_id, deploy, name, reason, refusal, session_id, us,
};

struct Place {
    _directory: TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ash.db");
    Place { _directory: directory, path }
}

fn versions(path: &Path) -> Vec<(i64, String)> {
    let connection = Connection::open(path).unwrap();
    let mut select =
        connection.prepare("SELECT version, name FROM schema_migration ORDER BY version").unwrap();
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

/// What a database has that this program has opened.
/// Every migration there is, by the names of their files.
fn all_versions() -> Vec<(i64, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut all: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| {
            let name = file.unwrap().file_name().into_string().unwrap();
            let (version, name) = name.strip_suffix(".sql").unwrap().split_once('_').unwrap();
            (version.parse().unwrap(), name.to_owned())
        })
        .collect();
    all.sort();
    all
}

/// Changes the stored rows behind the store's back.
fn tamper(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_new_database_is_migrated_and_a_second_opening_changes_nothing() {
    let place = place();
    let store = SqliteStore::open(&place.path).unwrap();
    deploy(&store, 1).await;
    Conversation::active(&store, 10).await;
    store.close().await;
    assert_eq!(versions(&place.path), all_versions());

    let store = SqliteStore::open(&place.path).unwrap();
    let log = store.events_after(session_id(10), Seq::ZERO, 9).await.unwrap();
    assert_eq!(log.len(), 2);
    assert_eq!(store.tenants().await.unwrap().len(), 1);
    store.close().await;
    assert_eq!(versions(&place.path), all_versions());
}

#[tokio::test]
async fn a_database_of_the_first_version_is_brought_up_to_date_with_all_it_holds() {
    let place = place();
    tamper(&place.path, include_str!("../../migrations/0001_initial.sql"));
    tamper(
        &place.path,
        "CREATE TABLE schema_migration (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL);
         INSERT INTO schema_migration (version, name) VALUES (1, 'initial');",
    );
    let (agent, id) = (agent_id(1), credential_id(1));
    tamper(
        &place.path,
        &format!(
            "INSERT INTO agent (id, tenant_id, name, latest_version, created_at)
             VALUES ('{agent}', 'default', 'agent-1', 1, 5);
             INSERT INTO agent_version (agent_id, version, definition, created_at)
             VALUES ('{agent}', 1, '1', 5);
             INSERT INTO credential (id, tenant_id, kind, label, sealed, created_at)
             VALUES ('{id}', 'default', 'anthropic', 'old', X'00', 5);"
        ),
    );

    let store = SqliteStore::open(&place.path).unwrap();
    assert_eq!(versions(&place.path), all_versions());
    let agent = store.agent(&us(), &name("agent-1")).await.unwrap();
    assert_eq!((agent.settings.get(), agent.updated_at), ("{}", at(5)));
    assert_eq!(store.credential(&us(), id).await.unwrap().last_used_at, None);
    Conversation::active(&store, 10).await;
    assert_eq!(store.census().await.unwrap().live, 1);
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_that_comes_back_is_a_later_owner_and_its_former_self_is_superseded() {
    let place = place();
    let store = SqliteStore::open(&place.path).unwrap();
    deploy(&store, 1).await;
    Conversation::active(&store, 10).await;
    let former = store.next_owner().await.unwrap();
    store.claim_session(session_id(10), former).await.unwrap();
    store.close().await;

    let store = SqliteStore::open(&place.path).unwrap();
    let later = store.next_owner().await.unwrap();
    assert_eq!((former, later), (Owner::new(1), Owner::new(2)));
    store.claim_session(session_id(10), later).await.unwrap();
    store.close().await;

    let store = SqliteStore::open(&place.path).unwrap();
    let superseded = store.claim_session(session_id(10), former).await;
    assert!(matches!(superseded, Err(StoreError::Superseded(_))), "{superseded:?}");
}

#[tokio::test]
async fn a_database_without_its_count_of_owners_is_damaged() {
    let place = place();
    let store = SqliteStore::open(&place.path).unwrap();
    tamper(&place.path, "DELETE FROM owner");
    assert_eq!(refusal(store.next_owner().await), r#"Damaged("owner")"#);
}

#[tokio::test]
async fn a_closed_database_is_one_file() {
    let place = place();
    let store = SqliteStore::open(&place.path).unwrap();
    deploy(&store, 1).await;
    assert_eq!(store.agents(&us()).await.unwrap().len(), 1);
    store.close().await;
    let left = std::fs::read_dir(place.path.parent().unwrap()).unwrap();
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["ash.db"]);
}

#[test]
fn a_database_of_a_newer_program_is_left_alone() {
    let place = place();
    drop(SqliteStore::open(&place.path).unwrap());
    tamper(&place.path, "INSERT INTO schema_migration (version, name) VALUES (1000, 'later')");
    let error = SqliteStore::open(&place.path).err().unwrap();
    let StoreError::TooNew { found: 1_000, known } = error else { panic!("{error:?}") };
    assert_eq!(known, all_versions().last().unwrap().0);
    assert_eq!(versions(&place.path).len(), all_versions().len() + 1);
}

#[test]
fn an_opening_that_was_cut_short_is_made_up_for() {
    // Each is what a process leaves that dies on the way: an empty file, one in write-ahead mode,
    // and one with nothing but the table of migrations.
    for left in [
        "",
        "PRAGMA journal_mode = WAL",
        "CREATE TABLE schema_migration (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL)",
    ] {
        let place = place();
        tamper(&place.path, left);
        drop(SqliteStore::open(&place.path).unwrap());
        assert_eq!(versions(&place.path), all_versions(), "{left}");
    }
}

#[test]
fn a_migration_that_was_rolled_back_left_nothing() {
    let place = place();
    let mut other = Connection::open(&place.path).unwrap();
    let half = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    half.execute_batch("CREATE TABLE tenant (id TEXT)").unwrap();
    let opening = thread::spawn({
        let path = place.path.clone();
        move || SqliteStore::open(&path).map(drop)
    });
    // The other gives up; whether that is before or after the opening began to wait for it must
    // make no difference.
    half.rollback().unwrap();
    opening.join().unwrap().unwrap();
    assert_eq!(versions(&place.path), all_versions());
}

#[test]
fn many_may_open_a_new_database_at_once() {
    let place = place();
    thread::scope(|scope| {
        let openings: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| SqliteStore::open(&place.path).map(drop).map_err(|e| reason(&e)))
            })
            .collect();
        for opening in openings {
            assert_eq!(opening.join().unwrap(), Ok(()));
        }
    });
    assert_eq!(versions(&place.path), all_versions());
}

#[tokio::test]
async fn only_its_owner_reads_the_database() {
    let place = place();
    let store = SqliteStore::open(&place.path).unwrap();
    deploy(&store, 1).await;
    for entry in std::fs::read_dir(place.path.parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
}

#[test]
fn a_place_that_is_not_there_is_unavailable() {
    let error = SqliteStore::open(Path::new("/nowhere/at/all/ash.db")).err().unwrap();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
}

#[test]
fn what_is_no_database_is_damaged() {
    let place = place();
    std::fs::write(&place.path, "this is not a database, but it is long enough".repeat(99))
        .unwrap();
    let error = SqliteStore::open(&place.path).err().unwrap();
    assert!(matches!(error, StoreError::Damaged { what: "database", .. }), "{error:?}");
}

#[tokio::test]
async fn a_row_that_cannot_be_understood_is_damaged_and_says_what_it_is() {
    let place = place();
    let store = SqliteStore::open(&place.path).unwrap();
    deploy(&store, 1).await;
    let mut conversation = Conversation::active(&store, 10).await;
    store.commit(&conversation.prompt(1, "hello")).await.unwrap();

    tamper(&place.path, "UPDATE event SET body = '{\"unheard_of\":1}' WHERE seq = 2");
    let log = store.events_after(session_id(10), Seq::ZERO, 9).await;
    assert_eq!(refusal(log), r#"Damaged("entry")"#);
    tamper(&place.path, "UPDATE run SET status = 'perhaps'");
    assert_eq!(refusal(store.runs(session_id(10), 9).await), r#"Damaged("run")"#);
    tamper(&place.path, "UPDATE session_settings SET settings = '{'");
    assert_eq!(refusal(store.session(&us(), session_id(10)).await), r#"Damaged("settings")"#);
    tamper(&place.path, "UPDATE session SET machine = '{}'");
    tamper(&place.path, "UPDATE session_settings SET settings = '{}'");
    let claimed = store.claim_session(session_id(10), Owner::new(2)).await;
    assert_eq!(refusal(claimed), r#"Damaged("settings")"#);
    tamper(&place.path, "UPDATE agent SET name = 'no name'");
    assert_eq!(refusal(store.agents(&us()).await), r#"Damaged("agent")"#);
}

#[tokio::test]
async fn the_integrity_check_finds_a_hole_in_a_log_and_a_dangling_row() {
    let place = place();
    let store = SqliteStore::open(&place.path).unwrap();
    deploy(&store, 1).await;
    Conversation::active(&store, 10).await;
    assert_eq!(store.check_integrity().await.unwrap(), Vec::<String>::new());
    tamper(
        &place.path,
        "PRAGMA foreign_keys = OFF;
         DELETE FROM event WHERE seq = 1;
         INSERT INTO run (session_id, id, status, prompt_seq, accepted_at)
         VALUES ('nobody', 'x', 'queued', 1, 1);",
    );
    let id = session_id(10);
    assert_eq!(
        store.check_integrity().await.unwrap(),
        [
            "a row of run refers to a row of session that is not there".to_owned(),
            format!("session {id} should have a log of 2 entries; there are 1, up to 2"),
        ]
    );
}

#[tokio::test]
async fn whether_a_store_could_be_opened_is_told_without_changing_it() {
    let place = place();
    SqliteStore::can_open(&place.path).unwrap();
    assert!(!place.path.exists(), "it was made");
    tamper(&place.path, "CREATE TABLE other (x TEXT)");
    SqliteStore::can_open(&place.path).unwrap();
    let store = SqliteStore::open(&place.path).unwrap();
    // Also while somebody has it open.
    SqliteStore::can_open(&place.path).unwrap();
    store.close().await;
    tamper(&place.path, "INSERT INTO schema_migration VALUES (99, 'later')");
    let error = SqliteStore::can_open(&place.path).unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found: 99, .. }), "{error}");
    std::fs::write(&place.path, "this is no database, and is long enough to be taken for one")
        .unwrap();
    assert!(SqliteStore::can_open(&place.path).is_err());
}
