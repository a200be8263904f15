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
    /// Something was no report: nothing behind it is one either.
    ended: bool,
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
        Ok(Some(Self { file, decoder: FrameDecoder::default(), in_hole: true, ended: false }))
    }

    /// The next reports; nothing at the end, or where it cannot be read on.
    pub(super) fn next(
        &mut self,
        understanding: &mut Understanding,
    ) -> Option<Vec<NumberedReport>> {
        let mut bytes = vec![0; CHUNK_BYTES];
        while !self.ended {
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
            while !self.ended {
                match self.next_report(understanding) {
                    Ok(Some(report)) => reports.push(report),
                    Ok(None) => break,
                    Err(Unreadable) => self.ended = true,
                }
            }
            if !reports.is_empty() {
                return Some(reports);
            }
        }
        None
    }

    /// The next report that is not known yet, of what was read.
    fn next_report(
        &mut self,
        understanding: &mut Understanding,
    ) -> Result<Option<NumberedReport>, Unreadable> {
        while let Some(line) = self.decoder.next_line().map_err(|_| Unreadable)? {
            let reported: Reported = serde_json::from_slice(line).map_err(|_| Unreadable)?;
            if reported.position > understanding.last() {
                return understanding.read(reported).map(Some).map_err(|_| Unreadable);
            }
        }
        Ok(None)
    }
}

/// What stands there is no report.
struct Unreadable;

#[cfg(test)]
mod test {
    use std::io::Write as _;

    use super::*;

    fn spool(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![b' '; HEADING_BYTES]).unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn positions(file: &tempfile::NamedTempFile, after: u64) -> Vec<u64> {
        let mut understanding = Understanding::after(after);
        let Some(mut leftover) = Leftover::open(file.path()).unwrap() else { return Vec::new() };
        let mut found = Vec::new();
        while let Some(reports) = leftover.next(&mut understanding) {
            found.extend(reports.iter().map(|report| report.position.get()));
        }
        assert!(leftover.decoder.pending() <= ash_protocol::MAX_FRAME_BYTES + CHUNK_BYTES);
        found
    }

    fn line(position: u64) -> String {
        format!("{{\"position\":{position},\"run\":\"r\",\"kind\":\"begun\"}}\n")
    }

    #[test]
    fn what_is_known_is_passed_over_and_half_a_line_does_not_count() {
        let file = spool(format!("{}{}{}{{\"posi", line(4), line(5), line(6)).as_bytes());
        assert_eq!(positions(&file, 4), [5, 6]);
        assert_eq!(positions(&file, 6), Vec::<u64>::new());
    }

    #[test]
    fn the_first_line_that_is_no_report_ends_it() {
        let file = spool(format!("{}nonsense\n{}", line(1), line(2)).as_bytes());
        assert_eq!(positions(&file, 0), [1]);
        let file = spool(format!("{}{}{}", line(1), line(9), line(2)).as_bytes());
        assert_eq!(positions(&file, 0), [1]);
    }

    #[test]
    fn a_file_as_large_as_it_likes_costs_no_more_than_a_line() {
        let file = spool(line(1).as_bytes());
        let length = file.as_file().metadata().unwrap().len();
        file.as_file().set_len(length + (1 << 34)).unwrap();
        assert_eq!(positions(&file, 0), [1]);
        let nothing = spool(b"");
        nothing.as_file().set_len(1 << 34).unwrap();
        assert_eq!(positions(&nothing, 0), Vec::<u64>::new());
    }
}
