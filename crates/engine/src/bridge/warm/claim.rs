//! How a sandbox that waits becomes a session's.
//!
//! 1. Its bridge is told everything that the bridge of a cold start is told. If the agent has scripts that are run
//!    first (`hooks`), it waits for them: they are not there yet.
//! 2. The agent's files are put into its workspace, synced, and given to its user.
//! 3. The session's note `came` is written; then its home and its workspace are renamed to where the
//!    session's are. The user goes along with the home.
//! 4. Which process it is, with the name of its cgroup, is written down for the session. What is written
//!    down in `data/warm` stays.
//! 5. Its log and its socket are renamed, and last its spool: from then on it is the session's.
//! 6. What is left of it in `data/warm` is removed.
//!
//! A server that dies leaves one of three things:
//!
//! - before 3: a sandbox in `data/warm`, which the next server ends, and a session without anything, which is
//!   started anew;
//! - before the end of 5: the same, and a session that has its files already, whole, and its note: its start
//!   is made again, in them, as a fresh one;
//! - after that: a session's sandbox, which is found by its spool and adopted as any other, and in `data/warm` a
//!   directory without a spool, which is removed, and nothing killed for it.
//!
//! Whatever fails on the way has the session start cold, in the same way.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::Failure;
use ash_core::number::{Incarnation, SpoolPosition};
use ash_core::resume::Found;
use ash_protocol::Ask;
use tokio::time::timeout;

use super::Taken;
use crate::bridge::came::{self, How};
use crate::bridge::connection::Connection;
use crate::bridge::enclosure::name_of;
use crate::bridge::files::Life;
use crate::bridge::hooks;
use crate::bridge::inner::Inner;
use crate::bridge::launch::LEGACY;
use crate::bridge::mend::note_use;
use crate::bridge::options::Agent;
use crate::bridge::process::Started;
use crate::bridge::users::give_all;
use crate::bridge::word::{done, frame_of, start_failed};
use crate::bridge::workspace::sow;
use crate::host::{Reporter, SandboxRef, Start};

/// How long one that was kept ready may take to answer before a cold start is the quicker one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

impl Inner {
    /// Starts the first sandbox of a session from one that waits. None, if none fits: then it has to
    /// be started cold.
    pub(in crate::bridge) async fn start_warm(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        start: Start<'_>,
        agent: &Agent,
        reporter: &Reporter,
    ) -> Result<Option<Found>, Failure> {
        let Some(pool) = &self.warm else { return Ok(None) };
        let is_first = sandbox.incarnation == Incarnation::ZERO.next();
        // A fork may begin before its first turn: its files are not those that wait.
        let has_past =
            start.transcript.is_some() || start.completed_runs > 0 || start.snapshot.is_some();
        if agent.prewarm == 0 || !is_first || has_past {
            return Ok(None);
        }
        let mut config = Box::new(self.config(sandbox.session, agent.clone())?);
        // What it puts into the workspace would be overwritten by what the workspace begins with.
        let has_to_wait = agent.runtime == LEGACY;
        config.hooked = has_to_wait || agent.seed.as_deref().is_some_and(hooks::are_in);
        let config = Ask::Configure(config);
        while self.files.is_untouched(sandbox.session).map_err(start_failed)? {
            let Some((taken, connection)) = pool.take(&agent.resources.limits) else { break };
            match self.claim(sandbox, taken, connection, agent, &config).await {
                Ok(connection) => {
                    let pumped =
                        self.pump(sandbox, connection, SpoolPosition::ZERO, reporter.clone());
                    pumped.map_err(start_failed)?;
                    return Ok(Some(Found::NOTHING));
                }
                Err(why) => tracing::debug!(
                    session.id = %sandbox.session,
                    "a sandbox that was kept ready is of no use: {why}",
                ),
            }
        }
        Ok(None)
    }

    async fn claim(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        taken: Taken,
        mut connection: Connection,
        agent: &Agent,
        config: &Ask,
    ) -> Result<Connection, String> {
        let config = frame_of(config).map_err(|error| error.to_string())?;
        let configured = timeout(ANSWER_TIMEOUT, connection.ask(config)).await;
        let configured = configured.map_err(|_| "it does not answer".to_owned())?;
        let configured = configured.map_err(|error| error.to_string())?;
        done("configure a sandbox", configured).map_err(|error| error.to_string())?;
        let (host, agent) = (Arc::clone(self), agent.clone());
        // To its end, also when nobody waits for it any more: it has to be somebody's.
        let moved = tokio::task::spawn_blocking(move || {
            host.move_in(sandbox, &taken, &agent)?;
            let leftovers = taken.id;
            let nursery = Arc::clone(&taken.pool.nursery);
            taken.claimed();
            // What cannot be removed now is by the next server.
            let _empty_directories = nursery.files.remove_all(leftovers.0);
            io::Result::Ok(())
        });
        let moved = moved.await.map_err(|error| error.to_string())?;
        moved.map_err(|error| error.to_string())?;
        Ok(connection)
    }

    /// Makes a sandbox the session's. Blocks.
    fn move_in(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        taken: &Taken,
        agent: &Agent,
    ) -> io::Result<()> {
        let (session, warm) = (sandbox.session, taken.id.sandbox());
        let nursery = &taken.pool.nursery;
        let (from, to) = (&nursery.files, &self.files);
        let _one_at_a_time = to.making(session);
        if !to.is_untouched(session)? {
            return Err(io::Error::other("the session has files already"));
        }
        let workspace = from.workspace(warm.session);
        if let Some(seed) = &agent.seed {
            hooks::note_begun(&from.home(warm.session), seed)?;
            sow(seed, &workspace)?;
        }
        if let Some(users) = self.users() {
            let lost = || io::Error::other("it has lost its user");
            give_all(&workspace, users.owner(&from.home(warm.session))?.ok_or_else(lost)?)?;
        }
        let unknown = || io::Error::other("it was not written down");
        let started = Started::read(&from.process(warm)).ok_or_else(unknown)?;
        let started = started.claimed(agent.resources.disk_bytes, name_of(warm));
        if let (Some(project), Some(sandboxing)) =
            (started.project, self.options.enclosure.sandboxing())
        {
            // From here on the session's limit holds; it is not one that is counted.
            sandboxing.disk.limit(&workspace, project, agent.resources.disk_bytes)?;
        }
        to.make_room(session)?;
        came::note(to, session, How::Fresh)?;
        note_use(to, session, &self.options.boot_id)?;
        fs::rename(from.home(warm.session), to.home(session))?;
        fs::rename(workspace, to.workspace(session))?;
        started.write(&to.process(sandbox))?;
        for kind in ["log", "sock"] {
            fs::rename(from.named(warm, kind), to.named(sandbox, kind))?;
        }
        // Held so that a stop is either seen here, or sees what is the session's from now on.
        let mut state = self.state();
        let stopped = state.stopped_through.get(&session).copied().unwrap_or_default();
        if sandbox.incarnation <= stopped || to.life(sandbox)? != Life::Unborn {
            return Err(io::Error::other("the session has been stopped or started meanwhile"));
        }
        fs::rename(from.spool(warm), to.spool(sandbox))?;
        if let Some(child) = nursery.state().children.remove(&warm) {
            state.children.insert(sandbox, child);
        }
        Ok(())
    }
}
