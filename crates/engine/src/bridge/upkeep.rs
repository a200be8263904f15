//! What a host does beside what it is asked: it counts the disk that sandboxes use, thaws what is frozen by
//! accident, and removes what dead ones left.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ash_core::failure::Death;
use ash_sandbox::Cgroup;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::enclosure::name_of;
use super::files::Life;
use super::inner::Inner;
use super::process::Started;
use super::still::Still;
use super::{disk, quota, tree};
use crate::host::SandboxRef;

/// Begins all of it.
pub(super) fn begin(host: &Arc<Inner>) {
    host.tasks.spawn(Arc::clone(&host.notes).keep_writing());
    host.tasks.spawn(clear_up(Arc::downgrade(host)));
    host.tasks.spawn(thaw_forgotten(Arc::downgrade(host)));
    host.tasks.spawn(watch_paused(Arc::downgrade(host)));
    if host.options.enclosure.sandboxing().is_some() {
        host.tasks.spawn(count_disk(Arc::downgrade(host)));
    }
}

/// Removes what sandboxes left that died without a server, and those that waited for a session. From then on
/// others are kept ready.
async fn clear_up(host: Weak<Inner>) {
    let Some(host) = host.upgrade() else { return };
    let pool = host.warm.clone();
    if let Some(pool) = &pool {
        pool.clear_up().await;
    }
    let is_enclosed = host.options.enclosure.sandboxing().is_some();
    let _done = tokio::task::spawn_blocking(move || {
        host.remove_leftovers();
        host.empty_scratch();
        host.remove_cut_restores();
    })
    .await;
    if let Some(pool) = pool
        && is_enclosed
    {
        pool.keep().await;
    }
}

/// Has somebody see to it that what an earlier server paused does not live for ever, if this one is killed too.
async fn watch_paused(host: Weak<Inner>) {
    let Some(host) = host.upgrade() else { return };
    let _done = tokio::task::spawn_blocking(move || host.watch_paused()).await;
}

/// Waits until a sandbox is listened to, or there is no host: where nothing is, nothing has to be looked at.
async fn company(host: &Weak<Inner>) {
    let watched = |host: Arc<Inner>| (host.company.watch(), host.connected().is_empty());
    while let Some((mut news, true)) = host.upgrade().map(watched) {
        news.changed().await;
    }
}

/// Between two looks for what is frozen by accident.
const LOOK: Duration = Duration::from_secs(2);

/// Thaws sandboxes that are listened to and frozen though nobody wants it, for as long as there is a host.
/// One that nobody listens to is thawed when it is attached to.
async fn thaw_forgotten(host: Weak<Inner>) {
    loop {
        sleep(LOOK).await;
        company(&host).await;
        let Some(host) = host.upgrade() else { return };
        let connected = host.connected();
        let looked = tokio::task::spawn_blocking(move || {
            for sandbox in connected {
                // One that is gone meanwhile is not frozen either.
                if let Ok(true) = host.thaw_if_forgotten(sandbox) {
                    let session = sandbox.session;
                    tracing::warn!(session.id = %session, "session {session} was frozen by accident and goes on");
                }
            }
        });
        let _done = looked.await;
    }
}

/// Between two rounds of counting.
const ROUND: Duration = Duration::from_millis(500);

/// Counting a tree takes no more than this part of the time, as long as that is not for too long.
const SHARE: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How many trees are counted at once.
const AT_ONCE: usize = 4;

/// So often a sandbox in which something runs is counted while it stands still: otherwise it could move
/// what it has about behind the back of whoever counts. It stands still for no more than a hundredth of
/// the time.
const STILL: Duration = Duration::from_secs(10);
const STILL_SHARE: u32 = 100;

/// Ends sandboxes whose files have grown beyond their limit, for as long as there is a host.
async fn count_disk(host: Weak<Inner>) {
    let mut due: BTreeMap<SandboxRef, Due> = BTreeMap::new();
    let mut counting = JoinSet::new();
    loop {
        sleep(ROUND).await;
        if counting.is_empty() {
            company(&host).await;
        }
        let Some(host) = host.upgrade() else { return };
        let connected = host.connected();
        due.retain(|sandbox, _| connected.contains(sandbox));
        for sandbox in connected {
            let now = Instant::now();
            let next = due.entry(sandbox).or_insert(Due { count: now, still: now + STILL });
            if next.count > now {
                continue;
            }
            while counting.len() >= AT_ONCE {
                note(&mut due, counting.join_next().await);
            }
            let Some(next) = due.get_mut(&sandbox) else { continue };
            // Not again before this one is done.
            next.count = Instant::now() + Duration::from_secs(3600);
            let still = next.still <= Instant::now();
            counting.spawn(count_one(Arc::clone(&host), sandbox, still));
        }
        while let Some(done) = counting.try_join_next() {
            note(&mut due, Some(done));
        }
    }
}

/// When a sandbox is counted next; and when while it stands still.
struct Due {
    count: Instant,
    still: Instant,
}

/// A count that was done.
struct Counted {
    sandbox: SandboxRef,
    took: Duration,
    still: bool,
}

fn note(due: &mut BTreeMap<SandboxRef, Due>, done: Option<Result<Counted, JoinError>>) {
    if let Some(Ok(Counted { sandbox, took, still })) = done
        && let Some(next) = due.get_mut(&sandbox)
    {
        let now = Instant::now();
        next.count = now + (took * SHARE).min(LONGEST_PAUSE);
        if still {
            next.still = now + (took * STILL_SHARE).max(STILL);
        }
    }
}

async fn count_one(host: Arc<Inner>, sandbox: SandboxRef, still: bool) -> Counted {
    let begun = Instant::now();
    let counting = Arc::clone(&host);
    let counted = tokio::task::spawn_blocking(move || {
        counting.notice_ooms(sandbox);
        let needs_still = still && !counting.is_bounded_by_quota(sandbox);
        let _held = needs_still.then(|| Still::hold(&counting, sandbox).ok().flatten()).flatten();
        counting.has_too_much(sandbox)
    });
    if let Ok(true) = counted.await {
        host.end_for(sandbox, Death::DiskFull).await;
    }
    Counted { sandbox, took: begun.elapsed(), still }
}

impl Inner {
    /// Whether the files of a sandbox take more than they may.
    fn has_too_much(&self, sandbox: SandboxRef) -> bool {
        let Some(started) = Started::read(&self.files.process(sandbox)) else { return false };
        let Some(most) = started.disk_bytes else { return false };
        let workspace = self.files.workspace(sandbox.session);
        // Only what the server itself has put there can be much more than the file system lets anybody have: on
        // ext4, for which the server's limits do not hold. What the file system needs itself is little.
        if let Some(taken) = self.taken_of_quota(&workspace, &started) {
            return quota::is_far_beyond(taken, most);
        }
        // What cannot be counted now, though it is there, is not believed to be little.
        let of = |path: &Path| match disk::usage(path, most) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            counted => counted.unwrap_or(u64::MAX),
        };
        let named = of(&workspace).saturating_add(of(&self.files.home(sandbox.session)));
        if named > most {
            return true;
        }
        let processes = match self.cgroup(sandbox) {
            Ok(Some(cgroup)) => cgroup.processes().unwrap_or_default(),
            Ok(None) | Err(_) => {
                let all = self.process_of(sandbox, None).map(tree::descendants).unwrap_or_default();
                all.into_iter().map(|process| process.pid).collect()
            }
        };
        named.saturating_add(disk::unnamed(&workspace, &processes).unwrap_or_default()) > most
    }

    /// What the files of a sandbox take, as the file system says, if it bounds them.
    fn taken_of_quota(&self, workspace: &Path, started: &Started) -> Option<u64> {
        let sandboxing = self.options.enclosure.sandboxing()?;
        sandboxing.disk.usage(workspace, started.project?)
    }

    /// Whether the file system keeps a sandbox within its limit.
    fn is_bounded_by_quota(&self, sandbox: SandboxRef) -> bool {
        let started = Started::read(&self.files.process(sandbox));
        let workspace = self.files.workspace(sandbox.session);
        started.is_some_and(|started| self.taken_of_quota(&workspace, &started).is_some())
    }

    /// Remembers how often the kernel killed something in a sandbox for its memory: whoever is killed later
    /// was not killed for that.
    fn notice_ooms(&self, sandbox: SandboxRef) {
        let child = self.state().children.get(&sandbox).cloned();
        if let (Some(child), Ok(Some(cgroup))) = (child, self.cgroup(sandbox)) {
            // Not of one that is dead: that may be why.
            if let Some(ooms) = cgroup.oom_kills()
                && child.death.borrow().is_none()
                && matches!(self.files.life(sandbox), Ok(Life::Alive(_)))
            {
                child.ooms.store(ooms, Ordering::Relaxed);
            }
        }
    }

    /// Ends the sandbox that runs and whose files take most, if they take as much as this.
    pub(super) async fn end_fullest(self: &Arc<Self>, least: u64) {
        let host = Arc::clone(self);
        let found = tokio::task::spawn_blocking(move || host.fullest()).await;
        let Ok(Some((bytes, sandbox))) = found else { return };
        if bytes < least {
            return;
        }
        let session = sandbox.session;
        tracing::error!(
            session.id = %session, bytes,
            "the disk is full, and nothing can be recorded: session {session}, whose files take most of it, is ended",
        );
        self.end_for(sandbox, Death::DiskFull).await;
    }

    /// The sandbox whose files take most, of those that may write. Blocks.
    fn fullest(&self) -> Option<(u64, SandboxRef)> {
        let frozen = self.state().frozen.clone();
        let running = self.connected().into_iter().filter(|sandbox| !frozen.contains(sandbox));
        let of = |path: &Path| disk::usage(path, u64::MAX).unwrap_or_default();
        let taken = running.map(|sandbox| {
            let workspace = of(&self.files.workspace(sandbox.session));
            (workspace.saturating_add(of(&self.files.home(sandbox.session))), sandbox)
        });
        taken.max()
    }

    /// Ends a sandbox, and remembers why: its pump tells everything it had reported, and then that.
    async fn end_for(self: &Arc<Self>, sandbox: SandboxRef, reason: Death) {
        self.state().reasons.insert(sandbox, reason);
        if let Err(error) = self.kill(sandbox).await {
            tracing::warn!(
                session.id = %sandbox.session,
                error = &error as &dyn std::error::Error,
                "session {}: {error}", sandbox.session,
            );
        }
    }

    /// Removes what is around a sandbox that is dead. What cannot be removed now is when the session's next
    /// sandbox starts, or the next server.
    pub(super) async fn remove_remains(self: &Arc<Self>, sandbox: SandboxRef) {
        if self.options.enclosure.sandboxing().is_some() {
            let _tried_again_later = self.kill(sandbox).await;
        }
    }

    /// The cgroup of a sandbox, if it has one.
    pub(super) fn cgroup(&self, sandbox: SandboxRef) -> io::Result<Option<Cgroup>> {
        match self.options.enclosure.sandboxing() {
            Some(sandboxing) => sandboxing.cgroups.open(&self.cgroup_name(sandbox)),
            None => Ok(None),
        }
    }

    /// What its cgroup is called: as was written down, or as it is.
    pub(super) fn cgroup_name(&self, sandbox: SandboxRef) -> String {
        let started = Started::read(&self.files.process(sandbox));
        started.and_then(|started| started.cgroup).unwrap_or_else(|| name_of(sandbox))
    }

    /// Removes the cgroups of sandboxes that are gone, with whatever is in them: their bridge is dead, so
    /// nobody will ask for it. Blocks.
    pub(super) fn remove_leftovers(&self) {
        let Some(sandboxing) = self.options.enclosure.sandboxing() else { return };
        // Before it is looked who is alive: what is made after this is not removed.
        let names = sandboxing.cgroups.list().unwrap_or_default();
        let alive: BTreeSet<String> = match self.files.all() {
            Ok(all) => all
                .into_iter()
                .filter(|&it| !matches!(self.files.life(it), Ok(Life::Dead | Life::Unborn)))
                .map(|it| self.cgroup_name(it))
                .collect(),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "no sandbox was looked for");
                return;
            }
        };
        for name in names.into_iter().filter(|name| !alive.contains(name)) {
            let Ok(Some(cgroup)) = sandboxing.cgroups.open(&name) else { continue };
            // Another server may be trying one out.
            if name.starts_with("probe-") && !cgroup.processes().is_ok_and(|it| it.is_empty()) {
                continue;
            }
            if let Err(error) = cgroup.kill().and_then(|()| cgroup.remove()) {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the cgroup {name} of a dead sandbox could not be removed");
            }
        }
    }
}
