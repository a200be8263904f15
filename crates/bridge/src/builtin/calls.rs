//! Runs the tools of one answer.
//!
//! Calls that change nothing run side by side, as long as they follow each other; all others run
//! alone and in order. However it ends, each call gets exactly one result: its own if it finished,
//! and otherwise one that says what is known.

use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::Poll;

use ash_protocol::{Ending, Event, Phase};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::agent::{Agent, not_written};
use super::delegate::{self, DELEGATE_CODER};
use super::memory::{Memory, Scope, UPDATE_MEMORY, complaint, shortened};
use super::message::{Block, Role};
use super::model::{Call, Input};
use super::permission::{self, Permitted};
use super::selection::Selection;
use super::tools::{Definition, Outcome, Toolbox};

/// How many calls run side by side.
const MAX_PARALLEL: usize = 8;

/// How much of a result is reported. The model gets all of it.
const MAX_REPORTED_BYTES: usize = 64 * 1024;

/// The most that a result may have; no tool of ours comes near it.
const MAX_RESULT_BYTES: usize = 8 * 1024 * 1024;

const INTERRUPTED: &str = "interrupted by the user; it may have partly taken effect";

/// The tools that there are for one loop.
pub(super) fn there_are(toolbox: &Toolbox, scope: &Scope) -> Vec<Definition> {
    let own = match scope {
        Scope::Main => vec![Memory::definition(), delegate::definition()],
        Scope::Coder { .. } => vec![Memory::definition()],
    };
    toolbox.definitions().into_iter().chain(own).collect()
}

/// The tools that a loop may use: what a call can be about.
pub(super) struct Offered(Vec<Definition>);

impl Offered {
    pub(super) fn new(toolbox: &Toolbox, scope: &Scope, selection: &Selection) -> Self {
        let all = there_are(toolbox, scope).into_iter();
        Self(all.filter(|tool| selection.offers(&tool.name)).collect())
    }

    /// As the model is told about them.
    pub(super) fn in_json(&self) -> Box<RawValue> {
        let all = self.0.iter().map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
            })
        });
        to_raw_value(&all.collect::<Vec<_>>()).expect("a list of values is JSON")
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.name == name)
    }

    fn missing(&self, name: &str) -> Outcome {
        let names: Vec<&str> = self.0.iter().map(|tool| tool.name.as_str()).collect();
        let there_are = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        Outcome::error(format!("not run: there is no tool {name:?}; there are: {there_are}"))
    }
}

/// How far a call has come.
#[derive(Default)]
struct Slot {
    started: Cell<bool>,
    outcome: OnceCell<Outcome>,
    reported: Cell<bool>,
    /// Whether what is to be remembered of it is.
    settled: Cell<bool>,
    /// Whether it waits for somebody to allow it.
    waits: Cell<bool>,
}

impl Agent<'_> {
    /// Runs the tools, and writes their results down.
    pub(super) async fn work(&mut self, calls: Vec<Call>) -> Result<(), Ending> {
        let slots: Vec<Slot> = calls.iter().map(|_| Slot::default()).collect();
        let mut memory = self.memory.clone();
        let ended = self.run_all(&calls, &slots, &mut memory).await;
        let (mut blocks, mut told) = (Vec::new(), Vec::new());
        for (call, slot) in calls.iter().zip(slots) {
            let started = slot.started.get();
            let outcome = slot.outcome.into_inner().unwrap_or_else(|| match &ended {
                _ if started && !slot.waits.get() => Outcome::error(INTERRUPTED),
                Some(Ending::Interrupted) => Outcome::error("not run: interrupted by the user"),
                _ => Outcome::error("not run: the run's limit was reached"),
            });
            if started && !slot.reported.get() {
                self.report_result(call, &outcome).await;
            }
            if started && !slot.settled.get() {
                take_in(&mut memory, call, &outcome);
            }
            told.push(told_of(call, &outcome));
            blocks.push(Block::result(&call.id, &outcome.content, outcome.is_error));
        }
        self.push(Role::User, blocks)?;
        self.report_results(told).await;
        self.remember(memory).await?;
        ended.map_or(Ok(()), Err)
    }

    /// Answers calls that are not run at all.
    pub(super) async fn decline(&mut self, calls: &[Call], why: &str) -> Result<(), Ending> {
        if calls.is_empty() {
            return Ok(());
        }
        let blocks = calls.iter().map(|call| Block::error_result(&call.id, why)).collect();
        self.push(Role::User, blocks)?;
        let outcome = Outcome::error(why);
        let told = calls.iter().map(|call| told_of(call, &outcome)).collect();
        self.report_results(told).await;
        Ok(())
    }

    async fn run_all(
        &mut self,
        calls: &[Call],
        slots: &[Slot],
        memory: &mut Memory,
    ) -> Option<Ending> {
        let mut shown = None;
        let mut at = 0;
        let mut noted = 0;
        loop {
            // Before the next one starts, and before the model hears of it: what it noted is kept.
            if let Err(ending) = self.settle(&calls[noted..at], &slots[noted..at], memory).await {
                return Some(ending);
            }
            let call = calls.get(at)?;
            // There is more to run: should the process be killed, what has finished is known.
            if let Err(error) = self.note(&calls[noted..at], &slots[noted..at]) {
                return Some(not_written(&error));
            }
            noted = at;
            if self.interrupt.is_cancelled() {
                return Some(Ending::Interrupted);
            }
            let has = |name| call.name == name && self.offered.has(name);
            let (delegates, updates) = (has(DELEGATE_CODER), has(UPDATE_MEMORY));
            let phase = if delegates { Phase::DelegatingCoder } else { Phase::ExecutingTools };
            // A coder's tools are part of the delegation.
            if self.scope == Scope::Main && shown.replace(phase) != Some(phase) {
                self.phase(phase).await;
            }
            if delegates {
                if let Some(ending) = self.run_delegation(call, &slots[at]).await {
                    return Some(ending);
                }
                at += 1;
                continue;
            }
            if updates {
                self.run_update(call, &slots[at], memory).await;
                at += 1;
                continue;
            }
            let together = self.together(&calls[at..]);
            let group = calls[at..].iter().zip(&slots[at..]).take(together);
            self.ledger.book_calls(together as u64);
            let this = &*self;
            let running = all(group.map(|(call, slot)| this.run_one(call, slot)));
            tokio::select! {
                biased;
                () = this.interrupt.cancelled() => return Some(Ending::Interrupted),
                () = running => {}
            }
            at += together;
        }
    }

    /// Remembers what finished calls have taught.
    async fn settle(
        &mut self,
        calls: &[Call],
        slots: &[Slot],
        memory: &mut Memory,
    ) -> Result<(), Ending> {
        for (call, slot) in calls.iter().zip(slots) {
            if let Some(outcome) = slot.outcome.get() {
                take_in(memory, call, outcome);
                slot.settled.set(true);
            }
        }
        self.remember(memory.clone()).await
    }

    fn note(&mut self, calls: &[Call], slots: &[Slot]) -> io::Result<()> {
        for (call, slot) in calls.iter().zip(slots) {
            if let Some(Outcome { content, is_error, .. }) = slot.outcome.get() {
                self.conversation.note_result(Block::result(&call.id, content, *is_error))?;
            }
        }
        Ok(())
    }

    /// How many of these calls may run side by side.
    fn together(&self, calls: &[Call]) -> usize {
        let reads = calls.iter().take_while(|call| self.toolbox.is_read_only(&call.name));
        reads.count().clamp(1, MAX_PARALLEL)
    }

    async fn run_one(&self, call: &Call, slot: &Slot) {
        self.report_use(call, slot).await;
        let outcome = match &call.input {
            _ if !self.offered.has(&call.name) => self.offered.missing(&call.name),
            Input::Whole(input) => {
                slot.waits.set(true);
                let permitted = self.permitted(&call.name, input).await;
                slot.waits.set(false);
                match permitted {
                    Permitted::AsAsked => self.toolbox.call(&call.name, input).await,
                    Permitted::With(input) => {
                        let outcome = self.toolbox.call(&call.name, &input).await;
                        permission::with_note(outcome, &input)
                    }
                    Permitted::No(outcome) => outcome,
                }
            }
            Input::Broken(text) => broken(text),
        };
        self.finish(call, slot, outcome).await;
    }

    async fn run_update(&mut self, call: &Call, slot: &Slot, memory: &mut Memory) {
        self.ledger.book_calls(1);
        self.report_use(call, slot).await;
        let updated = match &call.input {
            Input::Whole(input) => memory.update(input.get()).map_err(Outcome::error),
            Input::Broken(text) => Err(broken(text)),
        };
        let outcome = match updated {
            Ok(()) => Outcome::text("noted"),
            Err(outcome) => outcome,
        };
        self.finish(call, slot, outcome).await;
    }

    async fn run_delegation(&mut self, call: &Call, slot: &Slot) -> Option<Ending> {
        self.ledger.book_calls(1);
        self.report_use(call, slot).await;
        let (outcome, ending) = match &call.input {
            // Boxed: a loop within a loop has no size otherwise.
            Input::Whole(input) => Box::pin(self.delegate(&call.id, input)).await,
            Input::Broken(text) => (broken(text), None),
        };
        self.finish(call, slot, outcome).await;
        ending
    }

    async fn report_use(&self, call: &Call, slot: &Slot) {
        #[derive(Serialize)]
        struct ToolUse<'a> {
            id: &'a str,
            name: &'a str,
            input: Box<RawValue>,
        }
        let input = match &call.input {
            Input::Whole(input) => input.clone(),
            Input::Broken(text) => to_raw_value(text).expect("text is JSON"),
        };
        slot.started.set(true);
        self.output("tool_use", &ToolUse { id: &call.id, name: &call.name, input }).await;
    }

    async fn finish(&self, call: &Call, slot: &Slot, outcome: Outcome) {
        let bytes = size(&outcome.content);
        let outcome = if bytes > MAX_RESULT_BYTES {
            let text = format!("the result was thrown away: it has {bytes} bytes");
            Outcome { touched: outcome.touched, ..Outcome::error(text) }
        } else {
            outcome
        };
        // Known before it is reported: an interrupt that comes in between must not lose it.
        let outcome = slot.outcome.get_or_init(|| outcome);
        self.report_result(call, outcome).await;
        slot.reported.set(true);
    }

    async fn report_result(&self, call: &Call, outcome: &Outcome) {
        self.output("tool_result", &told_of(call, outcome)).await;
    }

    /// The results of an answer as one message, as clients of the original know it. A coder's are for nobody else.
    async fn report_results(&self, results: Vec<Value>) {
        if self.scope != Scope::Main || results.is_empty() {
            return;
        }
        let mut content = results;
        content.iter_mut().for_each(|result| result["type"] = "tool_result".into());
        let message = json!({ "role": "user", "content": content });
        let body = to_raw_value(&json!({ "type": "user", "message": message }));
        self.reports.send(Event::Message(body.expect("a value is JSON"))).await;
    }
}

/// What is told of a result: not all of it, if it is long.
fn told_of(call: &Call, outcome: &Outcome) -> Value {
    let bytes = size(&outcome.content);
    let mut body = json!({ "tool_use_id": call.id, "is_error": outcome.is_error });
    if bytes > MAX_REPORTED_BYTES {
        let texts = outcome.content.iter().filter_map(|block| block["text"].as_str());
        let mut text = texts.collect::<Vec<_>>().join("\n");
        text.truncate(text.floor_char_boundary(MAX_REPORTED_BYTES));
        text.push_str(&format!("\n[cut: the result has {bytes} bytes]"));
        body["content"] = json!([{ "type": "text", "text": text }]);
        body["truncated"] = true.into();
    } else {
        body["content"] = json!(outcome.content);
    }
    body
}

fn take_in(memory: &mut Memory, call: &Call, outcome: &Outcome) {
    outcome.touched.iter().for_each(|file| memory.touch(file));
    if outcome.is_error {
        memory.err(&call.name, &complaint(&outcome.content));
    }
}

fn broken(text: &str) -> Outcome {
    let text = shortened(text, 200);
    Outcome::error(format!(
        "not run: the input is not a JSON object, or the answer was cut before its end; it begins \
         with: {text:?}"
    ))
}

fn size(content: &[Value]) -> usize {
    content.iter().map(|block| block.to_string().len()).sum()
}

/// Waits for all of a few futures. Each is polled whenever one is ready, which is nothing for so
/// few.
async fn all<'a, F: Future<Output = ()> + 'a>(futures: impl Iterator<Item = F>) {
    let mut running: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    poll_fn(|cx| {
        running.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
