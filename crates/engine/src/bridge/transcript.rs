//! Whether an agent's own record of the conversation is still what the log says it was.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use ash_core::number::Incarnation;
use ash_core::resume::{Native, Transcript};
use rustix::fs::{Mode, OFlags, open};

/// Where the record is, in the agent's home. See `docs/builtin-agent.md`.
const RECORD: &str = ".ash/conversation.jsonl";

/// The longest record that is read. Its length is what the agent says.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// How much is read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Holds the record against its proof: what became of it, and how many turns it holds. A turn that
/// was cut after the proof was written has made the record longer, not another one.
pub(super) fn verify(
    home: &Path,
    transcript: Option<&Transcript>,
    completed_runs: u32,
) -> (Native, u32) {
    match transcript {
        None if completed_runs == 0 => (Native::None, 0),
        None => (Native::Lost, 0),
        Some(proof) => match digest(&home.join(RECORD), proof.bytes) {
            Ok(Some(digest)) if digest.to_hex().as_str() == proof.blake3 => {
                (Native::Intact, proof.turns)
            }
            Ok(_) | Err(_) => (Native::Lost, 0),
        },
    }
}

/// Puts a record that failed its proof out of the agent's way, and keeps it for people.
pub(super) fn set_aside(home: &Path, incarnation: Incarnation) -> io::Result<()> {
    let lost = home.join(format!(".ash/conversation.lost-{incarnation}.jsonl"));
    match std::fs::rename(home.join(RECORD), lost) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The digest of the first `bytes` of a file, if it has as many. The file is the agent's: it may be
/// anything, also a pipe that nobody writes to.
fn digest(path: &Path, bytes: u64) -> io::Result<Option<blake3::Hash>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() || found.len() < bytes || bytes > MAX_BYTES {
        return Ok(None);
    }
    let mut hasher = blake3::Hasher::new();
    let mut rest = file.take(bytes);
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut read = 0;
    loop {
        match rest.read(&mut chunk)? {
            0 => break,
            count => {
                hasher.update(&chunk[..count]);
                read += count as u64;
            }
        }
    }
    Ok((read == bytes).then(|| hasher.finalize()))
}

#[cfg(test)]
mod test {
    use std::fs;

    use super::*;

    fn proof(content: &str, turns: u32) -> Transcript {
        let blake3 = blake3::hash(content.as_bytes()).to_hex().to_string();
        Transcript { bytes: content.len() as u64, blake3, turns }
    }

    #[test]
    fn a_record_is_intact_if_it_begins_with_what_was_proven() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".ash")).unwrap();
        let record = home.path().join(RECORD);
        let verdict = |proof: Option<&Transcript>, runs| verify(home.path(), proof, runs);
        let proven = proof("one\ntwo\n", 2);

        assert_eq!(verdict(None, 0), (Native::None, 0), "there was no turn");
        assert_eq!(verdict(None, 1), (Native::Lost, 0), "a turn left no proof");
        assert_eq!(verdict(Some(&proven), 2), (Native::Lost, 0), "it is missing");
        for (content, native) in [
            ("one\ntwo\n", Native::Intact),
            ("one\ntwo\nthr", Native::Intact),
            ("one\ntw", Native::Lost),
            ("one\ntwO\n", Native::Lost),
            ("", Native::Lost),
        ] {
            fs::write(&record, content).unwrap();
            assert_eq!(verdict(Some(&proven), 2).0, native, "{content:?}");
        }
    }

    #[test]
    fn a_record_that_is_no_file_or_has_no_end_is_lost_and_nobody_waits_for_it() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".ash")).unwrap();
        let record = home.path().join(RECORD);
        std::os::unix::fs::symlink("/dev/zero", &record).unwrap();
        assert_eq!(verify(home.path(), Some(&proof("x", 1)), 1), (Native::Lost, 0));
        fs::remove_file(&record).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &record, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        assert_eq!(verify(home.path(), Some(&proof("x", 1)), 1), (Native::Lost, 0));
        fs::remove_file(&record).unwrap();
        File::create(&record).unwrap().set_len(1 << 40).unwrap();
        let endless = Transcript { bytes: 1 << 40, ..proof("", 1) };
        assert_eq!(verify(home.path(), Some(&endless), 1), (Native::Lost, 0));
    }
}
