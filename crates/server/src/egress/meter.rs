//! Reads from an answer of the model what it consumed, while the answer passes by.
//!
//! Nothing is held back or changed: a chunk is looked at and handed on. What has to be remembered
//! between two chunks has a bound; what is longer is not read, and is estimated.

use ash_protocol::Usage;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use serde::Deserialize;

/// The longest line of an event that is read: those that say what was consumed are short.
const MAX_LINE: usize = 64 * 1024;

/// The largest answer that is read as a whole.
const MAX_DOCUMENT: usize = 8 * 1024 * 1024;

/// How many bytes are a token, about, where nobody says how many tokens there were.
const BYTES_OF_A_TOKEN: u64 = 4;

/// What an event has beside the text that it carries, about.
const BYTES_AROUND_A_DELTA: u64 = 90;

/// What an answer has consumed as far as it was seen.
#[derive(Debug)]
pub(super) struct Meter {
    form: Form,
    /// As the answer said.
    model: Option<String>,
    /// As the answer said, at its largest.
    told: Usage,
    /// Whether what the model has written was told in the end.
    is_settled: bool,
    /// How large the question was.
    asked: u64,
    /// How many bytes were answered.
    seen: u64,
}

#[derive(Debug)]
enum Form {
    Events(Events),
    Document(Vec<Bytes>),
    /// Nothing that can be read.
    Opaque,
}

#[derive(Debug, Default)]
struct Events {
    /// The beginning of a line.
    line: Vec<u8>,
    /// The rest of this line is not read.
    skipping: bool,
    event: Event,
    /// How many pieces of text there were, and how many bytes they had together.
    deltas: u64,
    delta_bytes: u64,
}

/// What the event is that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Event {
    #[default]
    Unknown,
    Start,
    Delta,
    Text,
    Other,
}

#[derive(Deserialize)]
struct Said {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    message: Option<Message>,
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    usage: Option<Tokens>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

impl Meter {
    /// For an answer with these headers to a question of so many bytes.
    pub(super) fn new(headers: &HeaderMap, asked: u64) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        let kind = text(header::CONTENT_TYPE);
        let is_plain = matches!(text(header::CONTENT_ENCODING), "" | "identity");
        let form = match () {
            () if is_plain && kind.starts_with("text/event-stream") => {
                Form::Events(Events::default())
            }
            () if is_plain && kind.starts_with("application/json") => Form::Document(Vec::new()),
            () => Form::Opaque,
        };
        let told = Usage::default();
        Self { form, model: None, told, is_settled: false, asked, seen: 0 }
    }

    /// Looks at a piece of the answer.
    pub(super) fn see(&mut self, chunk: &Bytes) {
        self.seen = self.seen.saturating_add(chunk.len() as u64);
        match &mut self.form {
            Form::Events(_) => self.see_lines(chunk),
            Form::Document(pieces) => {
                if self.seen > MAX_DOCUMENT as u64 {
                    self.form = Form::Opaque;
                } else {
                    pieces.push(chunk.clone());
                }
            }
            Form::Opaque => {}
        }
    }

    /// What the answer has said so far that it consumed.
    pub(super) fn told(&self) -> Usage {
        self.told
    }

    /// There is no more to be seen of it. If that is all, it says what it consumed.
    pub(super) fn finish(&mut self) {
        let Form::Document(pieces) = &self.form else { return };
        if let Ok(said) = serde_json::from_slice::<Said>(&pieces.concat()) {
            self.model = said.model;
            self.is_settled = said.usage.is_some();
            self.take(said.usage);
        }
    }

    /// What was consumed, as far as it is known; what is not is estimated, and nothing counts as
    /// free. The model is none if nobody has said which.
    pub(super) fn usage(&self, is_over: bool) -> (Option<&str>, Usage) {
        let mut usage = self.told;
        if is_over && !self.is_settled {
            let tokens = |bytes: u64| bytes.div_ceil(BYTES_OF_A_TOKEN);
            if usage.input_tokens + usage.cache_creation_tokens + usage.cache_read_tokens == 0 {
                usage.input_tokens = tokens(self.asked);
            }
            let written = match &self.form {
                Form::Events(events) => events.deltas.max(tokens(events.delta_bytes)),
                Form::Document(_) | Form::Opaque => tokens(self.seen),
            };
            usage.output_tokens = usage.output_tokens.max(written);
        }
        (self.model.as_deref(), usage)
    }

    fn see_lines(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while !rest.is_empty() {
            let Form::Events(events) = &mut self.form else { return };
            let end = memchr::memchr(b'\n', rest);
            let (piece, is_whole) = (&rest[..end.map_or(rest.len(), |at| at + 1)], end.is_some());
            rest = &rest[piece.len()..];
            if events.skipping || events.line.len() + piece.len() > MAX_LINE {
                events.line.clear();
                events.skipping = !is_whole;
                continue;
            }
            if !is_whole {
                events.line.extend_from_slice(piece);
            } else if events.line.is_empty() {
                self.see_line(piece);
            } else {
                let mut line = std::mem::take(&mut events.line);
                line.extend_from_slice(piece);
                self.see_line(&line);
                if let Form::Events(events) = &mut self.form {
                    line.clear();
                    events.line = line;
                }
            }
        }
    }

    fn see_line(&mut self, line: &[u8]) {
        let Form::Events(events) = &mut self.form else { return };
        let line = line.trim_ascii_end();
        if line.is_empty() {
            events.event = Event::Unknown;
        } else if let Some(name) = line.strip_prefix(b"event:") {
            events.event = match name.trim_ascii_start() {
                b"message_start" => Event::Start,
                b"message_delta" => Event::Delta,
                b"content_block_delta" => Event::Text,
                _ => Event::Other,
            };
        } else if let Some(data) = line.strip_prefix(b"data:") {
            match events.event {
                Event::Text => {
                    events.deltas += 1;
                    let text = (data.len() as u64).saturating_sub(BYTES_AROUND_A_DELTA);
                    events.delta_bytes += text;
                }
                Event::Start | Event::Delta | Event::Unknown => self.hear(data),
                Event::Other => {}
            }
        }
    }

    /// Reads an event that may say what was consumed.
    fn hear(&mut self, data: &[u8]) {
        let Ok(said) = serde_json::from_slice::<Said>(data) else { return };
        match said.kind.as_str() {
            "message_start" => {
                if let Some(message) = said.message {
                    self.model = message.model;
                    self.take(message.usage);
                }
            }
            "message_delta" => {
                self.take(said.usage);
                self.is_settled = said.usage.is_some_and(|usage| usage.output_tokens.is_some());
            }
            _ => {}
        }
    }

    /// Sums grow; whoever tells less than before tells only a part.
    fn take(&mut self, tokens: Option<Tokens>) {
        let Some(tokens) = tokens else { return };
        let raise = |known: &mut u64, told: Option<u64>| *known = (*known).max(told.unwrap_or(0));
        raise(&mut self.told.input_tokens, tokens.input_tokens);
        raise(&mut self.told.output_tokens, tokens.output_tokens);
        raise(&mut self.told.cache_creation_tokens, tokens.cache_creation_input_tokens);
        raise(&mut self.told.cache_read_tokens, tokens.cache_read_input_tokens);
    }
}

#[cfg(test)]
mod test;
