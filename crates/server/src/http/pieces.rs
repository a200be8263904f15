//! Answers piece by piece, as the model's API tells them: for clients of the original that asked for
//! `includePartialMessages` and read `stream_event` messages instead of `text_delta`.
//!
//! They are made from what is logged and are not in the log themselves, so they have no id: whoever comes back to a
//! stream goes on with `text_delta`, which says the same.

use ash_core::entry::Entry;
use ash_core::id::SessionId;
use serde_json::{Value, json};

use super::view::Frame;

/// What kind of block is being told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
}

/// How far the telling of an answer is.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// The block that is open, and its place in the answer.
    open: Option<(Kind, u32)>,
    /// How many blocks the answer has had; nothing, if none was begun.
    blocks: Option<u32>,
}

impl Pieces {
    /// What is told after the frame of an entry: the piece that it is.
    pub(super) fn after(&mut self, session: SessionId, entry: &Entry) -> Vec<Frame> {
        if matches!(entry, Entry::RunRetry { .. } | Entry::Message { .. }) {
            // What was told is not an answer any more, or a whole one: the next piece begins another.
            *self = Self::default();
        }
        let (Some((kind, delta)), Some((_, index))) = (piece_of(entry), self.open) else {
            return Vec::new();
        };
        let delta = match kind {
            Kind::Text => json!({ "type": "text_delta", "text": delta }),
            Kind::Thinking => json!({ "type": "thinking_delta", "thinking": delta }),
        };
        let piece = json!({ "type": "content_block_delta", "index": index, "delta": delta });
        frames(session, entry, &[piece])
    }

    /// What is told before the frame of an entry: what a piece begins, and what a whole answer ends.
    pub(super) fn before(&mut self, session: SessionId, entry: &Entry) -> Vec<Frame> {
        let events = match (piece_of(entry), entry) {
            (Some((kind, _)), _) => self.begin(kind),
            (None, Entry::Message { body, .. }) if self.blocks.is_some() => {
                let mut events = self.close();
                events.push(end_of(body.get()));
                events.push(json!({ "type": "message_stop" }));
                events
            }
            (None, _) => Vec::new(),
        };
        frames(session, entry, &events)
    }

    fn begin(&mut self, kind: Kind) -> Vec<Value> {
        let mut events = Vec::new();
        if self.blocks.is_none() {
            let message = json!({ "type": "message", "role": "assistant", "content": [] });
            events.push(json!({ "type": "message_start", "message": message }));
            self.blocks = Some(0);
        }
        if self.open.is_none_or(|(open, _)| open != kind) {
            events.extend(self.close());
            let index = self.blocks.unwrap_or_default();
            let block = match kind {
                Kind::Text => json!({ "type": "text", "text": "" }),
                Kind::Thinking => json!({ "type": "thinking", "thinking": "" }),
            };
            events.push(json!({
                "type": "content_block_start", "index": index, "content_block": block,
            }));
            self.open = Some((kind, index));
            self.blocks = Some(index + 1);
        }
        events
    }

    fn close(&mut self) -> Vec<Value> {
        let closed = self.open.take();
        closed
            .map(|(_, index)| json!({ "type": "content_block_stop", "index": index }))
            .into_iter()
            .collect()
    }
}

/// The piece of an answer that an entry is.
fn piece_of(entry: &Entry) -> Option<(Kind, &str)> {
    if let Entry::TextDelta { delta, .. } = entry {
        return Some((Kind::Text, delta));
    }
    let Entry::ThinkingDelta { delta, .. } = entry else { return None };
    Some((Kind::Thinking, delta))
}

/// Why a whole answer ended, and what it took, as it says itself.
fn end_of(answer: &str) -> Value {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    let message = &answer["message"];
    let mut end =
        json!({ "type": "message_delta", "delta": { "stop_reason": message["stop_reason"] } });
    if message["usage"].is_object() {
        end["usage"] = message["usage"].clone();
    }
    end
}

fn frames(session: SessionId, entry: &Entry, events: &[Value]) -> Vec<Frame> {
    let Some(run) = entry.run() else { return Vec::new() };
    events.iter().map(|event| Frame::stream_event(session, run, event)).collect()
}

#[cfg(test)]
mod test {
    use ash_core::id::RunId;
    use ash_core::json::Json;
    use ash_core::number::Seq;
    use ash_core::time::Timestamp;

    use super::*;

    fn run() -> RunId {
        RunId::from_parts(Timestamp::from_millis(0), [7; 10])
    }

    fn text(delta: &str) -> Entry {
        Entry::TextDelta { run: run(), delta: delta.to_owned() }
    }

    fn thinking(delta: &str) -> Entry {
        Entry::ThinkingDelta { run: run(), delta: delta.to_owned() }
    }

    fn answer() -> Entry {
        Entry::Message { run: run(), body: Json::of(&json!({ "type": "assistant" })).unwrap() }
    }

    #[test]
    fn the_end_says_why_and_what_it_took() {
        let usage = json!({ "input_tokens": 3, "output_tokens": 5 });
        let message = json!({ "stop_reason": "tool_use", "usage": usage });
        let end = end_of(&json!({ "type": "assistant", "message": message }).to_string());
        assert_eq!((&end["delta"]["stop_reason"], &end["usage"]), (&json!("tool_use"), &usage));
        let end = end_of("{}");
        assert!(end["delta"]["stop_reason"].is_null() && end["usage"].is_null());
    }

    #[test]
    fn what_a_piece_begins_is_told_before_it() {
        let session = SessionId::from_parts(Timestamp::from_millis(0), [1; 10]);
        let mut pieces = Pieces::default();
        assert_eq!(pieces.before(session, &text("a")).len(), 2);
        assert_eq!(pieces.after(session, &text("a")).len(), 1);
        assert_eq!(pieces.before(session, &text("b")).len(), 0);
        assert_eq!(pieces.after(session, &text("b")).len(), 1);
    }

    fn told(entries: &[Entry]) -> Vec<String> {
        let session = SessionId::from_parts(Timestamp::from_millis(0), [1; 10]);
        let mut pieces = Pieces::default();
        let mut told = Vec::new();
        for entry in entries {
            let mut frames = pieces.before(session, entry);
            frames.extend(pieces.after(session, entry));
            for frame in frames {
                assert!(frame.id.is_none() && frame.event == "message");
                let data: Value = serde_json::from_str(&frame.data).unwrap();
                assert_eq!(data["type"], "stream_event");
                let event = &data["event"];
                let place = event["index"].as_u64().map(|at| format!(" {at}")).unwrap_or_default();
                let said =
                    ["text", "thinking"].iter().find_map(|name| event["delta"][*name].as_str());
                let said = said.map(|said| format!(" {said}")).unwrap_or_default();
                told.push(format!("{}{place}{said}", event["type"].as_str().unwrap()));
            }
        }
        told
    }

    #[test]
    fn pieces_are_told_as_the_model_tells_them() {
        let story = [thinking("hm"), text("a"), text("b"), answer(), text("c"), answer()];
        assert_eq!(
            told(&story),
            [
                "message_start",
                "content_block_start 0",
                "content_block_delta 0 hm",
                "content_block_stop 0",
                "content_block_start 1",
                "content_block_delta 1 a",
                "content_block_delta 1 b",
                "content_block_stop 1",
                "message_delta",
                "message_stop",
                "message_start",
                "content_block_start 0",
                "content_block_delta 0 c",
                "content_block_stop 0",
                "message_delta",
                "message_stop",
            ]
        );
    }

    #[test]
    fn an_answer_that_is_begun_again_is_begun_again() {
        let retry = Entry::RunRetry { run: run(), round: 1, discard_after_seq: Seq::new(3) };
        let told = told(&[text("half"), retry, text("whole"), answer()]);
        assert_eq!(told[3..5], ["message_start", "content_block_start 0"]);
        assert_eq!(told.iter().filter(|one| *one == "message_stop").count(), 1);
    }

    #[test]
    fn an_answer_without_pieces_is_told_whole() {
        assert!(told(&[answer()]).is_empty());
    }
}
