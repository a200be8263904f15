//! What agents ask, and what people answer.

use ash_core::entry::Entry;
use ash_core::id::{QuestionId, SessionId, TenantId};
use ash_core::json::Json;
use ash_core::number::Seq;
use ash_core::permission::Permission;
use ash_core::refusal::Refusal;
use ash_core::session::{OpenQuestion, Request};
use ash_core::time::Timestamp;

use crate::engine::Engine;
use crate::error::EngineError;

/// A question that waits for an answer, or for the agent to take it.
#[derive(Clone, Debug)]
pub struct Question {
    /// The question.
    pub open: OpenQuestion,
    /// When it was asked.
    pub at: Timestamp,
    /// What the agent wants to use.
    pub tool: String,
    /// What for.
    pub input: Json,
    /// What a person has decided, if one has.
    pub decision: Option<Permission>,
}

impl Engine {
    /// The questions of a session's agent that are open, in the order in which they were asked.
    pub async fn questions(
        &self,
        tenant: &TenantId,
        session: SessionId,
    ) -> Result<Vec<Question>, EngineError> {
        let stored = self.shared.store.session(tenant, session).await?;
        let mut questions = Vec::new();
        for open in stored.session.questions().open() {
            let Some((at, Entry::PermissionRequest { tool, input, .. })) =
                self.entry(session, open.asked).await?
            else {
                continue;
            };
            let decision = match open.decided {
                Some(decided) => self.decision(session, decided).await?,
                None => None,
            };
            questions.push(Question { open: *open, at, tool, input, decision });
        }
        Ok(questions)
    }

    /// Answers a question. Once this returns, the agent gets the answer if it lives, whatever happens to this
    /// process. The first answer counts; the same one again is not refused.
    pub async fn answer(
        &self,
        tenant: &TenantId,
        session: SessionId,
        question: QuestionId,
        decision: Permission,
    ) -> Result<(), EngineError> {
        let request = Request::Decide { question, decision: decision.clone() };
        match self.decide(tenant, session, request).await {
            Ok(_) => Ok(()),
            Err(EngineError::Refused(
                refusal @ (Refusal::QuestionDecided | Refusal::QuestionClosed(_)),
            )) => {
                let stored = self.shared.store.session(tenant, session).await?;
                let before = match stored.session.questions().decided(question) {
                    Some(decided) => self.decision(session, decided).await?,
                    None => None,
                };
                if before == Some(decision) { Ok(()) } else { Err(refusal.into()) }
            }
            Err(error) => Err(error),
        }
    }

    async fn decision(
        &self,
        session: SessionId,
        at: Seq,
    ) -> Result<Option<Permission>, EngineError> {
        Ok(match self.entry(session, at).await? {
            Some((_, Entry::PermissionDecided { decision, .. })) => Some(decision),
            Some(_) | None => None,
        })
    }

    /// One entry of a log.
    async fn entry(
        &self,
        session: SessionId,
        at: Seq,
    ) -> Result<Option<(Timestamp, Entry)>, EngineError> {
        let before = Seq::new(at.get().saturating_sub(1));
        let entries = self.shared.store.events_after(session, before, 1).await?;
        Ok(entries.into_iter().next().map(|logged| (logged.at, logged.entry)))
    }
}
