//! How a runtime says what it does, and how it is told to stop.

use ash_protocol::Event;
use tokio::sync::mpsc;

/// How many events may wait for the spool. It writes to memory, so they hardly ever do.
const CAPACITY: usize = 64;

/// Where a runtime says what happens in one run.
#[derive(Clone, Debug)]
pub struct Reports(mpsc::Sender<Event>);

impl Reports {
    /// A place to report to, and the other end of it.
    pub fn channel() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self(sender), receiver)
    }

    /// Reports something. Waits while the spool is full: then the agent stands still.
    pub async fn send(&self, event: Event) {
        // Whoever would have written it down is gone, and so will this process be.
        let _nobody = self.0.send(event).await;
    }

    /// Keeps room for one event, so that it can be reported later without a wait. Nothing, if nobody takes it.
    pub(crate) async fn room(&self) -> Option<Room> {
        self.0.clone().reserve_owned().await.ok().map(Room)
    }
}

/// Room for one event.
#[derive(Debug)]
pub(crate) struct Room(mpsc::OwnedPermit<Event>);

impl Room {
    pub(crate) fn send(self, event: Event) {
        drop(self.0.send(event));
    }
}
