//! Whether an agent's own record of the conversation is still what the log says it was.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::Path;

use ash_core::number::Incarnation;
use ash_core::resume::{Native, Transcript};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2, renameat};
use rustix::io::Errno;
use serde::Deserialize;

/// Where the record is, in the agent's home. See `docs/builtin-agent.md`.
pub(super) const DIRECTORY: &str = ".ash";
pub(super) const FILE: &str = "conversation.jsonl";

/// The longest record that is read. Its length is what the agent says.
pub(super) const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The longest line of it that is understood.
const MAX_LINE_BYTES: u64 = 8 * 1024 * 1024;

/// How much is read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// Holds the record against its proof: what became of it, and how many turns it holds, as it says itself. A turn
/// that was cut after the proof was written has made the record longer, not another one. One that was cut before there
/// was any proof has left a record too: if that tells of it, there is nothing that it should be and is not.
pub(super) fn verify(
    home: &Path,
    transcript: Option<&Transcript>,
    (completed_runs, turns_in_log): (u32, u32),
) -> (Native, u32) {
    match transcript {
        None if turns_in_log == 0 => (Native::None, 0),
        None if completed_runs == 0 => match turns_after(home, 0) {
            Ok(turns) if turns > 0 => (Native::Intact, turns),
            Ok(_) | Err(_) => (Native::Lost, 0),
        },
        None => (Native::Lost, 0),
        Some(proof) => match digest(home, proof.bytes) {
            Ok(Some(digest)) if digest.to_hex().as_str() == proof.blake3 => {
                let cut = turns_after(home, proof.bytes).unwrap_or_default();
                (Native::Intact, proof.turns.max(cut))
            }
            Ok(_) | Err(_) => (Native::Lost, 0),
        },
    }
}

/// What a line of the record says about turns.
#[derive(Deserialize)]
struct Line {
    turn: Option<u32>,
}

/// The last turn that the record says anything about behind its first `bytes`. It may lie: nobody believes more
/// turns than are in the log.
fn turns_after(home: &Path, bytes: u64) -> io::Result<u32> {
    let Some(mut file) = record(home, bytes)? else { return Ok(0) };
    file.seek(SeekFrom::Start(bytes))?;
    let mut rest = BufReader::new(file.take(MAX_BYTES));
    let (mut line, mut turns) = (Vec::new(), 0);
    while rest.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? > 0 {
        // What is no line, or only a part of one, says nothing: damage is the agent's affair.
        if let Ok(Line { turn: Some(turn) }) = serde_json::from_slice(&line) {
            turns = turns.max(turn);
        }
        line.clear();
    }
    Ok(turns)
}

/// Puts a record that failed its proof out of the agent's way, and keeps it for people.
pub(super) fn set_aside(home: &Path, incarnation: Incarnation) -> io::Result<()> {
    let directory = match beneath(home, DIRECTORY, OFlags::PATH | OFlags::DIRECTORY) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        // Where there is no such directory there is no record: a link is not followed, and makes room for one.
        Err(Errno::LOOP | Errno::NOTDIR) => {
            let home =
                open(home, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            let aside = format!("{DIRECTORY}.lost-{incarnation}");
            return Ok(renameat(&home, DIRECTORY, &home, aside)?);
        }
        Err(errno) => return Err(errno.into()),
    };
    let lost = format!("conversation.lost-{incarnation}.jsonl");
    match renameat(&directory, FILE, &directory, lost) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens something in a home. All of it is the agent's, who may have put links anywhere: they are not
/// followed.
pub(super) fn beneath(home: &Path, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let home = open(home, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(home, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Opens the record, if it has as many bytes. The file is the agent's: it may be anything, also a pipe that
/// nobody writes to.
fn record(home: &Path, bytes: u64) -> io::Result<Option<File>> {
    let path = format!("{DIRECTORY}/{FILE}");
    let file = File::from(beneath(home, &path, OFlags::RDONLY | OFlags::NONBLOCK)?);
    let found = file.metadata()?;
    let is_one = found.is_file() && found.len() >= bytes && bytes <= MAX_BYTES;
    Ok(is_one.then_some(file))
}

/// The digest of the first `bytes` of the record, if it has as many.
fn digest(home: &Path, bytes: u64) -> io::Result<Option<blake3::Hash>> {
    match record(home, bytes)? {
        Some(file) => digest_of(file, bytes),
        None => Ok(None),
    }
}

/// Whether a file begins with what was proven.
pub(super) fn is_proven(file: File, proof: &Transcript) -> io::Result<bool> {
    let digest = digest_of(file, proof.bytes)?;
    Ok(digest.is_some_and(|digest| digest.to_hex().as_str() == proof.blake3))
}

/// The digest of the first `bytes` of a file, if it has as many.
fn digest_of(file: File, bytes: u64) -> io::Result<Option<blake3::Hash>> {
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
        let record = home.path().join(".ash/conversation.jsonl");
        let verdict = |proof: Option<&Transcript>, runs| verify(home.path(), proof, runs);
        let proven = proof("one\ntwo\n", 2);

        assert_eq!(verdict(None, (0, 0)), (Native::None, 0), "there was no turn");
        assert_eq!(verdict(None, (0, 1)), (Native::Lost, 0), "a turn was cut, and left nothing");
        assert_eq!(verdict(None, (1, 1)), (Native::Lost, 0), "a turn left no proof");
        assert_eq!(verdict(Some(&proven), (2, 2)), (Native::Lost, 0), "it is missing");
        for (content, native) in [
            ("one\ntwo\n", Native::Intact),
            ("one\ntwo\nthr", Native::Intact),
            ("one\ntw", Native::Lost),
            ("one\ntwO\n", Native::Lost),
            ("", Native::Lost),
        ] {
            fs::write(&record, content).unwrap();
            assert_eq!(verdict(Some(&proven), (2, 2)).0, native, "{content:?}");
        }
    }

    #[test]
    fn turns_that_were_cut_are_in_the_record_too() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".ash")).unwrap();
        let record = home.path().join(".ash/conversation.jsonl");
        let line =
            |turn: u32| format!("{{\"v\":1,\"run\":\"r\",\"turn\":{turn},\"message\":{{}}}}\n");
        // The first turn was cut, and left no proof: what there is of it is what the agent goes on with.
        for (content, turns) in [(line(1) + "{\"v\":1,\"tur", 1), (line(u32::MAX), u32::MAX)] {
            fs::write(&record, content).unwrap();
            assert_eq!(verify(home.path(), None, (0, 1)), (Native::Intact, turns));
            assert_eq!(verify(home.path(), None, (0, 0)), (Native::None, 0), "there was none");
        }
        // The third was cut after two that left one.
        let proven = line(1) + &line(2);
        fs::write(&record, proven.clone() + &line(3) + "nonsense\n{\"turn\":-4}\n").unwrap();
        assert_eq!(verify(home.path(), Some(&proof(&proven, 2)), (2, 3)), (Native::Intact, 3));
        // Nothing in it is a turn; and it has no end.
        fs::write(&record, "nonsense\n").unwrap();
        assert_eq!(verify(home.path(), None, (0, 1)), (Native::Lost, 0));
        File::create(&record).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(verify(home.path(), None, (0, 1)), (Native::Lost, 0));
    }

    #[test]
    fn a_record_that_is_no_file_or_has_no_end_is_lost_and_nobody_waits_for_it() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join(".ash")).unwrap();
        let record = home.path().join(".ash/conversation.jsonl");
        std::os::unix::fs::symlink("/dev/zero", &record).unwrap();
        assert_eq!(verify(home.path(), Some(&proof("x", 1)), (1, 1)), (Native::Lost, 0));
        fs::remove_file(&record).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &record, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        assert_eq!(verify(home.path(), Some(&proof("x", 1)), (1, 1)), (Native::Lost, 0));
        fs::remove_file(&record).unwrap();
        File::create(&record).unwrap().set_len(1 << 40).unwrap();
        let endless = Transcript { bytes: 1 << 40, ..proof("", 1) };
        assert_eq!(verify(home.path(), Some(&endless), (1, 1)), (Native::Lost, 0));
    }

    #[test]
    fn nothing_outside_of_the_home_is_believed_or_moved() {
        let dir = tempfile::tempdir().unwrap();
        let (home, outside) = (dir.path().join("home"), dir.path().join("outside"));
        fs::create_dir_all(&home).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("conversation.jsonl"), "said").unwrap();
        std::os::unix::fs::symlink(&outside, home.join(".ash")).unwrap();
        assert_eq!(verify(&home, Some(&proof("said", 1)), (1, 1)), (Native::Lost, 0));
        set_aside(&home, Incarnation::new(3)).unwrap();
        assert!(outside.join("conversation.jsonl").exists());
        assert!(home.join(".ash.lost-3").is_symlink(), "the link makes room");
        fs::rename(&outside, home.join(".ash")).unwrap();
        assert_eq!(verify(&home, Some(&proof("said", 1)), (1, 1)), (Native::Intact, 1));
        set_aside(&home, Incarnation::new(3)).unwrap();
        assert!(home.join(".ash/conversation.lost-3.jsonl").exists());
        set_aside(&home, Incarnation::new(4)).unwrap();
    }
}
