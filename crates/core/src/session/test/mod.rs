//! The session by example; the invariants are in [`property`].

mod aside;
mod check;
mod history;
mod host;
mod keep;
mod lost;
mod pause;
mod persist;
mod property;
mod question;
mod resume;
mod rewind;
mod torn;
mod turns;
mod world;

use std::time::Duration;

use host::reported;
use world::{Ask, World};

use super::{
    AgentEnding, Effect, Fact, IfRunning, NumberedReport, PauseReason, Report, ReportBody, Request,
    Sandbox, State, Status,
};
use crate::entry::{EndedBy, Entry};
use crate::failure::{Death, FailureCode};
use crate::number::{Seq, SpoolPosition, Turn};
use crate::policy::{
    Context, MAX_DELIVERIES, MAX_GATHERED_BYTES, MAX_QUEUED_RUNS, MAX_REPORT_BYTES,
    MAX_STOPS_AWAITED,
};
use crate::refusal::Refusal;
use crate::resume::Found;
use crate::run::{Completion, Phase, RunStatus, Usage};

const PROMPT: Ask = Ask::Prompt { reject: false, wake: false, quick: false };

impl World {
    /// The agent reports something about the run that it works on.
    fn report(&mut self, body: ReportBody) {
        let run = self.session.current_run().expect("a run is current").id;
        let position = self.session.spool().next();
        let incarnation = self.session.incarnation();
        self.observe(reported(incarnation, position, Report { run: Some(run), body }));
    }

    fn finish(&mut self, how: AgentEnding) {
        self.report(ReportBody::Ended { how, usage: Usage::default() });
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.log.iter().map(Entry::kind).collect()
    }

    fn outcomes(&self) -> Vec<RunStatus> {
        self.statuses.values().map(|seen| *seen.last().unwrap()).collect()
    }
}

#[test]
fn a_prompt_is_worked_on_and_the_log_tells_it() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.report(ReportBody::Phase { phase: Phase::StreamingLlm, round: 1 });
    world.report(ReportBody::TextDelta("hi".to_owned()));
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    assert_eq!(
        world.kinds(),
        [
            "session_created",
            "session_active",
            "prompt",
            "run_started",
            "phase",
            "text_delta",
            "run_ended"
        ]
    );
    assert_eq!(world.outcomes(), [RunStatus::Completed]);
    assert_eq!(world.session.lineage().turns(), 1);
}

#[test]
fn prompts_wait_their_turn_and_no_more_than_may_wait() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    for _ in 0..MAX_QUEUED_RUNS {
        world.ask(PROMPT).unwrap();
    }
    assert_eq!(world.ask(PROMPT), Err(Refusal::QueueFull));
    assert_eq!(
        world.ask(Ask::Prompt { reject: true, wake: false, quick: false }),
        Err(Refusal::RunInProgress)
    );
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    assert_eq!(world.session.queued_runs().len(), MAX_QUEUED_RUNS - 1);
    assert_eq!(world.session.current_run().unwrap().turn, Turn::new(2));
}

#[test]
fn a_crash_in_the_middle_breaks_the_session_and_interrupts_the_run() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.die(Death::OutOfMemory);
    let State::Error { failure, .. } = world.session.state() else { panic!("{:?}", world.session) };
    assert_eq!(failure.code, FailureCode::SandboxOutOfMemory);
    assert_eq!(world.outcomes(), [RunStatus::Interrupted]);
    assert_eq!(world.ask(PROMPT), Err(Refusal::NotActive(Status::Error)));
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.session.state(), &State::Active);
}

#[test]
fn a_sandbox_that_was_gone_when_the_server_came_back_only_pauses_the_session() {
    for death in [Death::Lost, Death::FilesGone] {
        let mut world = World::settled();
        world.ask(PROMPT).unwrap();
        world.die(death);
        assert!(matches!(
            world.session.state(),
            State::Paused { reason: PauseReason::ServerRestart, .. }
        ));
        assert_eq!(world.outcomes(), [RunStatus::Interrupted]);
        world.ask(PROMPT).unwrap();
        world.settle();
        assert_eq!(world.session.current_run().unwrap().turn, Turn::new(2));
    }
}

#[test]
fn an_interrupt_that_the_sandbox_does_not_survive_is_still_a_cancel() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.ask(Ask::Interrupt).unwrap();
    world.die(Death::Killed(9));
    assert_eq!(world.outcomes(), [RunStatus::Cancelled]);
}

#[test]
fn an_agent_that_does_not_obey_loses_its_sandbox() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.report(ReportBody::Begun);
    world.ask(Ask::Interrupt).unwrap();
    world.wait_for_deadline();
    assert_eq!(world.session.status(), Status::Error);
    assert_eq!(world.outcomes(), [RunStatus::Cancelled]);
    world.settle();
    assert!(world.alive().is_empty());
}

#[test]
fn an_agent_that_does_not_take_the_prompt_is_given_up_after_three_tries() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    for _ in 0..MAX_DELIVERIES {
        assert_eq!(world.session.status(), Status::Active);
        world.wait_for_deadline();
    }
    assert_eq!(world.session.status(), Status::Error);
    assert_eq!(world.outcomes(), [RunStatus::Interrupted]);
}

#[test]
fn a_sandbox_that_will_not_go_keeps_the_next_one_from_starting() {
    let mut world = World::settled();
    world.ask(Ask::Stop).unwrap();
    world.ask(Ask::Resume).unwrap();
    for _ in 0..MAX_STOPS_AWAITED {
        assert_eq!(world.session.status(), Status::Starting);
        world.wait_for_deadline();
    }
    let State::Error { failure, .. } = world.session.state() else { panic!("{:?}", world.session) };
    assert_eq!(failure.code, FailureCode::SandboxStuck);
    assert!(matches!(world.session.sandbox(), Sandbox::Stopping { .. }));
    world.settle();
    assert_eq!(world.session.sandbox(), Sandbox::None);
}

#[test]
fn a_time_to_live_ends_the_session_whatever_it_does() {
    let mut world = World::with_time_to_live(Duration::from_secs(3));
    world.settle();
    world.ask(PROMPT).unwrap();
    world.report(ReportBody::Begun);
    world.wait(Duration::from_secs(3));
    assert_eq!(world.session.status(), Status::Ended);
    assert_eq!(world.log.last(), Some(&Entry::SessionEnded { by: EndedBy::Ttl }));
    assert_eq!(world.outcomes(), [RunStatus::Failed]);
}

#[test]
fn a_frozen_run_goes_on_where_it_was_and_its_time_stood_still() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.report(ReportBody::Begun);
    let left = world.session.current_run().unwrap().deadline.since(world.now);
    world.request(Request::Pause { if_running: IfRunning::Freeze }).unwrap();
    world.settle();
    assert!(matches!(world.session.sandbox(), Sandbox::Frozen { .. }));
    world.wait(Duration::from_secs(10));
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.session.sandbox(), Sandbox::Live);
    assert_eq!(world.session.current_run().unwrap().deadline.since(world.now), left);
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    assert_eq!(world.outcomes(), [RunStatus::Completed]);
}

#[test]
fn a_pause_may_cancel_the_run_first() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.request(Request::Pause { if_running: IfRunning::Interrupt }).unwrap();
    assert_eq!(world.session.status(), Status::Active);
    world.finish(AgentEnding::Interrupted);
    assert_eq!(world.session.status(), Status::Paused);
    assert_eq!(world.outcomes(), [RunStatus::Cancelled]);
}

#[test]
fn a_wish_to_pause_outlives_the_timeout_that_came_first() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.report(ReportBody::Begun);
    world.wait_for_deadline();
    world.request(Request::Pause { if_running: IfRunning::Interrupt }).unwrap();
    world.finish(AgentEnding::Interrupted);
    assert_eq!(world.session.status(), Status::Paused);
    assert_eq!(world.outcomes(), [RunStatus::Failed]);
}

#[test]
fn a_cancel_reaches_an_agent_that_never_got_the_prompt() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.ask(Ask::Interrupt).unwrap();
    let (now, policy) = (world.now.plus(world.policy.delivery_timeout), world.policy.clone());
    let again = world.session.observe(&Context { now, policy: &policy }, Fact::TimePassed);
    let kinds: Vec<_> = again
        .effects
        .iter()
        .map(|effect| {
            (matches!(effect, Effect::Deliver { .. }), matches!(effect, Effect::Interrupt { .. }))
        })
        .collect();
    assert_eq!(kinds, [(true, false), (false, true)]);
}

#[test]
fn a_sandbox_that_does_not_answer_is_given_up_and_the_next_prompt_starts_another() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    let incarnation = world.session.incarnation();
    world.observe(Fact::SandboxUnreachable { incarnation });
    assert!(matches!(
        world.session.state(),
        State::Paused { reason: PauseReason::ServerRestart, .. }
    ));
    assert_eq!(world.outcomes(), [RunStatus::Interrupted]);
    world.settle();
    assert_eq!(world.alive(), vec![]);
    world.ask(PROMPT).unwrap();
    world.settle();
    assert_eq!(world.session.incarnation(), incarnation.next());
}

#[test]
fn a_report_that_is_too_large_costs_only_itself() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    let run = world.session.current_run().unwrap().id;
    let bytes = MAX_REPORT_BYTES + 1;
    world.report(ReportBody::TextDelta("x".repeat(bytes)));
    assert_eq!(
        world.log.last(),
        Some(&Entry::ReportTooLarge { run: Some(run), bytes: bytes as u64 })
    );
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    assert_eq!(world.outcomes(), [RunStatus::Completed]);
}

#[test]
fn a_report_is_as_large_as_it_is_in_the_log() {
    for text in ["plain", "\n\t\"quoted\\", "\u{1}\u{1f}", "ä…"] {
        let stored = serde_json::to_string(text).unwrap().len() - 2;
        assert_eq!(ReportBody::TextDelta(text.to_owned()).size(), stored, "{text:?}");
    }
}

#[test]
fn what_an_agent_says_of_its_failure_is_cut() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.finish(AgentEnding::Failed { message: "ä".repeat(1_000_000) });
    let Some(Entry::RunEnded { outcome, .. }) = world.log.last() else { panic!("{:?}", world.log) };
    assert!(outcome.failure().unwrap().message.len() < 5_000);
}

#[test]
fn a_person_s_pause_is_not_undone_by_a_prompt_but_an_idle_one_is() {
    let mut world = World::settled();
    world.request(Request::Pause { if_running: IfRunning::Freeze }).unwrap();
    assert_eq!(world.ask(PROMPT), Err(Refusal::NotActive(Status::Paused)));
    world.ask(Ask::Prompt { reject: false, wake: true, quick: false }).unwrap();
    world.settle();
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    world.settle();

    world.wait_for_deadline();
    assert!(matches!(world.session.state(), State::Paused { reason: PauseReason::Idle, .. }));
    world.settle();
    world.ask(PROMPT).unwrap();
    world.settle();
    assert_eq!(world.session.state(), &State::Active);
}

#[test]
fn a_late_sandbox_is_stopped_not_refused() {
    let mut world = World::new();
    world.ask(Ask::End).unwrap();
    let incarnation = world.session.incarnation();
    let ctx = Context { now: world.now, policy: &world.policy };
    let decision =
        world.session.observe(&ctx, Fact::SandboxStarted { incarnation, found: Found::NOTHING });
    assert_eq!(decision.effects, [Effect::StopSandbox { incarnation }]);
    assert_eq!(world.session.state(), &State::Ended);
}

#[test]
fn a_retry_retracts_what_its_round_had_said() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.report(ReportBody::Phase { phase: Phase::StreamingLlm, round: 1 });
    let round_start = world.session.last_seq();
    world.report(ReportBody::TextDelta("half an ans".to_owned()));
    world.report(ReportBody::Retry { round: 1 });
    let Some(Entry::RunRetry { discard_after_seq, .. }) = world.log.last() else {
        panic!("{:?}", world.log)
    };
    assert_eq!(*discard_after_seq, round_start);
    assert!(round_start > Seq::new(4));
}

#[test]
fn a_skipped_report_is_admitted_in_the_log() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    let run = world.session.current_run().unwrap().id;
    let late = Report { run: Some(run), body: ReportBody::TextDelta("late".to_owned()) };
    world.observe(reported(world.session.incarnation(), SpoolPosition::new(4), late));
    assert!(world.log.contains(&Entry::ReportsLost { missing: 3 }));
}

#[test]
fn what_gathers_between_two_commits_becomes_one_entry() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    let run = world.session.current_run().unwrap().id;
    let say = |text: &str| ReportBody::TextDelta(text.to_owned());
    let think = ReportBody::ThinkingDelta("hm".to_owned());
    let bodies = [say("a"), say("b"), think, say("c"), say("d")];
    let reports = (1..).zip(bodies).map(|(position, body)| NumberedReport {
        position: SpoolPosition::new(position),
        report: Report { run: Some(run), body },
    });
    let incarnation = world.session.incarnation();
    world.observe(Fact::Reported { incarnation, reports: reports.collect() });
    let text = |delta: &str| Entry::TextDelta { run, delta: delta.to_owned() };
    let thought = Entry::ThinkingDelta { run, delta: "hm".to_owned() };
    assert_eq!(world.log[4..], [text("ab"), thought, text("cd")]);
    assert_eq!(world.session.spool(), SpoolPosition::new(5));
}

#[test]
fn gathered_text_has_a_bound() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    let run = world.session.current_run().unwrap().id;
    let piece = "x".repeat(MAX_GATHERED_BYTES / 2);
    let reports = (1..=3).map(|position| NumberedReport {
        position: SpoolPosition::new(position),
        report: Report { run: Some(run), body: ReportBody::TextDelta(piece.clone()) },
    });
    let incarnation = world.session.incarnation();
    world.observe(Fact::Reported { incarnation, reports: reports.collect() });
    assert_eq!(world.kinds()[4..], ["text_delta", "text_delta"]);
}
