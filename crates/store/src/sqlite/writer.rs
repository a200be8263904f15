//! The one thread that writes, and its group commit.
//!
//! ```text
//!   callers ──► queue ──► BEGIN │ savepoint, operation, release │ … │ COMMIT ──► answers
//!                               └── up to a bound, whatever waits ──┘
//! ```
//!
//! A commit costs one wait for the disk, however much is in it. So the thread takes everything
//! that has gathered while the disk was busy with the group before: a lone caller has no delay,
//! and the busier it gets the larger the groups grow. If an operation fails, the group is done
//! again with a savepoint for each, so that it leaves its neighbors alone. Nobody is answered
//! before the commit of their group has returned.
//!
//! When the group as a whole fails (the disk is full, say), nothing of it happened as far as the
//! database will tell, and everybody in it gets the same error, a transient one unless the database
//! is damaged: also those whose operation had been refused, because the refusal may rest on a
//! neighbor's write that is gone.
//!
//! Before anybody is answered, either way, what the group touched is forgotten in [`Recent`].

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::recent::{Recent, Touched};
use super::sql;
use crate::{Result, StoreError};

/// How many operations wait at the most; beyond it, callers wait to be let into the queue.
const QUEUE_CAPACITY: usize = 1024;

/// How long a group that was larger before waits to become so again: about what a fast disk takes
/// for one commit, which is what it saves.
const BLINK: Duration = Duration::from_micros(400);

/// The handle of the thread. Dropping it lets the thread finish what is queued, and waits.
pub(super) struct Writer {
    /// Only `None` while the handle is being dropped, as is `thread`.
    queue: Option<mpsc::Sender<Box<dyn Operation>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    /// Starts the thread. It commits up to `group_limit` operations at once, and has what they
    /// touch forgotten in `recent`.
    pub(super) fn start(
        connection: Connection,
        group_limit: usize,
        recent: Option<Arc<Recent>>,
    ) -> io::Result<Self> {
        let (queue, waiting) = mpsc::channel(QUEUE_CAPACITY);
        let thread = thread::Builder::new()
            .name("ash-store-writer".to_owned())
            .spawn(move || write_groups(&connection, waiting, group_limit.max(1), recent))?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// Has `write` done, which touches no session; as [`change`](Self::change).
    pub(super) async fn perform<T: Send + 'static>(
        &self,
        write: impl Fn(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.change(Touched::None, write).await
    }

    /// Has `write` done in a transaction; returns once it is durable. A caller that stops waiting
    /// does not stop a write that is queued.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        touched: Touched,
        write: impl Fn(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let operation = Pending { touched, write, result: None, answer };
        let queue = self.queue.as_ref().ok_or_else(writer_is_gone)?;
        queue.send(Box::new(operation)).await.map_err(|_| writer_is_gone())?;
        answered.await.map_err(|_| writer_is_gone())?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The thread ends when the queue is closed and empty.
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes the database had panicked");
        }
    }
}

fn writer_is_gone() -> StoreError {
    StoreError::Unavailable("the thread that writes the database is gone".into())
}

/// Something to be done inside a transaction, and somebody who waits for it.
trait Operation: Send {
    /// Does it. The error is handed back to be put down by [`refuse`](Self::refuse). If the
    /// transaction is given up, it is done again in the next one.
    fn perform(&mut self, connection: &Connection) -> Result<()>;
    /// Notes that it failed and was rolled back.
    fn refuse(&mut self, error: StoreError);
    /// What it changes.
    fn touched(&self) -> Touched;
    /// Tells the caller, now that the group is durable.
    fn answer(self: Box<Self>);
    /// Tells the caller that nothing is known of the group.
    fn fail(self: Box<Self>, error: StoreError);
}

struct Pending<T, F> {
    touched: Touched,
    write: F,
    /// There once it is done.
    result: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<T, F> Operation for Pending<T, F>
where
    T: Send,
    F: Fn(&Connection) -> Result<T> + Send,
{
    fn perform(&mut self, connection: &Connection) -> Result<()> {
        self.result = Some(Ok((self.write)(connection)?));
        Ok(())
    }

    fn refuse(&mut self, error: StoreError) {
        self.result = Some(Err(error));
    }

    fn touched(&self) -> Touched {
        self.touched
    }

    fn answer(self: Box<Self>) {
        let result = self.result.expect("a group commits after each of its operations was done");
        // Whoever stopped waiting does not want to know.
        drop(self.answer.send(result));
    }

    fn fail(self: Box<Self>, error: StoreError) {
        drop(self.answer.send(Err(error)));
    }
}

fn write_groups(
    connection: &Connection,
    mut waiting: mpsc::Receiver<Box<dyn Operation>>,
    group_limit: usize,
    recent: Option<Arc<Recent>>,
) {
    let mut disk_was_full = false;
    let mut company = 1;
    while let Some(first) = waiting.blocking_recv() {
        let mut group = vec![first];
        gather(&mut group, &mut waiting, group_limit, company);
        company = group.len().max(company * 3 / 4);
        if disk_was_full {
            make_room(connection);
        }
        let written = write_group(connection, &mut group);
        if let Some(recent) = &recent {
            group.iter().for_each(|operation| recent.forget(operation.touched()));
        }
        match written {
            Ok(()) => {
                disk_was_full = false;
                group.into_iter().for_each(|operation| operation.answer());
            }
            Err(cause) => {
                let cause = Arc::new(cause);
                tracing::warn!(
                    operations = group.len(),
                    error = &*cause as &dyn std::error::Error,
                    "a group of {} writes was rolled back",
                    group.len(),
                );
                disk_was_full = matches!(*cause, StoreError::Full(_));
                for operation in group {
                    operation.fail(outcome_is_open(&cause));
                }
            }
        }
    }
}

/// Takes whatever waits. Those who were answered together a moment ago are about to ask again: if
/// they were several, the first of them gives the others the blink of an eye to catch up, instead
/// of having a wait for the disk for itself and making the others wait for it too.
fn gather(
    group: &mut Vec<Box<dyn Operation>>,
    waiting: &mut mpsc::Receiver<Box<dyn Operation>>,
    group_limit: usize,
    company: usize,
) {
    let expected = company.min(group_limit);
    let begun = Instant::now();
    while group.len() < group_limit {
        match waiting.try_recv() {
            Ok(next) => group.push(next),
            Err(_) if group.len() < expected && begun.elapsed() < BLINK => thread::yield_now(),
            Err(_) => return,
        }
    }
}

/// Does the whole group, or fails as a whole.
fn write_group(connection: &Connection, group: &mut [Box<dyn Operation>]) -> Result<()> {
    // Only a rollback that failed leaves a transaction open.
    leave_transaction(connection)?;
    // Nearly always nothing is refused, and savepoints would keep a copy of every page for nothing.
    let mut refused = false;
    let done = transact(connection, || {
        let performed = group.iter_mut().try_for_each(|operation| operation.perform(connection));
        refused = performed.is_err();
        performed
    });
    if refused { transact(connection, || write_each(connection, group)) } else { done }
}

/// Does something in a transaction. If it fails, nothing of it has happened.
fn transact(connection: &Connection, act: impl FnOnce() -> Result<()>) -> Result<()> {
    run(connection, sql::BEGIN)?;
    let written = act().and_then(|()| run(connection, sql::COMMIT));
    if written.is_err() {
        // If this fails too, the next group begins with trying again.
        leave_transaction(connection).unwrap_or_else(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a failed transaction could not be rolled back yet",
            );
        });
    }
    written
}

/// Does one operation after the other, each on its own: one that is refused leaves its neighbors
/// alone.
fn write_each(connection: &Connection, group: &mut [Box<dyn Operation>]) -> Result<()> {
    for operation in group {
        run(connection, sql::SAVEPOINT)?;
        let performed = operation.perform(connection);
        if connection.is_autocommit() {
            // SQLite gave the whole transaction up by itself: what was done before is gone too.
            let given_up = || StoreError::Unavailable("the transaction was given up".into());
            return Err(performed.err().unwrap_or_else(given_up));
        }
        if let Err(error) = performed {
            run(connection, sql::ROLLBACK_TO)?;
            operation.refuse(error);
        }
        run(connection, sql::RELEASE)?;
    }
    Ok(())
}

fn leave_transaction(connection: &Connection) -> Result<()> {
    if connection.is_autocommit() { Ok(()) } else { run(connection, sql::ROLLBACK) }
}

/// Brings the write-ahead log home and gives its space back, before more is written to it. It may
/// be what fills the disk, and as long as no commit succeeds nothing else would cut it.
fn make_room(connection: &Connection) {
    let checkpoint = connection.prepare_cached(sql::CHECKPOINT);
    let done = checkpoint.and_then(|mut checkpoint| checkpoint.query_row([], |_| Ok(())));
    if let Err(error) = done {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "the write-ahead log could not be brought home to make room",
        );
    }
}

fn run(connection: &Connection, statement: &str) -> Result<()> {
    connection.prepare_cached(statement)?.execute([])?;
    Ok(())
}

/// What everybody in a group is told that failed for this cause.
fn outcome_is_open(cause: &Arc<StoreError>) -> StoreError {
    match **cause {
        StoreError::Full(_) => StoreError::Full(Arc::clone(cause).into()),
        // Trying again will not help.
        StoreError::Damaged { what, .. } => {
            StoreError::Damaged { what, source: Arc::clone(cause).into() }
        }
        StoreError::NotFound(_)
        | StoreError::Exists(_)
        | StoreError::InUse(_)
        | StoreError::Fenced { .. }
        | StoreError::Conflict { .. }
        | StoreError::Superseded(_)
        | StoreError::TooLarge { .. }
        | StoreError::TooNew { .. }
        | StoreError::Unavailable(_) => StoreError::Unavailable(Arc::clone(cause).into()),
    }
}

#[cfg(test)]
mod test;
