//! What the agent asks before it does something.
//!
//! A question is open from the report that asks it to the report that answers it, or to the end of its run. What
//! a person says to it is an entry of the log, and is sent until the agent has taken it: it takes the same answer
//! twice, and never another one.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, Sandbox, Session, State};
use crate::entry::Entry;
use crate::failure::FailureCode;
use crate::id::{QuestionId, RunId};
use crate::json::Json;
use crate::number::Seq;
use crate::permission::{AnsweredHow, Permission};
use crate::policy::{Context, MAX_CLOSED_QUESTIONS, MAX_DELIVERIES, MAX_OPEN_QUESTIONS};
use crate::refusal::Refusal;
use crate::run::Outcome;
use crate::time::Timestamp;

/// What the agent of a session asks, and has asked lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Questions {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    open: Vec<OpenQuestion>,
    /// The latest last.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    closed: VecDeque<ClosedQuestion>,
    /// When what people said is sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    again: Option<Again>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Again {
    attempt: u32,
    deadline: Timestamp,
}

/// A question that nobody has taken an answer to yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenQuestion {
    /// Which one.
    pub id: QuestionId,
    /// The run that waits.
    pub run: RunId,
    /// The entry that says what is asked.
    pub asked: Seq,
    /// The entry that says what a person decided, if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Seq>,
}

/// A question that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedQuestion {
    /// Which one.
    pub id: QuestionId,
    /// What became of it.
    pub how: AnsweredHow,
    /// The entry that says what a person decided, if one has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Seq>,
}

impl Questions {
    /// With these open.
    pub(super) fn of(open: Vec<OpenQuestion>) -> Self {
        Self { open, ..Self::default() }
    }

    /// Those that are open, in the order in which they were asked.
    pub fn open(&self) -> impl ExactSizeIterator<Item = &OpenQuestion> {
        self.open.iter()
    }

    /// The latest that are over, the last one last.
    pub fn closed(&self) -> impl ExactSizeIterator<Item = &ClosedQuestion> {
        self.closed.iter()
    }

    /// The entry that says what a person decided, if one has and it is remembered.
    pub fn decided(&self, id: QuestionId) -> Option<Seq> {
        let open = self.open.iter().map(|question| (question.id, question.decided));
        let closed = self.closed.iter().map(|question| (question.id, question.decided));
        open.chain(closed).find(|(of, _)| *of == id).and_then(|(_, decided)| decided)
    }

    pub(super) fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    /// When what people said is sent again.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        self.again.map(|again| again.deadline)
    }

    /// Nothing could have been heard for a while.
    pub(super) fn stood_still(&mut self, so_long: Duration) {
        if let Some(again) = &mut self.again {
            again.deadline = again.deadline.plus(so_long);
        }
    }

    fn knows(&self, id: QuestionId) -> bool {
        self.open.iter().any(|question| question.id == id)
            || self.closed.iter().any(|question| question.id == id)
    }

    fn close(&mut self, OpenQuestion { id, decided, .. }: OpenQuestion, how: AnsweredHow) {
        if self.closed.len() >= MAX_CLOSED_QUESTIONS {
            self.closed.pop_front();
        }
        self.closed.push_back(ClosedQuestion { id, how, decided });
        if self.open.iter().all(|question| question.decided.is_none()) {
            self.again = None;
        }
    }
}

impl Session {
    /// The agent asks something. What it has asked already, and what is too much, says nothing.
    pub(super) fn asked(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        run: RunId,
        id: QuestionId,
        tool: String,
        input: Json,
    ) {
        if self.questions.knows(id) || self.questions.open.len() >= MAX_OPEN_QUESTIONS {
            return;
        }
        self.log(ctx, out, Entry::PermissionRequest { run, id, tool, input });
        let asked = self.last_seq;
        self.questions.open.push(OpenQuestion { id, run, asked, decided: None });
    }

    /// The agent says what became of a question.
    pub(super) fn answered(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        id: QuestionId,
        how: AnsweredHow,
    ) {
        let Some(at) = self.questions.open.iter().position(|question| question.id == id) else {
            return;
        };
        let question = self.questions.open.remove(at);
        self.log_answered(ctx, out, question, how, None);
    }

    /// Nobody waits for an answer any more: the run is over.
    pub(super) fn close_questions(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        run: RunId,
        outcome: &Outcome,
    ) {
        let (how, code) = match outcome {
            Outcome::Interrupted(failure) | Outcome::Failed(failure) => {
                (AnsweredHow::Lost, Some(failure.code))
            }
            Outcome::Completed(_) | Outcome::Cancelled => (AnsweredHow::Withdrawn, None),
        };
        while let Some(at) = self.questions.open.iter().position(|question| question.run == run) {
            let question = self.questions.open.remove(at);
            self.log_answered(ctx, out, question, how, code);
        }
    }

    fn log_answered(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        question: OpenQuestion,
        how: AnsweredHow,
        code: Option<FailureCode>,
    ) {
        let OpenQuestion { id, run, .. } = question;
        self.questions.close(question, how);
        self.log(ctx, out, Entry::PermissionAnswered { run, id, how, code });
    }

    /// A person answers. The first answer counts.
    pub(super) fn decide(
        &mut self,
        ctx: &Context<'_>,
        out: &mut Decision,
        id: QuestionId,
        decision: Permission,
    ) -> Result<(), Refusal> {
        if let Some(closed) = self.questions.closed.iter().find(|question| question.id == id) {
            return Err(Refusal::QuestionClosed(closed.how));
        }
        let open = self.questions.open.iter().position(|question| question.id == id);
        let at = open.ok_or(Refusal::NoSuchQuestion)?;
        let OpenQuestion { run, decided, .. } = self.questions.open[at];
        if decided.is_some() {
            return Err(Refusal::QuestionDecided);
        }
        self.last_active = ctx.now;
        self.log(ctx, out, Entry::PermissionDecided { run, id, decision });
        let decided = self.last_seq;
        self.questions.open[at].decided = Some(decided);
        let deadline = ctx.now.plus(ctx.policy.delivery_timeout);
        self.questions.again = Some(Again { attempt: 1, deadline });
        // One that stands still hears of it when it is thawed.
        if self.state == State::Active && self.sandbox == Sandbox::Live {
            let incarnation = self.incarnation;
            out.effects.push(Effect::Decide { incarnation, question: id, decided });
        }
        Ok(())
    }

    /// What the agent may not have been told.
    pub(super) fn decisions_owed(&self) -> impl Iterator<Item = Effect> {
        let incarnation = self.incarnation;
        self.questions.open.iter().filter_map(move |question| {
            let (question, decided) = (question.id, question.decided?);
            Some(Effect::Decide { incarnation, question, decided })
        })
    }

    /// The agent did not say what became of its questions: it may not have heard.
    pub(super) fn decisions_are_late(&mut self, ctx: &Context<'_>, out: &mut Decision) {
        let Some(Again { attempt, deadline }) = self.questions.again else { return };
        if deadline > ctx.now {
            return;
        }
        out.effects.extend(self.decisions_owed());
        // Then it will not hear at all, and waits until its own time is up.
        self.questions.again = (attempt < MAX_DELIVERIES).then(|| Again {
            attempt: attempt + 1,
            deadline: ctx.now.plus(ctx.policy.delivery_timeout),
        });
    }
}
