//! What Claude Code has written down, in the lines of its adapter's record: what a turn without an end leaves is told
//! as that leaves it, so that the agent is told of it.

use std::fmt::Display;

use ash_core::run::{Completion, Outcome};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Retelling, Telling, one_line};

/// How much is told of what a tool was called with: as much as is written down when it is.
const MAX_CALL_BYTES: usize = 1_000;

impl Retelling {
    /// What Claude Code has written down itself.
    pub(super) fn mirror(&mut self, run: &dyn Display, body: &str) {
        #[derive(Deserialize)]
        struct Mirror<'a> {
            claude: String,
            #[serde(borrow)]
            entries: Vec<&'a RawValue>,
        }
        let Ok(Mirror { claude, entries }) = serde_json::from_str(body) else { return };
        let name = json!(claude);
        for entry in entries {
            if let (Some(telling), Some(uuid)) = (&mut self.telling, uuid_in(entry)) {
                telling.is_seen |= uuid == telling.run.to_string();
            }
            let entry = one_line(entry.get());
            let what = format!(r#""turn":{},"claude":{name},"mirror":{entry}"#, self.turn);
            self.line(run, &what);
            self.has_told = true;
        }
    }

    pub(super) fn cut(&mut self, run: &dyn Display, body: &str) {
        #[derive(Deserialize)]
        struct Cut {
            uuid: String,
        }
        if let Ok(Cut { uuid }) = serde_json::from_str(body) {
            self.line(run, &format!(r#""cut":{}"#, json!(uuid)));
            if let Some(telling) = &mut self.telling {
                telling.is_refused |= uuid == telling.run.to_string();
            }
        }
    }

    /// A tool that was called. If its turn has no end, the agent has to know of it.
    pub(super) fn call(&mut self, run: &dyn Display, body: &str) {
        #[derive(Deserialize)]
        struct Call<'a> {
            id: String,
            name: String,
            #[serde(borrow)]
            input: &'a RawValue,
        }
        if let Ok(Call { id, name, input }) = serde_json::from_str(body) {
            let mut what = format!("{name} {input}");
            what.truncate(what.floor_char_boundary(MAX_CALL_BYTES));
            self.line(run, &format!(r#""call":{{"id":{},"what":{}}}"#, json!(id), json!(what)));
        }
    }

    pub(super) fn answered(&mut self, run: &dyn Display, body: &str) {
        #[derive(Deserialize)]
        struct Result {
            tool_use_id: String,
        }
        if let Ok(result) = serde_json::from_str::<Result>(body) {
            self.line(run, &format!(r#""answered":{}"#, json!(result.tool_use_id)));
        }
    }

    /// A turn without an end is one that the agent is told of with the next one.
    pub(super) fn finish_of_claude(&mut self, telling: &Telling, outcome: &Outcome) {
        let how = match outcome {
            Outcome::Completed(Completion::EndTurn) => "end_turn",
            Outcome::Completed(Completion::MaxTurns) => "max_turns",
            Outcome::Completed(Completion::Budget) => "budget",
            Outcome::Completed(Completion::Quota) => "quota",
            Outcome::Cancelled if telling.is_seen => "interrupted",
            Outcome::Failed(_) if telling.is_refused => "refused",
            // Also one that a person ended before the program had seen it.
            Outcome::Cancelled | Outcome::Failed(_) | Outcome::Interrupted(_) => return,
        };
        let unseen = if telling.is_refused { r#","unseen":true"# } else { "" };
        let what = format!(r#""turn_end":{},"how":"{how}"{unseen}"#, self.turn);
        self.line(&telling.run, &what);
    }
}

/// What a line of a transcript is called.
fn uuid_in(entry: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        uuid: Option<String>,
    }
    serde_json::from_str::<Named>(entry.get()).ok()?.uuid
}
