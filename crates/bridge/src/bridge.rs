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

use ash_protocol::{Answer, Config, Ending, Event, ExecRequest, Usage};
use serde_json::value::RawValue;
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::builtin::model::Patience;
use crate::builtin::{Builtin, Settings};
use crate::control;
use crate::exec::{self, Env};
use crate::process::{self, Processes};
use crate::reports::Reports;
use crate::spool::Spool;

/// How many prompts may wait. The server sends one at a time.
const QUEUE_CAPACITY: usize = 4;

/// How many runs are remembered, so that one is not begun twice or is ended as it comes.
const MAX_REMEMBERED: usize = 1024;

/// How many connections may be open: one counts, others are on their way in or out.
const MAX_CONNECTIONS: usize = 8;

/// How long to wait for a server before it has said how long.
const FIRST_SERVER_TTL: Duration = Duration::from_secs(600);

/// The bridge, as its connections see it.
pub(crate) struct Bridge {
    pub(crate) spool: Spool,
    /// Where the agent's requests to the model arrive.
    pub(crate) listener: TcpListener,
    processes: Processes,
    inherited: Inherited,
    config: OnceCell<Config>,
    configured: Notify,
    queue: mpsc::Sender<Delivery>,
    known: RefCell<VecDeque<String>>,
    interrupted: RefCell<VecDeque<String>>,
    current: RefCell<Option<(String, CancellationToken)>>,
    /// Whoever is connected; cancelled when somebody else takes over.
    connection: RefCell<CancellationToken>,
    connections: Cell<usize>,
    /// When something last happened that shows that somebody cares.
    last_sign: Cell<Instant>,
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
        config: OnceCell::new(),
        configured: Notify::new(),
        queue,
        known: RefCell::default(),
        interrupted: RefCell::default(),
        current: RefCell::default(),
        connection: RefCell::new(CancellationToken::new()),
        connections: Cell::new(0),
        last_sign: Cell::new(Instant::now()),
        ending: ending.clone(),
    });
    tokio::select! {
        biased;
        () = ending.cancelled() => Ok(()),
        () = bridge.abandoned() => Ok(()),
        done = work(&bridge, deliveries) => done,
        never = accept(&bridge, control) => never,
        () = process::reaper::reap(processes) => Ok(()),
    }
}

async fn accept(bridge: &Rc<Bridge>, control: UnixListener) -> io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = control.accept().await?;
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            continue; // Dropped: whoever it is tries again.
        }
        let bridge = Rc::clone(bridge);
        connections.spawn_local(async move {
            bridge.connections.set(bridge.connections.get() + 1);
            let hangup = control::converse(Rc::clone(&bridge), stream).await;
            bridge.connections.set(bridge.connections.get() - 1);
            bridge.last_sign.set(Instant::now());
            eprintln!("ash-bridge: a connection ended: {hangup}");
        });
    }
}

/// Runs prompts, one after the other.
async fn work(bridge: &Rc<Bridge>, mut deliveries: mpsc::Receiver<Delivery>) -> io::Result<()> {
    let mut runtime = None;
    while let Some(Delivery { run, prompt }) = deliveries.recv().await {
        let interrupt = bridge.begin(&run);
        bridge.spool.append(&run, &Event::Begun).await?;
        // Opening starts what the agent needs, and may take long. What was wrong with it may have
        // been put right by the next prompt, so it is tried anew then.
        let opened = match runtime.take() {
            Some(open) => Some(Ok(open)),
            None => interrupt.run_until_cancelled(open(bridge)).await,
        };
        let (ending, usage) = match opened {
            Some(Ok(mut builtin)) => {
                let ended = execute(bridge, &mut builtin, &run, &prompt, interrupt).await?;
                runtime = Some(builtin);
                ended
            }
            Some(Err(message)) => (Ending::Failed { message }, Usage::default()),
            None => (Ending::Interrupted, Usage::default()),
        };
        bridge.current.borrow_mut().take();
        bridge.spool.append(&run, &Event::Ended { how: ending, usage }).await?;
        bridge.last_sign.set(Instant::now());
    }
    Ok(())
}

async fn open(bridge: &Bridge) -> Result<Builtin, String> {
    let config = bridge.configuration().await;
    if config.runtime != "builtin" {
        return Err(format!("this bridge has no runtime {:?}", config.runtime));
    }
    let endpoint = bridge.listener.local_addr().map_err(|error| error.to_string())?;
    let (env, refused_variables) = bridge.env(config);
    let settings = Settings {
        workspace: config.workspace.clone(),
        home: config.home.clone(),
        env,
        refused_variables,
        model: config.model.clone(),
        limits: config.limits,
        endpoint,
        patience: Patience::default(),
    };
    Builtin::open(settings, bridge.processes.clone())
        .await
        .map_err(|error| format!("the agent could not be started: {error}"))
}

/// Runs one prompt, and writes down what is reported as it comes.
async fn execute(
    bridge: &Bridge,
    builtin: &mut Builtin,
    run: &str,
    prompt: &RawValue,
    interrupt: CancellationToken,
) -> io::Result<(Ending, Usage)> {
    let (reports, mut events) = Reports::channel();
    let mut running = Box::pin(async move { builtin.run(run, prompt, &reports, interrupt).await });
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
        if self.config.set(config).is_ok() {
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

    pub(crate) async fn exec(&self, request: &ExecRequest) -> Answer {
        let Some(config) = self.config.get() else {
            return Answer::Refused { message: "this bridge is not configured yet".to_owned() };
        };
        let (env, _refused) = self.env(config);
        Answer::Executed(exec::run(&self.processes, request, &env, &config.workspace).await)
    }

    /// What everything that is run here finds in its environment.
    fn env(&self, config: &Config) -> (Env, Vec<String>) {
        let Inherited { path, lang, term } = &self.inherited;
        Env::new(&config.home, path.as_deref(), lang.as_deref(), term.as_deref(), &config.env)
    }

    /// Makes the caller the connection that counts. The token says when it no longer does.
    pub(crate) fn take_over(&self) -> CancellationToken {
        let token = CancellationToken::new();
        self.connection.replace(token.clone()).cancel();
        token
    }

    pub(crate) fn shut_down(&self) {
        self.ending.cancel();
    }

    /// Resolves when no server has been there for too long and nothing is being done.
    async fn abandoned(&self) {
        loop {
            let ttl = self
                .config
                .get()
                .map_or(FIRST_SERVER_TTL, |config| Duration::from_millis(config.orphan_ttl_ms));
            let busy = self.connections.get() > 0 || self.is_working();
            let deadline = if busy { Instant::now() + ttl } else { self.last_sign.get() + ttl };
            if !busy && deadline <= Instant::now() {
                eprintln!("ash-bridge: no server came back within {ttl:?}");
                return;
            }
            // A second is exact enough for something that takes minutes.
            tokio::time::sleep_until(deadline.min(Instant::now() + LOOK_EVERY)).await;
        }
    }

    fn is_working(&self) -> bool {
        self.current.borrow().is_some() || self.queue.capacity() < QUEUE_CAPACITY
    }
}

/// How often it is checked whether anybody cares.
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
