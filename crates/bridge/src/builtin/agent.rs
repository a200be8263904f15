//! The loop: ask, record, run tools, record, ask again.
//!
//! The main agent and a coder are the same loop with different words. Whatever it waits for, it
//! waits for an interrupt as well; what it waited for is dropped then, and what is known by that
//! time is written down.

use std::io;
use std::path::Path;
use std::time::Duration;

use ash_protocol::{Ending, Event, Phase};
use hyper::body::Bytes;
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio_util::sync::CancellationToken;

use super::calls::Offered;
use super::context::{MAX_REQUEST_BYTES, Room};
use super::conversation::Conversation;
use super::memory::{Memory, Remembered, Scope};
use super::message::{Block, Kind, Message, Role, text_tokens};
use super::model::{Answer, Client, Overflow, Patience, Rejection, Verdict};
use super::permission::Mode;
use super::price::Ledger;
use super::request::Setup;
use super::selection::Selection;
use super::system;
use super::tools::Toolbox;
use crate::questions::Questions;
use crate::reports::Reports;

/// One loop at work on one prompt.
pub(super) struct Agent<'a> {
    pub(super) scope: Scope,
    pub(super) run: &'a str,
    pub(super) workspace: &'a Path,
    pub(super) home: &'a Path,
    pub(super) client: &'a Client,
    pub(super) patience: &'a Patience,
    pub(super) toolbox: &'a Toolbox,
    /// What the session lets it use of them.
    pub(super) selection: &'a Selection,
    pub(super) offered: Offered,
    /// What it asks about before it does it, and where.
    pub(super) mode: Mode,
    pub(super) questions: &'a Questions,
    /// What the session adds to its instructions.
    pub(super) of_session: Option<&'a str>,
    pub(super) conversation: &'a mut Conversation,
    /// The conversation of whoever delegated this; nobody did for the main loop.
    pub(super) parent: Option<&'a mut Conversation>,
    pub(super) memory: Memory,
    pub(super) setup: Setup,
    pub(super) bounds: Bounds,
    pub(super) ledger: &'a mut Ledger,
    pub(super) reports: &'a Reports,
    pub(super) interrupt: &'a CancellationToken,
    pub(super) round: u32,
    /// What an estimated token really costs, as of the last answer.
    pub(super) tokens_per_estimate: f64,
    pub(super) last_text: String,
}

/// What one loop may use, besides the run's budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) max_rounds: u32,
    pub(super) context_tokens: u64,
}

/// Which cures were tried on one request.
#[derive(Default)]
struct Tried {
    without: bool,
    shorter: bool,
    capped: bool,
}

/// How to ask once more.
enum Again {
    After(Duration),
    Otherwise,
}

impl Agent<'_> {
    /// Goes on until there is a reason to end.
    pub(super) async fn run(&mut self) -> Ending {
        loop {
            if let Err(ending) = self.one_round().await {
                return ending;
            }
        }
    }

    async fn one_round(&mut self) -> Result<(), Ending> {
        self.within_limits()?;
        if self.interrupt.is_cancelled() {
            return Err(Ending::Interrupted);
        }
        self.round += 1;
        match &self.scope {
            Scope::Main => self.phase(Phase::StreamingLlm).await,
            Scope::Coder { .. } => {
                self.output("coder_round", &json!({ "round": self.round })).await;
            }
        }
        let mut answer = self.ask().await?;
        answer.rename_calls(|id| self.conversation.has_called(id));
        let blocks = answer.blocks();
        self.record(&answer, blocks).await?;
        self.last_text = answer.text();
        let calls = answer.calls();
        let reason = answer.stop_reason.as_deref();
        match reason {
            Some("pause_turn") if calls.is_empty() => return Ok(()),
            Some("refusal") => {
                self.decline(&calls, "not run: the answer was refused").await?;
                self.output("refusal", &json!({ "text": self.last_text })).await;
                return Err(Ending::EndTurn);
            }
            Some("tool_use" | "end_turn" | "stop_sequence" | "pause_turn") => {}
            // A call that was cut is one whose input is broken, and its result says so.
            None | Some("max_tokens") if !calls.is_empty() => {}
            None => self.notice("the model did not say why it stopped").await,
            Some(reason) => self.notice(&format!("the answer was ended by {reason}")).await,
        }
        // Whatever the reason: a call that is whole is meant.
        if calls.is_empty() {
            return Err(Ending::EndTurn);
        }
        if let Err(ending) = self.within_limits() {
            self.decline(&calls, "not run: the run's limit was reached").await?;
            return Err(ending);
        }
        self.work(calls).await
    }

    /// Whether the model may be asked once more.
    fn within_limits(&self) -> Result<(), Ending> {
        if self.ledger.is_spent() {
            return Err(Ending::Budget);
        }
        if self.round >= self.bounds.max_rounds {
            return Err(Ending::MaxTurns);
        }
        Ok(())
    }

    /// Asks until there is an answer, or no hope of one.
    async fn ask(&mut self) -> Result<Answer, Ending> {
        self.trim(self.room()).await;
        let mut attempt = 0;
        let mut tried = Tried::default();
        let mut body = self.body();
        loop {
            attempt += 1;
            let mut answer = Answer::default();
            let heard = match self.scope {
                Scope::Main => Some(self.reports),
                // A coder's words are for the agent that it works for; its messages are enough.
                Scope::Coder { .. } => None,
            };
            let asked = tokio::select! {
                biased;
                () = self.interrupt.cancelled() => None,
                result = self.client.ask(body.clone(), &mut answer, heard) => Some(result),
            };
            // Also when it was cut: the provider counts what it has written.
            self.ledger.book(&self.setup.model, &answer.tokens);
            let failure = match asked {
                None => {
                    self.keep_so_far(&answer).await?;
                    return Err(Ending::Interrupted);
                }
                Some(Ok(())) => {
                    self.learn(answer.tokens.sent());
                    return Ok(answer);
                }
                Some(Err(failure)) => failure,
            };
            let verdict = failure.verdict(attempt, self.patience);
            let again = match self.another_way(verdict, &mut tried).await {
                Ok(again) => again,
                Err(ending) => {
                    // What was heard is in the log, so it is said or it is taken back.
                    if !self.keep_so_far(&answer).await? && answer.has_begun() {
                        self.retract().await;
                    }
                    return Err(ending);
                }
            };
            // Before the wait: an interrupt may end it, and what was heard does not count.
            self.retract().await;
            match again {
                Again::Otherwise => body = self.body(),
                Again::After(wait) => tokio::select! {
                    biased;
                    () = self.interrupt.cancelled() => return Err(Ending::Interrupted),
                    () = tokio::time::sleep(wait) => {}
                },
            }
        }
    }

    /// What to do about a failure: how to ask once more, or how it ends. Each cure is tried once;
    /// one that did not help will not help the second time.
    async fn another_way(&mut self, verdict: Verdict, tried: &mut Tried) -> Result<Again, Ending> {
        let failed = |message| Err(Ending::Failed { message });
        match verdict {
            Verdict::End(ending) => Err(ending),
            Verdict::Spent(message) => {
                self.output("quota", &json!({ "message": message })).await;
                Err(Ending::Quota)
            }
            Verdict::Reject(Rejection { message, at }) => {
                let left_out = !std::mem::replace(&mut tried.without, true)
                    && self.conversation.leave_out(at).map_err(|error| not_written(&error))?;
                if !left_out {
                    self.conversation.reject();
                    return failed(message);
                }
                self.notice(&format!("left out what the model did not take: {message}")).await;
                Ok(Again::Otherwise)
            }
            Verdict::Trim(Overflow { message, counted }) => {
                if std::mem::replace(&mut tried.shorter, true) || !self.trim_harder(counted).await {
                    return failed(message);
                }
                Ok(Again::Otherwise)
            }
            Verdict::Cap(message, most) => {
                if std::mem::replace(&mut tried.capped, true) {
                    return failed(message);
                }
                self.setup.output_limit = self.setup.output_limit.min(most);
                Ok(Again::Otherwise)
            }
            Verdict::Repeat(_) if self.ledger.is_spent() => Err(Ending::Budget),
            Verdict::Repeat(wait) => Ok(Again::After(wait)),
        }
    }

    async fn retract(&self) {
        let round = self.round;
        match self.scope {
            Scope::Main => self.reports.send(Event::Retry { round }).await,
            Scope::Coder { .. } => self.output("coder_retry", &json!({ "round": round })).await,
        }
    }

    fn body(&self) -> Bytes {
        let conversation = &self.conversation;
        self.setup.body(conversation.messages(), conversation.left_out()).into()
    }

    /// What was said until an interrupt or a failure is a message like any other, as far as it
    /// makes sense. Says whether it does.
    async fn keep_so_far(&mut self, answer: &Answer) -> Result<bool, Ending> {
        let blocks = answer.blocks_so_far();
        if blocks.iter().all(|block| block.kind == Kind::Thinking) {
            return Ok(false);
        }
        self.record(answer, blocks).await?;
        Ok(true)
    }

    /// Writes an answer down, then reports it.
    async fn record(&mut self, answer: &Answer, blocks: Vec<Block>) -> Result<(), Ending> {
        let body = {
            let message = answer.message(&blocks);
            match self.scope {
                Scope::Main => to_raw_value(&TypedMessage { r#type: "assistant", message }),
                Scope::Coder { .. } => to_raw_value(&message),
            }
        };
        let body = body.expect("text and raw JSON become JSON");
        self.push(Role::Assistant, blocks)?;
        match self.scope {
            Scope::Main => self.reports.send(Event::Message(body)).await,
            Scope::Coder { .. } => {
                self.output("coder_message", &CoderMessage { message: body }).await;
            }
        }
        Ok(())
    }

    pub(super) fn push(&mut self, role: Role, blocks: Vec<Block>) -> Result<(), Ending> {
        self.conversation.push(Message { role, blocks }).map_err(|error| not_written(&error))
    }

    /// Writes down and reports what is kept in mind, if that changed.
    pub(super) async fn remember(&mut self, memory: Memory) -> Result<(), Ending> {
        if memory == self.memory {
            return Ok(());
        }
        self.memory = memory;
        let remembered = Remembered::new(&self.scope, &self.memory);
        for conversation in self.parent.iter_mut().chain([&mut self.conversation]) {
            conversation.remember(remembered.clone()).map_err(|error| not_written(&error))?;
        }
        output(self.reports, "working_memory", &remembered).await;
        Ok(())
    }

    /// Leaves out what there is no room for, and says whether that was anything.
    async fn trim(&mut self, room: Room) -> bool {
        let Some(trimmed) = self.conversation.trim(room) else { return false };
        // The memory stands where the cache ends, so it is only renewed when the cache is lost
        // anyway. Until then the model has what it noted in the conversation itself.
        self.setup.memory = system::of_memory(&self.memory);
        let body = json!({
            "clearedResults": trimmed.cleared_results,
            "clearedBytes": trimmed.cleared_bytes,
            "droppedMessages": trimmed.dropped_messages,
            "shortenedBlocks": trimmed.shortened_blocks,
            "shortenedBytes": trimmed.shortened_bytes,
        });
        self.output("context_trimmed", &body).await;
        true
    }

    /// Leaves out more, for a model that takes less than was thought: as much as it counted too
    /// many, or else half.
    async fn trim_harder(&mut self, counted: Option<(u64, u64)>) -> bool {
        if let Some((sent, most)) = counted {
            self.learn(sent);
            self.bounds.context_tokens = self.bounds.context_tokens.min(most);
            if self.trim(self.room()).await {
                return true;
            }
        }
        self.trim(self.half()).await
    }

    /// How much the conversation may have: 80 % of what the model takes, less its answer and what
    /// is sent besides.
    fn room(&self) -> Room {
        let context = self.bounds.context_tokens;
        let answer = u64::from(self.setup.max_tokens());
        let tokens = (context / 5 * 4).saturating_sub(answer).max(context / 4);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an estimate; a cast of a float saturates"
        )]
        let tokens = (tokens as f64 / self.tokens_per_estimate) as u64;
        Room {
            tokens: tokens.saturating_sub(text_tokens(self.setup.bytes() as u64)),
            bytes: MAX_REQUEST_BYTES.saturating_sub(self.setup.bytes()),
        }
    }

    /// Half of what the conversation has.
    fn half(&self) -> Room {
        let messages = self.conversation.messages();
        Room {
            tokens: messages.iter().map(Message::tokens).sum::<u64>() / 2,
            bytes: messages.iter().map(Message::bytes).sum::<usize>() / 2,
        }
    }

    /// Corrects the estimate by what was counted.
    fn learn(&mut self, counted: u64) {
        let messages = self.conversation.messages().iter().map(Message::tokens).sum::<u64>();
        let estimate = messages + text_tokens(self.setup.bytes() as u64);
        // Small requests say little, and nothing at all was counted by a model that does not tell.
        if counted > 2_000 {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let ratio = counted as f64 / estimate as f64;
            self.tokens_per_estimate = ratio.clamp(0.5, 4.0);
        }
    }

    async fn notice(&self, message: &str) {
        self.output("notice", &json!({ "message": message })).await;
    }

    pub(super) async fn phase(&self, phase: Phase) {
        self.reports.send(Event::Phase { phase, round: self.round }).await;
    }

    /// Reports something; of a coder, with the call that it works for.
    pub(super) async fn output<T: Serialize>(&self, name: &str, body: &T) {
        match &self.scope {
            Scope::Main => output(self.reports, name, body).await,
            Scope::Coder { delegation } => {
                output(self.reports, name, &Delegated { delegation, body }).await;
            }
        }
    }
}

#[derive(Serialize)]
struct TypedMessage<T> {
    r#type: &'static str,
    message: T,
}

#[derive(Serialize)]
struct CoderMessage {
    message: Box<RawValue>,
}

#[derive(Serialize)]
struct Delegated<'a, T> {
    delegation: &'a str,
    #[serde(flatten)]
    body: &'a T,
}

/// Reports something.
pub(super) async fn output<T: Serialize>(reports: &Reports, name: &str, body: &T) {
    let body = to_raw_value(body).expect("text and raw JSON become JSON");
    reports.send(Event::Output { name: name.to_owned(), body }).await;
}

pub(super) fn not_written(error: &io::Error) -> Ending {
    let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
    let hint = if full.contains(&error.kind()) { "; remove files, and ask again" } else { "" };
    Ending::Failed { message: format!("could not write the conversation down: {error}{hint}") }
}
