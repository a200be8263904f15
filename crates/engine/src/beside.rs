//! What is asked of a session beside its conversation: the end of a run, a command in its sandbox,
//! what its sandbox had to say.

use std::time::Duration;

use ash_core::id::{RunId, SessionId, TenantId};
use ash_core::number::Seq;
use ash_core::refusal::Refusal;
use ash_core::session::{Request, Sandbox, Session, Status};
use ash_protocol::{ExecRequest, ExecResult};
use ash_store::RunRecord;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::happening::happening;
use crate::host::{HostError, LogLine, SandboxRef};
use crate::registry::{Decided, Want};

/// How many commands may run beside one agent.
pub(crate) const MAX_COMMANDS: usize = 16;

/// A command that takes as long as this is in use of the session until its end, and not only at its beginning.
const LONG_COMMAND: Duration = Duration::from_secs(1);

/// How many entries of a log are looked at in one read.
const ENTRIES: u32 = 500;

/// How many numbers the lines of one history of a session have. What sandboxes said is not taken elsewhere with it: so
/// there the numbers go on where none can have been before, and a reader who comes with an earlier one is told.
const LINES_OF_AN_EPOCH: u64 = 1_000_000_000;

/// What there is to read about the sandboxes of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logs {
    /// The lowest number that a line of this history can have.
    pub first: u64,
    /// The lines, in order.
    pub lines: Vec<LogLine>,
}

impl Engine {
    /// Ends a run early: the named one, or else the current one, or else the next in the queue.
    /// Waits until it has ended. One that is paused after it was told to end is returned as it stands.
    pub async fn interrupt(
        &self,
        tenant: &TenantId,
        session: SessionId,
        run: Option<RunId>,
    ) -> Result<RunRecord, EngineError> {
        let mut news = self.shared.bus.subscribe(session);
        let Decided { session: decided, before } =
            self.decide(tenant, session, Request::Interrupt { run }).await?;
        let run = match (run, decided.current_run()) {
            (Some(run), _) => run,
            (None, Some(current)) => current.id,
            (None, None) => self.withdrawn_after(session, before).await?,
        };
        loop {
            let closing = news.head().closing;
            let stored = self.shared.store.session(tenant, session).await?;
            let record = self.shared.store.run(session, run).await?;
            if record.status.is_terminal() || stored.session.status() == Status::Paused {
                return Ok(record);
            }
            if closing {
                return Err(EngineError::Draining);
            }
            // The end of a run is an entry of the log.
            news.changed().await;
        }
    }

    /// Runs a command beside the agent, which counts as use of the session.
    pub async fn exec(
        &self,
        tenant: &TenantId,
        session: SessionId,
        request: ExecRequest,
    ) -> Result<ExecResult, EngineError> {
        let sandbox = loop {
            let Decided { session: decided, before } =
                self.decide(tenant, session, Request::Use).await?;
            match decided.sandbox() {
                Sandbox::Live => {
                    break SandboxRef { session, incarnation: decided.incarnation() };
                }
                Sandbox::Thawing { since: Some(_), .. } => {
                    self.back(tenant, session, before).await?;
                }
                Sandbox::Thawing { since: None, .. }
                | Sandbox::None
                | Sandbox::Starting { .. }
                | Sandbox::Freezing { .. }
                | Sandbox::Frozen { .. }
                | Sandbox::Stopping { .. } => {
                    return Err(Refusal::NotActive(decided.status()).into());
                }
            }
        };
        let place = self.shared.commands.begin(session).ok_or(EngineError::Overloaded)?;
        let (begun, result) = (self.shared.now(), self.shared.host.exec(sandbox, request).await);
        // A session without use is so from its end on, which matters if it was long after its beginning.
        if self.shared.now() >= begun.plus(LONG_COMMAND) {
            let _counted_from_its_beginning = self.decide(tenant, session, Request::Use).await;
        }
        drop(place);
        match result {
            Ok(result) => {
                // What it began with is captured; what it ended with is not.
                let now = self.shared.store.session(tenant, session).await?;
                if now.session.persistence().is_settled() {
                    let _captured_with_the_next_turn = self.touch(session).await;
                }
                Ok(result)
            }
            Err(error) => {
                // Most likely the sandbox was paused or stopped with the command.
                let now = self.shared.store.session(tenant, session).await?;
                let now = &now.session;
                if now.sandbox() == Sandbox::Live && now.incarnation() == sandbox.incarnation {
                    return Err(EngineError::Unavailable(error.into()));
                }
                Err(Refusal::NotActive(now.status()).into())
            }
        }
    }

    /// How strongly the sandbox that a session has is isolated; nothing, if it has none, or that is not
    /// known.
    pub fn isolation(&self, session: &Session) -> Option<&'static str> {
        match session.sandbox() {
            Sandbox::Live
            | Sandbox::Freezing { .. }
            | Sandbox::Frozen { .. }
            | Sandbox::Thawing { .. } => self.shared.host.isolation(SandboxRef {
                session: session.id(),
                incarnation: session.incarnation(),
            }),
            Sandbox::None | Sandbox::Starting { .. } | Sandbox::Stopping { .. } => None,
        }
    }

    /// What the session's sandboxes had to say about themselves, and when they came and went: the end of it, if it was
    /// much. A line keeps its number, and later lines have higher ones, whatever happens to the sandboxes.
    pub async fn logs(&self, tenant: &TenantId, session: SessionId) -> Result<Logs, EngineError> {
        let stored = self.shared.store.session(tenant, session).await?;
        let unavailable = |error: HostError| EngineError::Unavailable(error.into());
        let mut read = self.shared.host.logs_told(session).await.map_err(unavailable)?;
        let mut happened = Vec::new();
        loop {
            let page = self.shared.store.events_after(session, read, ENTRIES).await?;
            let Some(last) = page.last() else { break };
            read = last.seq;
            happened.extend(page.iter().filter_map(happening));
        }
        let epoch = u64::from(stored.session.log_epoch().get());
        let first = epoch.saturating_sub(1) * LINES_OF_AN_EPOCH;
        let lines = self.shared.host.logs(session, first, happened).await.map_err(unavailable)?;
        Ok(Logs { first, lines })
    }

    /// The run that the decision after `before` ended at once: nothing else is what it logged.
    async fn withdrawn_after(&self, session: SessionId, before: Seq) -> Result<RunId, EngineError> {
        let entries = self.shared.store.events_after(session, before, 1).await?;
        let run = entries.first().and_then(|entry| entry.entry.run());
        run.ok_or_else(|| EngineError::Damaged("an interrupt left no trace in the log".into()))
    }

    pub(crate) async fn decide(
        &self,
        tenant: &TenantId,
        session: SessionId,
        request: Request,
    ) -> Result<Decided, EngineError> {
        self.visible(tenant, session).await?;
        self.registry.request(session, Want::Decide { request, receipt: None }).await
    }
}
