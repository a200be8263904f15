//! Cuts server-sent events out of bytes as they come.
//!
//! Never holds more than one line and the data of one event: both are bounded, because the other
//! side is a network. A field that is not `data` or `event` says nothing here.

/// The longest line, and the most data of one event. A tool call that writes a large file comes in
/// small pieces; only a whole block that is sent at once (a search result) is ever long.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// What some put before a text to say that it is UTF-8.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// How much room is kept once a long line is over.
const KEPT_BYTES: usize = 64 * 1024;

/// An event: its name, if it had one, and its data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SseEvent {
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

/// A line or an event was longer than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

#[derive(Debug)]
pub(super) struct SseDecoder {
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where no newline was found.
    searched: usize,
    event: SseEvent,
    /// Whether anything was read, so that a byte order mark could no longer stand here.
    begun: bool,
    /// Whether a carriage return ended the last line: a newline right after it ends nothing more.
    after_return: bool,
    /// Whether the event has data, even if it is empty.
    has_data: bool,
    max: usize,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::with_max(MAX_LINE_BYTES)
    }
}

impl SseDecoder {
    fn with_max(max: usize) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            begun: false,
            after_return: false,
            event: SseEvent::default(),
            has_data: false,
            max,
        }
    }

    /// Takes bytes that came. Call [`next_event`](Self::next_event) until it has no more before
    /// the next ones, so that the bound holds.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(KEPT_BYTES);
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next event that is whole.
    pub(super) fn next_event(&mut self) -> Result<Option<SseEvent>, TooLong> {
        if !self.pass_mark() {
            return Ok(None);
        }
        loop {
            if self.after_return && self.start < self.buffer.len() {
                let skipped = usize::from(self.buffer[self.start] == b'\n');
                self.start += skipped;
                self.searched = self.searched.max(self.start);
                self.after_return = false;
            }
            let rest = &self.buffer[self.searched..];
            let found = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let Some(end) = found.map(|offset| self.searched + offset) else {
                self.searched = self.buffer.len();
                if self.searched - self.start > self.max {
                    return Err(TooLong);
                }
                return Ok(None);
            };
            let line = self.start..end;
            self.after_return = self.buffer[end] == b'\r';
            (self.start, self.searched) = (end + 1, end + 1);
            if let Some(event) = self.take_line(line)? {
                return Ok(Some(event));
            }
        }
    }

    /// Passes over a byte order mark at the very beginning; false while it may be one, half.
    fn pass_mark(&mut self) -> bool {
        if !self.begun {
            if self.buffer.len() < MARK.len() && MARK.starts_with(&self.buffer) {
                return false;
            }
            self.begun = true;
            if self.buffer.starts_with(MARK) {
                (self.start, self.searched) = (MARK.len(), MARK.len());
            }
        }
        true
    }

    /// What is left when the stream ends: an event whose blank line never came. It may well be the
    /// last one, whole; if it is not, its data cannot be read, which is noticed further up.
    pub(super) fn finish(&mut self) -> Result<Option<SseEvent>, TooLong> {
        let line = self.start..self.buffer.len();
        self.start = line.end;
        self.searched = line.end;
        if let Some(event) = self.take_line(line)? {
            return Ok(Some(event));
        }
        Ok(self.dispatch())
    }

    fn take_line(&mut self, line: std::ops::Range<usize>) -> Result<Option<SseEvent>, TooLong> {
        if line.len() > self.max {
            return Err(TooLong);
        }
        let line = &self.buffer[line];
        if line.is_empty() {
            return Ok(self.dispatch());
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => {
                if self.event.data.len() + value.len() > self.max {
                    return Err(TooLong);
                }
                if self.has_data {
                    self.event.data.push(b'\n');
                }
                self.has_data = true;
                self.event.data.extend_from_slice(value);
            }
            b"event" => {
                // A name longer than any we know is none.
                self.event.name = String::from_utf8_lossy(&value[..value.len().min(64)]).into();
            }
            // Comments (an empty field), ids, retry hints, and what is not SSE at all.
            _ => {}
        }
        Ok(None)
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let event = std::mem::take(&mut self.event);
        std::mem::take(&mut self.has_data).then_some(event)
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    fn all(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            while let Some(event) = decoder.next_event().unwrap() {
                events.push(event);
            }
        }
        events.extend(decoder.finish().unwrap());
        events
            .into_iter()
            .map(|event| (event.name, String::from_utf8_lossy(&event.data).into_owned()))
            .collect()
    }

    fn event(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn line_ends_comments_and_fields_without_use_are_understood() {
        let stream =
            b": hello\r\nevent: a\r\ndata: 1\r\n\r\nid: 7\ndata:2\ndata: 3\n\nretry: 5\n\n";
        assert_eq!(all(&[stream]), [event("a", "1"), event("", "2\n3")]);
    }

    #[test]
    fn a_mark_and_lone_returns_are_understood_however_they_are_cut() {
        let stream = "\u{feff}data: 1\r\rdata: 2\r\n\r\ndata: 3\rdata: 4\n\n".as_bytes();
        let expected = [event("", "1"), event("", "2"), event("", "3\n4")];
        assert_eq!(all(&[stream]), expected);
        for cut in 0..stream.len() {
            assert_eq!(all(&[&stream[..cut], &stream[cut..]]), expected, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(all(&bytes), expected);
    }

    #[test]
    fn the_last_event_needs_no_blank_line() {
        assert_eq!(all(&[b"data: 1\n\ndata: 2"]), [event("", "1"), event("", "2")]);
    }

    #[test]
    fn a_line_and_an_event_have_a_bound() {
        let mut decoder = SseDecoder::with_max(16);
        decoder.push(b"data: 0123456789abcdef");
        assert_eq!(decoder.next_event(), Err(TooLong));
        let mut decoder = SseDecoder::with_max(16);
        decoder.push(b"data: 0123456\ndata: 0123456\ndata: 0123456\n");
        assert_eq!(decoder.next_event(), Err(TooLong));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_bytes_are_cut(
            bytes in prop::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), any::<u8>()], 0..200),
            cut in 0usize..200,
        ) {
            let mut bytes = bytes;
            bytes.extend_from_slice(b"\ndata: x\n\n");
            let cut = cut.min(bytes.len());
            prop_assert_eq!(all(&[&bytes]), all(&[&bytes[..cut], &bytes[cut..]]));
        }
    }
}
