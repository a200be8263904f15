//! One exchange with the program: what it is told, what it says, and what is done about that.

use std::path::Path;
use std::time::Duration;

use ash_protocol::{Ending, Event};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::asking::{Asking, denied};
use super::setup::Which;
use super::turn::{TOOL_RESULT, TOOL_USE, Turn, Wish};
use super::{Claude, NOBODY};
use crate::questions::pass;
use crate::reports::Reports;

/// What a mirror of the transcript is called in the log. It is for the server, which makes a record from it that
/// was lost.
const MIRROR: &str = "transcript_mirror";

/// How large a piece of a mirror may be: a report has a bound.
const MAX_MIRROR_BYTES: usize = 4 * 1024 * 1024;

/// How long the program may take to obey an interrupt, before it is ended. With what its last lines may take it is less than
/// the server waits before it gives the whole sandbox up.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(4);

/// How long to wait before an interrupt is repeated: one that comes while the program takes the message is passed over.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(250);

/// How long the last lines of a run may take to be mirrored, and to be in the program's own file.
const MIRROR_PATIENCE: Duration = Duration::from_secs(5);
const FILE_PATIENCE: Duration = Duration::from_millis(500);

/// How long to wait between two looks at that file.
const LOOK: Duration = Duration::from_millis(10);

impl Claude {
    /// Says something to the program and hears what it has to say, until it is at rest. An error is why it is gone.
    pub(super) async fn listen(
        &mut self,
        turn: &mut Turn,
        said: &Value,
        run: &str,
        reports: &Reports,
        interrupt: &CancellationToken,
    ) -> Result<Ending, String> {
        let mut asking = Asking::default();
        if let Some((program, _)) = &self.program {
            program.say(said).await;
        }
        let mut interrupted = None;
        // Both begin to count when they are first asked.
        let mut patience = Box::pin(pass(INTERRUPT_PATIENCE));
        let mut again = Box::pin(pass(INTERRUPT_AGAIN));
        let ended = loop {
            let Some((program, _)) = &mut self.program else {
                break Err("Claude Code is gone".to_owned());
            };
            let heard = tokio::select! {
                biased;
                () = interrupt.cancelled(), if interrupted.is_none() => {
                    program.ask(json!({ "subtype": "interrupt" })).await;
                    let was_done = turn.is_done();
                    interrupted = Some(Interrupted { was_done });
                    continue;
                }
                Some((request, answer)) = asking.next() => {
                    self.answer(&request, &answer);
                    continue;
                }
                () = &mut patience, if interrupted.is_some() => {
                    program.kill().await;
                    self.program = None;
                    break Ok(Ending::Interrupted);
                }
                () = &mut again, if interrupted.is_some() => {
                    program.ask(json!({ "subtype": "interrupt" })).await;
                    again = Box::pin(pass(INTERRUPT_AGAIN));
                    continue;
                }
                heard = program.next() => heard,
            };
            let Some(heard) = heard else {
                let end = program.end().await;
                self.program = None;
                if !turn.is_done() {
                    break Err(format!("{end}, in the middle of a turn"));
                }
                if let Some(lack) = turn.lack() {
                    break Err(format!("{end}, {lack}"));
                }
                // It only had to come to rest: nothing is lost, and the next message starts it again.
                self.notices.push(format!("{end}, after its last word"));
                break Ok(ending_of(turn, interrupted));
            };
            for wish in turn.take(heard) {
                self.grant(wish, run, reports, Some((&mut asking, interrupt))).await;
            }
            if turn.is_over() {
                break Ok(ending_of(turn, interrupted));
            }
        };
        for request in asking.end().await {
            self.answer(&request, &denied(NOBODY));
        }
        if ended.is_ok() {
            turn.is_unwritten = !self.settle(turn, run, reports).await;
        }
        ended
    }

    /// Waits until what was said last is mirrored, and in the program's own file. Says whether it is in one of them.
    async fn settle(&mut self, turn: &mut Turn, run: &str, reports: &Reports) -> bool {
        let mut patience = Box::pin(pass(MIRROR_PATIENCE));
        while !turn.is_mirrored() {
            let Some((program, _)) = &mut self.program else { return true };
            let heard = tokio::select! {
                heard = program.next() => heard,
                () = &mut patience => None,
            };
            let Some(heard) = heard else {
                self.notices.push("what was said last is not in the transcript yet".to_owned());
                let transcript = self.transcript();
                return turn.last_said().is_none_or(|last| transcript.holds(last));
            };
            for wish in turn.take(heard) {
                self.grant(wish, run, reports, None).await;
            }
        }
        let (Some(last), true) = (turn.last_said(), self.program.is_some()) else { return true };
        let transcript = self.transcript();
        let arrived = async {
            // What cannot be read now is made anew when it is needed.
            while transcript.ends_with(last).is_ok_and(|ends| !ends) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _late = tokio::time::timeout(FILE_PATIENCE, arrived).await;
        true
    }

    /// Does what is to be done. Somebody is asked as long as the run goes on.
    async fn grant(
        &mut self,
        wish: Wish,
        run: &str,
        reports: &Reports,
        asking: Option<(&mut Asking, &CancellationToken)>,
    ) {
        match wish {
            Wish::Report(event) => {
                self.write_down_calls(run, &event);
                reports.send(event).await;
            }
            Wish::Mirror { file, entries } => {
                for event in self.write_down(run, &file, &entries) {
                    reports.send(event).await;
                }
            }
            Wish::Ask(question) => {
                let at_once = question.without_asking(self.mode());
                match (at_once, asking) {
                    (Some(answer), _) => self.answer(&question.request, &answer),
                    (None, None) => self.answer(&question.request, &denied(NOBODY)),
                    (None, Some((asking, interrupt))) => {
                        asking.begin(&self.settings.questions, question, reports, interrupt);
                    }
                }
            }
            Wish::Withdraw { request } => {
                asking.into_iter().for_each(|(asking, _)| asking.withdraw(&request));
            }
            Wish::Refuse { request, subtype } => self.refuse(&request, &subtype),
            Wish::Notice(message) => self.notices.push(message),
        }
    }

    /// Writes down which tools are called, before anybody hears of it, and which of them have a result.
    fn write_down_calls(&mut self, run: &str, event: &Event) {
        #[derive(Deserialize)]
        struct Called<'a> {
            id: String,
            name: String,
            #[serde(borrow)]
            input: &'a RawValue,
        }
        #[derive(Deserialize)]
        struct Result {
            tool_use_id: String,
        }
        let Event::Output { name, body } = event else { return };
        let written = match name.as_str() {
            TOOL_USE => match serde_json::from_str(body.get()) {
                Ok(Called { id, name, input }) => self.record.call(run, &id, &name, input.get()),
                Err(_) => return,
            },
            TOOL_RESULT => match serde_json::from_str(body.get()) {
                Ok(Result { tool_use_id }) => self.record.answered(run, &tool_use_id),
                Err(_) => return,
            },
            _ => return,
        };
        if let Err(error) = written {
            self.notices.push(format!("a call could not be written down: {error}"));
        }
    }

    /// Writes down what the program has written down of this conversation. What its agents say among themselves
    /// is theirs.
    pub(super) fn write_down(
        &mut self,
        run: &str,
        file: &str,
        entries: &[Box<RawValue>],
    ) -> Vec<Event> {
        let Some(name) = conversation_of(file) else { return Vec::new() };
        if name != self.which.name() {
            // It was told to forget, and goes on under another name.
            let notice = "Claude Code has begun another conversation";
            if !self.notices.iter().any(|said| said == notice) {
                self.notices.push(notice.to_owned());
            }
        }
        if let Err(error) = self.record.mirror(run, &name, entries) {
            self.notices.push(format!("the conversation could not be written down: {error}"));
        }
        let pieces = pieces(&name, entries).into_iter();
        self.which = Which::Known(name);
        pieces.map(|body| Event::Output { name: MIRROR.to_owned(), body }).collect()
    }

    /// Which mode the program is in, as far as it was told.
    pub(super) fn mode(&self) -> &str {
        self.program.as_ref().map_or("", |(_, running)| running.mode.as_str())
    }

    /// Answers a question of the program.
    pub(super) fn answer(&self, request: &str, response: &Value) {
        let response = json!({ "subtype": "success", "request_id": request, "response": response });
        self.say_now(&json!({ "type": "control_response", "response": response }));
    }

    pub(super) fn refuse(&self, request: &str, subtype: &str) {
        let error = format!("{subtype} is not done here");
        let response = json!({ "subtype": "error", "request_id": request, "error": error });
        self.say_now(&json!({ "type": "control_response", "response": response }));
    }

    fn say_now(&self, message: &Value) {
        if let Some((program, _)) = &self.program {
            program.say_now(message);
        }
    }
}

/// That a run was to end.
#[derive(Clone, Copy)]
struct Interrupted {
    /// Whether the program had said the end of its answer by then.
    was_done: bool,
}

fn ending_of(turn: &Turn, interrupted: Option<Interrupted>) -> Ending {
    match (&turn.result, interrupted) {
        // It was done before that reached it.
        (Some(outcome), Some(Interrupted { was_done: false })) if !outcome.is_cut() => {
            outcome.ending()
        }
        (_, Some(_)) => Ending::Interrupted,
        (Some(outcome), None) => outcome.ending(),
        (None, None) => Ending::EndTurn,
    }
}

/// What the conversation is called that a file is the transcript of; nothing, if it is that of an agent's agent.
fn conversation_of(file: &str) -> Option<String> {
    let path = Path::new(file);
    let is_of_another = path.components().any(|part| part.as_os_str() == "subagents");
    let name = path.file_stem()?.to_str()?;
    (!is_of_another && name.len() == 36).then(|| name.to_owned())
}

/// A mirror in pieces that the log takes: each a body of an output.
fn pieces(conversation: &str, entries: &[Box<RawValue>]) -> Vec<Box<RawValue>> {
    let mut pieces = Vec::new();
    let name = json!(conversation);
    let mut piece = String::new();
    let mut close = |piece: &mut String| {
        if !piece.is_empty() {
            let body = format!(r#"{{"claude":{name},"entries":[{piece}]}}"#);
            pieces.extend(RawValue::from_string(body).ok());
            piece.clear();
        }
    };
    for entry in entries {
        if piece.len() + entry.get().len() > MAX_MIRROR_BYTES {
            close(&mut piece);
        }
        if !piece.is_empty() {
            piece.push(',');
        }
        piece.push_str(entry.get());
    }
    close(&mut piece);
    pieces
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_mirror_is_told_in_pieces_that_the_log_takes() {
        let entry = RawValue::from_string(format!("\"{}\"", "x".repeat(3 * 1024 * 1024))).unwrap();
        let entries = [entry.clone(), entry.clone(), entry];
        let pieces = pieces("c", &entries);
        assert_eq!(pieces.len(), 3);
        let read: Vec<Value> =
            pieces.iter().map(|piece| serde_json::from_str(piece.get()).unwrap()).collect();
        assert!(
            read.iter()
                .all(|piece| piece["claude"] == "c"
                    && piece["entries"].as_array().unwrap().len() == 1)
        );
    }
}
