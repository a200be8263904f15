//! What a program prints beside the conversation, passed on line by line to where the bridge says what it has to say about
//! itself: there it is read with `ash logs`.

use std::cell::Cell;
use std::io::Write as _;

/// How much of what programs print is passed on, in the life of a bridge. Nobody can make the file longer than that.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// How long a line may be. A longer one is passed on in pieces.
const MAX_LINE_BYTES: usize = 8 * 1024;

thread_local! {
    // The bridge is one thread, and its programs share what there is room for.
    static ROOM: Cell<usize> = const { Cell::new(MAX_BYTES) };
}

/// Which stream of a program it is. The server knows them by what stands before a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Error,
}

impl Stream {
    const fn mark(self) -> &'static str {
        match self {
            Self::Output => "stdout: ",
            Self::Error => "",
        }
    }
}

/// Passes on what one stream of a program says, and the rest of it when it is dropped.
#[derive(Debug)]
pub(crate) struct Echo {
    stream: Stream,
    line: Vec<u8>,
}

impl Echo {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, line: Vec::new() }
    }

    /// Takes what the program has printed.
    pub(crate) fn hear(&mut self, printed: &[u8]) {
        for byte in printed {
            match byte {
                b'\n' => self.pass_on(),
                byte => self.line.push(*byte),
            }
            if self.line.len() >= MAX_LINE_BYTES {
                self.pass_on();
            }
        }
    }

    fn pass_on(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches('\r');
        if text.trim().is_empty() {
            return;
        }
        let room = ROOM.get();
        let written = match room.checked_sub(text.len() + 1) {
            Some(left) => {
                ROOM.set(left);
                writeln!(std::io::stderr(), "{}{text}", self.stream.mark())
            }
            None if room > 0 => {
                ROOM.set(0);
                let most = MAX_BYTES / (1024 * 1024);
                writeln!(
                    std::io::stderr(),
                    "ash-bridge: {most} MB were printed; the rest is left out"
                )
            }
            None => Ok(()),
        };
        // Whoever cannot be told cannot be told that either.
        let _full = written;
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.pass_on();
    }
}
