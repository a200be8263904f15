//! Server-sent events, taken apart as the bytes come.

/// The longest line, and the most data of one event. A message of 24 MB is told as one, and its pictures are escaped there.
const MAX_BYTES: usize = 64 << 20;

/// One event of a stream, as it was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its id, if it said one.
    pub id: Option<String>,
    /// Its name; `message` if it said none.
    pub event: String,
    /// Its data; several lines are joined by line feeds.
    pub data: String,
}

/// An event or a line is longer than any should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_BYTES} bytes in one event")]
pub struct TooLong;

/// Makes events of bytes. However the bytes are cut, the same events come out.
#[derive(Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    /// The last byte was a CR: a LF right after it belongs to the same end of line.
    after_cr: bool,
    /// The first line, which may begin with a byte order mark, is over.
    begun: bool,
    id: Option<String>,
    event: String,
    data: Option<String>,
}

impl Parser {
    /// Takes the next bytes, and returns the events that they complete.
    ///
    /// # Errors
    /// An event exceeds the limit. The parser is of no use after that.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, TooLong> {
        let mut frames = Vec::new();
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let (line, after) = rest.split_at(end.unwrap_or(rest.len()));
            if self.line.len() + line.len() > MAX_BYTES {
                return Err(TooLong);
            }
            self.line.extend_from_slice(line);
            rest = after;
            if let Some((&ending, after)) = rest.split_first() {
                self.after_cr = ending == b'\r';
                rest = after;
                frames.extend(self.end_of_line()?);
            }
        }
        Ok(frames)
    }

    fn end_of_line(&mut self) -> Result<Option<Frame>, TooLong> {
        let line = std::mem::take(&mut self.line);
        let mut line = String::from_utf8_lossy(&line);
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(&line).to_owned().into();
        }
        if line.is_empty() {
            return Ok(self.end_of_event());
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "data" => match &mut self.data {
                Some(data) if data.len() + value.len() >= MAX_BYTES => return Err(TooLong),
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                data @ None => *data = Some(value.to_owned()),
            },
            // A comment has an empty name. What else there is, is for others.
            _ => {}
        }
        Ok(None)
    }

    fn end_of_event(&mut self) -> Option<Frame> {
        let (id, event) = (self.id.take(), std::mem::take(&mut self.event));
        let data = self.data.take()?;
        let event = if event.is_empty() { "message".to_owned() } else { event };
        Some(Frame { id, event, data })
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> Vec<Frame> {
        Parser::default().push(bytes).unwrap()
    }

    fn frame(id: Option<&str>, event: &str, data: &str) -> Frame {
        Frame { id: id.map(str::to_owned), event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        let text = "\u{feff}: hello\n\nid: 1-7\nevent: text_delta\ndata: {\"delta\":\"a\"}\n\n\
                    data:first\ndata\ndata:  third\r\rid: 2\n\nevent:x\r\ndata: y\r\n\r\nretry: 5\n\
                    nonsense\nid: a\0b\ndata: z\n\ndata: never ended\n";
        let expected = [
            frame(Some("1-7"), "text_delta", "{\"delta\":\"a\"}"),
            frame(None, "message", "first\n\n third"),
            frame(None, "x", "y"),
            frame(None, "message", "z"),
        ];
        assert_eq!(whole(text.as_bytes()), expected);
    }

    #[test]
    fn the_largest_message_is_told_in_one_event() {
        // 24 MB are taken, and JSON can make two bytes of one.
        let largest = "\\n".repeat(24 << 20);
        let told = whole(format!("event: prompt\ndata: {largest}\n\n").as_bytes());
        assert_eq!(told[0].data.len(), largest.len());
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let mut parser = Parser::default();
        assert_eq!(parser.push(&vec![b'a'; MAX_BYTES]), Ok(vec![]));
        assert_eq!(parser.push(b"a"), Err(TooLong));
        let mut parser = Parser::default();
        let line = format!("data: {}\n", "a".repeat(MAX_BYTES / 2));
        assert_eq!(parser.push(line.as_bytes()), Ok(vec![]));
        assert_eq!(parser.push(line.as_bytes()), Err(TooLong));
    }

    fn piece() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "id: 1-2",
            "id",
            "event: done",
            "data: x",
            "data: ü€",
            "data",
            ": heartbeat",
            "\n",
            "\r",
            "\r\n",
            "\n\n",
            "\r\n\r\n",
            "data: {\"a\":1}",
            "\u{feff}",
            "event:",
            "retry: 1",
            "\0",
        ])
    }

    proptest! {
        #[test]
        fn however_the_bytes_are_cut_the_same_events_come_out(
            pieces in prop::collection::vec(piece(), 0..40),
            cuts in prop::collection::vec(1_usize..9, 1..60),
        ) {
            let text = pieces.concat();
            let mut parser = Parser::default();
            let mut frames = Vec::new();
            let mut rest = text.as_bytes();
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                frames.extend(parser.push(now).unwrap());
                rest = later;
            }
            prop_assert_eq!(frames, whole(text.as_bytes()));
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _frames = whole(&bytes);
        }
    }
}
