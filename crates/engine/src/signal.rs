//! A value that many can watch.
//!
//! Like tokio's `watch`, except that those who wait are woken in the order in which they came;
//! tokio picks an order at random, and then a seed of the simulation would not be a history.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The value and who waits for it to change.
#[derive(Default)]
pub struct Signal<T> {
    state: Mutex<Versioned<T>>,
    changed: Notify,
}

#[derive(Default)]
struct Versioned<T> {
    version: u64,
    value: T,
}

impl<T: Clone> Signal<T> {
    /// The value.
    pub fn get(&self) -> T {
        self.state().value.clone()
    }

    /// Changes the value and wakes everybody who waits.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        {
            let mut state = self.state();
            change(&mut state.value);
            state.version += 1;
        }
        self.changed.notify_waiters();
    }

    /// Starts watching: the present value counts as seen.
    pub fn watch(self: &Arc<Self>) -> Watcher<T> {
        let seen = self.state().version;
        Watcher { signal: Arc::clone(self), seen }
    }

    fn state(&self) -> MutexGuard<'_, Versioned<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who watches.
#[derive(Clone)]
pub struct Watcher<T> {
    signal: Arc<Signal<T>>,
    seen: u64,
}

impl<T: Clone> Watcher<T> {
    /// The value, which counts as seen from now on: a change after this call resolves
    /// [`changed`](Self::changed).
    pub fn look(&mut self) -> T {
        let state = self.signal.state();
        self.seen = state.version;
        state.value.clone()
    }

    /// Waits until the value has changed since it was last seen.
    pub async fn changed(&mut self) {
        loop {
            let mut changed = pin!(self.signal.changed.notified());
            // Enlist first, look after: a change in between wakes us.
            changed.as_mut().enable();
            let version = self.signal.state().version;
            if version != self.seen {
                self.seen = version;
                return;
            }
            changed.await;
        }
    }

    /// Waits until the value is as wanted, and returns it.
    pub async fn wait_for(&mut self, wanted: impl Fn(&T) -> bool) -> T {
        loop {
            let value = self.look();
            if wanted(&value) {
                return value;
            }
            self.changed().await;
        }
    }

    /// How many hold this signal, this watcher included.
    pub(crate) fn holders(&self) -> usize {
        Arc::strong_count(&self.signal)
    }
}
