//! What the agent asks, what people say to it, and what becomes of it whatever happens meanwhile.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::{AgentEnding, Effect, IfRunning, ReportBody, Request, Sandbox, Status};
use super::PROMPT;
use super::world::{Ask, Step, Work, World, steps};
use crate::entry::Entry;
use crate::failure::{Death, FailureCode};
use crate::id::QuestionId;
use crate::json::Json;
use crate::number::{Incarnation, Seq};
use crate::permission::{AnsweredHow, Permission};
use crate::policy::{MAX_CLOSED_QUESTIONS, MAX_DELIVERIES, MAX_OPEN_QUESTIONS};
use crate::refusal::Refusal;
use crate::run::{Completion, RunStatus};

/// What an agent says about its question, if it was told this.
pub(super) fn answer_of(decided: Option<Seq>, how: u8) -> AnsweredHow {
    match (decided, how % 2) {
        (Some(decided), _) if decided.get() % 2 == 0 => AnsweredHow::Allowed,
        (Some(_), _) => AnsweredHow::Denied,
        (None, 0) => AnsweredHow::TimedOut,
        (None, _) => AnsweredHow::Withdrawn,
    }
}

fn allow() -> Permission {
    Permission::Allow { input: None }
}

fn id(number: u64) -> QuestionId {
    QuestionId::from_uuid(uuid::Uuid::from_u64_pair(9, number))
}

impl World {
    /// What a person says to one of the questions, or to one that nobody asked.
    pub(super) fn decision(&self, which: usize, says_yes: bool) -> Request {
        let all: Vec<QuestionId> = self.session.questions().open().map(|open| open.id).collect();
        let question = all.get(which % (all.len() + 1)).copied().unwrap_or_else(|| id(u64::MAX));
        let decision = if says_yes { allow() } else { Permission::Deny { message: None } };
        Request::Decide { question, decision }
    }

    /// The agent is told what was decided: never two different things.
    pub(super) fn hear_decision(
        &mut self,
        incarnation: Incarnation,
        question: QuestionId,
        decided: Seq,
    ) {
        let entry = &self.log[usize::try_from(decided.get()).unwrap() - 1];
        assert!(
            matches!(entry, Entry::PermissionDecided { id, .. } if *id == question),
            "{entry:?} says nothing about {question}"
        );
        let Some(sandbox) = self.live.get_mut(&incarnation).filter(|sandbox| !sandbox.frozen)
        else {
            return;
        };
        if let Some(told) = sandbox.asked.get_mut(&question) {
            assert!(told.is_none_or(|told| told == decided), "{question} was answered twice");
            *told = Some(decided);
        }
    }

    fn ask_question(&mut self, number: u64) {
        let (tool, input) = ("bash".to_owned(), Json::of("ls").unwrap());
        self.report(ReportBody::Question { id: id(number), tool, input });
    }

    fn decide(&mut self, number: u64, decision: Permission) -> Result<(), Refusal> {
        self.request(Request::Decide { question: id(number), decision })
    }

    fn answers(&self) -> Vec<(AnsweredHow, Option<FailureCode>)> {
        let mut answers = Vec::new();
        for entry in &self.log {
            if let Entry::PermissionAnswered { how, code, .. } = entry {
                answers.push((*how, *code));
            }
        }
        answers
    }

    /// A world in which the agent has asked two things, if after all that there is one that works.
    fn asking_after(script: &[Step]) -> Self {
        let mut world = Self::new();
        for step in script {
            world.step(step);
        }
        world.settle();
        // Refused by one that is over.
        let _refused = world.ask(Ask::Prompt { reject: false, wake: true, quick: false });
        for step in [Step::Work(Work::Question), Step::Work(Work::Question)] {
            world.settle();
            world.step(&step);
        }
        world.settle();
        world
    }

    fn asking() -> Self {
        let mut world = Self::settled();
        world.ask(PROMPT).unwrap();
        world.settle();
        world.ask_question(1);
        world
    }
}

/// How often each question was asked, decided and answered; and that none outlives its run.
fn told(log: &[Entry]) -> BTreeMap<QuestionId, (u32, u32, u32)> {
    let mut told = BTreeMap::<QuestionId, (u32, u32, u32)>::new();
    let mut runs = BTreeMap::new();
    for entry in log {
        if let Entry::PermissionRequest { run, id, .. } = entry {
            told.entry(*id).or_default().0 += 1;
            runs.insert(*id, *run);
        } else if let Entry::PermissionDecided { id, .. } = entry {
            assert_eq!(told[id].2, 0, "{id} was decided when it was over");
            told.entry(*id).or_default().1 += 1;
        } else if let Entry::PermissionAnswered { id, .. } = entry {
            told.entry(*id).or_default().2 += 1;
        } else if let Entry::RunEnded { run, .. } = entry {
            let open = runs.iter().find(|(id, of)| *of == run && told[id].2 == 0);
            assert_eq!(open, None, "{run} ended with a question");
        }
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn every_question_is_asked_once_decided_once_at_most_and_answered_once(
        script in steps(),
        says_yes in any::<[bool; 3]>(),
        more in steps(),
    ) {
        let mut world = World::asking_after(&script);
        for (which, allow) in says_yes.into_iter().enumerate() {
            // The third one is to the same question as the first, or to none.
            let _refused = world.ask(Ask::Decide { which: which % 2, allow });
        }
        for step in &more {
            world.step(step);
        }
        for (asked, decided, answered) in told(&world.log).into_values() {
            prop_assert!(asked == 1 && decided <= 1 && answered <= 1);
        }
        let open = world.session.questions().open().len();
        let unanswered = told(&world.log).values().filter(|(.., answered)| *answered == 0).count();
        prop_assert_eq!(open, unanswered, "what is open is what the log says");
        world.ask(Ask::End).unwrap();
        world.settle();
        prop_assert!(told(&world.log).into_values().all(|(.., answered)| answered == 1));
    }

    /// Whenever the owner is killed, the next one tells the agent what was decided.
    #[test]
    fn what_was_decided_reaches_the_agent_after_any_crash(
        script in steps(),
        says_yes in any::<[bool; 2]>(),
        more in steps(),
    ) {
        let mut world = World::asking_after(&script);
        for (which, allow) in says_yes.into_iter().enumerate() {
            let _refused = world.ask(Ask::Decide { which, allow });
        }
        // Few, so that the sandbox often lives.
        for step in more.iter().take(4) {
            world.step(step);
        }
        world.crash();
        world.settle();
        if world.session.sandbox() != Sandbox::Live {
            return Ok(());
        }
        let sandbox = &world.live[&world.session.incarnation()];
        // What was lost may have been an answer: then it does not wait for a decision any more.
        let was_lost = world.log.iter().any(|entry| matches!(entry, Entry::ReportsLost { .. }));
        for open in world.session.questions().open() {
            match sandbox.asked.get(&open.id) {
                None if was_lost => {}
                heard => prop_assert_eq!(heard.copied().flatten(), open.decided),
            }
        }
    }
}

#[test]
fn a_question_waits_is_decided_and_then_answered() {
    let mut world = World::asking();
    assert_eq!(world.session.questions().open().len(), 1);
    world.decide(1, allow()).unwrap();
    assert_eq!(world.decide(1, allow()), Err(Refusal::QuestionDecided));
    assert_eq!(world.decide(2, allow()), Err(Refusal::NoSuchQuestion));
    world.report(ReportBody::Answered { id: id(1), how: AnsweredHow::Allowed });
    assert_eq!(world.decide(1, allow()), Err(Refusal::QuestionClosed(AnsweredHow::Allowed)));
    assert_eq!(world.session.questions().open().len(), 0);
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    assert_eq!(
        world.kinds()[4..],
        ["permission_request", "permission_decided", "permission_answered", "run_ended"]
    );
}

#[test]
fn a_decision_is_told_at_once() {
    let mut world = World::asking_after(&[]);
    world.ask(Ask::Decide { which: 1, allow: true }).unwrap();
    world.settle();
    let open: Vec<_> = world.session.questions().open().copied().collect();
    let asked = &world.live[&world.session.incarnation()].asked;
    assert_eq!(
        open.iter().map(|open| asked[&open.id]).collect::<Vec<_>>(),
        [None, open[1].decided]
    );
    assert!(open[1].decided.is_some());
}

#[test]
fn a_question_that_is_asked_again_is_the_same_one() {
    let mut world = World::asking();
    world.ask_question(1);
    assert_eq!(world.session.questions().open().len(), 1);
    world.report(ReportBody::Answered { id: id(1), how: AnsweredHow::TimedOut });
    world.ask_question(1);
    assert_eq!(world.session.questions().open().len(), 0);
    world.report(ReportBody::Answered { id: id(7), how: AnsweredHow::Allowed });
    assert_eq!(world.answers(), [(AnsweredHow::TimedOut, None)]);
}

#[test]
fn a_question_survives_a_pause_and_what_was_decided_meanwhile_is_told_at_the_thaw() {
    let mut world = World::asking();
    world.request(Request::Pause { if_running: IfRunning::Freeze }).unwrap();
    world.settle();
    world.decide(1, allow()).unwrap();
    let decided = world.session.questions().decided(id(1)).unwrap();
    world.wait(world.policy.delivery_timeout * 3);
    world.settle();
    world.ask(Ask::Resume).unwrap();
    let effects = {
        let Sandbox::Thawing { asked, .. } = world.session.sandbox() else {
            panic!("{:?}", world.session);
        };
        let incarnation = world.session.incarnation();
        let ctx = crate::policy::Context { now: world.now, policy: &world.policy };
        let fact = super::super::Fact::SandboxThawed { incarnation, asked };
        world.session.observe(&ctx, fact).effects
    };
    let incarnation = world.session.incarnation();
    assert!(effects.contains(&Effect::Decide { incarnation, question: id(1), decided }));
    assert_eq!(world.session.questions().open().len(), 1);
}

#[test]
fn a_sandbox_that_dies_takes_its_questions_with_it() {
    let mut world = World::asking();
    world.decide(1, allow()).unwrap();
    world.ask_question(2);
    world.die(Death::Killed(9));
    let lost = (AnsweredHow::Lost, Some(FailureCode::SandboxDied));
    assert_eq!(world.answers(), [lost, lost]);
    assert_eq!(world.outcomes(), [RunStatus::Interrupted]);
    let kinds = world.kinds();
    assert_eq!(
        kinds[kinds.len() - 5..],
        ["permission_answered", "permission_answered", "run_error", "run_ended", "session_failed"]
    );
    assert_eq!(world.decide(2, allow()), Err(Refusal::QuestionClosed(AnsweredHow::Lost)));
}

#[test]
fn a_person_who_ends_the_run_takes_its_questions_back() {
    let mut world = World::asking();
    world.ask(Ask::Interrupt).unwrap();
    world.finish(AgentEnding::Interrupted);
    assert_eq!(world.answers(), [(AnsweredHow::Withdrawn, None)]);
    let mut world = World::asking();
    world.ask(Ask::Stop).unwrap();
    assert_eq!(world.answers(), [(AnsweredHow::Withdrawn, None)]);
    assert_eq!(world.session.status(), Status::Stopped);
}

#[test]
fn a_decision_is_sent_again_but_not_for_ever() {
    let mut world = World::asking();
    world.report(ReportBody::Begun);
    world.decide(1, allow()).unwrap();
    for _ in 0..MAX_DELIVERIES {
        let again = world.session.questions().deadline().unwrap();
        assert_eq!(world.session.next_deadline(&world.policy), Some(again));
        world.wait_for_deadline();
    }
    assert_eq!(world.session.questions().deadline(), None);
    // Whoever comes next tells it once more.
    let owed = world.session.recover();
    assert!(owed.iter().any(|effect| matches!(effect, Effect::Decide { .. })));
}

#[test]
fn there_is_a_bound_to_what_is_open_and_to_what_is_remembered() {
    let mut world = World::asking();
    for number in 0..2 * MAX_OPEN_QUESTIONS as u64 {
        world.ask_question(100 + number);
    }
    assert_eq!(world.session.questions().open().len(), MAX_OPEN_QUESTIONS);
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    assert_eq!(world.session.questions().open().len(), 0);
    assert_eq!(world.session.questions().closed().len(), MAX_CLOSED_QUESTIONS);
    assert_eq!(world.decide(1, allow()), Err(Refusal::NoSuchQuestion), "it is forgotten");
}
