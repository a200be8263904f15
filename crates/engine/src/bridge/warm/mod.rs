//! Sandboxes that are kept ready for sessions to come.
//!
//! One that waits is a whole sandbox with a bridge in it, which nobody has told anything: no workspace but
//! an empty one, no key, no variables, no name. It has a user, a cgroup and a home, under a name of its own, in
//! `data/warm`, where everything lies as it does for sessions (`files`). Only what cannot be changed later
//! has to fit: the limits.
//!
//! The server holds the connection to each. While it does, the bridge waits; once the server is gone, it
//! waits for another one as long as a bridge does that was never told anything, and ends.
//!
//! A session gets one when its first sandbox starts (`claim`), never when it comes back. Then the next one
//! is started, one at a time. Those that are left over by an earlier server are ended, not used: what is
//! known of them is not worth the trouble. So are all of them when a server drains or hands over.

mod claim;
mod stock;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash_core::failure::Failure;
use ash_core::id::SessionId;
use ash_core::number::Incarnation;
use ash_core::time::Clock as _;
use ash_sandbox::Limits;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use self::stock::{Presence, Step, Stock};
use super::connection::Connection;
use super::inner::Inner;
use super::options::Resources;
use super::word::{failed, start_failed};
use super::workspace::{self, Known, Prepared};
use crate::clock::SystemClock;
use crate::host::{HostError, SandboxRef, WarmId};
use crate::ids::IdSource;
use crate::places::WarmPlaces;
use crate::signal::Signal;

/// How long one may take to come up.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// After how long it is looked again what is wanted, and whether what failed can be done now.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// After how long it is looked again whether there is a place.
const PLACE_PAUSE: Duration = Duration::from_secs(1);

/// The sandboxes of a host that wait for a session.
pub(super) struct Pool {
    /// A host of its own, for those that belong to nobody.
    nursery: Arc<Inner>,
    shelf: Mutex<Shelf>,
    /// Something has changed.
    news: Arc<Signal<()>>,
    /// Agents have changed.
    is_outdated: AtomicBool,
    places: Mutex<Option<WarmPlaces>>,
    /// Those that an earlier server left, until nothing of them is there.
    left: Mutex<BTreeMap<WarmId, Presence>>,
    ids: IdSource,
}

struct Shelf {
    stock: Stock<Limits, WarmId>,
    connections: BTreeMap<WarmId, Connection>,
}

/// One that a session is about to have. If it is dropped before that, it is ended.
struct Taken {
    pool: Arc<Pool>,
    id: WarmId,
    is_claimed: bool,
}

impl WarmId {
    /// What it is called in the nursery.
    fn sandbox(self) -> SandboxRef {
        SandboxRef { session: self.0, incarnation: Incarnation::ZERO.next() }
    }
}

impl Pool {
    pub(super) fn new(nursery: Arc<Inner>) -> Arc<Self> {
        let shelf = Shelf { stock: Stock::new(), connections: BTreeMap::new() };
        let left = nursery.files.names().unwrap_or_else(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "no sandbox that waits for a session was looked for");
            Default::default()
        });
        let left = left.into_iter().map(|name| (WarmId(name), Presence::There)).collect();
        Arc::new(Self {
            nursery,
            shelf: Mutex::new(shelf),
            news: Arc::default(),
            is_outdated: AtomicBool::new(true),
            places: Mutex::new(None),
            left: Mutex::new(left),
            ids: IdSource::unguessable(),
        })
    }

    /// Gives the pool places to fill. What an earlier server left has one as long as it is there.
    pub(super) fn lend(&self, places: WarmPlaces) {
        let left = self.left();
        // Without its spool it is a session's, and only its directories were left.
        let is_one = |id: &WarmId| self.nursery.files.spool(id.sandbox()).exists();
        left.keys().copied().filter(is_one).for_each(|id| places.hold(id));
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = Some(places);
        drop(left);
        self.look_again();
    }

    /// Agents have changed.
    pub(super) fn look_again(&self) {
        self.is_outdated.store(true, Ordering::Release);
        self.tell();
    }

    /// Ends one that waits. Returns when nothing of it runs, or it is a session's.
    pub(super) async fn end(&self, id: WarmId) -> Result<(), HostError> {
        self.shelf().stock.dismiss(id);
        self.tell();
        let mut news = self.news.watch();
        loop {
            let left = self.left().get(&id).copied();
            let presence = left.unwrap_or_else(|| self.shelf().stock.dismiss(id));
            match presence {
                Presence::Gone => return Ok(()),
                Presence::Stuck => return Err(failed("end a sandbox", "it does not end")),
                Presence::There => news.changed().await,
            }
        }
    }

    /// Ends all of them, for good.
    pub(super) async fn close(&self) {
        let mut news = self.news.watch();
        self.shelf().stock.close();
        self.tell();
        while !self.shelf().stock.is_empty() {
            news.changed().await;
        }
    }

    /// Lets go of all of them without ending any.
    pub(super) async fn abandon(&self) {
        self.nursery.abandon().await;
        let mut shelf = self.shelf();
        shelf.connections.clear();
        // Nobody is left who would end those: whoever asks for it finds them as what was left.
        shelf.stock = Stock::new();
        shelf.stock.close();
        drop(shelf);
        let names = self.nursery.files.names().unwrap_or_default();
        self.left().extend(names.into_iter().map(|name| (WarmId(name), Presence::There)));
        self.tell();
    }

    /// Ends what an earlier server left.
    pub(super) async fn clear_up(&self) {
        let left: Vec<WarmId> = self.left().keys().copied().collect();
        for id in left {
            let is_gone = self.discard(id).await;
            let mut left = self.left();
            if is_gone {
                left.remove(&id);
                // While the list is held: whoever lends places looks at it.
                self.places().iter().for_each(|places| places.give_back(id));
            } else {
                left.insert(id, Presence::Stuck);
            }
            drop(left);
            self.tell();
        }
    }

    fn left(&self) -> MutexGuard<'_, BTreeMap<WarmId, Presence>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps as many ready as are wanted, for as long as it is let.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut news = self.news.watch();
        let mut at_work = JoinSet::new();
        let mut next_look = Instant::now() + LOOK_AGAIN;
        let mut no_start_before = Instant::now();
        loop {
            news.look();
            if self.is_outdated.swap(false, Ordering::AcqRel) {
                no_start_before = Instant::now();
                self.learn().await;
            }
            if next_look <= Instant::now() {
                next_look = Instant::now() + LOOK_AGAIN;
                self.is_outdated.store(true, Ordering::Release);
                self.shelf().stock.try_again();
                continue;
            }
            while let Some(step) = self.next_step() {
                match step {
                    Step::End(id) => {
                        let pool = Arc::clone(&self);
                        at_work.spawn(async move {
                            pool.end_one(id).await;
                            None
                        });
                    }
                    Step::Start(_) if no_start_before > Instant::now() => break,
                    Step::Start(limits) => match self.begin(limits.clone()).await {
                        Some(id) => {
                            let pool = Arc::clone(&self);
                            at_work.spawn(async move { pool.start_one(id, limits).await });
                        }
                        None => {
                            no_start_before = Instant::now() + PLACE_PAUSE;
                            break;
                        }
                    },
                }
            }
            let later = no_start_before > Instant::now();
            let due = if later { no_start_before.min(next_look) } else { next_look };
            tokio::select! {
                biased;
                Some(done) = at_work.join_next() => {
                    if let Ok(Some(pause)) = done {
                        no_start_before = Instant::now() + pause;
                    }
                }
                () = news.changed() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    fn next_step(&self) -> Option<Step<Limits, WarmId>> {
        self.shelf().stock.next()
    }

    /// Finds out what is wanted.
    async fn learn(&self) {
        let Some(places) = self.places() else { return };
        match self.nursery.options.describe.to_prewarm().await {
            Ok(wanted) => {
                let count = |count| usize::try_from(count).unwrap_or(usize::MAX);
                let wanted = wanted.into_iter().map(|(limits, of_them)| (limits, count(of_them)));
                self.shelf().stock.want(wanted, places.most());
            }
            Err(failure) => tracing::warn!(
                "which sandboxes are to be kept ready could not be read: {}",
                failure.message,
            ),
        }
    }

    /// Takes a place for another one.
    async fn begin(&self, limits: Limits) -> Option<WarmId> {
        let id = WarmId(self.ids.make(SystemClock.now(), SessionId::from_parts));
        let places = self.places()?;
        if !places.take(id).await {
            return None;
        }
        let begun = self.shelf().stock.begin(id, limits);
        if !begun {
            places.give_back(id);
        }
        begun.then_some(id)
    }

    /// Starts one. Says how long to wait if there is no point in another attempt now.
    async fn start_one(self: Arc<Self>, id: WarmId, limits: Limits) -> Option<Duration> {
        let started = timeout(START_TIMEOUT, self.start(id, limits)).await;
        let started = started.unwrap_or_else(|_| Err(start_failed("it did not answer in time")));
        let pause = match started {
            Ok(connection) => {
                let mut shelf = self.shelf();
                shelf.connections.insert(id, connection);
                shelf.stock.arrived(id);
                drop(shelf);
                if let Some(places) = self.places() {
                    places.arrived(id);
                }
                self.watch(id);
                None
            }
            Err(failure) => {
                tracing::warn!("no sandbox could be kept ready: {}", failure.message);
                self.shelf().stock.give_up(id);
                Some(LOOK_AGAIN)
            }
        };
        self.tell();
        pause
    }

    async fn start(&self, id: WarmId, limits: Limits) -> Result<Connection, Failure> {
        let sandbox = id.sandbox();
        let host = Arc::clone(&self.nursery);
        let prepared = tokio::task::spawn_blocking(move || {
            let whose = (host.users(), host.disk(), &*host.options.boot_id);
            workspace::prepare(&host.files, sandbox, None, Known::default(), whose)
        });
        let Prepared { user, .. } = prepared.await.map_err(start_failed)?.map_err(start_failed)?;
        // What its files may take is the session's: it is written down when there is one.
        let resources = Resources { limits, disk_bytes: None };
        self.nursery.launch(sandbox, user, resources).await?;
        self.nursery.first_connection(sandbox).await
    }

    /// Notices when one dies that waits.
    fn watch(self: &Arc<Self>, id: WarmId) {
        let child = self.nursery.state().children.get(&id.sandbox()).cloned();
        let Some(mut child) = child else { return };
        let pool = Arc::downgrade(self);
        self.nursery.tasks.spawn(async move {
            let _its_watch_ended = child.death.wait_for(Option::is_some).await;
            if let Some(pool) = pool.upgrade() {
                pool.lose(id);
            }
        });
    }

    /// One is dead. If a session has it by now, that is the session's affair.
    fn lose(&self, id: WarmId) {
        let mut shelf = self.shelf();
        if shelf.connections.contains_key(&id) {
            shelf.stock.give_up(id);
            drop(shelf);
            self.tell();
        }
    }

    /// Takes the oldest that fits and is alive.
    fn take(self: &Arc<Self>, limits: &Limits) -> Option<(Taken, Connection)> {
        loop {
            let mut shelf = self.shelf();
            let id = shelf.stock.take(limits)?;
            let connection = shelf.connections.remove(&id);
            drop(shelf);
            let taken = Taken { pool: Arc::clone(self), id, is_claimed: false };
            if let Some(connection) = connection
                && self.is_alive(id)
            {
                return Some((taken, connection));
            }
        }
    }

    fn is_alive(&self, id: WarmId) -> bool {
        let state = self.nursery.state();
        let child = state.children.get(&id.sandbox());
        child.is_some_and(|child| child.death.borrow().is_none())
    }

    async fn end_one(&self, id: WarmId) {
        self.shelf().connections.remove(&id);
        if self.discard(id).await {
            self.shelf().stock.gone(id);
            // Whoever has it go may have taken its place over already.
            if let Some(places) = self.places() {
                places.give_back(id);
            }
        } else {
            self.shelf().stock.stuck(id);
        }
        self.tell();
    }

    /// Ends one and removes everything of it. Says whether nothing is left.
    async fn discard(&self, id: WarmId) -> bool {
        let sandbox = id.sandbox();
        let host = Arc::clone(&self.nursery);
        // Without its spool it is a session's, and only its directories were left; or it was never started.
        let is_ours = host.files.spool(sandbox).try_exists().unwrap_or(true);
        let killed = if is_ours { host.kill(sandbox).await } else { Ok(()) };
        let ended = match killed {
            Ok(()) => {
                host.forget(sandbox);
                let remove = move || host.remove_warm(id);
                let removed = tokio::task::spawn_blocking(remove).await;
                removed
                    .unwrap_or_else(|error| Err(io::Error::other(error)))
                    .map_err(|error| failed("remove a sandbox", error))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = &ended {
            let error = error as &dyn std::error::Error;
            tracing::warn!(error, "a sandbox that waited for a session could not be ended");
        }
        ended.is_ok()
    }

    fn places(&self) -> Option<WarmPlaces> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.news.change(|()| ());
    }
}

impl Taken {
    /// It is a session's now.
    fn claimed(mut self) {
        self.is_claimed = true;
        self.pool.shelf().stock.gone(self.id);
        if let Some(places) = self.pool.places() {
            places.claimed(self.id);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if !self.is_claimed {
            self.pool.shelf().stock.give_up(self.id);
        }
        self.pool.tell();
    }
}

impl Inner {
    /// Has the project of one that is dead bounded no more: its number is given to somebody else. What fails
    /// is made good by whoever has the number next.
    fn unbound_disk(&self, id: WarmId) {
        let home = self.files.home(id.0);
        let owner = self.users().and_then(|users| users.owner(&home).ok().flatten());
        if let (Some(project), Some(sandboxing)) = (owner, self.options.enclosure.sandboxing()) {
            let _made_good_later = sandboxing.disk.limit(&home, project, None);
        }
    }

    /// Removes the files of one that is dead, and takes its user back. Blocks.
    fn remove_warm(&self, id: WarmId) -> io::Result<()> {
        let remove = || {
            self.unbound_disk(id);
            self.files.remove_all(id.0)
        };
        match self.users() {
            Some(users) => users.take_back(&self.files.home(id.0), self.files.homes(), remove),
            None => remove(),
        }
    }
}
