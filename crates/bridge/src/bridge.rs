//! What the bridge knows, and the tasks that make it live.
//!
//! ```text
//!   control ──deliver──► queue ──► worker ──► runtime ──reports──► spool ──► control
//!           ──interrupt───────────────────────────┘
//! ```
//!
//! One worker runs one prompt after the other. A prompt that is known is not taken again, and a run
//! that was interrupted before it came ends as soon as it comes.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use ash_protocol::{
    Answer, Config, Decision, Ending, Event, ExecRequest, Frame, FrameError, HooksRequest,
    HooksResult, REPLACED, Replaced, Usage,
};
use serde_json::value::RawValue;
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::control;
use crate::exec::{self, Env};
use crate::hooks::{Around, Hooks};
use crate::note;
use crate::process::{self, Processes};
use crate::questions::Questions;
use crate::reports::Reports;
use crate::runtime::{self, Accepted, Runtime, Surroundings, Warmth};
use crate::spool::Spool;

/// How many prompts may wait. The server sends one at a time.
const QUEUE_CAPACITY: usize = 4;

/// How many runs are remembered, so that one is not begun twice or is ended as it comes.
const MAX_REMEMBERED: usize = 1024;

/// How many connections may be open: one counts, others are on their way in or out.
const MAX_CONNECTIONS: usize = 32;

/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long to wait for a server before it has said how long.
const FIRST_SERVER_TTL: Duration = Duration::from_secs(600);

/// What is said to whoever wants something before it was told what to run.
const NOT_CONFIGURED: &str = "this bridge is not configured yet";

/// The bridge, as its connections see it.
pub(crate) struct Bridge {
    pub(crate) spool: Spool,
    /// Where the agent's requests to the model arrive.
    pub(crate) listener: TcpListener,
    processes: Processes,
    inherited: Inherited,
    /// What the agent asks before it does it.
    questions: Questions,
    /// What is run before it.
    hooks: Hooks,
    config: OnceCell<Config>,
    configured: Notify,
    queue: mpsc::Sender<Delivery>,
    known: RefCell<VecDeque<String>>,
    interrupted: RefCell<VecDeque<String>>,
    current: RefCell<Option<(String, CancellationToken)>>,
    /// From dequeueing a prompt until its end is written down.
    working: Cell<bool>,
    /// Whoever is listened to; cancelled when somebody else takes over.
    connection: RefCell<CancellationToken>,
    /// Whether somebody is.
    connected: Cell<bool>,
    /// The latest server that was here.
    owner: Cell<u64>,
    /// When something last happened that shows that somebody cares.
    last_sign: Cell<Instant>,
    /// A connection or a turn has ended.
    changed: Notify,
    /// How many frames said nothing to us.
    unknown: Cell<u64>,
    ending: CancellationToken,
}

struct Delivery {
    run: String,
    prompt: Box<RawValue>,
}

/// What tools are given of the bridge's own environment.
#[derive(Clone, Debug, Default)]
pub struct Inherited {
    /// Where programs are.
    pub path: Option<String>,
    /// The language.
    pub lang: Option<String>,
    /// The terminal.
    pub term: Option<String>,
}

/// What the bridge is started with.
pub struct Start {
    /// Where servers connect.
    pub control: UnixListener,
    /// Where reports are kept.
    pub spool: Spool,
    /// Where the model's requests are accepted by a server.
    pub listener: TcpListener,
    /// How children are started.
    pub processes: Processes,
    /// What they find in their environment.
    pub inherited: Inherited,
    /// Ends the bridge.
    pub ending: CancellationToken,
}

/// Runs until told to end, until nobody comes, or until the spool cannot be written.
pub async fn run(start: Start) -> io::Result<()> {
    let Start { control, spool, listener, processes, inherited, ending } = start;
    let (queue, deliveries) = mpsc::channel(QUEUE_CAPACITY);
    let bridge = Rc::new(Bridge {
        spool,
        listener,
        processes: processes.clone(),
        inherited,
        questions: Questions::default(),
        hooks: Hooks::default(),
        config: OnceCell::new(),
        configured: Notify::new(),
        queue,
        known: RefCell::default(),
        interrupted: RefCell::default(),
        current: RefCell::default(),
        working: Cell::new(false),
        connection: RefCell::new(CancellationToken::new()),
        connected: Cell::new(false),
        owner: Cell::new(0),
        last_sign: Cell::new(Instant::now()),
        changed: Notify::new(),
        unknown: Cell::new(0),
        ending: ending.clone(),
    });
    tokio::select! {
        biased;
        () = ending.cancelled() => Ok(()),
        () = bridge.abandoned() => Ok(()),
        done = work(&bridge, deliveries) => done,
        () = bridge.hooks.attend(|| bridge.around_hooks()) => Ok(()),
        never = accept(&bridge, control) => never,
        () = process::reaper::reap(processes) => Ok(()),
    }
}

async fn accept(bridge: &Rc<Bridge>, control: UnixListener) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let stream = match control.accept().await {
            Ok((stream, _)) => stream,
            // A machine that is short of something for a moment must not cost a turn.
            Err(error) => {
                note(format_args!("a connection could not be accepted: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            continue; // Dropped: whoever it is tries again.
        }
        let bridge = Rc::clone(bridge);
        connections.spawn_local(async move {
            let hangup = control::converse(Rc::clone(&bridge), stream).await;
            hangup.note(bridge.unknown.get());
        });
    }
}

/// Runs prompts, one after the other.
async fn work(bridge: &Rc<Bridge>, mut deliveries: mpsc::Receiver<Delivery>) -> io::Result<()> {
    let mut runtime: Option<Runtime> = None;
    let mut warming = Some(Box::pin(warm_up(bridge)));
    loop {
        let delivery = tokio::select! {
            biased;
            delivery = deliveries.recv() => delivery,
            warm = async { warming.as_mut()?.await.ok() }, if warming.is_some() => {
                (runtime, warming) = (warm, None);
                continue;
            }
            () = runtime::rest(&mut runtime) => {
                runtime::tell_asides(&bridge.spool, &mut runtime).await?;
                continue;
            }
        };
        let Some(Delivery { run, prompt }) = delivery else { return Ok(()) };
        runtime::tell_asides(&bridge.spool, &mut runtime).await?;
        bridge.working.set(true);
        let interrupt = bridge.begin(&run);
        bridge.questions.heed(&prompt);
        // What was wrong may have been put right by the next prompt, so it is tried anew then.
        let begun = warming.take().filter(|_| bridge.config.get().is_some_and(runtime::is_slow));
        let opened = match (runtime.take(), begun) {
            (Some(open), _) => Some(Ok(open)),
            (None, Some(begun)) => interrupt.run_until_cancelled(begun).await,
            (None, None) => interrupt.run_until_cancelled(open(bridge)).await,
        };
        // What is cut before the agent can begin is in the conversation all the same. It begins with what comes next.
        let (opened, is_whole) = match opened {
            Some(opened) => (opened, true),
            None => (open_at_once(bridge, Warmth::Cold).await, false),
        };
        let (ending, usage) = match opened {
            Ok(mut open) => {
                let accepted = open.accept(&run, &prompt);
                bridge.spool.append(&run, &Event::Begun).await?;
                let ended = execute(bridge, &mut open, &run, accepted, interrupt).await?;
                open.must_have_its_record()?;
                runtime = Some(open).filter(|_| is_whole);
                ended
            }
            Err(_) if !is_whole => (Ending::Interrupted, Usage::default()),
            Err(message) => (Ending::Failed { message }, Usage::default()),
        };
        bridge.current.borrow_mut().take();
        bridge.spool.append(&run, &Event::Ended { how: ending, usage }).await?;
        bridge.working.set(false);
        bridge.sign();
    }
}

/// Opens a runtime that takes long to start as soon as it is known; others are opened when they are needed.
async fn warm_up(bridge: &Bridge) -> Result<Runtime, String> {
    if !runtime::is_slow(bridge.configuration().await) {
        return std::future::pending().await;
    }
    open(bridge).await
}

async fn open(bridge: &Bridge) -> Result<Runtime, String> {
    let config = bridge.configuration().await;
    if config.hooked {
        bridge.hooks.passed().await;
    }
    open_at_once(bridge, Warmth::Warm).await
}

/// The same without anything that has to be done before.
async fn open_at_once(bridge: &Bridge, warmth: Warmth) -> Result<Runtime, String> {
    let config = bridge.configuration().await;
    let (env, refused_variables) = bridge.env(config);
    let around = Surroundings {
        env,
        refused_variables,
        endpoint: bridge.listener.local_addr(),
        processes: bridge.processes.clone(),
        questions: bridge.questions.clone(),
    };
    Runtime::open(config, around, warmth).await
}

/// Runs one prompt, and writes down what is reported as it comes.
async fn execute(
    bridge: &Bridge,
    runtime: &mut Runtime,
    run: &str,
    accepted: Accepted,
    interrupt: CancellationToken,
) -> io::Result<(Ending, Usage)> {
    let (reports, mut events) = Reports::channel();
    let mut running = Box::pin(async move { runtime.work(accepted, &reports, interrupt).await });
    let mut ended = None;
    loop {
        tokio::select! {
            biased;
            event = events.recv() => match (event, ended.take()) {
                (Some(event), outcome) => {
                    bridge.spool.append(run, &event).await?;
                    ended = outcome;
                }
                (None, Some(outcome)) => return Ok(outcome),
                (None, None) => return Ok(running.await),
            },
            outcome = &mut running, if ended.is_none() => ended = Some(outcome),
        }
    }
}

impl Bridge {
    /// Makes a run the current one. Its token is cancelled when it is to end, or already.
    fn begin(&self, run: &str) -> CancellationToken {
        let interrupt = CancellationToken::new();
        if self.interrupted.borrow().iter().any(|interrupted| interrupted == run) {
            interrupt.cancel();
        }
        *self.current.borrow_mut() = Some((run.to_owned(), interrupt.clone()));
        interrupt
    }

    pub(crate) fn is_configured(&self) -> bool {
        self.config.get().is_some()
    }

    /// What to run. The first word counts: a repetition says the same.
    pub(crate) fn configure(&self, config: Config) -> Answer {
        let timeout = config.permission_timeout_ms.map(Duration::from_millis);
        if self.config.set(config).is_ok() {
            timeout.into_iter().for_each(|timeout| self.questions.set_timeout(timeout));
            self.configured.notify_waiters();
        }
        Answer::Done
    }

    async fn configuration(&self) -> &Config {
        loop {
            let configured = self.configured.notified();
            if let Some(config) = self.config.get() {
                return config;
            }
            configured.await;
        }
    }

    pub(crate) fn deliver(&self, run: String, prompt: Box<RawValue>) -> Answer {
        if self.known.borrow().contains(&run) {
            return Answer::Done;
        }
        match self.queue.try_send(Delivery { run: run.clone(), prompt }) {
            Ok(()) => {
                remember(&self.known, run);
                Answer::Done
            }
            Err(_full) => Answer::Refused { message: "too many prompts wait here".to_owned() },
        }
    }

    pub(crate) fn interrupt(&self, run: String) -> Answer {
        if let Some((_, interrupt)) =
            self.current.borrow().as_ref().filter(|(current, _)| *current == run)
        {
            interrupt.cancel();
        }
        remember(&self.interrupted, run);
        Answer::Done
    }

    pub(crate) fn decide(&self, id: &str, decision: Decision) -> Answer {
        match self.questions.decide(id, decision) {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Refused { message: error.to_string() },
        }
    }

    pub(crate) async fn exec(&self, request: &ExecRequest) -> Answer {
        let Some(config) = self.config.get() else {
            return Answer::Refused { message: NOT_CONFIGURED.to_owned() };
        };
        let (env, _refused) = self.env(config);
        Answer::Executed(exec::run(&self.processes, request, &env, &config.workspace).await)
    }

    /// Runs scripts of the agent, if it waits for any.
    pub(crate) async fn run_hooks(&self, request: HooksRequest) -> Answer {
        match self.config.get() {
            Some(config) if config.hooked => Answer::Hooked(self.hooks.run(request).await),
            Some(_) => Answer::Hooked(HooksResult::default()),
            None => Answer::Refused { message: NOT_CONFIGURED.to_owned() },
        }
    }

    fn around_hooks(&self) -> Option<Around> {
        let config = self.config.get()?.clone();
        let (env, _refused) = self.env(&config);
        Some(Around { processes: self.processes.clone(), env, config })
    }

    /// What everything that is run here finds in its environment.
    fn env(&self, config: &Config) -> (Env, Vec<String>) {
        let Inherited { path, lang, term } = &self.inherited;
        let proxy = self.listener.local_addr().ok().filter(|_| config.proxied);
        let (env, refused) =
            Env::new(&config.home, path.as_deref(), lang.as_deref(), term.as_deref(), &config.env);
        (env.behind(proxy), refused)
    }

    /// Makes the caller the connection that counts, unless a later server has been here.
    pub(crate) fn take_over(self: &Rc<Self>, owner: u64) -> Option<Current> {
        if owner < self.owner.get() {
            return None;
        }
        self.owner.set(owner);
        let token = CancellationToken::new();
        self.connection.replace(token.clone()).cancel();
        self.connected.set(true);
        Some(Current { bridge: Rc::clone(self), token })
    }

    /// The last frame for whoever is not listened to any more.
    pub(crate) fn replaced(&self) -> Result<Frame, FrameError> {
        Frame::new(REPLACED, &Replaced { owner: self.owner.get() })
    }

    pub(crate) fn count_unknown(&self, kind: &str) {
        if self.unknown.get() == 0 {
            note(format_args!("frames of kind {kind:?} are not known here"));
        }
        self.unknown.set(self.unknown.get() + 1);
    }

    pub(crate) fn shut_down(&self) {
        self.ending.cancel();
    }

    /// Somebody was here until now.
    fn sign(&self) {
        self.last_sign.set(Instant::now());
        self.changed.notify_waiters();
    }

    /// Resolves when no server has been there for too long and nothing is being done, or nothing
    /// can be, because nobody takes what there is to tell.
    async fn abandoned(&self) {
        loop {
            let changed = self.changed.notified();
            let ttl = self
                .config
                .get()
                .map_or(FIRST_SERVER_TTL, |config| Duration::from_millis(config.orphan_ttl_ms));
            let is_waiting = self.queue.capacity() < QUEUE_CAPACITY;
            let is_working = (self.working.get() || is_waiting) && !self.spool.is_full();
            let busy = self.connected.get() || is_working;
            let deadline = if busy { Instant::now() + ttl } else { self.last_sign.get() + ttl };
            if deadline <= Instant::now() {
                note(format_args!("no server came back within {ttl:?}"));
                return;
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(deadline.min(Instant::now() + LOOK_EVERY)) => {}
            }
        }
    }
}

/// The connection that counts, for as long as it does.
pub(crate) struct Current {
    bridge: Rc<Bridge>,
    token: CancellationToken,
}

impl Current {
    /// Resolves when another connection has taken over.
    pub(crate) async fn replaced(&self) {
        self.token.cancelled().await;
    }

    /// What to say to it then, so that it does not come back and take over in turn.
    pub(crate) fn farewell(&self) -> Result<Frame, FrameError> {
        self.bridge.replaced()
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if !self.token.is_cancelled() {
            self.bridge.connected.set(false);
            self.bridge.sign();
        }
    }
}

/// How often it is checked whether anybody cares, though nothing has changed: a spool gets full
/// without a word.
const LOOK_EVERY: Duration = Duration::from_secs(30);

fn remember(runs: &RefCell<VecDeque<String>>, run: String) {
    let mut runs = runs.borrow_mut();
    if !runs.contains(&run) {
        if runs.len() >= MAX_REMEMBERED {
            runs.pop_front();
        }
        runs.push_back(run);
    }
}
