//! How a sandbox comes up.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ash_core::failure::{Death, Failure};
use ash_core::id::SessionId;
use ash_core::number::SpoolPosition;
use ash_core::resume::{FilesLost, Found, Native, Workspace};
use ash_protocol::{Ask, Config, Hook};
use ash_sandbox::Cgroup;
use serde_json::value::RawValue;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::sleep;

use super::bridges::ANSWER_TIMEOUT;
use super::came;
use super::connection::{ConnectError, Connection};
use super::enclosure::{Opening, Sandboxing, end_of};
use super::files::{Begin, Life, remove};
use super::footing::Footing;
use super::inner::Inner;
use super::mend;
use super::options::{Agent, Resources};
use super::process::{Isolation, Process, Started};
use super::quota::DiskLimits;
use super::retell::Lines;
use super::state::{ChildOfOurs, State};
use super::users::Users;
use super::word::{death_by, done, failed, is_harmless, not_ready, start_failed};
use super::workspace::{self, Known, Prepared, Saved};
use crate::host::{HostError, Reporter, SandboxRef, Start};

/// How long to wait between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// The adapter whose programs remember nothing across their own end.
pub(super) const LEGACY: &str = "legacy";

/// What an agent is told of itself and of its files, if something of them was lost.
const FORGOTTEN: &str = "The record of your earlier conversation in this session was lost";
const ALL_FRESH: &str = "the files that you left in the workspace were lost, and what is there now is a fresh copy of \
    what the session began with";
const OUTDATED: &str = "the latest files of the workspace were lost, and what is there now is an earlier state of them";
const WITH_TURNS: &str = "its end was lost with what that left in the workspace, and both are now those of an earlier \
    moment";
const WITH_HOLES: &str =
    "some files of the workspace were lost, and others may be of an earlier state";
const AS_LEFT: &str = "only the files in the workspace are what you left";
const STARTED_ANEW: &str = "You were started anew and remember nothing of this session yourself. What was written down of it \
    is told to you, as far as there is anything";
const FILES_AS_LEFT: &str = "the files in the workspace are what you left";
const SAY_SO: &str = "Say so if the person refers to something that you cannot know or find, and look at the files \
    before you go on.";

/// What an agent has to know of what it has lost.
fn of_losses(runtime: &str, found: &Found, start: Start<'_>) -> Option<String> {
    // An earlier start may have found it, in a sandbox that ended before anybody said a word to its agent.
    let files = found.files_lost(start.turns).max(start.lost).map(|lost| match lost {
        FilesLost::All => ALL_FRESH,
        FilesLost::WithHoles => WITH_HOLES,
        FilesLost::WithTurns => WITH_TURNS,
        FilesLost::Outdated => OUTDATED,
    });
    match (found.native, files) {
        (Native::Lost, files) if runtime == LEGACY => {
            Some(format!("{STARTED_ANEW}; {}. {SAY_SO}", files.unwrap_or(FILES_AS_LEFT)))
        }
        (Native::Lost, files) => {
            Some(format!("{FORGOTTEN}; {}. {SAY_SO}", files.unwrap_or(AS_LEFT)))
        }
        (Native::Intact | Native::Rebuilt | Native::None, Some(files)) => {
            Some(format!("You remember this conversation, but {files}. {SAY_SO}"))
        }
        (Native::Intact | Native::Rebuilt | Native::None, None) => None,
    }
}

/// Has an agent know something in its next sandbox alone. The settings of a program of the original become files, which stay.
fn remark(config: &mut Config, told: String) {
    if config.runtime == LEGACY {
        config.remark = Some(told);
        return;
    }
    config.system_prompt = Some(match config.system_prompt.take() {
        Some(said) => format!("{said}\n\n{told}"),
        None => told,
    });
}

/// A sandbox that is up already, or what it takes to start it.
pub(super) enum Begun {
    Up(Found, CameUp),
    ToStart(Box<Agent>),
}

/// When a sandbox was told what to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CameUp {
    /// By an earlier start for the same one, which nobody heard the end of.
    Before,
    /// Now, and it starts nothing of its agent until it hears that its files are there.
    Waiting,
    Now,
}

impl Inner {
    /// Begins a start: nothing of an earlier sandbox runs, and one that waits is taken, if there is one.
    pub(super) async fn begin_start(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        start: Start<'_>,
        reporter: &Reporter,
    ) -> Result<Begun, Failure> {
        let agent = self.options.describe.describe(start.record).await?;
        self.clear_before(sandbox).await.map_err(start_failed)?;
        if let Some(found) = self.start_warm(sandbox, start, &agent, reporter).await? {
            came::note_told(&self.files, sandbox).map_err(start_failed)?;
            let came_up = if agent.runtime == LEGACY { CameUp::Waiting } else { CameUp::Now };
            return Ok(Begun::Up(found, came_up));
        }
        Ok(Begun::ToStart(Box::new(agent)))
    }

    /// Starts a sandbox over files that are ready, or finds it already up, and connects to it. Its agent waits for
    /// `hooks`, if there are any; an earlier server may have had them run.
    pub(super) async fn come_up(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        start: Start<'_>,
        agent: Agent,
        (found, user): (Found, Option<u32>),
        hooks: &[Hook],
        reporter: Reporter,
    ) -> Result<CameUp, Failure> {
        self.launch(sandbox, user, agent.resources.clone()).await?;
        let connection = self.first_connection(sandbox).await?;
        let configured = connection.welcome.configured;
        self.pump(sandbox, connection, SpoolPosition::ZERO, reporter).map_err(start_failed)?;
        if !configured {
            let told = of_losses(&agent.runtime, &found, start);
            let mut config = Box::new(self.config(sandbox.session, agent)?);
            if let Some(told) = told {
                remark(&mut config, told);
            }
            config.hooked = !hooks.is_empty();
            let asked = self.ask(sandbox, Ask::Configure(config), ANSWER_TIMEOUT).await;
            done("configure a sandbox", asked.map_err(start_failed)?).map_err(start_failed)?;
        }
        if found.snapshot.is_some() {
            mend::note_told(&self.files, sandbox).map_err(start_failed)?;
        }
        came::note_told(&self.files, sandbox).map_err(start_failed)?;
        Ok(if configured { CameUp::Before } else { CameUp::Now })
    }

    /// Sees to it that there is a workspace and the agent's record of the conversation, and looks at what is there.
    pub(super) async fn make_ready(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        start: Start<'_>,
        agent: &Agent,
    ) -> Result<(Found, Option<u32>), Failure> {
        let Prepared { mut found, user, lost } =
            self.prepare(sandbox, start, agent.seed.clone()).await?;
        for (id, place) in lost {
            start.past.lost(id, place).await;
        }
        // The files of the last turn were gone before anybody had captured them.
        if start.is_behind
            && found.workspace == Workspace::Restored
            && let Some(from) = &mut found.snapshot
        {
            from.outdated = true;
        }
        // What was cut before it reached the agent is in the log, and in no record.
        let is_whole = matches!(found.native, Native::Intact | Native::Rebuilt);
        let lacks_turns = is_whole && found.turns < start.turns;
        if (found.native == Native::Lost || lacks_turns)
            && let Some(style) = Lines::of(&agent.runtime)
            && self.files.life(sandbox).map_err(start_failed)? == Life::Unborn
            && let Some(turns) = self.retell(sandbox, start, user, style).await?
        {
            (found.native, found.turns) = (Native::Rebuilt, turns);
        }
        // Its memory ended with it. What is left is a record outside, from which it is told.
        if agent.runtime == LEGACY && found.native != Native::None {
            (found.native, found.turns) = (Native::Lost, 0);
        }
        Ok((found, user))
    }

    async fn prepare(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        start: Start<'_>,
        seed: Option<PathBuf>,
    ) -> Result<Prepared, Failure> {
        let host = Arc::clone(self);
        let Start { completed_runs, turns, if_lost, .. } = start;
        let transcript = start.transcript.cloned();
        let (tenant, snapshot) = (start.record.tenant.clone(), start.snapshot.cloned());
        let proven = start.proven.cloned();
        let kept = match snapshot {
            Some(_) if !self.files.are_in_place(sandbox.session).map_err(start_failed)? => {
                start.past.snapshots().await.map_err(start_failed)?
            }
            Some(_) | None => Vec::new(),
        };
        self.captures.let_read(sandbox.session).await;
        // It may write as many files as the agent has made.
        let prepared = tokio::task::spawn_blocking(move || {
            let (archive, tenant) = (&host.archive, &tenant);
            let (proven, kept) = (proven.as_ref(), &kept[..]);
            let saved = snapshot.as_ref();
            let saved =
                saved.map(|snapshot| Saved { archive, tenant, snapshot, proven, kept, if_lost });
            let known = Known { transcript: transcript.as_ref(), completed_runs, turns, saved };
            let whose = (host.users(), host.disk(), &*host.options.boot_id);
            workspace::prepare(&host.files, sandbox, seed.as_deref(), known, whose)
        });
        prepared.await.map_err(start_failed)?.map_err(not_ready)
    }

    /// The users of sandboxes, where they have any.
    pub(super) fn users(&self) -> Option<&Users> {
        self.options.enclosure.sandboxing().and_then(|sandboxing| sandboxing.users.as_ref())
    }

    /// How their disk is kept within its limit, where it is.
    pub(super) fn disk(&self) -> Option<&DiskLimits> {
        self.options.enclosure.sandboxing().map(|sandboxing| &sandboxing.disk)
    }

    pub(super) fn config(&self, session: SessionId, agent: Agent) -> Result<Config, Failure> {
        let mcp_servers = match agent.mcp_servers {
            Some(servers) => {
                Some(RawValue::from_string(servers.get().to_owned()).map_err(start_failed)?)
            }
            None => None,
        };
        let places = (self.files.workspace(session), self.files.home(session));
        let (workspace, home) = self.options.enclosure.seen(places.0, places.1);
        Ok(Config {
            runtime: agent.runtime,
            workspace,
            home,
            env: agent.env,
            model: agent.model,
            limits: agent.limits,
            system_prompt: agent.system_prompt,
            remark: None,
            mcp_servers,
            allowed_tools: agent.allowed_tools,
            disallowed_tools: agent.disallowed_tools,
            permission_mode: agent.permission_mode,
            permission_timeout_ms: agent.permission_timeout_ms,
            session: Some(session.to_string()),
            claude: agent.claude,
            legacy: agent.legacy,
            proxied: agent.reaches_hosts,
            hooked: false,
            orphan_ttl_ms: u64::try_from(self.options.orphan_ttl.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Makes sure that nothing of an earlier sandbox of the session runs.
    async fn clear_before(self: &Arc<Self>, sandbox: SandboxRef) -> Result<(), HostError> {
        let all =
            self.files.of(sandbox.session).map_err(|error| failed("find sandboxes", error))?;
        if all.iter().any(|other| *other > sandbox) {
            return Err(failed("start a sandbox", "a later one has been started already"));
        }
        for other in all.into_iter().filter(|other| *other < sandbox) {
            self.kill(other).await?;
            self.forget(other);
            self.files.forget(other).map_err(|error| failed("forget a sandbox", error))?;
        }
        Ok(())
    }

    /// Starts the bridge, unless it runs already.
    pub(super) async fn launch(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        user: Option<u32>,
        resources: Resources,
    ) -> Result<(), Failure> {
        let Some(sandboxing) = self.options.enclosure.sandboxing().cloned() else {
            return self.launch_plainly(sandbox);
        };
        // From here on a stop sees that it lives.
        let begun = self.begin(sandbox, &mut self.state())?;
        let Some(spool) = begun else {
            return self.adopt(sandbox, None).map_err(start_failed);
        };
        let host = Arc::clone(self);
        // To its end, also when nobody waits for it any more: it has to be known.
        let launched = tokio::task::spawn_blocking(move || {
            host.launch_enclosed(&sandboxing, sandbox, user, &resources, spool)
        });
        launched.await.map_err(start_failed)?.map_err(start_failed)
    }

    /// Takes the spool of a sandbox that may be started; none, if it runs already.
    fn begin(&self, sandbox: SandboxRef, state: &mut State) -> Result<Option<File>, Failure> {
        let stopped = state.stopped_through.get(&sandbox.session).copied().unwrap_or_default();
        if sandbox.incarnation <= stopped {
            return Err(start_failed("it was stopped before it was started"));
        }
        match self.files.begin(sandbox).map_err(start_failed)? {
            Begin::Locked(spool) => Ok(Some(spool)),
            Begin::Taken(Life::Alive(_)) => Ok(None),
            Begin::Taken(Life::Dead | Life::Unborn) => Err(start_failed("it has lived already")),
        }
    }

    /// Starts a bridge in a sandbox, and sees to it that its end is noticed. Blocks.
    fn launch_enclosed(
        self: &Arc<Self>,
        sandboxing: &Sandboxing,
        sandbox: SandboxRef,
        user: Option<u32>,
        resources: &Resources,
        spool: File,
    ) -> Result<(), String> {
        let told = |error: io::Error| error.to_string();
        // What it says may be of one that this session nearly had.
        remove(&self.files.process(sandbox)).map_err(told)?;
        let project = self.bound_disk(sandboxing, sandbox, user, resources.disk_bytes);
        let opening = Opening {
            uid: user,
            bridge: &self.options.bridge,
            workspace: &self.files.workspace(sandbox.session),
            home: &self.files.home(sandbox.session),
            control: self.files.bind(sandbox).map_err(told)?,
            spool,
            log: self.files.log(sandbox).map_err(told)?,
            limits: &resources.limits,
            claude: &crate::runtimes::versions_in(&self.options.data),
            language: self.options.environment.get("LANG").map(String::as_str),
        };
        let note = |pid| self.write_down(sandbox, pid, resources.disk_bytes, project);
        let (launched, cgroup) = sandboxing.start(sandbox, opening, note)?;
        // Its number is its own until its end was noticed, by the one who watches it.
        self.watch(sandbox, Process::of(launched.pid), launched.pidfd, cgroup);
        Ok(())
    }

    /// Has the file system keep the files of a sandbox within their limit, if it can. Says of which project
    /// they are then; others are counted.
    fn bound_disk(
        &self,
        sandboxing: &Sandboxing,
        sandbox: SandboxRef,
        user: Option<u32>,
        disk_bytes: Option<u64>,
    ) -> Option<u32> {
        let (workspace, home) =
            (self.files.workspace(sandbox.session), self.files.home(sandbox.session));
        let bound = sandboxing.disk.bound([&workspace, &home], user, disk_bytes);
        bound.unwrap_or_else(|error| {
            let session = sandbox.session;
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, session.id = %session, "session {session} has no quota; its files are counted");
            None
        })
    }

    /// Writes down which process a sandbox is, for whoever comes after this server.
    fn write_down(
        &self,
        sandbox: SandboxRef,
        pid: u32,
        disk_bytes: Option<u64>,
        project: Option<u32>,
    ) -> io::Result<()> {
        let isolation = self.options.enclosure.isolation();
        let footing = match isolation {
            Isolation::None => None,
            Isolation::Rootless | Isolation::Full => Footing::of(&self.files, sandbox.session)?,
        };
        let started = Started::new(pid, disk_bytes, isolation)?.in_project(project).on(footing);
        started.write(&self.files.process(sandbox))
    }

    /// Notices the end of a sandbox.
    pub(super) fn watch(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        process: Option<Process>,
        pidfd: OwnedFd,
        cgroup: Option<Cgroup>,
    ) {
        let ooms = cgroup.as_ref().and_then(Cgroup::oom_kills).unwrap_or_default();
        let ooms = Arc::new(AtomicU64::new(ooms));
        let (exit, death) = watch::channel(None);
        let child = ChildOfOurs { process, death, ooms: Arc::clone(&ooms) };
        self.state().children.insert(sandbox, child);
        self.tasks.spawn(async move {
            let _nobody_asks = exit.send(Some(end_of(pidfd, cgroup, ooms).await));
        });
    }

    /// Starts a bridge with nothing around it.
    fn launch_plainly(self: &Arc<Self>, sandbox: SandboxRef) -> Result<(), Failure> {
        // Held so that a stop is either seen here, or sees what is started here.
        let mut state = self.state();
        let Some(spool) = self.begin(sandbox, &mut state)? else { return Ok(()) };
        let control = self.files.bind(sandbox).map_err(start_failed)?;
        let log = self.files.log(sandbox).map_err(start_failed)?;
        let mut child = Command::new(&self.options.bridge)
            .env_clear()
            .envs(self.options.environment.iter().filter(|(name, _)| is_harmless(name)))
            .env("HOME", self.files.home(sandbox.session))
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(control)))
            .stdout(Stdio::from(spool))
            .stderr(Stdio::from(log))
            .spawn()
            .map_err(|error| {
                let bridge = self.options.bridge.display();
                start_failed(format!("{bridge} could not be run: {error}"))
            })?;
        let (exit, death) = watch::channel(None);
        let ooms = Arc::default();
        state.children.insert(
            sandbox,
            ChildOfOurs { process: child.id().and_then(Process::of), death, ooms },
        );
        if let Some(pid) = child.id()
            && let Err(error) = self.write_down(sandbox, pid, None, None)
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(session.id = %sandbox.session, error, "a sandbox was not written down");
        }
        self.tasks.spawn(async move {
            let death = child.wait().await.map_or(Death::Unseen, death_by);
            let _nobody_asks = exit.send(Some(death));
        });
        Ok(())
    }

    /// Connects to a bridge that is coming up.
    pub(super) async fn first_connection(
        &self,
        sandbox: SandboxRef,
    ) -> Result<Connection, Failure> {
        loop {
            let error = match self.connect(sandbox, 0).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            match self.files.life(sandbox) {
                Ok(Life::Alive(_)) if matches!(error, ConnectError::Unreachable(_)) => {
                    sleep(LOOK).await;
                }
                Ok(Life::Alive(_)) => return Err(start_failed(error)),
                Ok(Life::Dead | Life::Unborn) => {
                    let death = self.death_of(sandbox).await.unwrap_or(Death::Unseen);
                    return Err(start_failed(death.failure().message));
                }
                Err(error) => return Err(start_failed(error)),
            }
        }
    }
}
