//! How a start goes from its beginning to its end, with the scripts that an agent has for it.
//!
//! `install.sh` makes files: it is run for a workspace that begins anew, until it has done so once. That it is still
//! to be run is a mark in the home, which goes wherever the files go: into snapshots, to other machines, and back.
//! `startup.sh` prepares a sandbox: it is run in each. Both are run by the bridge, inside, before anything of the agent
//! is started; the session is `starting` meanwhile. The bridge remembers what came of them, so that the next server
//! can ask, should this one die.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ash_core::failure::{Death, Failure, FailureCode};
use ash_core::resume::Found;
use ash_protocol::{Answer, Ask, ExecEnd, Hook, HookFailure, HooksRequest, HooksResult};
use tokio::time::{Instant, sleep, timeout};

use super::bridges::EXEC_MARGIN;
use super::files::Life;
use super::inner::Inner;
use super::launch::{Begun, CameUp};
use super::word::{start_failed, unexpected};
use crate::host::{Reporter, SandboxRef, Start};

/// How long a bridge may take to come up and to answer.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// And how long it may take to make its files ready.
const FILES_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How long to wait before a bridge is asked again that was cut off from us.
const PAUSE: Duration = Duration::from_millis(50);

/// How many there can be.
const ALL: [Hook; 2] = [Hook::Install, Hook::Startup];

/// What lies in the home of a session whose files still lack what `install.sh` makes.
const TO_INSTALL: &str = ".ash-to-install";

/// Where a bridge keeps what of the settings it has put into the workspace (`crates/bridge/src/legacy/told.rs`).
const TOLD: &str = ".ash-told.json";

/// How long all of them may take together, if each may take so long.
pub fn longest_hooks(each: Duration) -> Duration {
    let most = u32::try_from(ALL.len()).unwrap_or(u32::MAX);
    each.saturating_add(EXEC_MARGIN).saturating_mul(most)
}

/// Whether an agent's directory has any.
pub(super) fn are_in(directory: &Path) -> bool {
    ALL.into_iter().any(|hook| is_in(directory, hook))
}

/// Whether there is such a script. A link counts as one: where it leads is only known inside.
fn is_in(directory: &Path, hook: Hook) -> bool {
    directory.join(hook.file_name()).symlink_metadata().is_ok_and(|found| !found.is_dir())
}

/// Takes note, before a workspace begins with a seed, of what that lacks.
pub(super) fn note_begun(home: &Path, seed: &Path) -> io::Result<()> {
    if !is_in(seed, Hook::Install) {
        return Ok(());
    }
    match File::create_new(home.join(TO_INSTALL)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Takes note, before a workspace begins anew, that what its session says of itself is not in it. The home is the
/// agent's, who can put anything there: no start fails over that.
pub(super) fn note_untold(home: &Path) {
    match fs::remove_file(home.join(TOLD)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "settings that were in a workspace may not be put into the next one"
            );
        }
        Ok(()) | Err(_) => {}
    }
}

/// Takes note that it lacks nothing any more.
fn note_installed(home: &Path) -> io::Result<()> {
    match fs::remove_file(home.join(TO_INSTALL)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Inner {
    /// Starts a sandbox, or finds it already up, and has it prepared for its agent.
    pub(super) async fn start(
        self: &Arc<Self>,
        sandbox: SandboxRef,
        start: Start<'_>,
        reporter: Reporter,
    ) -> Result<Found, Failure> {
        let late = |_elapsed| start_failed("its bridge did not answer in time");
        let begin = self.begin_start(sandbox, start, &reporter);
        let (found, hooks, came_up) = match timeout(START_TIMEOUT, begin).await.map_err(late)?? {
            Begun::Up(found, came_up) => (found, self.hooks_for(sandbox), came_up),
            Begun::ToStart(agent) => {
                // It takes as long as there are files.
                let ready = self.make_ready(sandbox, start, &agent);
                let ready = timeout(FILES_TIMEOUT, ready).await;
                let ready = ready
                    .map_err(|_elapsed| start_failed("its files were not ready in time"))??;
                let found = ready.0;
                let hooks = self.hooks_for(sandbox);
                let come_up = self.come_up(sandbox, start, *agent, ready, &hooks, reporter);
                let came_up = timeout(START_TIMEOUT, come_up).await.map_err(late)??;
                (found, hooks, came_up)
            }
        };
        let has_to_hear = match came_up {
            // What an earlier server had asked for may be under way, and its script gone already.
            CameUp::Before | CameUp::Waiting => true,
            CameUp::Now => !hooks.is_empty(),
        };
        if has_to_hear {
            self.prepare_for_agent(sandbox, hooks).await?;
        }
        Ok(found)
    }

    /// The scripts that are to be run in a sandbox.
    fn hooks_for(&self, sandbox: SandboxRef) -> Vec<Hook> {
        let workspace = self.files.workspace(sandbox.session);
        let to_install = self.files.home(sandbox.session).join(TO_INSTALL);
        let is_due = |hook: &Hook| match hook {
            Hook::Install => to_install.symlink_metadata().is_ok(),
            Hook::Startup => true,
        };
        ALL.into_iter().filter(|hook| is_in(&workspace, *hook) && is_due(hook)).collect()
    }

    /// Has the scripts run, to their end.
    async fn prepare_for_agent(
        &self,
        sandbox: SandboxRef,
        hooks: Vec<Hook>,
    ) -> Result<(), Failure> {
        let each = self.options.hook_timeout;
        let timeout_ms = u64::try_from(each.as_millis()).unwrap_or(u64::MAX);
        let request = HooksRequest { hooks, timeout_ms };
        let HooksResult { done, failed } = self.run_hooks(sandbox, request).await?;
        if done.contains(&Hook::Install) {
            note_installed(&self.files.home(sandbox.session)).map_err(start_failed)?;
        }
        match failed {
            Some(failure) => Err(hook_failed(&failure, each)),
            None => Ok(()),
        }
    }

    /// Asks until there is an answer: a connection that ends is followed by another one, and the bridge runs
    /// nothing twice.
    async fn run_hooks(
        &self,
        sandbox: SandboxRef,
        request: HooksRequest,
    ) -> Result<HooksResult, Failure> {
        let begun = Instant::now();
        let patience = longest_hooks(self.options.hook_timeout);
        let nothing_asked = request.hooks.is_empty();
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            let error = match self.ask(sandbox, Ask::Hooks(request.clone()), left).await {
                Ok(Answer::Hooked(result)) => return Ok(result),
                // A bridge of an earlier release has none.
                Ok(Answer::Refused { .. }) if nothing_asked => return Ok(HooksResult::default()),
                Ok(
                    answer @ (Answer::Welcome(_)
                    | Answer::Done
                    | Answer::Executed(_)
                    | Answer::Refused { .. }),
                ) => return Err(start_failed(unexpected("run the agent's scripts", &answer))),
                Err(error) => error,
            };
            match self.files.life(sandbox).map_err(start_failed)? {
                Life::Alive(_) if begun.elapsed() < patience => sleep(PAUSE).await,
                Life::Alive(_) => return Err(start_failed(error)),
                // Whoever listens to it tells its end too; either is as good.
                Life::Dead | Life::Unborn => {
                    let death = self.death_of(sandbox).await.unwrap_or(Death::Unseen);
                    return Err(death.failure());
                }
            }
        }
    }
}

/// What a person is told of a script that failed. What it printed is not believed to be a line.
fn hook_failed(failure: &HookFailure, limit: Duration) -> Failure {
    let name = failure.hook.file_name();
    let how = match &failure.end {
        ExecEnd::Exited(code) => format!("exited with {code}"),
        ExecEnd::Killed(signal) => format!("was killed by signal {signal}"),
        ExecEnd::TimedOut => format!("was not done after {} ms, and was ended", limit.as_millis()),
        ExecEnd::NotStarted(why) => format!("could not be started: {why}"),
    };
    let said: String = failure.last_line.chars().filter(|c| !c.is_control()).collect();
    let message = match said.as_str() {
        "" => format!("{name} of the agent {how}"),
        said => format!("{name} of the agent {how}: {said}"),
    };
    Failure::as_told(FailureCode::HookFailed, message)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_script_that_failed_is_told_in_one_bounded_line() {
        let told = |hook, end, last_line: &str| {
            let failure = HookFailure { hook, end, last_line: last_line.to_owned() };
            hook_failed(&failure, Duration::from_secs(120)).message
        };
        let told_plainly = told(Hook::Install, ExecEnd::Exited(3), "no such package");
        assert_eq!(told_plainly, "install.sh of the agent exited with 3: no such package");
        let silent = told(Hook::Startup, ExecEnd::TimedOut, "");
        assert_eq!(silent, "startup.sh of the agent was not done after 120000 ms, and was ended");
        let hostile = told(Hook::Startup, ExecEnd::Killed(9), "a\nb\u{1b}[31m");
        assert_eq!(hostile, "startup.sh of the agent was killed by signal 9: ab[31m");
        let long = told(Hook::Install, ExecEnd::NotStarted(String::new()), &"x".repeat(1 << 20));
        assert!(long.len() < 8 * 1024, "{}", long.len());
    }

    #[test]
    fn what_is_to_be_installed_is_noted_until_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (home, seed) = (dir.path().join("home"), dir.path().join("seed"));
        fs::create_dir(&home).unwrap();
        fs::create_dir(&seed).unwrap();
        let mark = home.join(TO_INSTALL);
        note_begun(&home, &seed).unwrap();
        assert!(!mark.exists(), "there is nothing to install");
        fs::write(seed.join("install.sh"), "true").unwrap();
        for _again in 0..2 {
            note_begun(&home, &seed).unwrap();
            assert!(mark.exists());
        }
        for _again in 0..2 {
            note_installed(&home).unwrap();
            assert!(!mark.exists());
        }
    }

    #[test]
    fn a_directory_of_that_name_is_no_script_and_a_link_is_one() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!are_in(dir.path()));
        std::fs::create_dir(dir.path().join("install.sh")).unwrap();
        assert!(!are_in(dir.path()));
        std::os::unix::fs::symlink("elsewhere", dir.path().join("startup.sh")).unwrap();
        assert!(are_in(dir.path()) && is_in(dir.path(), Hook::Startup));
    }
}
