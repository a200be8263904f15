//! The task tree: every task has an owner and an end.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::task::{AbortHandle, JoinSet};

use crate::signal::Signal;

/// Owns every task of an engine: they can be told to end, waited for, and cut off.
pub(crate) struct Tasks {
    set: Mutex<JoinSet<()>>,
    closing: Arc<Signal<bool>>,
}

/// What a panic carried, for the log.
pub(crate) struct Panicked(pub(crate) String);

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { set: Mutex::new(JoinSet::new()), closing: Arc::default() }
    }

    /// Starts a task. It must end soon after [`closing`](Self::closing) resolves.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        // The set keeps what has ended until somebody looks.
        while set.try_join_next().is_some() {}
        set.spawn(task)
    }

    /// Resolves when tasks are to end.
    pub(crate) async fn closing(&self) {
        self.closing.watch().wait_for(|closing| *closing).await;
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Tells every task to end.
    pub(crate) fn begin_closing(&self) {
        self.closing.change(|closing| *closing = true);
    }

    /// Tells every task to end and waits for it.
    pub(crate) async fn close(&self) {
        self.begin_closing();
        let mut set = self.take();
        while set.join_next().await.is_some() {}
    }

    /// Cuts every task off where it is, and waits until that is so.
    pub(crate) async fn abort(&self) {
        self.begin_closing();
        self.take().shutdown().await;
    }

    fn take(&self) -> JoinSet<()> {
        std::mem::take(&mut *self.set.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs a future to its end, or to its panic.
pub(crate) async fn catching<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(payload) => Poll::Ready(Err(Panicked(text_of(payload.as_ref())))),
    })
    .await
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
