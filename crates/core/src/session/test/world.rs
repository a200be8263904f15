//! A small world around one session: a host that keeps its contract but is slow, late and double,
//! an owner that forgets, and time. Random steps drive it; it remembers what it saw.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::super::{
    Decision, Effect, Fact, IfBusy, IfRunning, PauseReason, Prompt, Request, RunChange, Sandbox,
    Session, State, Wake,
};
use super::host::{Live, policy};
use crate::entry::{Entry, ResumePath};
use crate::failure::Death;
use crate::id::{RunId, SessionId};
use crate::json::Json;
use crate::number::{Incarnation, Seq};
use crate::policy::{Context, Policy};
use crate::refusal::Refusal;
use crate::resume::{Found, IfLost};
use crate::run::{Outcome, RunStatus};
use crate::snapshot::Snapshot;
use crate::time::Timestamp;

/// One thing that happens. Numbers choose among what there is, so that every script makes sense.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Ask(Ask),
    /// Perform one of the effects that are owed.
    Perform(usize),
    /// Let one of the facts in transit arrive.
    Arrive(usize),
    /// Let one arrive and come again later.
    ArriveTwice(usize),
    /// A fact from the past arrives once more.
    Replay(usize),
    /// The agent in a sandbox does something.
    Work(Work),
    /// A sandbox dies.
    Die(u8),
    /// A sandbox does not answer.
    LoseTouch,
    Wait(u32),
    WaitForDeadline,
    /// The owner is killed and another one takes over.
    Crash,
    Panic,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Prompt { reject: bool, wake: bool, quick: bool },
    Interrupt,
    InterruptQueued(usize),
    Decide { which: usize, allow: bool },
    Pause(u8),
    Resume,
    Stop,
    Use,
    Touch,
    PutAway,
    Capture,
    Evict,
    Rewind(u32),
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Begin,
    Talk,
    Phase(u8),
    Retry,
    Question,
    /// Takes what was decided, or has waited long enough.
    Answer {
        how: u8,
    },
    SkipNumber,
    Finish(u8),
    ForeignRun,
    /// Something that it says without a run.
    Aside(u8),
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ask = prop_oneof![
        8 => any::<(bool, bool, bool)>().prop_map(|(a, wake, c)| Ask::Prompt {
            reject: a && c, wake, quick: c
        }),
        3 => Just(Ask::Interrupt),
        1 => any::<usize>().prop_map(Ask::InterruptQueued),
        3 => any::<(usize, bool)>().prop_map(|(which, allow)| Ask::Decide { which, allow }),
        3 => any::<u8>().prop_map(Ask::Pause),
        4 => Just(Ask::Resume),
        2 => Just(Ask::Stop),
        1 => Just(Ask::Use),
        1 => Just(Ask::Touch),
        2 => Just(Ask::PutAway),
        2 => Just(Ask::Capture),
        1 => Just(Ask::Evict),
        1 => (0u32..6).prop_map(Ask::Rewind),
        1 => Just(Ask::End),
    ];
    let work = prop_oneof![
        2 => Just(Work::Begin),
        3 => Just(Work::Talk),
        2 => any::<u8>().prop_map(Work::Phase),
        1 => Just(Work::Retry),
        3 => Just(Work::Question),
        2 => any::<u8>().prop_map(|how| Work::Answer { how }),
        1 => Just(Work::SkipNumber),
        3 => any::<u8>().prop_map(Work::Finish),
        1 => Just(Work::ForeignRun),
        2 => any::<u8>().prop_map(Work::Aside),
    ];
    let step = prop_oneof![
        5 => ask.prop_map(Step::Ask),
        8 => any::<usize>().prop_map(Step::Perform),
        8 => any::<usize>().prop_map(Step::Arrive),
        2 => any::<usize>().prop_map(Step::ArriveTwice),
        2 => any::<usize>().prop_map(Step::Replay),
        6 => work.prop_map(Step::Work),
        1 => any::<u8>().prop_map(Step::Die),
        1 => Just(Step::LoseTouch),
        2 => (1u32..20_000).prop_map(Step::Wait),
        1 => Just(Step::WaitForDeadline),
        1 => Just(Step::Crash),
        1 => Just(Step::Panic),
    ];
    prop::collection::vec(step, 1..120)
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) session: Session,
    pub(super) now: Timestamp,
    pub(super) policy: Policy,
    pub(super) log: Vec<Entry>,
    pub(super) statuses: BTreeMap<RunId, Vec<RunStatus>>,
    /// How often each incarnation was taken up as the session's own.
    pub(super) adoptions: BTreeMap<Incarnation, u32>,
    pub(super) owed: Vec<Effect>,
    /// Whether the files are not there now and then when they are to be captured.
    pub(super) loses_files: bool,
    pub(super) transit: Vec<Fact>,
    past: Vec<Fact>,
    pub(super) live: BTreeMap<Incarnation, Live>,
    pub(super) dead_through: Incarnation,
    /// What the host finds; it varies if nothing is said.
    pub(super) found: Option<Found>,
    /// How often everything of it was to be removed.
    pub(super) purges: u32,
    /// Every snapshot that was recorded, in order.
    pub(super) snapshots: Vec<Snapshot>,
    pub(super) random: u64,
    /// Whether what is being decided is a person's wish that runs end.
    person_ends_runs: bool,
}

impl World {
    pub(super) fn new() -> Self {
        Self::living(None)
    }

    pub(super) fn with_time_to_live(duration: Duration) -> Self {
        Self::living(Some(duration))
    }

    fn living(time_to_live: Option<Duration>) -> Self {
        let now = Timestamp::from_millis(1_000_000);
        let policy = policy();
        let id = SessionId::from_parts(now, [1; 10]);
        let ctx = Context { now, policy: &policy };
        let (session, decision) = Session::create(&ctx, id, time_to_live);
        let mut world = Self { log: Vec::new(), ..Self::living_on(session) };
        world.record(decision);
        world
    }

    /// A world around a session that is there already; nobody knows its log any more.
    pub(super) fn living_on(session: Session) -> Self {
        let log = vec![Entry::SessionWaking; usize::try_from(session.last_seq().get()).unwrap()];
        Self {
            session,
            now: Timestamp::from_millis(1_000_000),
            policy: policy(),
            log,
            statuses: BTreeMap::new(),
            adoptions: BTreeMap::new(),
            owed: Vec::new(),
            loses_files: true,
            transit: Vec::new(),
            past: Vec::new(),
            live: BTreeMap::new(),
            dead_through: Incarnation::ZERO,
            found: None,
            purges: 0,
            snapshots: Vec::new(),
            random: 0,
            person_ends_runs: false,
        }
    }

    /// A world in which all that was asked for has been done.
    pub(super) fn settled() -> Self {
        let mut world = Self::new();
        world.loses_files = false;
        world.settle();
        world
    }

    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Ask(ask) => {
                // Refused or not: what it must not do is checked there.
                let _decided = self.ask(*ask);
            }
            Step::Perform(index) => {
                if !self.owed.is_empty() {
                    let effect = self.owed.remove(index % self.owed.len());
                    self.perform(&effect);
                }
            }
            Step::Arrive(index) => self.arrive(*index, false),
            Step::ArriveTwice(index) => self.arrive(*index, true),
            Step::Replay(index) => {
                if !self.past.is_empty() {
                    let fact = self.past[index % self.past.len()].clone();
                    self.must_change_nothing(fact);
                }
            }
            Step::Work(work) => self.work(*work),
            Step::Die(how) => {
                let death = match how % 4 {
                    0 => Death::Exited(1),
                    1 => Death::Killed(9),
                    2 => Death::OutOfMemory,
                    _ => Death::RunnerLost,
                };
                if let Some((incarnation, _)) = self.live.pop_last() {
                    self.dead_through = self.dead_through.max(incarnation);
                    self.transit.push(Fact::SandboxGone { incarnation, death });
                }
            }
            Step::LoseTouch => {
                // Only who should be running is attached to.
                if self.session.sandbox() == Sandbox::Live {
                    let incarnation = self.session.incarnation();
                    self.observe(Fact::SandboxUnreachable { incarnation });
                }
            }
            Step::Wait(millis) => self.wait(Duration::from_millis(u64::from(*millis))),
            Step::WaitForDeadline => self.wait_for_deadline(),
            Step::Crash => self.crash(),
            Step::Panic => {
                let last_seq = self.session.last_seq();
                self.observe(Fact::DriverPanicked { last_seq });
            }
        }
        assert_eq!(self.session.broken_invariant(), None, "after {step:?}: {:?}", self.session);
    }

    /// Asks the session, and checks what holds for every refusal.
    pub(super) fn ask(&mut self, ask: Ask) -> Result<(), Refusal> {
        let request = self.request_for(ask);
        self.request(request)
    }

    pub(super) fn request(&mut self, request: Request) -> Result<(), Refusal> {
        let before = self.session.clone();
        self.person_ends_runs =
            matches!(request, Request::Interrupt { .. } | Request::Stop | Request::End);
        let decided = {
            let ctx = Context { now: self.now, policy: &self.policy };
            self.session.request(&ctx, request)
        };
        match decided {
            Ok(decision) => {
                self.record(decision);
                self.person_ends_runs = false;
                Ok(())
            }
            Err(refusal) => {
                assert_eq!(before, self.session, "{refusal} changed something");
                Err(refusal)
            }
        }
    }

    pub(super) fn observe(&mut self, fact: Fact) {
        let ended = *self.session.state() == State::Ended;
        let decision = {
            let ctx = Context { now: self.now, policy: &self.policy };
            self.session.observe(&ctx, fact.clone())
        };
        if ended {
            assert_eq!(
                *self.session.state(),
                State::Ended,
                "{fact:?} brought an ended session back"
            );
        }
        self.record(decision);
        self.must_change_nothing(fact.clone());
        if fact != Fact::TimePassed {
            self.past.push(fact);
        }
    }

    /// Sees a fact again, as after a lost acknowledgement.
    fn must_change_nothing(&mut self, fact: Fact) {
        let before = self.session.clone();
        let again = {
            let ctx = Context { now: self.now, policy: &self.policy };
            self.session.observe(&ctx, fact.clone())
        };
        assert_eq!(before, self.session, "seeing {fact:?} again changed the session");
        let nothing =
            again.entries.is_empty() && again.runs.is_empty() && again.snapshots.is_empty();
        assert!(nothing, "{fact:?} was recorded twice");
        self.owed.extend(again.effects);
    }

    pub(super) fn wait(&mut self, duration: Duration) {
        self.now = self.now.plus(duration);
        let due = self.session.next_deadline(&self.policy).is_some_and(|at| at <= self.now);
        let before = self.session.clone();
        self.observe(Fact::TimePassed);
        if !due {
            assert_eq!(before, self.session, "time changed something before the deadline");
        }
    }

    pub(super) fn wait_for_deadline(&mut self) {
        if let Some(deadline) = self.session.next_deadline(&self.policy) {
            self.now = self.now.max(deadline);
            let before = self.session.clone();
            self.observe(Fact::TimePassed);
            assert_ne!(before, self.session, "a deadline passed and nothing happened");
        }
    }

    /// The owner dies with all it had in mind; the next one reads the session and looks around.
    pub(super) fn crash(&mut self) {
        self.transit.clear();
        self.past.clear();
        self.session.taken_over(self.now);
        self.owed = self.session.recover();
        // What the reconciler does with a sandbox that no session expects.
        let none = self.session.sandbox() == Sandbox::None;
        for &incarnation in self.live.keys() {
            if none || incarnation != self.session.incarnation() {
                self.owed.push(Effect::StopSandbox { incarnation });
            }
        }
        if let Sandbox::Frozen { .. } = self.session.sandbox() {
            let incarnation = self.session.incarnation();
            if !self.live.contains_key(&incarnation) {
                self.transit.push(Fact::SandboxGone { incarnation, death: Death::Lost });
            }
        }
        self.observe(Fact::TimePassed);
    }

    /// Does all that is owed and lets all that happened arrive.
    pub(super) fn settle(&mut self) {
        for _ in 0..1_000 {
            if let Some(effect) = (!self.owed.is_empty()).then(|| self.owed.remove(0)) {
                self.perform(&effect);
            } else if !self.transit.is_empty() {
                self.arrive(0, false);
            } else {
                return;
            }
        }
        panic!("the session never settles: {:?}", self.session);
    }

    /// The session's sandbox dies, and everybody knows at once.
    pub(super) fn die(&mut self, death: Death) {
        let incarnation = self.session.incarnation();
        self.live.remove(&incarnation);
        self.dead_through = self.dead_through.max(incarnation);
        self.observe(Fact::SandboxGone { incarnation, death });
    }

    pub(super) fn alive(&self) -> Vec<Incarnation> {
        self.live.keys().copied().collect()
    }

    fn request_for(&mut self, ask: Ask) -> Request {
        match ask {
            Ask::Prompt { reject, wake, quick } => {
                self.random += 1;
                let mut bytes = [0; 10];
                bytes[..8].copy_from_slice(&self.random.to_be_bytes());
                Request::Prompt(Prompt {
                    run: RunId::from_parts(self.now, bytes),
                    content: Json::of("hello").unwrap(),
                    if_busy: if reject { IfBusy::Reject } else { IfBusy::Queue },
                    wake: if wake { Wake::Any } else { Wake::SystemPaused },
                    timeout: quick.then(|| Duration::from_secs(5)),
                    asked_at: None,
                })
            }
            Ask::Interrupt => Request::Interrupt { run: None },
            Ask::InterruptQueued(index) => {
                let waiting: Vec<_> = self.session.queued_runs().map(|run| run.id).collect();
                let run = waiting.get(index % waiting.len().max(1)).copied();
                Request::Interrupt { run }
            }
            Ask::Decide { which, allow } => self.decision(which, allow),
            Ask::Pause(how) => Request::Pause {
                if_running: match how % 3 {
                    0 => IfRunning::Freeze,
                    1 => IfRunning::Interrupt,
                    _ => IfRunning::Reject,
                },
            },
            Ask::Resume => Request::Resume(IfLost::default().into()),
            Ask::Stop => Request::Stop,
            Ask::Use => Request::Use,
            Ask::Evict => Request::Evict { reason: PauseReason::Evicted },
            Ask::Touch => Request::Touch,
            Ask::PutAway => Request::PutAway,
            Ask::Capture => Request::Capture,
            Ask::Rewind(which) => Request::Rewind { to: Box::new(self.snapshot_to(which)) },
            Ask::End => Request::End,
        }
    }

    /// Keeps what was decided, as a store would, and checks what holds for every decision.
    fn record(&mut self, decision: Decision) {
        for numbered in decision.entries {
            self.check_neighbours(&numbered);
            self.log.push(numbered.entry.clone());
            assert_eq!(numbered.seq, Seq::new(self.log.len() as u64), "the log has a hole");
            if let Entry::SessionActive { incarnation }
            | Entry::SessionResumed { path: ResumePath::Cold, incarnation, .. } = numbered.entry
            {
                *self.adoptions.entry(incarnation).or_default() += 1;
            }
        }
        assert_eq!(self.session.last_seq(), Seq::new(self.log.len() as u64));
        for change in decision.runs {
            match change {
                RunChange::Accepted { run, .. } => {
                    assert!(self.statuses.insert(run, vec![RunStatus::Queued]).is_none());
                }
                RunChange::Started { run, .. } => self.status(run, RunStatus::Running),
                RunChange::Progressed { .. } => {}
                RunChange::Ended { run, outcome, .. } => {
                    let person =
                        self.person_ends_runs || self.log.contains(&Entry::RunCancelling { run });
                    assert!(person || outcome != Outcome::Cancelled, "nobody cancelled {run}");
                    self.status(run, outcome.status());
                }
            }
        }
        for snapshot in decision.snapshots {
            assert!(
                snapshot.seq <= self.session.last_seq()
                    && snapshot.turn <= self.session.lineage().last()
            );
            let is_new =
                self.snapshots.iter().all(|known| known.captured.id != snapshot.captured.id);
            assert!(is_new, "{snapshot:?} was recorded twice");
            self.snapshots.push(snapshot);
        }
        if decision.effects.iter().any(|effect| matches!(effect, Effect::Persist { .. })) {
            let may = matches!(
                self.session.sandbox(),
                Sandbox::Live | Sandbox::Frozen { .. } | Sandbox::None
            );
            assert!(may, "something on its way is captured: {:?}", self.session);
        }
        self.owed.extend(decision.effects);
    }

    fn status(&mut self, run: RunId, status: RunStatus) {
        let seen = self.statuses.get_mut(&run).expect("only accepted runs change");
        let last = *seen.last().unwrap();
        assert!(!last.is_terminal(), "a run that is {last:?} became {status:?}");
        seen.push(status);
    }
}
