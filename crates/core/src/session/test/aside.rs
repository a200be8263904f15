//! What an agent says of its own accord.

use super::host::reported;
use super::world::{Ask, World};
use super::{AgentEnding, PROMPT, Report, ReportBody};
use crate::entry::{Entry, Said};
use crate::json::Json;
use crate::number::Turn;
use crate::policy::MAX_REPORT_BYTES;
use crate::run::{Completion, RunStatus};

impl World {
    fn say_aside(&mut self, body: ReportBody) {
        let (incarnation, position) = (self.session.incarnation(), self.session.spool().next());
        self.observe(reported(incarnation, position, Report { run: None, body }));
    }
}

fn message(text: &str) -> ReportBody {
    ReportBody::Message(Json::of(text).unwrap())
}

fn aside(turn: u32, text: &str) -> Entry {
    Entry::Aside { turn: Turn::new(turn), said: Said::Message { body: Json::of(text).unwrap() } }
}

#[test]
fn what_is_said_between_two_runs_is_logged_with_the_turn_before_it() {
    let mut world = World::settled();
    world.say_aside(message("good morning"));
    assert_eq!(world.log.last(), Some(&aside(0, "good morning")));
    world.ask(PROMPT).unwrap();
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    world.settle();
    world.say_aside(message("by the way"));
    assert_eq!(world.log.last(), Some(&aside(1, "by the way")));
    // It is no run: nothing is begun by it, and nothing ended.
    assert_eq!(world.outcomes(), [RunStatus::Completed]);
    assert_eq!(world.session.lineage().turns(), 1);
    assert!(world.session.current_run().is_none());
}

#[test]
fn what_was_said_between_two_runs_is_captured_soon() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    world.settle();
    let before = world.session.persistence().last().cloned();
    world.say_aside(message("by the way"));
    assert!(world.session.is_yet_to_be_captured());
    world.wait_for_deadline();
    world.settle();
    let after = world.session.persistence().last().cloned();
    assert!(before.map(|snapshot| snapshot.seq) < after.map(|snapshot| snapshot.seq));
}

#[test]
fn only_what_is_said_is_taken_without_a_run() {
    let mut world = World::settled();
    let entries = world.log.len();
    for body in [
        ReportBody::Begun,
        ReportBody::TextDelta("a piece of nothing".to_owned()),
        ReportBody::Retry { round: 1 },
        ReportBody::Skipped,
    ] {
        world.say_aside(body);
    }
    assert_eq!(world.log.len(), entries);
    world.say_aside(message(&"x".repeat(MAX_REPORT_BYTES)));
    let bytes = MAX_REPORT_BYTES as u64 + 2;
    assert_eq!(world.log.last(), Some(&Entry::ReportTooLarge { run: None, bytes }));
    // What is said of the record counts, as at the end of a run.
    let body = Json::parse(r#"{"bytes":5,"blake3":"0000000000000000000000000000000000000000000000000000000000000000","turns":0}"#.to_owned()).unwrap();
    world.say_aside(ReportBody::Output { name: "transcript".to_owned(), body });
    assert!(world.session.transcript.is_some());
}

#[test]
fn a_session_that_is_over_is_told_nothing_more() {
    let mut world = World::settled();
    let (incarnation, position) = (world.session.incarnation(), world.session.spool().next());
    world.ask(Ask::End).unwrap();
    let entries = world.log.len();
    let report = Report { run: None, body: message("too late") };
    world.observe(reported(incarnation, position, report));
    assert_eq!(world.log.len(), entries);
}
