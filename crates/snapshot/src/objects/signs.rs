//! What comes from a server, counted: by all who ask it, and by who does one thing.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts what is asked of a server, and what comes from it: each answer, and each part of one. Cheap to clone; all
/// clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Signs(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    asked: AtomicUsize,
    came: AtomicU64,
}

thread_local! {
    /// Who else counts what is asked, and what comes, on this thread.
    static LISTENER: RefCell<Option<Signs>> = const { RefCell::new(None) };
}

impl Signs {
    /// How many signs there were.
    pub fn count(&self) -> u64 {
        self.0.came.load(Ordering::Relaxed)
    }

    /// Whether something was asked that is not answered yet.
    pub fn is_awaited(&self) -> bool {
        self.0.asked.load(Ordering::Relaxed) > 0
    }

    /// There is one more.
    pub fn add(&self) {
        for all in [Some(self.clone()), Self::listener()].into_iter().flatten() {
            all.0.came.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Something is asked, and is answered when what is returned is dropped.
    pub fn ask(&self) -> Asked {
        let both = [Some(self.clone()), Self::listener()];
        for all in both.iter().flatten() {
            all.0.asked.fetch_add(1, Ordering::Relaxed);
        }
        Asked(both)
    }

    /// Counts whatever is asked on this thread from now on, too, and whatever comes, until what is returned is dropped.
    pub fn listen(&self) -> Listening {
        Listening(LISTENER.replace(Some(self.clone())))
    }

    /// Who listens on this thread, so that another one that works for it can be listened to.
    pub(crate) fn listener() -> Option<Self> {
        LISTENER.with_borrow(Clone::clone)
    }
}

/// Something was asked.
#[derive(Debug)]
pub struct Asked([Option<Signs>; 2]);

impl Drop for Asked {
    fn drop(&mut self) {
        for all in self.0.iter().flatten() {
            all.0.came.fetch_add(1, Ordering::Relaxed);
            all.0.asked.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Somebody listens on this thread.
#[derive(Debug)]
pub struct Listening(Option<Signs>);

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENER.set(self.0.take());
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn who_listens_hears_what_its_own_thread_asks_and_no_other() {
        let (all, own, other) = (Signs::default(), Signs::default(), Signs::default());
        let listening = own.listen();
        let asked = all.ask();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _listening = other.listen();
                all.add();
                all.add();
            });
        });
        assert_eq!((all.count(), own.count(), other.count()), (2, 0, 2));
        assert!(all.is_awaited() && own.is_awaited() && !other.is_awaited());
        all.add();
        assert_eq!((all.count(), own.count()), (3, 1));
        drop(listening);
        all.add();
        assert_eq!((all.count(), own.count()), (4, 1), "it is over");
        // What was asked while it listened is answered all the same.
        drop(asked);
        assert!(!all.is_awaited() && !own.is_awaited());
        assert_eq!((all.count(), own.count()), (5, 2));
    }
}
