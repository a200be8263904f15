//! A file of lines that outlives the process, and what is done about one that was damaged.
//!
//! A line is appended and synced before anything depends on it. Appending is blocking on purpose:
//! a future that is dropped in the middle of it would leave half a line, and this way it cannot be.
//! What a crash leaves at the end is moved aside, so that the next line never follows garbage; what
//! is damaged in the middle stays where it is and is passed over.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::place;

/// The longest line that is read back. A prompt is a frame, and the frame's bound is lower.
const MAX_LINE_BYTES: u64 = 48 * 1024 * 1024;

/// How many damaged rests are kept.
const MAX_DAMAGED: u32 = 100;

/// The file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    bytes: u64,
    hasher: blake3::Hasher,
}

/// What was done to a file when it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Repair {
    /// How many bytes were cut off its end.
    pub(crate) dropped_bytes: u64,
    /// How many pieces in its middle say nothing.
    pub(crate) skipped_lines: u64,
}

impl Journal {
    /// Opens the file, hands each line that is whole to `take`, and repairs the end.
    pub(crate) fn open<T: DeserializeOwned>(
        path: &Path,
        mut take: impl FnMut(T),
    ) -> io::Result<(Self, Repair)> {
        if let Some(directory) = path.parent() {
            if let Some(above) = directory.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(above)?;
            }
            place::directory(directory)?;
        }
        place::file(path)?;
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        place::trim(&file)?;
        file.seek(SeekFrom::Start(0))?;
        let found = scan(&file, &mut take)?;
        let length = file.metadata()?.len();
        let dropped_bytes = if found.good_through < length && found.rest_says_something {
            set_aside(&mut file, path, found.good_through)?;
            length - found.good_through
        } else {
            0
        };
        if length != found.good_through {
            file.set_len(found.good_through)?;
        }
        let mut journal = Self { file, bytes: 0, hasher: blake3::Hasher::new() };
        journal.rehash()?;
        if found.lacks_newline {
            journal.append(b"\n")?;
        }
        if length != journal.bytes {
            journal.sync()?;
        }
        if length == 0
            && let Some(directory) = path.parent()
        {
            // A new file is only there once its directory says so.
            File::open(directory)?.sync_all()?;
        }
        Ok((journal, Repair { dropped_bytes, skipped_lines: found.skipped }))
    }

    /// Appends a line, which must bring its end. It is there wholly or not at all, as far as the
    /// file system lets us choose.
    pub(crate) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(line) {
            // The disk is full: half a line would spoil the next one. If this fails as well, the
            // next open repairs it.
            let _spoiled = self.file.set_len(self.bytes);
            return Err(error);
        }
        self.bytes += line.len() as u64;
        self.hasher.update(line);
        Ok(())
    }

    /// Makes everything that was appended survive.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// How many bytes the file has, and their hash.
    pub(crate) fn fingerprint(&self) -> (u64, String) {
        (self.bytes, self.hasher.finalize().to_hex().to_string())
    }

    /// Whether a file holds exactly what was written down. It is the agent's: it may be anything by now.
    pub(crate) fn is_in(&self, path: &Path) -> io::Result<bool> {
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() || found.len() != self.bytes {
            return Ok(false);
        }
        let mut hasher = blake3::Hasher::new();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(hasher.finalize() == self.hasher.finalize()),
                read => hasher.update(&chunk[..read]),
            };
        }
    }

    fn rehash(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let read = self.file.read(&mut chunk)?;
            if read == 0 {
                return Ok(());
            }
            self.hasher.update(&chunk[..read]);
            self.bytes += read as u64;
        }
    }
}

struct Found {
    /// Where the last value ends, with its newline.
    good_through: u64,
    lacks_newline: bool,
    /// Whether anything but emptiness follows the last value.
    rest_says_something: bool,
    skipped: u64,
}

fn scan<T: DeserializeOwned>(file: &File, take: &mut impl FnMut(T)) -> io::Result<Found> {
    let mut reader = BufReader::with_capacity(64 * 1024, file);
    let mut found =
        Found { good_through: 0, lacks_newline: false, rest_says_something: false, skipped: 0 };
    let mut offset = 0;
    let mut bad_since_good = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? as u64;
        if read == 0 {
            return Ok(found);
        }
        // Two values on a line are two lines that lost what was between them; zeros in front of one
        // are what a crash leaves of a block that was never written.
        let zeros = line.iter().take_while(|&&byte| byte == 0).count();
        let mut values = serde_json::Deserializer::from_slice(&line[zeros..]).into_iter::<T>();
        let mut good = None;
        let mut broken = zeros > 0;
        while let Some(value) = values.next() {
            match value {
                Ok(value) => {
                    take(value);
                    good = Some((zeros + values.byte_offset()) as u64);
                }
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        if let Some(end) = good {
            found.skipped += bad_since_good;
            bad_since_good = 0;
            let rest = &line[usize::try_from(end).unwrap_or(line.len())..];
            let whole = rest.iter().all(u8::is_ascii_whitespace);
            found.lacks_newline = !(whole && rest.ends_with(b"\n"));
            found.good_through = offset + if found.lacks_newline { end } else { read };
            found.rest_says_something = !whole;
            bad_since_good += u64::from(broken && !whole);
            found.skipped += u64::from(zeros > 0);
        } else if broken {
            bad_since_good += 1;
            found.rest_says_something = true;
        }
        offset += read;
    }
}

/// Copies everything from `from` on into a file beside this one.
fn set_aside(file: &mut File, path: &Path, from: u64) -> io::Result<()> {
    for number in 1..=MAX_DAMAGED {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".damaged-{number}"));
        let aside = PathBuf::from(name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside) {
            Ok(mut aside) => {
                file.seek(SeekFrom::Start(from))?;
                io::copy(file, &mut aside)?;
                return aside.sync_all();
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    // A hundred times is a disk that dies; more copies of it help nobody.
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Line {
        n: u64,
    }

    fn opened(path: &Path) -> (Vec<u64>, Repair, Journal) {
        let mut lines = Vec::new();
        let (journal, repair) = Journal::open(path, |line: Line| lines.push(line.n)).unwrap();
        (lines, repair, journal)
    }

    fn check(content: &[u8], lines: &[u64], dropped: u64, skipped: u64) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/down/j.jsonl");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        let (read, repair, mut journal) = opened(&path);
        let shown = String::from_utf8_lossy(content).into_owned();
        assert_eq!(read, lines, "{shown:?}");
        let expected = Repair { dropped_bytes: dropped, skipped_lines: skipped };
        assert_eq!(repair, expected, "{shown:?}");
        let aside = path.with_file_name("j.jsonl.damaged-1");
        assert_eq!(std::fs::metadata(aside).map_or(0, |file| file.len()), dropped);
        journal.append(b"{\"n\":99}\n").unwrap();
        let (bytes, hash) = journal.fingerprint();
        let content = std::fs::read(&path).unwrap();
        assert_eq!(bytes, content.len() as u64);
        assert_eq!(hash, blake3::hash(&content).to_hex().to_string());
        let (again, repair, _) = opened(&path);
        assert_eq!(again, [lines, &[99]].concat(), "{shown:?}");
        assert_eq!(repair.dropped_bytes, 0, "{shown:?}");
    }

    #[test]
    fn damage_at_the_end_is_cut_and_damage_in_the_middle_is_passed_over() {
        check(b"", &[], 0, 0);
        check(b"{\"n\":1}\n{\"n\":2}\n", &[1, 2], 0, 0);
        check(b"{\"n\":1}\n{\"n\":2}", &[1, 2], 0, 0);
        check(b"{\"n\":1}\n{\"n\":2", &[1], 6, 0);
        check(b"{\"n\":1}\n{\"n\":2}{\"n\":3}\n", &[1, 2, 3], 0, 0);
        check(b"{\"n\":1}{\"n\"", &[1], 4, 0);
        check(b"{\"n\":1}\n\0\0\0\0", &[1], 4, 0);
        check(b"{\"n\":1}\n\0\0{\"n\":2}\n", &[1, 2], 0, 1);
        check(b"{\"n\":1}\ngarbage\n{\"n\":2}\n", &[1, 2], 0, 1);
        check(b"{\"n\":1}\n\xff\xfe\nmore\n", &[1], 8, 0);
        check(b"garbage", &[], 7, 0);
        check(b"{\"n\":1}\n\n\n", &[1], 0, 0);
        check(b"{\"n\":1} x\n{\"n\":2}\n", &[1, 2], 0, 1);
    }
}
