//! What a log says of its session is what the session knows.

use proptest::prelude::*;

use super::super::{
    BrokenHistory, Decision, History, LogEntry, Origin, RunChange, Sandbox, Session, Status,
};
use super::PROMPT;
use super::resume::KEPT;
use super::world::{Ask, World, steps};
use crate::entry::Entry;
use crate::id::{RunId, SessionId};
use crate::number::{LogEpoch, Seq, Turn};
use crate::policy::Context;
use crate::resume::FilesLost;
use crate::run::{Completion, RunStatus};
use crate::session::AgentEnding;
use crate::time::Timestamp;

impl World {
    /// The log as it is stored.
    fn logged(&self) -> Vec<LogEntry> {
        let number = |(seq, entry): (u64, &Entry)| LogEntry {
            seq: Seq::new(seq),
            at: self.now,
            entry: entry.clone(),
        };
        (1..).zip(&self.log).map(number).collect()
    }

    /// A session that begins with the first so many entries of this one's log.
    fn forked_at(&self, entries: usize) -> (Session, Vec<RunChange>) {
        let mut history = History::default();
        for entry in &self.logged()[..entries] {
            history.read(entry).unwrap();
        }
        let id = SessionId::from_parts(Timestamp::from_millis(7), [9; 10]);
        let ctx = Context { now: self.now, policy: &self.policy };
        let origin = Origin::Fork(self.session.id());
        let (session, decision) =
            Session::with_history(&ctx, id, origin, LogEpoch::new(2), history, None);
        let first = Seq::new(entries as u64).next();
        assert_eq!(decision.entries.first().unwrap().seq, first);
        assert!(decision.effects.is_empty());
        (session, decision.runs)
    }
}

/// The run that an entry is the prompt of.
fn prompted(entry: &Entry) -> Option<RunId> {
    let Entry::Prompt { run, .. } = entry else { return None };
    Some(*run)
}

#[test]
fn a_fork_is_paused_and_says_where_it_comes_from() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    world.settle();
    let (fork, _) = world.forked_at(world.log.len());
    assert_eq!((fork.status(), fork.sandbox()), (Status::Paused, Sandbox::None));
    assert_eq!((fork.lineage().turns(), fork.log_epoch()), (1, LogEpoch::new(2)));
    assert!(fork.is_at_rest() && fork.persistence().is_settled());
    assert_eq!(fork.next_deadline(&world.policy), None);
}

#[test]
fn a_lost_end_is_logged_and_told_until_a_run_has_completed() {
    let mut world = World::settled();
    world.complete_a_turn();
    let (session, _) = world.forked_at(world.log.len());
    let ctx = Context { now: world.now, policy: &world.policy };
    let (last, lost) = (session.last_seq(), "turn 2 is missing".to_owned());
    let mut decision = Decision::default();
    let session = session.with_end_lost(&ctx, &mut decision, lost.clone());
    let logged = Entry::ContextLost { turns_in_log: 1, reason: lost };
    assert_eq!(decision.entries, [LogEntry { seq: last.next(), at: ctx.now, entry: logged }]);
    assert_eq!(session.last_seq(), last.next());
    let mut world = World::living_on(session);
    // The files of that turn are all there.
    world.found = Some(KEPT);
    world.ask(Ask::Resume).unwrap();
    world.settle();
    assert_eq!(world.session.lost_files(), Some(FilesLost::WithTurns));
    world.complete_a_turn();
    assert_eq!(world.session.lost_files(), None);
}

#[test]
fn a_run_that_goes_on_is_over_in_a_fork() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.ask(PROMPT).unwrap();
    world.settle();
    let asked: Vec<RunId> = world.log.iter().filter_map(prompted).collect();
    let (fork, runs) = world.forked_at(world.log.len());
    let ended = runs.iter().filter(|change| matches!(change, RunChange::Ended { .. })).count();
    assert_eq!(ended, 2, "the one that ran, and the one that waited");
    let how = |run: &RunId| {
        runs.iter().find_map(|change| match change {
            RunChange::Ended { run: of, outcome, .. } if of == run => Some(outcome.status()),
            RunChange::Ended { .. }
            | RunChange::Accepted { .. }
            | RunChange::Started { .. }
            | RunChange::Progressed { .. } => None,
        })
    };
    let [began, waited] = asked[..] else { panic!("{asked:?}") };
    assert_eq!(how(&began), Some(RunStatus::Interrupted));
    assert_eq!(how(&waited), Some(RunStatus::Cancelled), "it was sent after that point");
    let mut forked = World::living_on(fork.clone());
    forked.ask(Ask::Resume).unwrap();
    forked.settle();
    assert_eq!(forked.receipt().interrupted_run, Some(began), "nothing else was cut");
    assert_eq!(fork.branched_at(), fork.last_seq());
    assert_eq!((fork.lineage().head(), fork.current_run()), (Turn::new(1), None));
}

#[test]
fn a_log_with_a_hole_or_a_turn_out_of_order_is_no_history() {
    let mut world = World::settled();
    world.ask(PROMPT).unwrap();
    world.finish(AgentEnding::Completed(Completion::EndTurn));
    world.ask(PROMPT).unwrap();
    let mut log = world.logged();
    let turn =
        log.iter().position(|entry| matches!(entry.entry, Entry::RunStarted { .. })).unwrap();
    let mut history = History::default();
    assert_eq!(history.read(&log[1]), Err(BrokenHistory(Seq::new(2))));
    log.remove(turn);
    for (seq, entry) in (1..).zip(&mut log) {
        entry.seq = Seq::new(seq);
    }
    let mut history = History::default();
    assert!(log.iter().any(|entry| history.read(entry).is_err()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Whatever happened, the log tells the same of it as the session: and what was decided about runs can be
    /// read in it again.
    #[test]
    fn a_log_says_what_its_session_knows(script in steps()) {
        let mut world = World::new();
        for step in &script {
            world.step(step);
        }
        let (fork, runs) = world.forked_at(world.log.len());
        prop_assert_eq!(fork.lineage(), world.session.lineage());
        let mut last = std::collections::BTreeMap::new();
        for change in &runs {
            match change {
                RunChange::Accepted { run, .. } => {
                    prop_assert!(last.insert(*run, RunStatus::Queued).is_none());
                }
                RunChange::Started { run, .. } => drop(last.insert(*run, RunStatus::Running)),
                RunChange::Progressed { .. } => {}
                RunChange::Ended { run, outcome, .. } => {
                    prop_assert!(!last.insert(*run, outcome.status()).unwrap().is_terminal());
                }
            }
        }
        for (run, seen) in &world.statuses {
            let now = *seen.last().unwrap();
            let expected = match now {
                RunStatus::Queued => RunStatus::Cancelled,
                RunStatus::Running => RunStatus::Interrupted,
                over @ (RunStatus::Completed
                | RunStatus::Cancelled
                | RunStatus::Interrupted
                | RunStatus::Failed) => over,
            };
            prop_assert_eq!(last.get(run), Some(&expected));
        }
    }

    /// At whatever entry a fork begins, it is whole, and can be brought back and go on.
    #[test]
    fn a_fork_begins_at_any_entry(script in steps(), at: prop::sample::Index) {
        let mut world = World::new();
        for step in &script {
            world.step(step);
        }
        let (fork, _) = world.forked_at(at.index(world.log.len()) + 1);
        prop_assert_eq!(fork.broken_invariant(), None);
        let mut forked = World::living_on(fork);
        forked.ask(Ask::Resume).unwrap();
        forked.settle();
        let (turns, last) = (forked.session.lineage().turns(), forked.session.lineage().last());
        forked.ask(PROMPT).unwrap();
        forked.settle();
        if forked.session.status() == Status::Active {
            prop_assert_eq!(forked.session.lineage().last(), last.next());
            prop_assert_eq!(forked.session.lineage().turns(), turns + 1);
        }
    }
}
