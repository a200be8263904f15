//! The promises, checked when the world has come to rest.

use std::collections::BTreeMap;

use ash_core::entry::{Entry, Said};
use ash_core::id::{RunId, SessionId, TenantId};
use ash_core::number::{Incarnation, Seq};
use ash_core::permission::{AnsweredHow, Permission};
use ash_core::run::RunStatus;
use ash_core::session::{LogEntry, Sandbox, State, Status};
use ash_engine::host::SandboxRef;
use ash_store::{RunRecord, Store as _};

use super::world::World;

/// In a healthy world every prompt has come to its end, without anybody ending the session.
pub(super) async fn at_rest(world: &World) {
    world
        .until("every accepted prompt ends", || async {
            let mut all_over = true;
            for (run, session) in accepted(world) {
                let record = world.store.run(session, run).await.unwrap();
                all_over &= record.status.is_terminal() || is_paused(world, session).await;
            }
            all_over
        })
        .await;
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
}

/// After every session was ended, nothing is left but the truth.
pub(super) async fn at_the_end(world: &World) {
    assert_eq!(world.host.alive(), vec![], "sandboxes were leaked");
    assert_eq!(world.host.broken_promises(), Vec::<String>::new());
    let logs = logs(world).await;
    for (session, log) in &logs {
        log_has_no_hole(world, *session, log).await;
        every_run_ends_once(world, *session, log).await;
        every_question_is_answered_once(log);
        what_was_said_without_a_run_is_there_once(world, *session, log);
    }
    for (run, session) in accepted(world) {
        assert!(
            logs[&session]
                .iter()
                .any(|e| matches!(e.entry, Entry::Prompt { run: of, .. } if of == run)),
            "accepted run {run} is not in the log"
        );
    }
    for (session, question, decision) in &world.notes.lock().unwrap().decided {
        let decided = logs[session].iter().filter_map(|logged| match &logged.entry {
            Entry::PermissionDecided { id, decision, .. } if id == question => Some(decision),
            _ => None,
        });
        assert_eq!(decided.collect::<Vec<_>>(), [decision], "{question} was decided otherwise");
    }
    // A follower that missed its cue would wait for ever for the last entry.
    world
        .until("every follower sees the end", || async {
            let notes = world.notes.lock().unwrap();
            notes.seen.iter().all(|(session, seen)| seen.len() >= logs[session].len())
        })
        .await;
    for (session, seen) in &world.notes.lock().unwrap().seen {
        assert_eq!(seen, &logs[session], "a follower of {session} saw another history");
    }
}

pub(super) async fn logs(world: &World) -> BTreeMap<SessionId, Vec<LogEntry>> {
    let sessions = world.notes.lock().unwrap().sessions.clone();
    let mut logs = BTreeMap::new();
    for session in sessions {
        let log = world.store.events_after(session, Seq::ZERO, u32::MAX).await.unwrap();
        logs.insert(session, log);
    }
    logs
}

fn accepted(world: &World) -> Vec<(RunId, SessionId)> {
    let notes = world.notes.lock().unwrap();
    notes.accepted.iter().map(|(run, session)| (*run, *session)).collect()
}

/// A person's pause may hold a run for as long as that person likes.
async fn is_paused(world: &World, session: SessionId) -> bool {
    let stored = world.store.session(&TenantId::default_tenant(), session).await.unwrap();
    stored.session.status() == Status::Paused
}

async fn log_has_no_hole(world: &World, session: SessionId, log: &[LogEntry]) {
    for (index, entry) in log.iter().enumerate() {
        assert_eq!(entry.seq, Seq::new(index as u64 + 1), "session {session} has a hole");
    }
    let stored =
        world.store.session(&TenantId::default_tenant(), session).await.unwrap().session.clone();
    assert_eq!(stored.last_seq(), Seq::new(log.len() as u64));
    assert_eq!(stored.broken_invariant(), None);
    assert_eq!((stored.state(), stored.sandbox()), (&State::Ended, Sandbox::None));
    let ends = log.iter().filter(|entry| matches!(entry.entry, Entry::SessionEnded { .. })).count();
    assert_eq!(ends, 1, "session {session} ended {ends} times");
}

async fn every_run_ends_once(world: &World, session: SessionId, log: &[LogEntry]) {
    let records = world.store.runs(session, u32::MAX).await.unwrap();
    let prompts = log.iter().filter(|entry| matches!(entry.entry, Entry::Prompt { .. })).count();
    assert_eq!(records.len(), prompts, "session {session}: runs and prompts differ");
    for record in records {
        let endings: Vec<_> = log
            .iter()
            .filter_map(|entry| match &entry.entry {
                Entry::RunEnded { run, outcome, .. } if *run == record.id => Some(outcome.status()),
                _ => None,
            })
            .collect();
        assert_eq!(endings, vec![record.status], "run {} of {session}", record.id);
        the_log_tells_what_was_said(world, &record, log);
    }
}

/// What an agent said of its own accord is in the log of its session, once and in order. Of what one sandbox said only
/// the end may be missing: it died before that was heard.
fn what_was_said_without_a_run_is_there_once(world: &World, session: SessionId, log: &[LogEntry]) {
    let said = world.host.asides();
    let mut logged: BTreeMap<Incarnation, Vec<usize>> = BTreeMap::new();
    for entry in log {
        if let Entry::Aside { said: Said::Message { body }, .. } = &entry.entry {
            let number: usize = serde_json::from_str(body.get()).unwrap();
            let by = said[number - 1];
            assert_eq!(by.session, session, "what {by:?} said");
            logged.entry(by.incarnation).or_default().push(number);
        }
    }
    for (incarnation, logged) in logged {
        let by = SandboxRef { session, incarnation };
        let all = (1..).zip(&said).filter(|(_, of)| **of == by).map(|(number, _)| number);
        let first: Vec<usize> = all.take(logged.len()).collect();
        assert_eq!(logged, first, "what {by:?} said of its own accord");
    }
}

/// A question is asked once, decided once at most, and over before its run is.
fn every_question_is_answered_once(log: &[LogEntry]) {
    let mut open = BTreeMap::new();
    for logged in log {
        match &logged.entry {
            Entry::PermissionRequest { run, id, .. } => {
                assert_eq!(open.insert(*id, (*run, None)), None, "{id} was asked twice");
            }
            Entry::PermissionDecided { id, decision, .. } => {
                let (_, decided) = open.get_mut(id).expect("only what is open is decided");
                assert!(decided.replace(decision).is_none(), "{id} was decided twice");
            }
            Entry::PermissionAnswered { id, how, .. } => {
                let (_, decided) = open.remove(id).expect("only what is open is answered");
                match how {
                    AnsweredHow::Allowed => {
                        assert!(matches!(decided, Some(Permission::Allow { .. })), "{id}");
                    }
                    AnsweredHow::Denied => {
                        assert!(matches!(decided, Some(Permission::Deny { .. })), "{id}");
                    }
                    AnsweredHow::TimedOut | AnsweredHow::Withdrawn | AnsweredHow::Lost => {}
                }
            }
            Entry::RunEnded { run, .. } => {
                assert!(open.values().all(|(of, _)| of != run), "{run} ended with a question");
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "questions were never answered: {open:?}");
}

/// What is in the log of a run is what the agent said: nothing twice, nothing left out, nothing
/// after the end. Only the tail of a run that was cut may be missing.
fn the_log_tells_what_was_said(world: &World, record: &RunRecord, log: &[LogEntry]) {
    let mut logged = String::new();
    for entry in log {
        if let Entry::TextDelta { run, delta } = &entry.entry
            && *run == record.id
        {
            logged.push_str(delta);
        }
    }
    let said = world.host.said(record.id);
    if record.status == RunStatus::Completed {
        assert_eq!(logged, said, "run {} was completed", record.id);
    } else {
        assert!(said.starts_with(&logged), "run {}: {logged:?} of {said:?}", record.id);
    }
}
