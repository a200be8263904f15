//! The lines of all sandboxes of a session, in one file, each with a number that it keeps.
//!
//! Bridges say what they have to say into a file for each sandbox, and the log of the session tells when those came and
//! went. Whoever reads wants one list in which nothing appears before what was read already. So lines are numbered when
//! they are first read, written down with their number, and synced before anybody sees it. A file of a sandbox is kept
//! until then, within bounds: what says too much is cut, and a line says so.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::SystemTime;

use ash_core::id::SessionId;
use ash_core::number::{Incarnation, Seq};
use ash_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::files::{Files, Life, remove};
use crate::host::{Happening, LogLine, SandboxRef};

/// The name of the file.
const NAME: &str = "said";

/// How many lines are shown, and how many there may be before the oldest are left out.
const MAX_LINES: usize = 10_000;
const MAX_KEPT_LINES: usize = 2 * MAX_LINES;

/// How many bytes of text are shown, and how long the file may get before its oldest lines are left out.
const MAX_TEXT_BYTES: usize = 2 * 1024 * 1024;
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// How much of what one sandbox said is read at once: the end of it.
const MAX_READ_BYTES: u64 = 1024 * 1024;

/// How long a line may be.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// How many sandboxes that are gone may have files that nobody has read, and how long those may be together.
const MAX_UNREAD: usize = 16;
const MAX_UNREAD_BYTES: u64 = 4 * MAX_READ_BYTES;

/// How a bridge marks what the program that it runs says on its standard output.
const STDOUT: &str = "stdout: ";

/// A line of the file. One without a level holds what those said that are not there any more.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    index: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    text: String,
    #[serde(default)]
    at: i64,
    /// Through which entry the log was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// How much of which sandbox's file was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<(u32, u64)>,
}

/// What the file says.
#[derive(Debug, Default)]
struct Said {
    lines: Vec<LogLine>,
    next: u64,
    seq: u64,
    of: (u32, u64),
    /// How much of the file is whole.
    bytes: u64,
    /// What is to be added to it.
    fresh: Vec<Record>,
}

impl Files {
    /// Through which entry the log was read for the lines of a session.
    pub(super) fn said_through(&self, session: SessionId) -> io::Result<Seq> {
        let _one_at_a_time = self.saying(session);
        Ok(Seq::new(self.read_said(session, 0)?.seq))
    }

    /// Numbers whatever is new, and says all there is. The first of all lines has the number `first`. Blocks.
    pub(super) fn said(
        &self,
        session: SessionId,
        first: u64,
        happened: &[Happening],
    ) -> io::Result<Vec<LogLine>> {
        let _one_at_a_time = self.saying(session);
        self.gather(session, first, happened)
    }

    /// Removes what is left of a sandbox that a later one has followed. What it said is kept until it is read, or too
    /// much.
    pub(super) fn forget(&self, sandbox: SandboxRef) -> io::Result<()> {
        for kind in ["sock", "process", "spool"] {
            remove(&self.named(sandbox, kind))?;
        }
        let mut unread = self.logs_of(sandbox.session)?;
        // The last one may be of somebody who lives.
        unread.pop_last();
        if unread.len() > MAX_UNREAD || unread.values().sum::<u64>() > MAX_UNREAD_BYTES {
            let _one_at_a_time = self.saying(sandbox.session);
            self.gather(sandbox.session, 0, &[])?;
        }
        Ok(())
    }

    fn gather(
        &self,
        session: SessionId,
        first: u64,
        happened: &[Happening],
    ) -> io::Result<Vec<LogLine>> {
        let mut said = self.read_said(session, first)?;
        let mut logs = self.logs_of(session)?;
        let all: Vec<u32> = logs.keys().copied().collect();
        logs.retain(|incarnation, _| *incarnation >= said.of.0);
        let news: Vec<&Happening> =
            happened.iter().filter(|news| news.seq.get() > said.seq).collect();
        for (at, news_now) in news.iter().enumerate() {
            // What was said by those that came before the next one was said before this happened.
            let next = news[at..].iter().find_map(|news| news.begins);
            let before = next.map_or(u32::MAX, Incarnation::get);
            let earlier: Vec<u32> =
                logs.range(..before).map(|(incarnation, _)| *incarnation).collect();
            for incarnation in earlier {
                logs.remove(&incarnation);
                self.hear(session, incarnation, &mut said)?;
            }
            said.add(news_now.level, &news_now.text, news_now.at, Some(news_now.seq.get()), None);
        }
        for incarnation in logs.into_keys() {
            self.hear(session, incarnation, &mut said)?;
        }
        self.write_said(session, &mut said)?;
        // All that they said is written down; the last one may go on.
        for incarnation in all.iter().rev().skip(1) {
            let incarnation = Incarnation::new(*incarnation);
            remove(&self.named(SandboxRef { session, incarnation }, "log"))?;
        }
        let excess = said.lines.len().saturating_sub(MAX_LINES);
        said.lines.drain(..excess);
        Ok(said.lines)
    }

    /// The files of what a session's sandboxes said, with their lengths.
    fn logs_of(&self, session: SessionId) -> io::Result<BTreeMap<u32, u64>> {
        let entries = match fs::read_dir(self.run(session)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries?,
        };
        let mut found = BTreeMap::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log")?.parse().ok());
            if let Some(number) = number {
                found.insert(number, entry.metadata()?.len());
            }
        }
        Ok(found)
    }

    /// Reads on in what a sandbox said.
    fn hear(&self, session: SessionId, incarnation: u32, said: &mut Said) -> io::Result<()> {
        let sandbox = SandboxRef { session, incarnation: Incarnation::new(incarnation) };
        // Before its file is read: what is dead then has said all.
        let is_over = !matches!(self.life(sandbox)?, Life::Alive(_));
        let file = match File::open(self.named(sandbox, "log")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let metadata = file.metadata()?;
        let from = if said.of.0 == incarnation { said.of.1 } else { 0 };
        let skipped = metadata.len().saturating_sub(from).saturating_sub(MAX_READ_BYTES);
        let at = metadata.modified().map_or(Timestamp::from_millis(0), timestamp);
        let mut bytes = Vec::new();
        let mut reader = &file;
        reader.seek(SeekFrom::Start(from + skipped))?;
        reader.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
        let mut place = from + skipped;
        if skipped > 0 {
            let text = format!("({skipped} bytes of what sandbox {incarnation} said are left out)");
            said.add("system", &text, at, None, Some((incarnation, place)));
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = line.ends_with(b"\n") || is_over || line.len() > MAX_LINE_BYTES;
            if !is_whole {
                break;
            }
            place += line.len() as u64;
            let text = String::from_utf8_lossy(line);
            let text = text.trim_end_matches(['\n', '\r']);
            let (level, text) = match text.strip_prefix(STDOUT) {
                Some(text) => ("stdout", text),
                None => ("stderr", text),
            };
            said.add(level, text, at, None, Some((incarnation, place)));
        }
        Ok(())
    }

    fn read_said(&self, session: SessionId, first: u64) -> io::Result<Said> {
        let mut said = Said { next: first, ..Said::default() };
        let file = match File::open(self.run(session).join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(said),
            file => file?,
        };
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            // What a crash has left of a line was never shown to anybody.
            let Ok(record) = serde_json::from_slice::<Record>(&line) else { break };
            if !line.ends_with(b"\n") {
                break;
            }
            said.bytes += line.len() as u64;
            said.take(record);
            line.clear();
        }
        said.next = said.next.max(first);
        Ok(said)
    }

    fn write_said(&self, session: SessionId, said: &mut Said) -> io::Result<()> {
        let fresh = std::mem::take(&mut said.fresh);
        if fresh.is_empty() {
            return Ok(());
        }
        let directory = self.run(session);
        fs::create_dir_all(&directory)?;
        let path = directory.join(NAME);
        let mut bytes = Vec::new();
        for record in &fresh {
            serde_json::to_writer(&mut bytes, record)?;
            bytes.push(b'\n');
        }
        let length = said.bytes + bytes.len() as u64;
        if said.lines.len() > MAX_KEPT_LINES || length > MAX_FILE_BYTES {
            return self.rewrite_said(&directory, said);
        }
        let options =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let mut file = options?;
        file.set_len(said.bytes)?;
        file.seek(SeekFrom::End(0))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        if said.bytes == 0 {
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    }

    /// Leaves the oldest lines out.
    fn rewrite_said(&self, directory: &Path, said: &mut Said) -> io::Result<()> {
        let mut room = MAX_TEXT_BYTES;
        let fits = |line: &&LogLine| {
            room = room.saturating_sub(line.text.len() + 1);
            room > 0
        };
        let kept = said.lines.iter().rev().take(MAX_LINES).take_while(fits).count();
        said.lines.drain(..said.lines.len() - kept);
        let first = said.lines.first().map_or(said.next, |line| line.index);
        let (seq, of) = (Some(said.seq), Some(said.of));
        let mut bytes = Vec::new();
        let heading = Record { index: first, seq, of, ..Record::default() };
        let lines = said.lines.iter().map(|line| Record {
            index: line.index,
            level: Some(line.level.clone()),
            text: line.text.clone(),
            at: line.at.as_millis(),
            seq: None,
            of: None,
        });
        for record in std::iter::once(heading).chain(lines) {
            serde_json::to_writer(&mut bytes, &record)?;
            bytes.push(b'\n');
        }
        let unfinished = directory.join(format!("{NAME}.new"));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(unfinished, directory.join(NAME))?;
        File::open(directory)?.sync_all()
    }
}

impl Said {
    fn take(&mut self, record: Record) {
        self.seq = record.seq.map_or(self.seq, |seq| seq.max(self.seq));
        self.of = record.of.map_or(self.of, |of| of.max(self.of));
        let Some(level) = record.level else {
            self.next = record.index;
            return;
        };
        self.next = record.index + 1;
        let (index, text, at) = (record.index, record.text, Timestamp::from_millis(record.at));
        self.lines.push(LogLine { index, level, text, at });
    }

    fn add(
        &mut self,
        level: &str,
        text: &str,
        at: Timestamp,
        seq: Option<u64>,
        of: Option<(u32, u64)>,
    ) {
        let mut text = text.to_owned();
        if text.len() > MAX_LINE_BYTES {
            text.truncate(text.floor_char_boundary(MAX_LINE_BYTES));
            text.push('…');
        }
        let record = || Record {
            index: self.next,
            level: Some(level.to_owned()),
            text: text.clone(),
            at: at.as_millis(),
            seq,
            of,
        };
        let (written, taken) = (record(), record());
        self.fresh.push(written);
        self.take(taken);
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or_default())
}

#[cfg(test)]
mod test {
    use super::*;

    const SESSION: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    struct World {
        files: Files,
        session: SessionId,
        _dir: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let files = Files::open(dir.path()).unwrap();
            let session = SESSION.parse().unwrap();
            files.make_directories(session).unwrap();
            Self { files, session, _dir: dir }
        }

        fn sandbox(&self, incarnation: u32) -> SandboxRef {
            SandboxRef { session: self.session, incarnation: Incarnation::new(incarnation) }
        }

        fn says(&self, incarnation: u32, text: &str) {
            self.files.log(self.sandbox(incarnation)).unwrap().write_all(text.as_bytes()).unwrap();
        }

        fn read(&self, happened: &[Happening]) -> Vec<String> {
            let lines = self.files.said(self.session, 0, happened).unwrap();
            assert!(lines.is_sorted_by(|a, b| a.index < b.index), "{lines:?}");
            lines.into_iter().map(|line| format!("{} {}", line.index, line.text)).collect()
        }
    }

    fn happened(seq: u64, text: &str, begins: Option<u32>) -> Happening {
        let (at, level, text) = (Timestamp::from_millis(7), "system", text.to_owned());
        Happening { seq: Seq::new(seq), at, level, text, begins: begins.map(Incarnation::new) }
    }

    #[test]
    fn lines_are_numbered_once_in_the_order_of_the_sandboxes() {
        let world = World::new();
        let all = [
            happened(2, "up 1", Some(1)),
            happened(5, "stopped", None),
            happened(7, "up 2", Some(2)),
            happened(9, "paused", None),
        ];
        world.says(1, "one\ntwo");
        world.says(2, "three\n");
        let expected = ["0 up 1", "1 one", "2 two", "3 stopped", "4 up 2", "5 three", "6 paused"];
        assert_eq!(world.read(&all), expected);
        assert_eq!(world.files.said_through(world.session).unwrap(), Seq::new(9));
        assert_eq!(world.files.logs_of(world.session).unwrap().len(), 1, "the first is not needed");
        // The same is not told again, and what is new comes behind.
        world.says(2, "four\n");
        let told = world.read(&all);
        assert_eq!(
            (&told[..7], &told[7..]),
            (&expected.map(str::to_owned)[..], &["7 four".to_owned()][..])
        );
    }

    #[test]
    fn what_a_crash_left_of_a_line_is_not_there() {
        let world = World::new();
        world.says(1, "one\n");
        assert_eq!(world.read(&[]), ["0 one"]);
        let path = world.files.run(world.session).join(NAME);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"index\":1,\"level\":\"stderr\",\"te").unwrap();
        world.says(1, "two\n");
        assert_eq!(world.read(&[]), ["0 one", "1 two"]);
        assert_eq!(world.read(&[]), ["0 one", "1 two"]);
    }

    #[test]
    fn what_is_too_much_is_left_out_and_numbers_go_on() {
        let world = World::new();
        let long = format!("{}\n", "x".repeat(999));
        world.says(1, &long.repeat(3_000));
        let told = world.files.said(world.session, 0, &[]).unwrap();
        assert!(
            told[0].text.contains("bytes of what sandbox 1 said are left out"),
            "{}",
            told[0].text
        );
        let next = told.last().unwrap().index + 1;
        for round in 0..12 {
            world.says(1, &long.repeat(1_000));
            let told = world.files.said(world.session, 0, &[]).unwrap();
            assert_eq!(told.last().unwrap().index, next + (round + 1) * 1_000 - 1);
        }
        let length = fs::metadata(world.files.run(world.session).join(NAME)).unwrap().len();
        assert!(length < MAX_FILE_BYTES, "{length}");
        world.says(1, "the end\n");
        let last = world.files.said(world.session, 0, &[]).unwrap().pop().unwrap();
        assert_eq!((last.index, last.text.as_str()), (next + 12_000, "the end"));
        let very_long = "y".repeat(3 * MAX_LINE_BYTES) + "\n";
        world.says(1, &very_long);
        let last = world.files.said(world.session, 0, &[]).unwrap().pop().unwrap();
        assert_eq!(last.text.chars().count(), MAX_LINE_BYTES + 1);
    }

    #[test]
    fn sandboxes_that_nobody_reads_of_do_not_fill_the_disk() {
        let world = World::new();
        for incarnation in 1..=60 {
            world.says(incarnation, &format!("of {incarnation}\n"));
            if incarnation > 1 {
                world.files.forget(world.sandbox(incarnation - 1)).unwrap();
            }
            assert!(world.files.logs_of(world.session).unwrap().len() <= MAX_UNREAD + 2);
        }
        let told = world.read(&[]);
        assert_eq!((told.len(), told[59].as_str()), (60, "59 of 60"));
    }

    #[test]
    fn the_numbers_of_another_history_begin_higher() {
        let world = World::new();
        world.says(1, "one\n");
        let first = |from| world.files.said(world.session, from, &[]).unwrap()[0].index;
        assert_eq!(first(1_000), 1_000);
        assert_eq!(first(1_000), 1_000);
    }
}
