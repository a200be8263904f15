//! What a dead sandbox left behind: the end of its spool.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use ash_core::session::NumberedReport;
use ash_protocol::{FrameDecoder, HEADING_BYTES, Reported};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::report::Understanding;

/// How much is read at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// Reads a spool whose bridge is gone, piece by piece. A spool is as untrusted as its bridge was:
/// lines have a bound, and the first one that is no report ends it.
pub(super) struct Leftover {
    file: File,
    decoder: FrameDecoder,
    /// Still in the hole before the first report.
    in_hole: bool,
}

impl Leftover {
    /// Opens a spool; nothing, if there is none.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let begin = HEADING_BYTES as u64;
        // Passes the hole by; where a file system cannot tell, its zeros are read and skipped.
        match seek(&file, SeekFrom::Data(begin)) {
            Ok(_) => {}
            Err(Errno::NXIO) => return Ok(None), // Nothing behind the heading.
            Err(_) => {
                seek(&file, SeekFrom::Start(begin))?;
            }
        }
        Ok(Some(Self { file, decoder: FrameDecoder::default(), in_hole: true }))
    }

    /// The next reports; nothing at the end, or where it cannot be read on.
    pub(super) fn next(
        &mut self,
        understanding: &mut Understanding,
    ) -> Option<Vec<NumberedReport>> {
        let mut bytes = vec![0; CHUNK_BYTES];
        loop {
            let count = match self.file.read(&mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => count,
            };
            let mut fresh = &bytes[..count];
            if self.in_hole {
                let begin = fresh.iter().position(|&byte| byte != 0).unwrap_or(fresh.len());
                fresh = &fresh[begin..];
                self.in_hole = fresh.is_empty();
            }
            self.decoder.push(fresh);
            let mut reports = Vec::new();
            while let Ok(Some(line)) = self.decoder.next_line() {
                let Ok(reported) = serde_json::from_slice::<Reported>(line) else { break };
                if reported.position <= understanding.last() {
                    continue;
                }
                let Ok(report) = understanding.read(reported) else { break };
                reports.push(report);
            }
            if !reports.is_empty() {
                return Some(reports);
            }
        }
    }
}
