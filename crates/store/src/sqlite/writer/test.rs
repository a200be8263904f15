use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Mutex, mpsc as std_mpsc};
use std::task::{Context, Waker};

use rusqlite::Connection;

use super::*;

/// A database with a table of numbers, each of which can be there once.
fn numbers(path: &std::path::Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "journal_mode", "WAL").unwrap();
    connection.execute_batch("CREATE TABLE IF NOT EXISTS number (n BIGINT PRIMARY KEY)").unwrap();
    connection
}

fn insert(n: i64) -> impl Fn(&Connection) -> Result<i64> + Send + 'static {
    move |db| {
        db.execute("INSERT INTO number (n) VALUES (?1)", [n])?;
        Ok(n)
    }
}

fn stored(path: &std::path::Path) -> Vec<i64> {
    let connection = Connection::open(path).unwrap();
    let mut select = connection.prepare("SELECT n FROM number ORDER BY n").unwrap();
    let found = select.query_map([], |row| row.get(0)).unwrap();
    found.map(std::result::Result::unwrap).collect()
}

/// Keeps the thread busy until it is let go: what is asked for meanwhile becomes one group.
struct Held {
    go: std_mpsc::Sender<()>,
    answered: oneshot::Receiver<Result<()>>,
}

impl Held {
    /// Returns once the thread is busy.
    async fn hold(writer: &Writer) -> Self {
        let (go, wait) = std_mpsc::channel();
        let (busy, is_busy) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let busy = Mutex::new(Some(busy));
        let write = move |_: &Connection| {
            // It may be done again, but is busy for the first time only once.
            if let Some(busy) = busy.lock().unwrap().take() {
                busy.send(()).expect("whoever holds the thread waits for this");
            }
            // The other end is dropped: that is the sign.
            assert!(wait.recv().is_err());
            Ok(())
        };
        let operation = Pending { touched: Touched::None, write, result: None, answer };
        writer.queue.as_ref().unwrap().try_send(Box::new(operation)).unwrap();
        is_busy.await.unwrap();
        Self { go, answered }
    }

    /// Returns once the thread has committed what held it.
    async fn let_go(self) {
        drop(self.go);
        self.answered.await.unwrap().unwrap();
    }
}

/// Puts an operation into the queue without waiting for its answer.
fn enqueue<F: Future>(mut future: Pin<&mut F>) {
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
}

#[tokio::test]
async fn one_that_fails_leaves_its_neighbors_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.db");
    let writer = Writer::start(numbers(&path), 256, None).unwrap();
    let held = Held::hold(&writer).await;
    let mut first = pin!(writer.perform(insert(1)));
    let mut half = pin!(writer.perform(|db| {
        insert(2)(db)?;
        Err::<(), _>(StoreError::NotFound("number"))
    }));
    let mut twice = pin!(writer.perform(insert(1)));
    let mut last = pin!(writer.perform(insert(3)));
    enqueue(first.as_mut());
    enqueue(half.as_mut());
    enqueue(twice.as_mut());
    enqueue(last.as_mut());
    held.let_go().await;
    assert_eq!(first.await.unwrap(), 1);
    assert!(matches!(half.await, Err(StoreError::NotFound("number"))));
    assert!(matches!(twice.await, Err(StoreError::Damaged { .. })));
    assert_eq!(last.await.unwrap(), 3);
    assert_eq!(stored(&path), [1, 3]);
}

#[tokio::test]
async fn what_waits_is_committed_together_up_to_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.db");
    let writer = Writer::start(numbers(&path), 2, None).unwrap();
    let held = Held::hold(&writer).await;
    // Each looks, through a connection of its own, at what is durable when it is done.
    let look = |n| {
        let path = path.clone();
        move |db: &Connection| {
            insert(n)(db)?;
            Ok(stored(&path))
        }
    };
    let mut first = pin!(writer.perform(look(1)));
    let mut second = pin!(writer.perform(look(2)));
    let mut third = pin!(writer.perform(look(3)));
    enqueue(first.as_mut());
    enqueue(second.as_mut());
    enqueue(third.as_mut());
    held.let_go().await;
    assert_eq!(first.await.unwrap(), [0; 0]);
    assert_eq!(second.await.unwrap(), [0; 0], "in the same group as the first");
    assert_eq!(third.await.unwrap(), [1, 2], "in a group of its own");
}

#[tokio::test]
async fn nobody_is_answered_before_the_commit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.db");
    let writer = Writer::start(numbers(&path), 256, None).unwrap();
    for n in 0..200 {
        writer.perform(insert(n)).await.unwrap();
        assert_eq!(stored(&path).last(), Some(&n));
    }
}

#[tokio::test]
async fn a_group_that_is_given_up_fails_as_a_whole_and_the_next_one_works() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.db");
    let writer = Writer::start(numbers(&path), 256, None).unwrap();
    let held = Held::hold(&writer).await;
    let mut before = pin!(writer.perform(insert(1)));
    let mut culprit = pin!(writer.perform(|db| {
        // What SQLite does by itself when it has no memory or no room.
        db.execute_batch("ROLLBACK")?;
        Err::<(), _>(StoreError::Full("no room".into()))
    }));
    let mut after = pin!(writer.perform(insert(2)));
    enqueue(before.as_mut());
    enqueue(culprit.as_mut());
    enqueue(after.as_mut());
    held.let_go().await;
    assert!(matches!(before.await, Err(StoreError::Full(_))));
    assert!(matches!(culprit.await, Err(StoreError::Full(_))));
    assert!(matches!(after.await, Err(StoreError::Full(_))));
    assert_eq!(stored(&path), [0; 0]);
    assert_eq!(writer.perform(insert(3)).await.unwrap(), 3);
    assert_eq!(stored(&path), [3]);
}

#[tokio::test]
async fn a_group_that_meets_a_damaged_database_is_not_worth_trying_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.db");
    let writer = Writer::start(numbers(&path), 256, None).unwrap();
    let held = Held::hold(&writer).await;
    let mut innocent = pin!(writer.perform(insert(1)));
    let mut culprit = pin!(writer.perform(|db| {
        db.execute_batch("ROLLBACK")?;
        let corrupt = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        Err::<(), _>(rusqlite::Error::SqliteFailure(corrupt, None).into())
    }));
    enqueue(innocent.as_mut());
    enqueue(culprit.as_mut());
    held.let_go().await;
    for error in [innocent.await.unwrap_err(), culprit.await.unwrap_err()] {
        assert!(matches!(error, StoreError::Damaged { what: "database", .. }), "{error:?}");
        assert!(!error.is_transient());
    }
    assert_eq!(stored(&path), [0; 0]);
}

#[tokio::test]
async fn a_commit_that_fails_is_told_to_everybody_and_the_next_one_works() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.db");
    let connection = numbers(&path);
    connection
        .execute_batch(
            "CREATE TABLE word (n BIGINT REFERENCES number (n) DEFERRABLE INITIALLY DEFERRED)",
        )
        .unwrap();
    connection.pragma_update(None, "foreign_keys", true).unwrap();
    let writer = Writer::start(connection, 256, None).unwrap();
    let held = Held::hold(&writer).await;
    let mut innocent = pin!(writer.perform(insert(1)));
    // Succeeds, and makes the commit fail: a deferred reference is looked at only then.
    let mut culprit = pin!(writer.perform(|db| {
        db.execute("INSERT INTO word (n) VALUES (99)", [])?;
        Ok(())
    }));
    enqueue(innocent.as_mut());
    enqueue(culprit.as_mut());
    held.let_go().await;
    // Whoever tries again is told the same again.
    let what = "reference between rows";
    assert!(matches!(innocent.await, Err(StoreError::Damaged { what: told, .. }) if told == what));
    assert!(matches!(culprit.await, Err(StoreError::Damaged { what: told, .. }) if told == what));
    assert_eq!(writer.perform(insert(2)).await.unwrap(), 2);
    assert_eq!(stored(&path), [2]);
}

#[tokio::test]
async fn a_full_queue_makes_callers_wait() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.db");
    let writer = Writer::start(numbers(&path), 256, None).unwrap();
    let held = Held::hold(&writer).await;
    let mut waiting = Vec::new();
    for n in 0..i64::try_from(QUEUE_CAPACITY).unwrap() {
        let mut future = Box::pin(writer.perform(insert(n)));
        enqueue(future.as_mut());
        waiting.push(future);
    }
    let queue = writer.queue.as_ref().unwrap();
    assert_eq!(queue.capacity(), 0);
    // One more is not let in, and gives up: it never happens.
    let mut refused = Box::pin(writer.perform(insert(-1)));
    enqueue(refused.as_mut());
    drop(refused);
    held.let_go().await;
    for future in waiting {
        future.await.unwrap();
    }
    assert_eq!(stored(&path), (0..i64::try_from(QUEUE_CAPACITY).unwrap()).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_let_in_happens_though_its_caller_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.db");
    let writer = Writer::start(numbers(&path), 256, None).unwrap();
    let held = Held::hold(&writer).await;
    let mut left = Box::pin(writer.perform(insert(1)));
    enqueue(left.as_mut());
    drop(left);
    held.let_go().await;
    writer.perform(insert(2)).await.unwrap();
    assert_eq!(stored(&path), [1, 2]);
}

#[tokio::test]
async fn dropping_the_writer_finishes_what_is_queued() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.db");
    let writer = Writer::start(numbers(&path), 8, None).unwrap();
    let held = Held::hold(&writer).await;
    for n in 0..100 {
        let mut left = Box::pin(writer.perform(insert(n)));
        enqueue(left.as_mut());
    }
    held.let_go().await;
    drop(writer);
    assert_eq!(stored(&path).len(), 100);
}

#[tokio::test]
async fn a_panic_of_the_thread_is_told_and_nobody_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("numbers.db");
    let writer = Writer::start(numbers(&path), 256, None).unwrap();
    let held = Held::hold(&writer).await;
    let mut before = pin!(writer.perform(insert(1)));
    let mut panicking = pin!(writer.perform(|_| -> Result<()> { panic!("a defect") }));
    enqueue(before.as_mut());
    enqueue(panicking.as_mut());
    held.let_go().await;
    assert!(matches!(before.await, Err(StoreError::Unavailable(_))));
    assert!(matches!(panicking.await, Err(StoreError::Unavailable(_))));
    assert!(matches!(writer.perform(insert(2)).await, Err(StoreError::Unavailable(_))));
    assert_eq!(stored(&path), [0; 0]);
}
