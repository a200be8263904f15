//! Claude Code, the real program.
//!
//! One process lives as long as the sandbox and is spoken to in lines of JSON. It keeps its own transcript, late and
//! unsynced, so what it mirrors of that is written down here (`record`) and reported to the server, and a run is not over
//! before that covers what was said last. When the program is started again, its transcript is proven against the
//! record, and made anew from it where it is not what it was (`transcript`).
//!
//! ```text
//!   prompt ──► record ──► program ──► turn ──► reports
//!                ▲                      │
//!                └────── mirror ────────┘
//! ```
//!
//! What goes wrong at a start is told apart, and each thing has one remedy that is tried once: a conversation that it does not
//! find is written anew, a name that is taken is changed, calls without answers that the model's provider
//! refuses are cut off. What cannot be remedied fails the run with a reason, and the next one begins anew and
//! says so, to the caller and to the agent: nobody pretends.

mod asking;
mod cut;
mod listen;
mod process;
mod prompt;
mod record;
mod servers;
mod setup;
mod start;
mod transcript;
mod turn;

use std::io;

use ash_protocol::{Ending, Event, NO_RUN, Program as Executable, Usage};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::asking::denied;
use self::process::{Heard, Program, Trouble};
use self::prompt::Prompt;
use self::record::Record;
use self::setup::{Setup, Which, config_directory, servers_of_agent};
use self::transcript::Transcript;
use self::turn::{Turn, Wish};
use crate::note;
use crate::place;
use crate::process::Processes;
use crate::questions::new_id;
use crate::reports::Reports;
use crate::settings::Settings;

/// What it is called that some of it does not count any more.
const CUT: &str = "transcript_cut";

/// What the agent is told then.
const CUT_OFF: &str = "[Some of what was said before this message was cut off, because the model's provider refused it. You do \
    not know it any more; look at the files before you go on.]";

/// What it is told that asks something when no run goes on.
const NOBODY: &str = "nobody is there to be asked now";

/// How much may be heard beside a run before it is told.
const MAX_ASIDE: usize = 500;

/// A prompt that is written down and is not worked on yet.
#[derive(Debug)]
pub struct Accepted {
    run: String,
    prompt: Prompt,
    /// What the agent has to know before it.
    remark: Option<String>,
}

/// The runtime.
#[derive(Debug)]
pub struct Claude {
    executable: Executable,
    settings: Settings,
    processes: Processes,
    record: Record,
    which: Which,
    program: Option<(Program, Setup)>,
    /// What it may have changed since it was told.
    unsure: Unsure,
    /// What the program says that everything has cost.
    total_usd: Option<f64>,
    /// What is to be said once there is a run to say it in.
    notices: Vec<String>,
    /// What was heard while there was none, until it is told.
    aside: Aside,
    /// What was heard while something else was waited for, until it is taken note of.
    heard: Vec<Heard>,
    /// Why the conversation cannot be gone on with, until that was said.
    lost: Option<String>,
    /// Whether the record is not what was written down.
    is_record_gone: bool,
    /// In how many starts in a row the program did not find the conversation.
    unfound: u32,
    /// When it was last seen that the program does not begin to talk.
    silent_at: Option<Instant>,
}

/// What the program may do otherwise than it was told.
#[derive(Clone, Copy, Debug, Default)]
struct Unsure {
    model: bool,
    mode: bool,
}

/// What the program does of its own accord.
#[derive(Debug, Default)]
struct Aside {
    turn: Turn,
    events: Vec<Event>,
    dropped: u64,
    /// Whether the record has grown since it was last proven.
    is_unproven: bool,
}

impl Claude {
    /// Reads the record back. Starts nothing. A new conversation is named after the session.
    pub fn open(
        executable: Executable,
        session: Option<&str>,
        settings: Settings,
        processes: Processes,
    ) -> io::Result<Self> {
        place::directory(&settings.home)?;
        let record = Record::open(&settings.home)?;
        let mut notices = Vec::new();
        if !settings.refused_variables.is_empty() {
            let names = settings.refused_variables.join(", ");
            notices
                .push(format!("these variables are not set, for they are the server's: {names}"));
        }
        let which = Which::New(match record.conversation().or(session) {
            Some(name) => name.to_owned(),
            None => new_id()?,
        });
        Ok(Self {
            executable,
            settings,
            processes,
            record,
            which,
            program: None,
            unsure: Unsure::default(),
            total_usd: None,
            notices,
            aside: Aside::default(),
            heard: Vec::new(),
            lost: None,
            unfound: 0,
            silent_at: None,
            is_record_gone: false,
        })
    }

    fn transcript(&self) -> Transcript {
        let Settings { workspace, home, .. } = &self.settings;
        Transcript::new(&config_directory(home), workspace, self.which.name())
    }

    /// Starts the program before there is anything to do, so that the first prompt does not wait for it.
    pub async fn warm_up(&mut self) {
        let setup = Setup::of(&self.settings, &prompt::Options::default());
        if self.program.is_none()
            && !setup.is_for_one_run
            && let Err(trouble) = self.start(setup).await
        {
            // The first prompt tries again, and says what is wrong. One that waits for this has waited for long enough.
            note(format_args!("{trouble}"));
            self.silent_at = matches!(trouble, Trouble::Silent(_)).then(Instant::now);
        }
    }

    /// Whether what was written down is not there any more, and the program cannot be started without it.
    pub fn has_lost_its_record(&self) -> bool {
        self.is_record_gone
    }

    /// Hears what the program says while there is no run. Returns when there is something to tell; safe to cancel.
    pub async fn overhear(&mut self) {
        while self.aside.events.is_empty() {
            let Some((program, _)) = &mut self.program else { return std::future::pending().await };
            match program.next().await {
                Some(heard) => {
                    for wish in self.aside.turn.take(heard) {
                        self.put_aside(wish);
                    }
                }
                None => {
                    let end = program.end().await;
                    note(format_args!("{end}; it is started again with the next prompt"));
                    self.program = None;
                }
            }
            self.prove_aside();
        }
    }

    /// What was said without a run and is not told yet.
    pub fn take_asides(&mut self) -> Vec<Event> {
        self.put_all_aside();
        let mut events = std::mem::take(&mut self.aside.events);
        let dropped = std::mem::take(&mut self.aside.dropped);
        if dropped > 0 {
            let message = format!("Claude Code said {dropped} more things at once");
            events.push(event("notice", &json!({ "message": message })));
        }
        events
    }

    /// Says how the record ends, once the program rests from what it said of its own accord: so a record that is
    /// lost is known to be.
    fn prove_aside(&mut self) {
        let is_at_rest = self.program.is_none() || self.aside.turn.is_at_rest();
        if !is_at_rest || !std::mem::take(&mut self.aside.is_unproven) {
            return;
        }
        match self.record.sync() {
            Ok(()) => self.aside.events.push(self.proof()),
            Err(error) => {
                self.notices.push(format!("the conversation could not be written down: {error}"));
            }
        }
    }

    /// How the record ends.
    fn proof(&self) -> Event {
        let (bytes, blake3, turns) = self.record.fingerprint();
        event("transcript", &json!({ "bytes": bytes, "blake3": blake3, "turns": turns }))
    }

    fn put_aside(&mut self, wish: Wish) {
        let events: Vec<Event> = match wish {
            Wish::Mirror { file, entries } => {
                self.aside.is_unproven = true;
                self.write_down(NO_RUN, &file, &entries)
            }
            Wish::Report(event @ (Event::Message(_) | Event::Output { .. })) => vec![event],
            Wish::Ask(question) => {
                let answer = question.without_asking(self.mode());
                let answer = answer.unwrap_or_else(|| denied(NOBODY));
                self.answer(&question.request, &answer);
                Vec::new()
            }
            Wish::Refuse { request, subtype } => {
                self.refuse(&request, &subtype);
                Vec::new()
            }
            Wish::Notice(message) => vec![event("notice", &json!({ "message": message }))],
            Wish::Report(_) | Wish::Withdraw { .. } => Vec::new(),
        };
        // What is left out is in the record all the same.
        let room = MAX_ASIDE.saturating_sub(self.aside.events.len());
        self.aside.dropped += events.len().saturating_sub(room) as u64;
        self.aside.events.extend(events.into_iter().take(room));
    }

    /// Takes a prompt into the conversation. Once this has returned, it is remembered.
    pub fn accept(&mut self, run: &str, prompt: &RawValue) -> Result<Accepted, Ending> {
        let prompt = Prompt::read(prompt).map_err(|message| Ending::Failed { message })?;
        let transcript = self.transcript();
        let remark = cut::remark(self.record.unfinished(), |run| transcript.holds(run));
        self.record.begin(run, &prompt.content).map_err(|error| not_written(&error))?;
        Ok(Accepted { run: run.to_owned(), prompt, remark })
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
        let earlier = self.spent_between();
        let (ending, usage) = match accepted {
            Err(ending) => (ending, Usage::default()),
            Ok(accepted) => Box::pin(self.turn(accepted, reports, &interrupt)).await,
        };
        self.tell_aside(reports).await;
        for notice in std::mem::take(&mut self.notices) {
            output(reports, "notice", &json!({ "message": notice })).await;
        }
        self.aside.is_unproven = false;
        reports.send(self.proof()).await;
        (ending, earlier.plus(usage))
    }

    /// Ends the program.
    pub async fn close(mut self) {
        self.stop().await;
    }

    /// What was spent between the runs: it is counted with this one, because the one before is over.
    fn spent_between(&mut self) -> Usage {
        let turn = std::mem::take(&mut self.aside.turn);
        self.total_usd = turn.total_usd().or(self.total_usd);
        turn.usage
    }

    /// Says what was heard while the program was started or ended for this run, before anything that comes after it.
    async fn tell_aside(&mut self, reports: &Reports) {
        for event in self.take_asides() {
            reports.send(event).await;
        }
    }

    async fn turn(
        &mut self,
        accepted: Accepted,
        reports: &Reports,
        interrupt: &CancellationToken,
    ) -> (Ending, Usage) {
        let Accepted { run, prompt, mut remark } = accepted;
        let mut usage = Usage::default();
        if prompt.options.max_budget_usd.is_some_and(|usd| usd <= 0.0) {
            return self.finish_unseen(&run, Ending::Budget, usage);
        }
        if let Some(why) = self.lost.take() {
            if let Err(error) = self.begin_anew(&run) {
                return (not_written(&error), usage);
            }
            output(reports, "conversation_lost", &json!({ "reason": why })).await;
            let lost = format!(
                "[Everything said before this message was lost ({why}). You do not know it any more; say so if it matters.]"
            );
            remark = Some(joined(&lost, remark));
        }
        if let Err(why) = servers_of_agent(&self.settings.workspace) {
            self.notices.push(format!("the MCP servers of .mcp.json are left out: {why}"));
        }
        let setup = Setup::of(&self.settings, &prompt.options);
        let (mut is_second, mut is_started_again) = (false, false);
        loop {
            let ready = interrupt.run_until_cancelled(self.make_ready(&setup)).await;
            self.tell_aside(reports).await;
            match ready {
                // Not written down as ended: whatever comes next is told that this was cut, and what it said.
                None => return (Ending::Interrupted, usage),
                Some(Ok(())) => {}
                Some(Err(trouble)) => {
                    return (Ending::Failed { message: trouble.to_string() }, usage);
                }
            }
            // The first one is there already, with what was cut off.
            let given = if is_second { new_id().unwrap_or_default() } else { run.clone() };
            let said = prompt_message(&given, &prompt, remark.as_deref());
            let mut turn = Turn::after(self.total_usd, given.clone());
            // What it does changes its mode, and commands in messages its model.
            self.unsure.mode = true;
            self.unsure.model |= prompt.is_command();
            let ended = self.listen(&mut turn, &said, &run, reports, interrupt).await;
            self.total_usd = turn.total_usd().or(self.total_usd);
            usage = usage.plus(turn.spent());
            let ending = match ended {
                Ok(ending) => ending,
                // It had ended already, and nobody had noticed.
                Err(_) if !turn.has_begun() && !is_started_again => {
                    is_started_again = true;
                    continue;
                }
                Err(message) => return (Ending::Failed { message }, usage),
            };
            let poisoned = turn.result.as_ref().is_some_and(turn::Outcome::is_poisoned);
            if poisoned && !is_second && turn.rounds() == 0 {
                match self.cut_poison(&run, reports).await {
                    Ok(true) => {
                        is_second = true;
                        remark = Some(joined(CUT_OFF, remark));
                        continue;
                    }
                    Ok(false) => {}
                    Err(error) => return (not_written(&error), usage),
                }
            }
            let is_refused = matches!(ending, Ending::Refused { .. }) && turn.rounds() == 0;
            if is_refused {
                return match self.cut_refused(&run, &given, reports).await {
                    Ok(()) => self.finish_unseen(&run, ending, usage),
                    Err(error) => (not_written(&error), usage),
                };
            }
            if turn.is_unwritten {
                // Nothing of it will be remembered. Not written down as ended: the next one is told what was asked.
                let message = "this turn is not in the transcript, and the agent does not know it any more: it is told so";
                self.notices.push(message.to_owned());
                self.stop().await;
                return (ending, usage);
            }
            if setup.is_for_one_run {
                self.stop().await;
            }
            let is_cut = ending == Ending::Interrupted;
            if is_cut && turn.has_not_written_it() && !self.transcript().holds(&given) {
                return (ending, usage);
            }
            if turn.has_passed_it_over() && !self.transcript().holds(&given) {
                let message = "the message was not taken, and the agent does not know it";
                self.notices.push(message.to_owned());
                return self.finish_unseen(&run, ending, usage);
            }
            return self.finish(&run, ending, usage);
        }
    }

    /// Writes down that the run is over.
    fn finish(&mut self, run: &str, ending: Ending, usage: Usage) -> (Ending, Usage) {
        match self.record.end(run, name_of(&ending)) {
            Ok(()) => (ending, usage),
            Err(error) => (not_written(&error), usage),
        }
    }

    /// The same of one that the agent knows nothing of.
    fn finish_unseen(&mut self, run: &str, ending: Ending, usage: Usage) -> (Ending, Usage) {
        match self.record.end_unseen(run, name_of(&ending)) {
            Ok(()) => (ending, usage),
            Err(error) => (not_written(&error), usage),
        }
    }
}

/// Two things that the agent has to know.
fn joined(first: &str, second: Option<String>) -> String {
    second.map_or_else(|| first.to_owned(), |second| format!("{first}\n{second}"))
}

/// What the program is told. Its number is the run's, so that it can be found again in the transcript.
fn prompt_message(given: &str, prompt: &Prompt, remark: Option<&str>) -> Value {
    let content = match remark {
        Some(remark) => prompt.after(remark),
        None => serde_json::from_str(prompt.content.get()).unwrap_or_default(),
    };
    json!({
        "type": "user",
        "message": { "role": "user", "content": content },
        "parent_tool_use_id": null,
        "session_id": "",
        "uuid": given,
    })
}

fn name_of(ending: &Ending) -> &'static str {
    match ending {
        Ending::EndTurn => "end_turn",
        Ending::MaxTurns => "max_turns",
        Ending::Budget => "budget",
        Ending::Quota => "quota",
        Ending::Interrupted => "interrupted",
        Ending::Failed { .. } => "failed",
        Ending::Refused { .. } => "refused",
    }
}

fn event(name: &str, body: &Value) -> Event {
    let body = to_raw_value(body).expect("a value is JSON");
    Event::Output { name: name.to_owned(), body }
}

async fn output(reports: &Reports, name: &str, body: &Value) {
    reports.send(event(name, body)).await;
}

fn not_written(error: &io::Error) -> Ending {
    Ending::Failed { message: format!("could not write the conversation down: {error}") }
}
