//! What the agent asks while somebody watches: shown, and answered by whoever sits at the terminal.

use std::collections::VecDeque;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::connect::Context;
use super::output::{note, plain};
use super::render;
use crate::api::{Behavior, DecidePermission, PermissionDecided};
use crate::client::{ClientError, ServerEvent};

/// The lines that a person types.
pub(super) type Typed = mpsc::Receiver<std::io::Result<String>>;

/// The questions of one session.
pub(super) struct Questions<'a> {
    ctx: &'a Context,
    session: Uuid,
    /// Nobody sits there, if there is none.
    typed: Option<&'a mut Typed>,
    open: VecDeque<Uuid>,
    answering: JoinSet<Result<PermissionDecided, ClientError>>,
}

impl<'a> Questions<'a> {
    pub(super) fn new(ctx: &'a Context, session: Uuid, typed: Option<&'a mut Typed>) -> Self {
        Self { ctx, session, typed, open: VecDeque::new(), answering: JoinSet::new() }
    }

    /// Whether a person is to type something.
    pub(super) fn asks(&self) -> bool {
        self.typed.is_some() && !self.open.is_empty()
    }

    /// Shows a question, or forgets it.
    pub(super) fn hear(&mut self, event: &ServerEvent) {
        let Some(id) = event.text("id").and_then(|id| id.parse::<Uuid>().ok()) else { return };
        match event.name.as_str() {
            "permission_request" => {
                let tool = event.text("tool").unwrap_or("a tool");
                let what = plain(&render::tool(tool, event.data.get("input")));
                let session = self.session;
                if self.typed.is_some() {
                    self.open.push_back(id);
                    note(&format!("? {what}\n  allow it? [y/n]"));
                } else {
                    note(&format!(
                        "the agent asks: {what}\n  answer with: ash session allow {session} {id}\n  \
                         or with: ash session deny {session} {id}"
                    ));
                }
            }
            "permission_decided" | "permission_resolved" => self.open.retain(|open| *open != id),
            _ => {}
        }
    }

    /// Waits for an answer, or for what became of one; says what a person is to be told.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            let waits = !self.open.is_empty();
            tokio::select! {
                Some(answered) = self.answering.join_next() => {
                    if let Ok(Err(error)) = answered {
                        return Some(format!("it was not answered: {}", plain(&error.to_string())));
                    }
                }
                line = line(self.typed.as_deref_mut()), if waits => match line {
                    Some(line) => match answer(&line) {
                        Some(behavior) => self.say(behavior),
                        None => return Some("  y or n?".to_owned()),
                    },
                    // Nobody will type anything any more.
                    None => {
                        self.typed = None;
                        let id = self.open.pop_front()?;
                        self.open.clear();
                        let session = self.session;
                        return Some(format!("answer with: ash session allow {session} {id}"));
                    }
                },
                else => std::future::pending::<()>().await,
            }
        }
    }

    fn say(&mut self, behavior: Behavior) {
        let Some(id) = self.open.pop_front() else { return };
        let (client, session) = (self.ctx.client.clone(), self.session);
        let decision = DecidePermission { behavior, input: None, message: None };
        self.answering.spawn(async move { client.decide(session, id, &decision).await });
    }
}

async fn line(typed: Option<&mut Typed>) -> Option<String> {
    match typed {
        Some(typed) => typed.recv().await?.ok(),
        None => std::future::pending().await,
    }
}

/// Yes or no, if a line says so.
pub(super) fn answer(line: &str) -> Option<Behavior> {
    match line.trim().to_lowercase().as_str() {
        "y" | "yes" => Some(Behavior::Allow),
        "n" | "no" => Some(Behavior::Deny),
        _ => None,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        assert_eq!(answer(" Y "), Some(Behavior::Allow));
        assert_eq!(answer("yes"), Some(Behavior::Allow));
        assert_eq!(answer("no"), Some(Behavior::Deny));
        for unclear in ["", "yep", "y n", "ok"] {
            assert_eq!(answer(unclear), None, "{unclear}");
        }
    }
}
