//! The host of the test world: true to its contract, but in no hurry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::{AgentEnding, AwayOutcome, Effect, Fact, NumberedReport, Report, ReportBody};
use super::question::answer_of;
use super::world::{Work, World};
use crate::failure::{Death, Failure, FailureCode};
use crate::id::{QuestionId, RunId, SnapshotId};
use crate::json::Json;
use crate::number::{Incarnation, Seq, SpoolPosition, Turn};
use crate::policy::Policy;
use crate::resume::{Found, Native, Source, Workspace};
use crate::run::{Completion, Phase, Usage};
use crate::snapshot::{Captured, PersistOutcome, PutBackOutcome, Snapshot};
use crate::time::Timestamp;

/// A sandbox in the host.
#[derive(Clone, Default)]
pub(super) struct Live {
    pub(super) frozen: bool,
    run: Option<RunId>,
    known_runs: BTreeSet<RunId>,
    interrupted: bool,
    /// What its agent asks, and what it was told.
    pub(super) asked: BTreeMap<QuestionId, Option<Seq>>,
    last_report: u64,
    /// Kept until acknowledged; an owner that attaches gets what it has not seen.
    spool: BTreeMap<u64, Report>,
}

/// What a capture of this number comes to.
pub(super) fn captured(number: u64) -> PersistOutcome {
    PersistOutcome::Captured(Captured {
        id: SnapshotId::from_uuid(uuid::Uuid::from_u64_pair(7, number)),
        files: 3,
        bytes: 1_000,
        new_bytes: 10,
        unfrozen: 0,
        unstable: 0,
        // Every now and then the machine was restarted.
        unproven: number % 10 == 6,
    })
}

pub(super) fn failed_capture() -> PersistOutcome {
    PersistOutcome::Failed { message: "the disk is full".to_owned() }
}

impl World {
    /// What the host does, true to its contract.
    pub(super) fn perform(&mut self, effect: &Effect) {
        match *effect {
            Effect::StartSandbox { incarnation, .. } => {
                if incarnation <= self.dead_through {
                    let failure =
                        Failure::new(FailureCode::SandboxStartFailed, "it is dead already");
                    self.transit.push(Fact::SandboxStartFailed { incarnation, failure });
                    return;
                }
                self.live.entry(incarnation).or_default();
                assert_eq!(self.live.len(), 1, "two sandboxes at once");
                self.transit
                    .push(Fact::SandboxStarted { incarnation, found: self.found_by(incarnation) });
            }
            Effect::StopSandbox { incarnation } => {
                self.dead_through = self.dead_through.max(incarnation);
                self.live.retain(|&other, _| other > incarnation);
                self.transit.push(Fact::SandboxGone { incarnation, death: Death::Stopped });
            }
            Effect::Attach { incarnation, after } => self.attach(incarnation, after),
            Effect::Freeze { incarnation, asked } => {
                if let Some(sandbox) = self.live.get_mut(&incarnation) {
                    sandbox.frozen = true;
                    self.transit.push(Fact::SandboxFrozen { incarnation, asked });
                }
            }
            Effect::Thaw { incarnation, asked, after } => {
                if let Some(sandbox) = self.live.get_mut(&incarnation) {
                    sandbox.frozen = false;
                    self.transit.push(Fact::SandboxThawed { incarnation, asked });
                }
                self.attach(incarnation, after);
            }
            Effect::Deliver { incarnation, run } => {
                if let Some(sandbox) = self.live.get_mut(&incarnation)
                    && sandbox.known_runs.insert(run)
                {
                    sandbox.run = Some(run);
                    sandbox.interrupted = false;
                }
            }
            Effect::Interrupt { incarnation, run } => {
                if let Some(sandbox) = self.live.get_mut(&incarnation)
                    && sandbox.run == Some(run)
                {
                    sandbox.interrupted = true;
                }
            }
            Effect::Decide { incarnation, question, decided } => {
                self.hear_decision(incarnation, question, decided);
            }
            Effect::Persist { number, .. } => {
                // Some are never heard of again, some fail, and some find nothing.
                match number % 5 {
                    _ if number % 13 == 11 && self.loses_files => {
                        self.transit
                            .push(Fact::Persisted { number, outcome: PersistOutcome::Gone });
                    }
                    3 => {}
                    // Something was torn, and put right.
                    0 if number % 15 == 5 => {
                        let [found, right] = [number + (1 << 40), number].map(captured);
                        let PersistOutcome::Captured(captured) = right else { unreachable!() };
                        let PersistOutcome::Captured(found) = found else { unreachable!() };
                        let as_found = Captured { unproven: true, ..found };
                        let outcome = PersistOutcome::PutRight { as_found, captured };
                        self.transit.push(Fact::Persisted { number, outcome });
                    }
                    4 => self.transit.push(Fact::Persisted { number, outcome: failed_capture() }),
                    _ => self.transit.push(Fact::Persisted { number, outcome: captured(number) }),
                }
            }
            Effect::PutBack { number, .. } => {
                // Asked once more for a rewind that is over, it leaves alone what somebody works on.
                let is_owed = self.session.put_back_effect().as_ref() == Some(effect);
                assert!(!is_owed || self.live.is_empty(), "files are put back under a sandbox");
                let outcome = match number % 5 {
                    _ if !self.live.is_empty() => PutBackOutcome::Failed,
                    1 => PutBackOutcome::Failed,
                    2 => return, // Nobody hears of it again.
                    3 => PutBackOutcome::Lost,
                    _ => PutBackOutcome::Done,
                };
                self.transit.push(Fact::PutBack { number, outcome });
            }
            Effect::PutAway { number, .. } => {
                // Who wants them keeps them: what was given up is not done any more.
                if self.session.put_away_effect().as_ref() != Some(effect) {
                    return;
                }
                assert!(self.live.is_empty(), "files were removed under a sandbox");
                match number % 4 {
                    2 => {}
                    3 if number % 8 == 7 => self.put_away(number, AwayOutcome::Uncaptured),
                    3 => self.put_away(number, AwayOutcome::Stay),
                    _ => self.put_away(number, AwayOutcome::Gone),
                }
            }
            Effect::Purge => self.purges += 1,
            Effect::Acknowledge { incarnation, through } => {
                if let Some(sandbox) = self.live.get_mut(&incarnation) {
                    sandbox.spool.retain(|&position, _| position > through.get());
                }
            }
        }
    }

    /// One of the snapshots that there are; of a turn that never was, if there are fewer.
    pub(super) fn snapshot_to(&self, which: u32) -> Snapshot {
        let PersistOutcome::Captured(captured) = captured(u64::MAX) else { unreachable!() };
        let known = self.snapshots.get(which as usize).cloned();
        known.unwrap_or_else(|| Snapshot {
            captured,
            seq: Seq::new(1),
            turn: Turn::new(u32::MAX),
            through: None,
            at: self.now,
            transcript: None,
            completed_runs: 0,
            lost: None,
        })
    }

    fn put_away(&mut self, number: u64, outcome: AwayOutcome) {
        self.transit.push(Fact::PutAway { number, outcome });
    }

    /// Sometimes everything is where it was, sometimes nothing is.
    fn found_by(&self, incarnation: Incarnation) -> Found {
        let kept = Found {
            unverified: 0,
            workspace: Workspace::Kept,
            source: Source::Local,
            snapshot: None,
            files: 3,
            bytes: 1_000,
            native: Native::Intact,
            turns: 1,
            as_found: None,
        };
        let varied = match incarnation.get() % 3 {
            0 => Found { native: Native::Lost, ..kept },
            1 => Found::NOTHING,
            _ => kept,
        };
        self.found.unwrap_or(varied)
    }

    fn attach(&mut self, incarnation: Incarnation, after: SpoolPosition) {
        let Some(sandbox) = self.live.get(&incarnation) else {
            self.transit.push(Fact::SandboxGone { incarnation, death: Death::Lost });
            return;
        };
        for (&position, report) in sandbox.spool.range(after.get() + 1..) {
            let position = SpoolPosition::new(position);
            self.transit.push(reported(incarnation, position, report.clone()));
        }
    }

    /// Reports of one sandbox arrive in order, and its end after them; all else in any order.
    pub(super) fn arrive(&mut self, index: usize, twice: bool) {
        let rank = |fact: &Fact| match fact {
            Fact::Reported { incarnation, reports } => {
                Some((*incarnation, reports[0].position.get()))
            }
            Fact::SandboxGone { incarnation, .. } => Some((*incarnation, u64::MAX)),
            Fact::Persisted { .. }
            | Fact::PutBack { .. }
            | Fact::PutAway { .. }
            | Fact::SandboxStarted { .. }
            | Fact::SandboxStartFailed { .. }
            | Fact::SandboxUnreachable { .. }
            | Fact::SandboxFrozen { .. }
            | Fact::SandboxThawed { .. }
            | Fact::InUse
            | Fact::TimePassed
            | Fact::DriverPanicked { .. } => None,
        };
        let ready: Vec<usize> = (0..self.transit.len())
            .filter(|&this| match rank(&self.transit[this]) {
                None => true,
                Some((incarnation, place)) => self.transit.iter().all(|other| {
                    rank(other).is_none_or(|(of, at)| of != incarnation || at >= place)
                }),
            })
            .collect();
        if ready.is_empty() {
            return;
        }
        let chosen = ready[index % ready.len()];
        let fact = if twice { self.transit[chosen].clone() } else { self.transit.remove(chosen) };
        self.observe(fact);
    }

    pub(super) fn work(&mut self, work: Work) {
        let session_run = self.session.current_run().map(|run| run.id);
        let Some((&incarnation, sandbox)) = self.live.iter_mut().next() else { return };
        if sandbox.frozen {
            return;
        }
        if let Work::Aside(which) = work {
            let body = Json::of("word").unwrap();
            let body = match which % 3 {
                0 => ReportBody::Message(body),
                1 => ReportBody::Output { name: "notice".to_owned(), body },
                _ => ReportBody::TextDelta("nothing that is said without a run".to_owned()),
            };
            return self.spool(incarnation, Report { run: None, body });
        }
        let Some(run) = sandbox.run else { return };
        let round = 1 + u32::try_from(sandbox.last_report / 4).unwrap();
        let mut report = Report { run: Some(run), body: ReportBody::Begun };
        match work {
            Work::Begin => {}
            Work::Talk => report.body = ReportBody::TextDelta("word ".to_owned()),
            Work::Phase(which) => {
                let phases = [Phase::StreamingLlm, Phase::ExecutingTools, Phase::DelegatingCoder];
                let phase = phases[usize::from(which) % phases.len()];
                report.body = ReportBody::Phase { phase, round };
            }
            Work::Question => {
                self.random += 1;
                let id = QuestionId::from_uuid(uuid::Uuid::from_u64_pair(8, self.random));
                sandbox.asked.insert(id, None);
                let (tool, input) = ("bash".to_owned(), Json::of("ls").unwrap());
                report.body = ReportBody::Question { id, tool, input };
            }
            Work::Answer { how } => {
                let Some((id, decided)) = sandbox.asked.pop_first() else { return };
                report.body = ReportBody::Answered { id, how: answer_of(decided, how) };
            }
            Work::Retry => report.body = ReportBody::Retry { round },
            Work::SkipNumber => sandbox.last_report += 1,
            Work::Finish(how) => {
                let how = match how % 3 {
                    _ if sandbox.interrupted => AgentEnding::Interrupted,
                    0 => AgentEnding::Failed { message: "no idea".to_owned() },
                    1 | 2 => AgentEnding::Completed(Completion::EndTurn),
                    _ => unreachable!("a remainder of three"),
                };
                report.body = ReportBody::Ended { how, usage: Usage::default() };
                sandbox.run = None;
                sandbox.asked.clear();
            }
            Work::Aside(_) => unreachable!("it has no run"),
            Work::ForeignRun => {
                report.run = Some(RunId::from_parts(Timestamp::from_millis(5), [9; 10]));
                assert_ne!(report.run, session_run);
            }
        }
        self.spool(incarnation, report);
    }

    fn spool(&mut self, incarnation: Incarnation, report: Report) {
        let Some(sandbox) = self.live.get_mut(&incarnation) else { return };
        sandbox.last_report += 1;
        sandbox.spool.insert(sandbox.last_report, report.clone());
        let position = SpoolPosition::new(sandbox.last_report);
        self.transit.push(reported(incarnation, position, report));
    }
}

pub(super) fn reported(incarnation: Incarnation, position: SpoolPosition, report: Report) -> Fact {
    Fact::Reported { incarnation, reports: vec![NumberedReport { position, report }] }
}

/// Short and all different, so that deadlines do not hide behind one another.
pub(super) fn policy() -> Policy {
    Policy {
        start_timeout: Duration::from_millis(6_000),
        stop_timeout: Duration::from_millis(1_100),
        freeze_timeout: Duration::from_millis(1_300),
        delivery_timeout: Duration::from_millis(900),
        interrupt_grace: Duration::from_millis(1_700),
        turn_timeout: Duration::from_millis(30_000),
        idle_timeout: Duration::from_millis(15_000),
        evict_after: Duration::from_millis(20_000),
        persist_interval: Duration::from_millis(40_000),
        persist_debounce: Duration::from_millis(700),
        persist_timeout: Duration::from_millis(5_300),
        cold_ttl: Duration::from_millis(60_000),
        retention: Duration::from_millis(90_000),
        ..Policy::default()
    }
}
