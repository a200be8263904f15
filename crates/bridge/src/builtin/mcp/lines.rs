//! Lines of bounded length from a server.

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use crate::builtin::tools::media::MAX_DOCUMENT_BASE64;

/// How long a line may be. A server that goes on is ended. The largest document that can be shown
/// fits in, with room for text; what is a little larger still comes to be refused with a reason.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;
const _: () = assert!(MAX_LINE_BYTES > MAX_DOCUMENT_BASE64 + 1024 * 1024);
/// How much is read at once.
const CHUNK_BYTES: usize = 16 * 1024;

pub(super) struct Lines {
    pipe: pipe::Receiver,
    /// What was read and not yet returned.
    buffer: Vec<u8>,
    /// How much of it has no end of line.
    searched: usize,
    chunk: Vec<u8>,
}

impl Lines {
    pub(super) fn new(pipe: pipe::Receiver) -> Self {
        Self { pipe, buffer: Vec::new(), searched: 0, chunk: vec![0; CHUNK_BYTES] }
    }

    /// The next line; nothing: there are no more.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            let found = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n');
            if let Some(at) = found {
                let rest = self.buffer.split_off(self.searched + at + 1);
                self.searched = 0;
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err("the server sent a line of more than 8 MB, and was ended".to_owned());
            }
            match self.pipe.read(&mut self.chunk).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(read) => self.buffer.extend_from_slice(&self.chunk[..read]),
            }
        }
    }
}
