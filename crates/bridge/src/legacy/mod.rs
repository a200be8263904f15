//! A program that speaks the original's bridge protocol.
//!
//! One process lives as long as the sandbox, a child of ours, with the environment that the original gives it. It is
//! connected to by a socket and is asked in lines of JSON; its messages are told as the original tells them (`turn`).
//!
//! ```text
//!   prompt ──► record ──► query ──► program ──► turn ──► reports
//! ```
//!
//! It keeps the conversation in its own memory and in nothing that it would find again. So a program that was started
//! anew, after it died or in a new sandbox, knows nothing; it is told what was written down (`record`) with the first
//! prompt, and the caller is told that it forgot. What its session says of itself it finds in files (`told`).
//!
//! The protocol has no numbers: what the program says belongs to the query that is open. What it says while there is
//! none is passed over; an end that comes before anything else may be a late one of an earlier query, so it is believed only
//! if nothing follows.

mod child;
mod prompt;
mod record;
mod setup;
mod told;
mod turn;
mod wire;

use std::io;
use std::time::Duration;

use ash_protocol::{Ending, Event, LegacyProgram, Usage};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::child::{Child, Socket};
use self::prompt::Prompt;
use self::record::Record;
use self::turn::Turn;
use self::wire::Heard;
use crate::note;
use crate::process::Processes;
use crate::questions::{new_id, pass};
use crate::reports::Reports;
use crate::settings::Settings;

/// How long the program may take to be ready.
pub const START_PATIENCE: Duration = Duration::from_secs(30);

/// How long it may take to obey an interrupt, before it is ended: well before the server ends the sandbox.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(4);

/// How long to wait for its `done` after an error, and for anything else after a `done` that came first.
const LAST_WORD: Duration = Duration::from_secs(2);

/// A prompt that is written down and is not worked on yet.
#[derive(Debug)]
pub struct Accepted {
    run: String,
    prompt: Prompt,
    /// What was said before, and in how many turns.
    before: Option<String>,
    turns_before: u32,
}

/// The runtime.
#[derive(Debug)]
pub struct Legacy {
    program: LegacyProgram,
    session: String,
    settings: Settings,
    processes: Processes,
    patience: Duration,
    record: Record,
    child: Option<Child>,
    /// Whether the program has been asked anything since its start.
    is_asked: bool,
    /// Whether one has run here before.
    has_run: bool,
    /// What is to be said once there is a run to say it in.
    notices: Vec<String>,
    /// What it said while there was none.
    strays: u64,
}

impl Legacy {
    /// Reads the record back. Starts nothing.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn open(
        program: LegacyProgram,
        session: Option<&str>,
        settings: Settings,
        processes: Processes,
        patience: Duration,
    ) -> io::Result<Self> {
        let record = Record::open(&settings.home)?;
        let session = match session {
            Some(session) => session.to_owned(),
            None => new_id()?,
        };
        let mut notices = Vec::new();
        if !settings.refused_variables.is_empty() {
            let names = settings.refused_variables.join(", ");
            notices
                .push(format!("these variables are not set, for they are the server's: {names}"));
        }
        Ok(Self {
            program,
            session,
            settings,
            processes,
            patience,
            record,
            child: None,
            is_asked: false,
            has_run: false,
            notices,
            strays: 0,
        })
    }

    /// Starts the program before there is anything to do, so that the first prompt does not wait for it.
    pub async fn warm_up(&mut self) {
        if let Err(trouble) = self.make_ready().await {
            // The first prompt tries again, and says what is wrong.
            note(format_args!("{trouble}"));
        }
    }

    /// Hears what the program says while there is no run. Never returns; safe to cancel.
    pub async fn overhear(&mut self) {
        loop {
            let Some(child) = &mut self.child else { return std::future::pending().await };
            match child.next().await {
                Some(_) => self.strays += 1,
                None => {
                    let end = child.end().await;
                    note(format_args!("{end}; it is started again with the next prompt"));
                    self.child = None;
                }
            }
        }
    }

    /// Takes a prompt into the record. Once this has returned, it is written down.
    pub fn accept(&mut self, run: &str, prompt: &RawValue) -> Result<Accepted, Ending> {
        let prompt = Prompt::read(prompt).map_err(|message| Ending::Failed { message })?;
        let (before, turns_before) = (self.record.told(), self.record.turns());
        self.record.begin(run, &prompt.content).map_err(|error| not_written(&error))?;
        Ok(Accepted { run: run.to_owned(), prompt, before, turns_before })
    }

    /// Works on a prompt that was accepted, or says why it was not. Every event goes to `reports`
    /// except the first and the last, which are the caller's: that the run has begun, and that it
    /// has ended.
    pub async fn work(
        &mut self,
        accepted: Result<Accepted, Ending>,
        reports: &Reports,
        interrupt: CancellationToken,
    ) -> (Ending, Usage) {
        if let Some(repair) = self.record.take_repair() {
            let body = json!({
                "droppedBytes": repair.dropped_bytes,
                "skippedLines": repair.skipped_lines,
            });
            output(reports, "conversation_repaired", &body).await;
        }
        let (ending, usage) = match accepted {
            Err(ending) => (ending, Usage::default()),
            Ok(accepted) => Box::pin(self.turn(accepted, reports, &interrupt)).await,
        };
        let skipped = self.child.as_mut().map_or(0, Child::take_skipped);
        if skipped > 0 {
            let message = format!("the bridge program sent {skipped} lines that say nothing here");
            self.notices.push(message);
        }
        for notice in std::mem::take(&mut self.notices) {
            output(reports, "notice", &json!({ "message": notice })).await;
        }
        let (bytes, blake3, turns) = self.record.fingerprint();
        let body = json!({ "bytes": bytes, "blake3": blake3, "turns": turns });
        output(reports, "transcript", &body).await;
        (ending, usage)
    }

    /// Ends the program.
    pub async fn close(mut self) {
        if let Some(mut child) = self.child.take() {
            child.say_now(&json!({ "cmd": "shutdown" }));
            child.kill().await;
        }
    }

    /// Has a program that can be asked.
    async fn make_ready(&mut self) -> Result<(), String> {
        if let Some(child) = &mut self.child {
            if !child.has_ended() {
                return Ok(());
            }
            let end = child.end().await;
            note(format_args!("{end}; it is started again"));
            self.child = None;
        }
        for problem in told::tell(&self.settings) {
            // It is tried at every start, and said once in a run.
            if !self.notices.contains(&problem) {
                self.notices.push(problem);
            }
        }
        let not_there = |error: io::Error| format!("there is no place for a socket: {error}");
        let socket = Socket::new().map_err(not_there)?;
        let path = socket.path();
        let command = setup::command(&self.program, &self.settings, &self.session, &path)?;
        let child = Child::start(&self.processes, command, socket, self.patience).await?;
        self.child = Some(child);
        self.is_asked = false;
        Ok(())
    }

    async fn turn(
        &mut self,
        accepted: Accepted,
        reports: &Reports,
        interrupt: &CancellationToken,
    ) -> (Ending, Usage) {
        let Accepted { run, prompt, before, turns_before } = accepted;
        self.notice_unheard(&prompt);
        let mut is_second = false;
        loop {
            match interrupt.run_until_cancelled(self.make_ready()).await {
                None => return self.finish(&run, Ending::Interrupted, Usage::default()),
                Some(Ok(())) => {}
                Some(Err(message)) => return (Ending::Failed { message }, Usage::default()),
            }
            let preamble = self.preamble(before.as_deref(), turns_before, reports).await;
            let query = prompt.query(&self.session, &self.settings, preamble.as_deref());
            let mut turn = Turn::default();
            let ended = self.listen(&mut turn, &query, &run, reports, interrupt).await;
            match ended {
                Ok(ending) => return self.finish(&run, ending, turn.usage),
                // It had ended already, and nobody had noticed: nothing of the prompt got through.
                Err(Gone { was_asked: false, .. }) if !is_second => is_second = true,
                // Not written down as ended: whatever comes next is told that this was cut.
                Err(Gone { why, .. }) => return (Ending::Failed { message: why }, turn.usage),
            }
        }
    }

    /// What a program that was just started has to know before its first prompt.
    async fn preamble(
        &mut self,
        before: Option<&str>,
        turns: u32,
        reports: &Reports,
    ) -> Option<String> {
        if std::mem::replace(&mut self.is_asked, true) {
            return None;
        }
        let was_here = std::mem::replace(&mut self.has_run, true);
        let mut parts: Vec<String> = self.settings.remark.iter().cloned().collect();
        if let Some(before) = before {
            let reason = if was_here {
                "the bridge program was started anew, and remembers nothing"
            } else {
                "the bridge program is a new one, and remembers nothing of earlier sandboxes"
            };
            let body = json!({ "reason": reason, "turns": turns, "retold": true });
            output(reports, "conversation_lost", &body).await;
            parts.push(format!(
                "[You were started anew in the middle of this session. This was said before, as it was written down:]\n\n\
                 {before}\n\n[Here ends what was written down. What follows is said now.]"
            ));
        }
        (!parts.is_empty()).then(|| parts.join("\n\n"))
    }

    /// Says which options of a prompt the program does not hear.
    fn notice_unheard(&mut self, prompt: &Prompt) {
        let wanted = prompt.options.get("permissionMode").and_then(Value::as_str);
        let mode = setup::mode_of(&self.settings);
        if let Some(wanted) = wanted.filter(|wanted| *wanted != mode) {
            self.notices.push(format!(
                "the bridge program was started with permissionMode {mode} and does not hear of {wanted}"
            ));
        }
        let strays = std::mem::take(&mut self.strays) + self.child.as_mut().map_or(0, Child::skip);
        if strays > 0 {
            self.notices
                .push(format!("the bridge program said {strays} things that nobody asked for"));
        }
    }

    /// Asks the program and hears what it says, until it is done.
    async fn listen(
        &mut self,
        turn: &mut Turn,
        query: &Value,
        run: &str,
        reports: &Reports,
        interrupt: &CancellationToken,
    ) -> Result<Ending, Gone> {
        if let Some(child) = &self.child {
            child.say(query).await;
        }
        let (mut is_interrupted, mut is_done) = (false, false);
        let mut error: Option<String> = None;
        // They begin to count when they are first asked.
        let mut obeys = Box::pin(pass(INTERRUPT_PATIENCE));
        let mut last_word = Box::pin(pass(LAST_WORD));
        loop {
            let Some(child) = &mut self.child else {
                return Err(Gone { why: "the bridge program is gone".to_owned(), was_asked: true });
            };
            let heard = tokio::select! {
                biased;
                () = interrupt.cancelled(), if !is_interrupted => {
                    child.say_now(&json!({ "cmd": "interrupt" }));
                    is_interrupted = true;
                    continue;
                }
                () = &mut obeys, if is_interrupted => {
                    child.kill().await;
                    self.child = None;
                    return Ok(Ending::Interrupted);
                }
                () = &mut last_word, if is_done || error.is_some() => Some(Heard::Done),
                heard = child.next() => heard,
            };
            let ends = match heard {
                None => {
                    let why = format!("{}, in the middle of a turn", child.end().await);
                    let was_asked = turn.has_begun() || !child.is_unheard().await;
                    self.child = None;
                    return Err(Gone { why, was_asked });
                }
                Some(Heard::Message(raw)) => {
                    is_done = false;
                    last_word = Box::pin(pass(LAST_WORD));
                    let (events, text) = turn.take(raw);
                    for event in events {
                        reports.send(event).await;
                    }
                    if let Some(text) = text
                        && let Err(error) = self.record.answer(run, &text)
                    {
                        self.notices.push(format!("the answer could not be written down: {error}"));
                    }
                    false
                }
                Some(Heard::Error(why)) => {
                    // The first is the reason; its `done` follows, or does not.
                    error.get_or_insert(why);
                    false
                }
                Some(Heard::Log(line)) => {
                    output(reports, "log", &line).await;
                    false
                }
                Some(Heard::Ready) => {
                    self.strays += 1;
                    false
                }
                Some(Heard::Done) => {
                    let may_be_late =
                        !turn.has_begun() && error.is_none() && !is_interrupted && !is_done;
                    is_done = true;
                    !may_be_late
                }
            };
            if ends {
                return Ok(match error {
                    _ if is_interrupted => Ending::Interrupted,
                    Some(message) => Ending::Failed { message },
                    None => turn.ending(),
                });
            }
        }
    }

    /// Writes down that the run is over.
    fn finish(&mut self, run: &str, ending: Ending, usage: Usage) -> (Ending, Usage) {
        let how = match &ending {
            Ending::EndTurn => "end_turn",
            Ending::MaxTurns => "max_turns",
            Ending::Budget => "budget",
            Ending::Quota => "quota",
            Ending::Interrupted => "interrupted",
            Ending::Failed { .. } | Ending::Refused { .. } => "failed",
        };
        match self.record.end(run, how) {
            Ok(()) => (ending, usage),
            Err(error) => (not_written(&error), usage),
        }
    }
}

/// The program is not there any more.
struct Gone {
    why: String,
    /// Whether it may have got what it was asked.
    was_asked: bool,
}

async fn output(reports: &Reports, name: &str, body: &Value) {
    let body = to_raw_value(body).expect("a value is JSON");
    reports.send(Event::Output { name: name.to_owned(), body }).await;
}

fn not_written(error: &io::Error) -> Ending {
    Ending::Failed { message: format!("could not write the conversation down: {error}") }
}
