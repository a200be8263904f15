//! The events of a stream, in the order and shape of the real API.
//!
//! They are made one at a time, so that a flood or a text without end takes no memory.

use bytes::Bytes;
use serde_json::{Value, json};

use super::render::{Pieces, Rendered, Reply, UNKNOWN_BLOCK, signature};

/// How many characters of a tool's input come in one delta.
const INPUT_PIECE_CHARS: usize = 12;

/// One event of a stream.
pub(crate) struct Frame {
    pub(crate) place: Place,
    pub(crate) bytes: Bytes,
}

/// Where in the stream an event stands, as far as faults care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Delta,
    /// The first event after the last block: content is complete, the message is not.
    End,
    Other,
}

type Frames = Box<dyn Iterator<Item = Frame> + Send>;

/// All events of a reply.
pub(crate) fn frames(reply: Reply) -> Frames {
    let start = [
        event(Place::Other, "message_start", json!({ "message": reply.head() })),
        event(Place::Other, "ping", json!({})),
    ];
    let end = [
        event(
            Place::End,
            "message_delta",
            json!({
                "delta": { "stop_reason": reply.stop.word(), "stop_sequence": null },
                "usage": reply.usage.json(),
            }),
        ),
        event(Place::Other, "message_stop", json!({})),
    ];
    let blocks = reply.blocks.into_iter().enumerate().flat_map(|(index, of)| block(index, of));
    Box::new(start.into_iter().chain(blocks).chain(end))
}

/// An `error` event.
pub(crate) fn error_event(kind: &str) -> Bytes {
    let error = json!({ "type": kind, "message": format!("scripted {kind}") });
    event(Place::Other, "error", json!({ "error": error })).bytes
}

fn block(index: usize, block: Rendered) -> Frames {
    match block {
        Rendered::Text(pieces) => around(
            index,
            json!({ "type": "text", "text": "" }),
            texts(pieces)
                .map(move |text| delta(index, json!({ "type": "text_delta", "text": text }))),
        ),
        Rendered::Thinking(thought) => {
            let signed = json!({ "type": "signature_delta", "signature": signature(&thought) });
            let thoughts = words(thought).map(move |piece| {
                delta(index, json!({ "type": "thinking_delta", "thinking": piece }))
            });
            around(
                index,
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                thoughts.chain([delta(index, signed)]),
            )
        }
        Rendered::ToolUse { id, name, input } => around(
            index,
            json!({ "type": "tool_use", "id": id, "name": name, "input": {} }),
            std::iter::once(String::new()).chain(parts(input)).map(move |json| {
                delta(index, json!({ "type": "input_json_delta", "partial_json": json }))
            }),
        ),
        Rendered::Unknown => Box::new(
            std::iter::once(event(Place::Other, "scripted_event", json!({ "payload": "skip me" })))
                .chain(around(
                    index,
                    json!({ "type": UNKNOWN_BLOCK, "payload": "" }),
                    std::iter::once(delta(
                        index,
                        json!({ "type": "scripted_delta", "payload": "skip me" }),
                    )),
                )),
        ),
    }
}

fn around(
    index: usize,
    empty: Value,
    deltas: impl Iterator<Item = Frame> + Send + 'static,
) -> Frames {
    let start = json!({ "index": index, "content_block": empty });
    let stop = json!({ "index": index });
    Box::new(
        std::iter::once(event(Place::Other, "content_block_start", start))
            .chain(deltas)
            .chain(std::iter::once(event(Place::Other, "content_block_stop", stop))),
    )
}

fn delta(index: usize, delta: Value) -> Frame {
    event(Place::Delta, "content_block_delta", json!({ "index": index, "delta": delta }))
}

/// An event whose data has its type first: people read streams, and some clients are lazy.
fn event(place: Place, name: &str, data: Value) -> Frame {
    let data = data.to_string();
    let comma = if data == "{}" { "" } else { "," };
    let rest = &data[1..];
    let text = format!("event: {name}\ndata: {{\"type\":\"{name}\"{comma}{rest}\n\n");
    Frame { place, bytes: Bytes::from(text) }
}

fn texts(pieces: Pieces) -> Box<dyn Iterator<Item = String> + Send> {
    match pieces {
        Pieces::Words(text) => Box::new(words(text)),
        Pieces::Same { piece, times: None } => Box::new(std::iter::repeat(piece)),
        Pieces::Same { piece, times: Some(times) } => {
            Box::new((0..times).map(move |_| piece.clone()))
        }
    }
}

fn words(text: String) -> impl Iterator<Item = String> + Send {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let piece = rest.split_inclusive(char::is_whitespace).next()?.to_owned();
        at += piece.len();
        Some(piece)
    })
}

fn parts(text: String) -> impl Iterator<Item = String> + Send {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let end = rest.char_indices().nth(INPUT_PIECE_CHARS).map_or(rest.len(), |(end, _)| end);
        at += end;
        (end > 0).then(|| rest[..end].to_owned())
    })
}
