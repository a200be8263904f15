//! What a host of bridges has, and how it talks to one of them.

use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash_core::number::{Owner, SpoolPosition};
use ash_protocol::{Answer, Ask};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::captures::Captures;
use super::connection::{ConnectError, Connection, Question};
use super::files::Files;
use super::guard::Guard;
use super::notes::Notes;
use super::options::HostOptions;
use super::pump::Pump;
use super::report::Understanding;
use super::state::{Link, State};
use super::warm::Pool;
use super::word::{failed, frame_of};
use crate::archive::Archive;
use crate::host::{HostError, Reporter, SandboxRef};
use crate::signal::Signal;
use crate::tasks::Tasks;

/// How many questions may wait for a bridge.
const QUESTIONS_CAPACITY: usize = 64;

/// How long a bridge may take to greet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) struct Inner {
    pub(super) files: Files,
    pub(super) options: HostOptions,
    state: Mutex<State>,
    pub(super) tasks: Tasks,
    pub(super) archive: Arc<Archive>,
    pub(super) captures: Captures,
    pub(super) guard: Guard,
    /// Another sandbox is listened to.
    pub(super) company: Arc<Signal<()>>,
    /// Those that wait for a session, where there are any.
    pub(super) warm: Option<Arc<Pool>>,
    pub(super) notes: Arc<Notes>,
}

impl Inner {
    pub(super) fn new(files: Files, options: HostOptions, warm: Option<Arc<Pool>>) -> Self {
        let (state, company) = (Mutex::default(), Arc::default());
        let archive = match &options.cloud {
            Some(cloud) => cloud.archive(),
            None => Arc::new(Archive::new(&options.data)),
        };
        let captures = Captures::default();
        let (guard, tasks) = (
            Guard::new(&options.bridge, &files.data().join("run"), options.orphan_ttl),
            Tasks::new(),
        );
        let notes = Arc::new(Notes::new(&options.data));
        Self { files, options, state, tasks, archive, captures, guard, company, warm, notes }
    }

    pub(super) async fn abandon(&self) {
        self.tasks.abort().await;
        *self.state() = State::default();
        self.guard.end();
    }

    /// Removes the cgroups of sandboxes, if there are none.
    pub(super) fn tidy_up(&self) {
        let sandboxing = self.options.enclosure.sandboxing();
        if let Some(cgroups) = sandboxing.map(|sandboxing| sandboxing.cgroups.clone())
            && cgroups.list().is_ok_and(|left| left.is_empty())
        {
            let _taken_meanwhile = cgroups.remove();
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn owner(&self) -> Owner {
        self.options.owner
    }

    pub(super) async fn connect(
        &self,
        sandbox: SandboxRef,
        after: u64,
    ) -> Result<Connection, ConnectError> {
        let near = self.files.near(sandbox.session)?;
        let path = near.path(sandbox);
        let opened = timeout(CONNECT_TIMEOUT, Connection::open(&path, self.options.owner, after));
        opened.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
    }

    /// Listens to a sandbox from now on, and to no earlier connection.
    pub(super) fn pump(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        connection: Connection,
        after: SpoolPosition,
        reporter: Reporter,
    ) -> Result<(), HostError> {
        let mut state = self.state();
        // The one that is served already is the same: what it is in the middle of goes on.
        if let Entry::Vacant(place) = state.egress.entry(sandbox) {
            let listener = connection.listener.try_clone();
            let guard = listener.and_then(|listener| self.options.egress.serve(sandbox, listener));
            place.insert(guard.map_err(|error| failed("serve a sandbox", error))?);
        }
        let (questions, queue) = mpsc::channel(QUESTIONS_CAPACITY);
        let pump = self.pump_of(sandbox, after, reporter, queue);
        let lost = Arc::clone(&pump.lost);
        let pump = self.tasks.spawn(pump.run(connection));
        if let Some(former) = state.links.insert(sandbox, Link { questions, pump, lost }) {
            former.pump.abort();
        }
        drop(state);
        self.company.change(|()| ());
        Ok(())
    }

    pub(super) fn pump_of(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        after: SpoolPosition,
        reporter: Reporter,
        questions: mpsc::Receiver<Question>,
    ) -> Pump {
        let understanding = Understanding::after(after.get());
        let host = Arc::clone(self);
        let lost = Arc::default();
        Pump { host, sandbox, reporter, questions, understanding, lost, in_vain_since: None }
    }

    /// Forgets a sandbox that is dead.
    pub(super) fn forget(&self, sandbox: SandboxRef) {
        let mut state = self.state();
        state.links.remove(&sandbox);
        state.egress.remove(&sandbox);
        state.children.remove(&sandbox);
        state.reasons.remove(&sandbox);
        state.isolation.remove(&sandbox);
        state.frozen.remove(&sandbox);
    }

    /// Those that are connected.
    pub(super) fn connected(&self) -> Vec<SandboxRef> {
        self.state().links.keys().copied().collect()
    }

    pub(super) fn link(
        &self,
        sandbox: SandboxRef,
        attempted: &'static str,
    ) -> Result<Link, HostError> {
        let link = self.state().links.get(&sandbox).cloned();
        link.ok_or_else(|| failed(attempted, "it is not connected"))
    }

    pub(super) async fn ask(
        &self,
        sandbox: SandboxRef,
        ask: Ask,
        patience: Duration,
    ) -> Result<Answer, HostError> {
        let attempted = "ask a sandbox";
        let link = self.link(sandbox, attempted)?;
        let frame = frame_of(&ask)?;
        let (reply, answer) = oneshot::channel();
        let asked = async {
            link.questions.send(Question { frame, reply: Some(reply) }).await.ok()?;
            answer.await.ok()
        };
        match timeout(patience, asked).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(failed(attempted, "the connection ended before it answered")),
            Err(_elapsed) => Err(failed(attempted, "it did not answer in time")),
        }
    }
}
