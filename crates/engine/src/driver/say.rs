//! What is said to an agent stands in the log, and is read from there when it is time to say it.

use ash_core::entry::Entry;
use ash_core::id::{QuestionId, RunId};
use ash_core::number::Seq;

use super::perform::Worker;
use crate::host::HostError;

impl Worker {
    /// Hands a prompt over.
    pub(super) async fn deliver(&self, run: RunId) -> Result<(), HostError> {
        let prompt = self.shared.store.prompt(self.sandbox.session, run).await;
        let prompt = prompt.map_err(|error| unread("read the prompt", error))?;
        self.shared.host.deliver(self.sandbox, run, &prompt).await
    }

    /// Answers a question as a person has.
    pub(super) async fn decide(&self, question: QuestionId, at: Seq) -> Result<(), HostError> {
        let attempted = "read what was decided";
        let before = Seq::new(at.get().saturating_sub(1));
        let entries = self.shared.store.events_after(self.sandbox.session, before, 1).await;
        let entries = entries.map_err(|error| unread(attempted, error))?;
        match entries.into_iter().next().map(|logged| logged.entry) {
            Some(Entry::PermissionDecided { id, decision, .. }) if id == question => {
                self.shared.host.decide(self.sandbox, question, &decision).await
            }
            Some(_) | None => Err(unread(attempted, format_args!("entry {at} says nothing of it"))),
        }
    }
}

fn unread(attempted: &'static str, detail: impl ToString) -> HostError {
    HostError::new(attempted, detail)
}
