//! A stream of events that comes back by itself.
//!
//! The log is the truth, and every logged event has its place in it as its id. A stream that is cut
//! is asked for again from the last place that was seen, so nothing is missed; what was seen already
//! is dropped, so nothing comes twice. A message whose stream is cut before its run is known is sent
//! again with the same idempotency key, which joins the run instead of starting another.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::api::SessionStatus;

use super::error::{Cause, ClientError};
use super::request::{Ask, Client};
use super::sessions::Until;
use super::sse::{Frame, Parser};

/// How many events wait for a slow reader before the connection is no longer read.
const WAITING: usize = 64;

/// How many silences the head of an answer may take: a session may have to be woken first.
const SILENCES_BEFORE_HEAD: u32 = 5;

/// A place in a session's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Which history of the log; unknown, if a person named the place.
    pub epoch: Option<u32>,
    /// How far.
    pub seq: u64,
}

impl Cursor {
    /// A place in whatever history there is; 0 is before the first entry.
    pub const fn after(seq: u64) -> Self {
        Self { epoch: None, seq }
    }

    /// Whether an event at `other` was already seen by one who stands here.
    fn covers(self, other: Self) -> bool {
        let same = self.epoch.is_none() || self.epoch == other.epoch;
        same && other.seq <= self.seq
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            Some(epoch) => write!(f, "{epoch}-{}", self.seq),
            None => write!(f, "{}", self.seq),
        }
    }
}

impl FromStr for Cursor {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('-') {
            Some((epoch, seq)) => Ok(Self { epoch: Some(epoch.parse()?), seq: seq.parse()? }),
            None => Ok(Self::after(text.parse()?)),
        }
    }
}

/// One event of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerEvent {
    /// Its place in the log; nothing, if it is not logged.
    pub cursor: Option<Cursor>,
    /// Its name.
    pub name: String,
    /// Its fields.
    pub data: Value,
}

impl ServerEvent {
    /// A field that is text.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.data.get(field)?.as_str()
    }

    /// The run it belongs to.
    pub fn run(&self) -> Option<Uuid> {
        self.text("runId")?.parse().ok()
    }
}

/// What a stream has to tell.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// Something happened in the session. `gap` says that something is missing before the next one.
    Event(ServerEvent),
    /// The connection broke, and is tried again after a pause.
    Reconnecting {
        /// How many attempts in a row came to nothing.
        attempt: u32,
        /// How long until the next one.
        pause: Duration,
    },
    /// The server answers again.
    Connected,
}

/// The events of a log or of a run, in order, each once.
#[derive(Debug)]
pub struct EventStream {
    incoming: mpsc::Receiver<Result<Incoming, ClientError>>,
    /// Ends with the stream.
    _pump: JoinSet<()>,
}

impl EventStream {
    /// What comes next; nothing, when all was said. Can be dropped and called again without loss.
    ///
    /// # Errors
    /// The server refuses, or cannot be reached for long. Nothing comes after that.
    pub async fn next(&mut self) -> Result<Option<Incoming>, ClientError> {
        self.incoming.recv().await.transpose()
    }

    pub(super) fn of_log(client: Client, session: Uuid, after: Cursor, until: Until) -> Self {
        Self::start(client, session, Source::Log { until }, Some(after))
    }

    pub(super) fn of_message(client: Client, session: Uuid, ask: Ask) -> Self {
        Self::start(client, session, Source::Run { ask, run: None, greeted: false }, None)
    }

    fn start(client: Client, session: Uuid, source: Source, cursor: Option<Cursor>) -> Self {
        let (sender, incoming) = mpsc::channel(WAITING);
        let mut tasks = JoinSet::new();
        let pump = Pump { client, session, source, cursor, sender, failures: 0, reached: false };
        tasks.spawn(pump.run());
        Self { incoming, _pump: tasks }
    }
}

/// What is followed.
enum Source {
    Log {
        until: Until,
    },
    Run {
        /// The request that sent the message.
        ask: Ask,
        /// The run it made, once that is known.
        run: Option<Uuid>,
        /// `session_start` came.
        greeted: bool,
    },
}

/// How a connection ended without failing.
enum Over {
    /// All was said, or nobody listens any more.
    All,
    /// The server asked to come back, or closed.
    Closed,
}

/// Reads connections one after the other.
struct Pump {
    client: Client,
    session: Uuid,
    source: Source,
    cursor: Option<Cursor>,
    sender: mpsc::Sender<Result<Incoming, ClientError>>,
    /// Attempts in a row that brought nothing.
    failures: u32,
    /// There was an answer once: from then on, what fails is the connection.
    reached: bool,
}

impl Pump {
    async fn run(mut self) {
        loop {
            let error = match self.connection().await {
                Ok(Over::All) => return,
                Ok(Over::Closed) => None,
                Err(error) => Some(error),
            };
            self.failures += 1;
            let patience = *self.client.patience();
            let exhausted = self.failures >= patience.attempts;
            match error {
                Some(error) if exhausted || !self.may_pass(&error) => {
                    // Whoever does not listen does not miss it.
                    let _unheard = self.sender.send(Err(error)).await;
                    return;
                }
                None if exhausted => {
                    let source = Cause::new("the server closed the stream again and again");
                    let url = self.client.url().to_owned();
                    let error = ClientError::Broken { url, source };
                    let _unheard = self.sender.send(Err(error)).await;
                    return;
                }
                Some(_) | None => {}
            }
            let (attempt, pause) = (self.failures, patience.pause(self.failures));
            if self.sender.send(Ok(Incoming::Reconnecting { attempt, pause })).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Whether the next attempt may go better.
    fn may_pass(&self, error: &ClientError) -> bool {
        // At first it means that there is no server, or no room; later, that it starts again.
        matches!(error, ClientError::Broken { .. }) || (self.reached && error.is_transient())
    }

    /// What to ask for, given what is known.
    fn ask(&self) -> Ask {
        let until = match &self.source {
            Source::Log { until } => *until,
            Source::Run { run: Some(_), .. } if self.cursor.is_some() => Until::Idle,
            Source::Run { ask, .. } => return ask.clone(),
        };
        let cursor = self.cursor.unwrap_or(Cursor::after(0));
        let until = match until {
            Until::Idle => "&until=idle",
            Until::Dropped => "",
        };
        let session = self.session;
        let mut ask = Ask::get(format!("/api/sessions/{session}/stream?after={cursor}{until}"));
        ask.last_event_id = cursor.epoch.map(|_| cursor.to_string());
        ask
    }

    /// One connection, from its request to its end.
    async fn connection(&mut self) -> Result<Over, ClientError> {
        let patience = *self.client.patience();
        let ask = self.ask();
        let opened = self.client.open(&ask, "text/event-stream");
        let head = patience.silence * SILENCES_BEFORE_HEAD;
        let mut answer =
            tokio::time::timeout(head, opened).await.unwrap_or_else(|_| Err(self.silent()))?;
        self.reached = true;
        if self.failures > 0 && self.sender.send(Ok(Incoming::Connected)).await.is_err() {
            return Ok(Over::All);
        }
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let text = format!("a stream of events was expected, not {}", kind.unwrap_or("this"));
            return Err(ClientError::Unexpected { status: answer.status().as_u16(), text });
        }
        let mut parser = Parser::default();
        loop {
            let chunk = tokio::time::timeout(patience.silence, answer.chunk()).await;
            let chunk = chunk.map_err(|_| self.silent())?;
            let Some(bytes) = chunk.map_err(|error| self.client.failed(&error))? else {
                return self.closed().await;
            };
            self.failures = 0;
            for frame in parser.push(&bytes)? {
                if let Some(over) = self.take(frame).await {
                    return Ok(over);
                }
            }
        }
    }

    fn silent(&self) -> ClientError {
        let source = Cause::new("nothing was heard for too long, not even a heartbeat");
        ClientError::Broken { url: self.client.url().to_owned(), source }
    }

    /// Passes an event on, unless it was seen or belongs to somebody else's run.
    async fn take(&mut self, frame: Frame) -> Option<Over> {
        let Frame { id, event: name, data } = frame;
        let data = serde_json::from_str(&data).unwrap_or(Value::String(data));
        let cursor = id.and_then(|id| id.parse::<Cursor>().ok());
        let event = ServerEvent { cursor, name, data };
        if event.name == "reconnect" {
            return Some(Over::Closed);
        }
        // What comes after a gap is new, wherever one stood before.
        if event.name == "gap" {
            self.cursor = event.text("to").and_then(|to| to.parse().ok()).or(self.cursor);
        }
        if let Some(cursor) = cursor {
            if self.cursor.is_some_and(|seen| seen.covers(cursor)) {
                return None;
            }
            self.cursor = Some(cursor);
        }
        let is_last = match &mut self.source {
            Source::Log { .. } => false,
            Source::Run { run, greeted, .. } => {
                if event.name == "session_start" && std::mem::replace(greeted, true) {
                    return None;
                }
                let of = event.run();
                *run = run.or(of);
                if of.is_some() && of != *run {
                    return None;
                }
                event.name == "done"
            }
        };
        let heard = self.sender.send(Ok(Incoming::Event(event))).await;
        (is_last || heard.is_err()).then_some(Over::All)
    }

    /// The server closed the stream in good order.
    async fn closed(&mut self) -> Result<Over, ClientError> {
        let run = match &self.source {
            Source::Log { until: Until::Idle } => return Ok(Over::All),
            Source::Run { run: Some(run), .. } => *run,
            Source::Log { until: Until::Dropped } => return self.closed_log().await,
            Source::Run { run: None, .. } => return Ok(Over::Closed),
        };
        // Its end may have been in a gap, and will not come.
        let run = self.client.run(self.session, run).await?;
        if run.ended_at.is_none() {
            return Ok(Over::Closed);
        }
        let data = json!({
            "sessionId": run.session_id, "runId": run.id, "status": run.status,
            "stopReason": run.stop_reason, "usage": run.usage,
        });
        let event = ServerEvent { cursor: None, name: "done".to_owned(), data };
        let _unheard = self.sender.send(Ok(Incoming::Event(event))).await;
        Ok(Over::All)
    }

    /// Whether the log of the session, which was told to its end, will ever have more.
    async fn closed_log(&self) -> Result<Over, ClientError> {
        let session = match self.client.session(self.session).await {
            Ok(session) => session,
            // Its agent was deleted, and the session with it.
            Err(ClientError::Problem(problem)) if problem.status_code == 404 => {
                return Ok(Over::All);
            }
            Err(error) => return Err(error),
        };
        let is_told = self.cursor.is_some_and(|cursor| cursor.seq >= session.last_seq);
        let is_over = session.status == SessionStatus::Ended;
        Ok(if is_over && is_told { Over::All } else { Over::Closed })
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for text in ["0", "7", "1-7", "4294967295-18446744073709551615"] {
            assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        }
        for bad in ["", "-", "x", "1-", "-1", "1-2-3"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_was_seen_is_known_in_the_same_history_only() {
        let at = |text: &str| text.parse::<Cursor>().unwrap();
        assert!(at("1-7").covers(at("1-7")) && at("1-7").covers(at("1-6")));
        assert!(!at("1-7").covers(at("1-8")) && !at("1-7").covers(at("2-3")));
        assert!(at("7").covers(at("1-7")) && !at("7").covers(at("1-8")));
    }
}
