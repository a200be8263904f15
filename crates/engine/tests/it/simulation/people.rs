//! The people of the simulation: clients who want things and ask again until they are told, and followers who come
//! back with their cursor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ash_core::id::{SessionId, TenantId};
use ash_core::json::Json;
use ash_core::number::{Cursor, Turn};
use ash_core::permission::Permission;
use ash_core::session::{IfBusy, IfRunning, PauseReason, Wake};
use ash_engine::signal::Watcher;
use ash_engine::testing::Dice;
use ash_engine::{
    CreateSession, Effective, Engine, EngineError, FollowFrom, Followed, Idempotency, Point,
    RequireState, SendPrompt,
};
use ash_store::{ReceiptKey, Settings};
use tokio::task::JoinSet;

use super::world::Notes;
use crate::support::command;

fn settings() -> Settings {
    let config = Json::of("none").unwrap();
    Settings { title: None, model: None, metadata: BTreeMap::new(), config }
}

/// How long a client waits for an answer, however bad the world is.
const PATIENCE: Duration = Duration::from_secs(120);

/// Somebody who wants things, and asks again until told.
pub(super) struct Client {
    pub(super) number: u64,
    pub(super) engine: Watcher<Option<Engine>>,
    pub(super) dice: Arc<Dice>,
    pub(super) notes: Arc<Mutex<Notes>>,
    pub(super) tenant: TenantId,
    pub(super) keys: u64,
}

impl Client {
    /// Wants things, and leaves behind whoever followed.
    pub(super) async fn live(mut self, wishes: u64) -> JoinSet<()> {
        let mut own = self.create().await;
        let mut followers = JoinSet::new();
        followers.spawn(self.follower(own).follow());
        for _ in 0..wishes {
            tokio::time::sleep(self.dice.while_of(Duration::from_secs(8))).await;
            // Two people may want something of one session at the same moment.
            let session = if self.dice.chance(300) { self.any_session() } else { own };
            match self.dice.roll(22) {
                0..=7 => self.prompt(session).await,
                8 => self.ask(|e, t| async move { e.interrupt(&t, session, None).await }).await,
                9 => {
                    let how = match self.dice.roll(3) {
                        0 => IfRunning::Freeze,
                        1 => IfRunning::Interrupt,
                        _ => IfRunning::Reject,
                    };
                    self.ask(|e, t| async move { e.pause(&t, session, how).await }).await;
                }
                10 | 11 => {
                    self.ask(|e, t| async move { e.resume(&t, session, RequireState::No).await })
                        .await;
                }
                12 => self.ask(|e, t| async move { e.stop(&t, session).await }).await,
                13 => {
                    self.ask(|e, _| async move { e.evict(session, PauseReason::Evicted).await })
                        .await;
                }
                15 => {
                    let to = Turn::new(u32::try_from(self.dice.roll(4)).unwrap());
                    let to = Point::Turn(to);
                    let act = |e: Engine, t| async move {
                        e.rewind(&t, session, to, Effective::Yes).await
                    };
                    self.ask(act).await;
                }
                16 => {
                    let settings = settings();
                    let set = |e: Engine, t| {
                        let settings = settings.clone();
                        async move { e.configure(&t, session, move |now| *now = settings).await }
                    };
                    self.ask(set).await;
                }
                17 => {
                    let exec =
                        |e: Engine, t| async move { e.exec(&t, session, command("true")).await };
                    self.ask(exec).await;
                }
                14 => {
                    self.ask(|e, t| async move { e.end(&t, session).await }).await;
                    self.notes.lock().unwrap().ended.push(session);
                    if session == own {
                        own = self.create().await;
                        followers.spawn(self.follower(own).follow());
                    }
                }
                18..=20 => self.answer(session).await,
                _ => {
                    // Somebody else looks at the same log from its start.
                    followers.spawn(self.follower(session).follow());
                }
            }
        }
        followers
    }

    fn any_session(&self) -> SessionId {
        let notes = self.notes.lock().unwrap();
        let many = u64::try_from(notes.sessions.len()).unwrap();
        notes.sessions[usize::try_from(self.dice.roll(many)).unwrap()]
    }

    async fn create(&mut self) -> SessionId {
        let idempotency = self.key();
        let create = CreateSession {
            tenant: self.tenant.clone(),
            agent: "coder".parse().unwrap(),
            settings: settings(),
            time_to_live: self.dice.chance(100).then(|| Duration::from_secs(60)),
            idle_timeout: None,
        };
        let created = self
            .insist(|engine, _| {
                let (create, idempotency) = (create.clone(), idempotency.clone());
                async move { engine.create_session(create, Some(idempotency)).await }
            })
            .await
            .expect("nothing stands against a new session");
        let id = created.record.id;
        self.notes.lock().unwrap().sessions.push(id);
        id
    }

    async fn prompt(&mut self, session: SessionId) {
        let idempotency = self.key();
        let prompt = SendPrompt {
            content: Json::of("go on").unwrap(),
            if_busy: if self.dice.chance(200) { IfBusy::Reject } else { IfBusy::Queue },
            wake: if self.dice.chance(700) { Wake::Any } else { Wake::SystemPaused },
            timeout: self.dice.chance(200).then(|| Duration::from_secs(3)),
        };
        let answer = self
            .insist(|engine, tenant| {
                let (prompt, idempotency) = (prompt.clone(), idempotency.clone());
                async move { engine.prompt(&tenant, session, prompt, Some(idempotency)).await }
            })
            .await;
        match answer {
            Ok(accepted) => {
                let twice = self.notes.lock().unwrap().accepted.insert(accepted.run, session);
                assert_eq!(twice, None, "two prompts became one run");
            }
            Err(EngineError::Refused(_)) => {}
            Err(error) => panic!("a prompt was answered with {error}"),
        }
    }

    /// Answers one of the questions that a session's agent asks, if there are any.
    async fn answer(&mut self, session: SessionId) {
        let asked = self.insist(|e, t| async move { e.questions(&t, session).await }).await;
        let questions = asked.unwrap_or_default();
        if questions.is_empty() {
            return;
        }
        let which = self.dice.roll(u64::try_from(questions.len()).unwrap());
        let id = questions[usize::try_from(which).unwrap()].open.id;
        let decision = match self.dice.roll(3) {
            0 => Permission::Allow { input: None },
            1 => Permission::Allow { input: Some(Json::of("otherwise").unwrap()) },
            _ => Permission::Deny { message: None },
        };
        let answer = self
            .insist(|engine, tenant| {
                let decision = decision.clone();
                async move { engine.answer(&tenant, session, id, decision).await }
            })
            .await;
        match answer {
            Ok(()) => self.notes.lock().unwrap().decided.push((session, id, decision)),
            Err(EngineError::Refused(_)) => {}
            Err(error) => panic!("an answer was answered with {error}"),
        }
    }

    async fn ask<T, F: Future<Output = Result<T, EngineError>>>(
        &mut self,
        act: impl Fn(Engine, TenantId) -> F,
    ) {
        match self.insist(act).await {
            // The host of these tests keeps no snapshots: it only says that it made some.
            Ok(_)
            | Err(
                EngineError::Refused(_)
                | EngineError::Failed(_)
                | EngineError::SnapshotExpired
                | EngineError::NothingBefore,
            ) => {}
            Err(error) => panic!("a request was answered with {error}"),
        }
    }

    /// Asks whichever engine lives, again and again, until it gets a definite answer.
    async fn insist<T, F: Future<Output = Result<T, EngineError>>>(
        &mut self,
        act: impl Fn(Engine, TenantId) -> F,
    ) -> Result<T, EngineError> {
        loop {
            let engine = self.engine.wait_for(Option::is_some).await.expect("it was waited for");
            let answered = tokio::select! {
                biased;
                answer = tokio::time::timeout(PATIENCE, act(engine, self.tenant.clone())) => {
                    Some(answer.expect("every request is answered"))
                }
                // Its process is gone: the connection breaks.
                _ = self.engine.wait_for(Option::is_none) => None,
            };
            match answered {
                Some(Err(error)) if error.is_transient() => {}
                Some(answer) => return answer,
                None => {}
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    fn key(&mut self) -> Idempotency {
        self.keys += 1;
        let key = ReceiptKey {
            tenant: self.tenant.clone(),
            route: "simulated".to_owned(),
            key: format!("client-{}-{}", self.number, self.keys),
        };
        Idempotency { key, body_digest: [7; 32] }
    }

    fn follower(&self, session: SessionId) -> Reader {
        let mut notes = self.notes.lock().unwrap();
        notes.seen.push((session, Vec::new()));
        Reader {
            session,
            index: notes.seen.len() - 1,
            engine: self.engine.clone(),
            notes: Arc::clone(&self.notes),
            tenant: self.tenant.clone(),
            cursor: None,
        }
    }
}

/// Somebody who follows a log, and comes back with a cursor whenever the connection breaks.
struct Reader {
    session: SessionId,
    index: usize,
    engine: Watcher<Option<Engine>>,
    notes: Arc<Mutex<Notes>>,
    tenant: TenantId,
    cursor: Option<Cursor>,
}

impl Reader {
    async fn follow(mut self) {
        loop {
            let engine = self.engine.wait_for(Option::is_some).await.expect("it was waited for");
            let mut gone = self.engine.clone();
            tokio::select! {
                biased;
                () = self.read(&engine) => {}
                _ = gone.wait_for(Option::is_none) => {}
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn read(&mut self, engine: &Engine) {
        let from = self.cursor.map_or(FollowFrom::Start, FollowFrom::Cursor);
        let Ok(mut follower) = engine.follow(&self.tenant, self.session, from).await else {
            return;
        };
        loop {
            match follower.next().await {
                Ok(Followed::Entries(entries)) => {
                    self.notes.lock().unwrap().seen[self.index].1.extend(entries);
                    self.cursor = Some(follower.cursor());
                }
                Ok(Followed::Gap(gap)) => panic!("a log that lost nothing has {gap:?}"),
                Ok(Followed::Closing) | Err(_) => return,
            }
        }
    }
}
