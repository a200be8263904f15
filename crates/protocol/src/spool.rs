//! The file in which a bridge keeps what it reported.
//!
//! ```text
//!   0                  4096
//!   ├─ heading, padded ─┼─ hole: acknowledged ─┼─ one line per report ─┤
//! ```
//!
//! The heading is a line of JSON padded with spaces, so that it can stand while everything after
//! it is given back to the file system. A reader begins at the first byte behind it that is not
//! zero; a last line without its end was never sent and does not count.

use serde::{Deserialize, Serialize};

use crate::frame::FrameError;

/// Where the reports begin.
pub const HEADING_BYTES: usize = 4096;

/// How a bridge exits that could not write its spool because there is no room.
pub const EXIT_NO_ROOM: u8 = 74;

/// How a bridge exits whose agent's record of the conversation was removed or damaged while it lived.
pub const EXIT_RECORD_GONE: u8 = 75;

/// What a bridge writes first: a spool that has it belongs to a sandbox that lived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heading {
    /// The bridge's release.
    pub release: String,
    /// The number of its process, as it sees it itself.
    pub pid: u32,
}

impl Heading {
    /// The heading as it stands in the file.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        let mut bytes = serde_json::to_vec(self)?;
        if bytes.len() >= HEADING_BYTES {
            return Err(FrameError::TooLong { max: HEADING_BYTES });
        }
        bytes.resize(HEADING_BYTES - 1, b' ');
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads the first bytes of a file; nothing, if there is no whole heading.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        match bytes.get(..HEADING_BYTES) {
            Some(heading) => Ok(Some(serde_json::from_slice(heading)?)),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_heading_is_read_as_it_was_written_or_not_at_all() {
        let heading = Heading { release: "1.2.3".to_owned(), pid: 7 };
        let bytes = heading.encode().unwrap();
        assert_eq!(bytes.len(), HEADING_BYTES);
        assert_eq!(Heading::decode(&bytes).unwrap(), Some(heading));
        assert_eq!(Heading::decode(&bytes[..100]).unwrap(), None);
        assert!(Heading::decode(&[0; HEADING_BYTES]).is_err());
    }
}
