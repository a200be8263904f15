//! Frames and how they are cut out of a stream of bytes.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The longest line that is taken. A prompt with its pictures fits; more ends the connection.
pub const MAX_FRAME_BYTES: usize = 32 * 1024 * 1024;

/// How much room a decoder keeps once a long line is over.
const KEPT_BYTES: usize = 64 * 1024;

/// One line: what kind of thing it says, to what it belongs, and what it says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Frame {
    /// What kind of thing this is.
    pub kind: String,
    /// The number under which an answer is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The number that this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub re: Option<u64>,
    /// What it says, exactly as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Box<RawValue>>,
}

/// Why a stream of bytes is not a stream of frames. There is no way to go on after it.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A line was longer than it may be.
    #[error("a line is longer than {max} bytes")]
    TooLong {
        /// What it may have at most.
        max: usize,
    },
    /// A line is not a frame.
    #[error("a line is not a frame: {0}")]
    Malformed(#[from] serde_json::Error),
}

impl Frame {
    /// A frame that says something.
    pub fn new<T: Serialize + ?Sized>(kind: &str, body: &T) -> Result<Self, FrameError> {
        let body = serde_json::value::to_raw_value(body)?;
        Ok(Self { kind: kind.to_owned(), id: None, re: None, body: Some(body) })
    }

    /// The same, with an answer expected.
    #[must_use]
    pub fn asking(mut self, id: u64) -> Self {
        self.id = Some(id);
        self
    }

    /// The same, as an answer.
    #[must_use]
    pub fn answering(mut self, re: u64) -> Self {
        self.re = Some(re);
        self
    }

    /// What it says, read as a `T`. A frame without a body is read as `null`.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, FrameError> {
        Ok(serde_json::from_str(self.body.as_deref().map_or("null", RawValue::get))?)
    }

    /// The line, with its end.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let mut line = serde_json::to_vec(self)?;
        // JSON has no raw newline inside, except in a body that was laid out over several lines.
        for byte in &mut line {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        if line.len() > MAX_FRAME_BYTES {
            return Err(FrameError::TooLong { max: MAX_FRAME_BYTES });
        }
        line.push(b'\n');
        Ok(line)
    }
}

/// Cuts frames out of bytes as they come, and never holds more than one line and what came with
/// its end.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where no newline was found.
    searched: usize,
    max: usize,
}

impl Default for FrameDecoder {
    fn default() -> Self {
        Self::with_max(MAX_FRAME_BYTES)
    }
}

impl FrameDecoder {
    /// A decoder with a bound of its own.
    pub fn with_max(max: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, searched: 0, max }
    }

    /// The same decoder, with what it holds, and another bound.
    #[must_use]
    pub fn bounded_by(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    /// Takes bytes that came. Call [`next_frame`](Self::next_frame) until it has no more before the
    /// next ones, so that the bound holds.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start == self.buffer.len() {
            self.buffer.clear();
            (self.start, self.searched) = (0, 0);
            self.buffer.shrink_to(KEPT_BYTES);
        } else if self.start > KEPT_BYTES {
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next line that is whole, without its end. Empty lines are passed over.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, FrameError> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n');
            let Some(end) = found.map(|offset| self.searched + offset) else {
                self.searched = self.buffer.len();
                if self.searched - self.start > self.max {
                    return Err(FrameError::TooLong { max: self.max });
                }
                return Ok(None);
            };
            let line = self.start..end;
            (self.start, self.searched) = (end + 1, end + 1);
            if line.len() > self.max {
                return Err(FrameError::TooLong { max: self.max });
            }
            if !self.buffer[line.clone()].iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(&self.buffer[line]));
            }
        }
    }

    /// The next frame that is whole.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        match self.next_line()? {
            Some(line) => Ok(Some(serde_json::from_slice(line)?)),
            None => Ok(None),
        }
    }

    /// How many bytes wait for the rest of their line.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }
}
