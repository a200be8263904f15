//! What is written down of the conversation with Claude Code, in a file of ours.
//!
//! The program keeps a transcript of its own, late and unsynced, and repeats each of its lines to us as a
//! *mirror*. Here stand these lines, in the order in which they came, between the prompts that were given and
//! the ends of the turns. The file is the same that our own agent has, so that the server proves it, finds it in
//! snapshots and makes it anew from the log in the same way; what the program needs is made from it (`transcript`).

use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::journal::{Journal, Repair};

/// The longest line that is read back.
const MAX_LINE_BYTES: u64 = 48 * 1024 * 1024;

/// How much of a prompt that the agent never saw is told to it later, in bytes.
pub(super) const MAX_UNSEEN_BYTES: usize = 20_000;

/// How many prompts without an end are remembered.
const MAX_UNFINISHED: usize = 50;

/// How many calls of a turn are remembered that have no result, and how much of what each was called with, in bytes.
const MAX_CALLS: usize = 20;
const MAX_CALL_BYTES: usize = 1_000;

/// A line, as it is read back. What is not known is passed over.
#[derive(Deserialize)]
struct Line {
    turn: Option<u32>,
    run: Option<String>,
    prompt: Option<Box<RawValue>>,
    claude: Option<String>,
    mirror: Option<Box<RawValue>>,
    turn_end: Option<u32>,
    /// It ended before the program saw it, or so that the program forgot it.
    unseen: Option<bool>,
    /// A tool that was called, and one whose result is there.
    call: Option<Call>,
    answered: Option<String>,
    /// What was mirrored from this message on does not count any more.
    cut: Option<String>,
    /// Nothing that was mirrored before counts any more.
    anew: Option<bool>,
}

/// The record of a conversation.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    journal: Journal,
    repair: Option<Repair>,
    turns: u32,
    /// How many of them are not known any more: the conversation was begun anew after them.
    forgotten: u32,
    conversation: Option<String>,
    unfinished: VecDeque<Unfinished>,
}

/// A turn that has no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfinished {
    /// Which run it was: the prompt's own number, as the program knows it.
    pub(super) run: String,
    /// What was asked, as far as it is text.
    pub(super) text: String,
    /// The tools that were called in it and have no result.
    pub(super) calls: Vec<Call>,
}

/// A tool that was called.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Call {
    id: String,
    /// Which, and with what.
    pub(super) what: String,
}

impl Record {
    /// Reads the record back and repairs its end.
    pub(super) fn open(home: &Path) -> io::Result<Self> {
        let path = home.join(".ash/conversation.jsonl");
        let (mut turns, mut forgotten, mut conversation) = (0_u32, 0, None);
        let mut unfinished = VecDeque::new();
        let (journal, repair) = Journal::open(&path, |line: Line| {
            let Line { turn, run, prompt, claude, turn_end, unseen, anew, call, answered, .. } =
                line;
            turns = turns.max(turn.unwrap_or_default());
            forgotten = if anew.is_some() { turns.saturating_sub(1) } else { forgotten };
            conversation = claude.or_else(|| conversation.take().filter(|_| anew.is_none()));
            if let Some(run) = &run {
                call.into_iter().for_each(|call| called(&mut unfinished, run, call));
                answered.iter().for_each(|id| has_result(&mut unfinished, run, id));
            }
            match (run, prompt, turn_end) {
                (Some(run), Some(prompt), _) => remember(&mut unfinished, run, prompt.get()),
                (Some(run), None, Some(_)) if unseen == Some(true) => {
                    unfinished.retain(|cut| cut.run != run);
                }
                (_, None, Some(_)) => unfinished.clear(),
                (_, None, None) | (None, Some(_), _) => {}
            }
        })?;
        let repair = Some(repair).filter(|repair| *repair != Repair::default());
        Ok(Self { path, journal, repair, turns, forgotten, conversation, unfinished })
    }

    /// What was done to the file when it was opened, once.
    pub(super) fn take_repair(&mut self) -> Option<Repair> {
        self.repair.take()
    }

    /// What the program calls the conversation, if it has ever written any of it down.
    pub(super) fn conversation(&self) -> Option<&str> {
        self.conversation.as_deref()
    }

    /// How many turns there were.
    pub(super) fn turns(&self) -> u32 {
        self.turns
    }

    /// The latest turns that were cut off, as far as the agent was not told of them in one that was not.
    pub(super) fn unfinished(&self) -> impl DoubleEndedIterator<Item = &Unfinished> {
        self.unfinished.iter()
    }

    /// Writes a prompt down. It is on disk when this returns.
    pub(super) fn begin(&mut self, run: &str, content: &RawValue) -> io::Result<()> {
        self.turns += 1;
        let prompt = content.get().replace(['\n', '\r'], " ");
        self.append(run, &format!(r#""turn":{},"prompt":{prompt}"#, self.turns))?;
        remember(&mut self.unfinished, run.to_owned(), content.get());
        self.journal.sync()
    }

    /// Writes down that a tool was called. The program does so itself a little later; it may be killed before.
    pub(super) fn call(&mut self, run: &str, id: &str, name: &str, input: &str) -> io::Result<()> {
        let what = shortened(format!("{name} {input}"), MAX_CALL_BYTES);
        let (id_text, what_text) = (quoted(id), quoted(&what));
        self.append(run, &format!(r#""call":{{"id":{id_text},"what":{what_text}}}"#))?;
        called(&mut self.unfinished, run, Call { id: id.to_owned(), what });
        Ok(())
    }

    /// Writes down that a tool that was called has a result.
    pub(super) fn answered(&mut self, run: &str, id: &str) -> io::Result<()> {
        self.append(run, &format!(r#""answered":{}"#, quoted(id)))?;
        has_result(&mut self.unfinished, run, id);
        Ok(())
    }

    /// Writes down what the program has written down. Not synced: the end of the turn is.
    pub(super) fn mirror(
        &mut self,
        run: &str,
        conversation: &str,
        entries: &[Box<RawValue>],
    ) -> io::Result<()> {
        let name = quoted(conversation);
        for entry in entries {
            let entry = entry.get().replace(['\n', '\r'], " ");
            let what = format!(r#""turn":{},"claude":{name},"mirror":{entry}"#, self.turns);
            self.append(run, &what)?;
        }
        self.conversation = Some(conversation.to_owned());
        Ok(())
    }

    /// Writes down that the turn is over. Everything is on disk when this returns.
    pub(super) fn end(&mut self, run: &str, how: &str) -> io::Result<()> {
        self.append(run, &format!(r#""turn_end":{},"how":"{how}""#, self.turns))?;
        self.unfinished.clear();
        self.journal.sync()
    }

    /// The same of a turn that the agent knows nothing of, nor of what it was to be told with it.
    pub(super) fn end_unseen(&mut self, run: &str, how: &str) -> io::Result<()> {
        self.append(run, &format!(r#""turn_end":{},"how":"{how}","unseen":true"#, self.turns))?;
        self.unfinished.retain(|cut| cut.run != run);
        self.journal.sync()
    }

    /// Makes everything that was written down survive.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.journal.sync()
    }

    /// Whether everything that was written down is still there. What cannot be read is not.
    pub(super) fn is_there(&self) -> bool {
        self.journal.is_in(&self.path).unwrap_or(false)
    }

    /// How many bytes there are, their hash, and how many turns are in them that are known.
    pub(super) fn fingerprint(&self) -> (u64, String, u32) {
        let (bytes, hash) = self.journal.fingerprint();
        (bytes, hash, self.turns - self.forgotten)
    }

    /// Writes down that what was mirrored from a message on does not count any more.
    pub(super) fn cut(&mut self, run: &str, uuid: &str) -> io::Result<()> {
        self.append(run, &format!(r#""cut":{}"#, quoted(uuid)))?;
        self.journal.sync()
    }

    /// Writes down that the conversation begins anew, with the turn that was begun last.
    pub(super) fn begin_anew(&mut self, run: &str) -> io::Result<()> {
        self.append(run, r#""anew":true"#)?;
        (self.conversation, self.forgotten) = (None, self.turns.saturating_sub(1));
        self.journal.sync()
    }

    /// Hands every line that the program has written down, and that counts, to `take`, in order.
    pub(super) fn mirrored(&self, mut take: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
        #[derive(Deserialize)]
        struct Named {
            uuid: Option<String>,
        }
        let mut cut: Vec<Range<usize>> = Vec::new();
        let mut names: Vec<Option<String>> = Vec::new();
        self.lines(|line| {
            if let Some(from) = &line.cut
                && let Some(at) = names.iter().position(|name| name.as_ref() == Some(from))
            {
                cut.push(at..names.len());
            }
            if let Some(entry) = &line.mirror {
                names.push(serde_json::from_str::<Named>(entry.get()).ok().and_then(|n| n.uuid));
            }
            Ok(())
        })?;
        let mut count = 0;
        self.lines(|line| {
            let Some(entry) = &line.mirror else { return Ok(()) };
            count += 1;
            let counts = !cut.iter().any(|cut| cut.contains(&(count - 1)));
            if counts && line.claude == self.conversation { take(entry.get()) } else { Ok(()) }
        })
    }

    /// The numbers of all prompts, as the program knows them.
    pub(super) fn prompts(&self) -> io::Result<HashSet<String>> {
        let mut prompts = HashSet::new();
        self.lines(|line| {
            if line.prompt.is_some() {
                prompts.extend(line.run.clone());
            }
            Ok(())
        })?;
        Ok(prompts)
    }

    /// Whether the program has written down anything of the conversation that counts.
    pub(super) fn has_messages(&self) -> io::Result<bool> {
        let mut has = false;
        self.mirrored(|entry| {
            has |= entry.contains("\"uuid\"");
            Ok(())
        })?;
        Ok(has)
    }

    fn lines(&self, mut take: impl FnMut(&Line) -> io::Result<()>) -> io::Result<()> {
        let mut lines = BufReader::with_capacity(64 * 1024, File::open(&self.path)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            for value in serde_json::Deserializer::from_slice(&line).into_iter::<Line>() {
                let Ok(value) = value else { break };
                take(&value)?;
            }
        }
    }

    /// Writes every line that the program has written down, as it would.
    pub(super) fn write_mirrored(&self, out: &mut impl Write) -> io::Result<()> {
        self.mirrored(|entry| {
            out.write_all(entry.as_bytes())?;
            out.write_all(b"\n")
        })
    }

    fn append(&mut self, run: &str, what: &str) -> io::Result<()> {
        let run = quoted(run);
        self.journal.append(format!("{{\"v\":1,\"run\":{run},{what}}}\n").as_bytes())
    }
}

fn remember(unfinished: &mut VecDeque<Unfinished>, run: String, prompt: &str) {
    if unfinished.len() >= MAX_UNFINISHED {
        unfinished.pop_front();
    }
    unfinished.push_back(Unfinished { run, text: text_of(prompt), calls: Vec::new() });
}

fn called(unfinished: &mut VecDeque<Unfinished>, run: &str, call: Call) {
    let turn = unfinished.iter_mut().rev().find(|turn| turn.run == run);
    if let Some(turn) = turn.filter(|turn| turn.calls.len() < MAX_CALLS) {
        turn.calls.push(call);
    }
}

fn has_result(unfinished: &mut VecDeque<Unfinished>, run: &str, id: &str) {
    if let Some(turn) = unfinished.iter_mut().rev().find(|turn| turn.run == run) {
        turn.calls.retain(|call| call.id != id);
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// As much of a text as has room.
fn shortened(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        let end = (0..=max_bytes).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or_default());
    }
    text
}

/// What a prompt says in words.
fn text_of(content: &str) -> String {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Blocks(Vec<Block>),
    }
    #[derive(Deserialize)]
    struct Block {
        text: Option<String>,
    }
    let text = match serde_json::from_str(content) {
        Ok(Content::Text(text)) => text,
        Ok(Content::Blocks(blocks)) => {
            blocks.into_iter().filter_map(|block| block.text).collect::<Vec<_>>().join("\n")
        }
        Err(_) => String::new(),
    };
    shortened(text, MAX_UNSEEN_BYTES)
}

#[cfg(test)]
mod test {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn what_is_written_down_is_read_back() {
        let home = tempfile::tempdir().unwrap();
        let mut record = Record::open(home.path()).unwrap();
        assert_eq!((record.turns(), record.conversation()), (0, None));
        record.begin("r1", &raw(r#"[{"type":"text","text":"hi"},{"type":"image"}]"#)).unwrap();
        record.mirror("r1", "c", &[raw("{\"a\":\n1}"), raw(r#"{"a":2}"#)]).unwrap();
        record.end("r1", "end_turn").unwrap();
        record.begin("r2", &raw(r#""again""#)).unwrap();
        record.mirror("r2", "c", &[raw(r#"{"a":3}"#)]).unwrap();
        let fingerprint = record.fingerprint();
        drop(record);

        let mut record = Record::open(home.path()).unwrap();
        assert_eq!(record.fingerprint(), fingerprint);
        assert_eq!((record.turns(), record.conversation()), (2, Some("c")));
        let cut = Unfinished { run: "r2".to_owned(), text: "again".to_owned(), calls: Vec::new() };
        assert_eq!(record.unfinished().collect::<Vec<_>>(), [&cut]);
        assert_eq!(record.take_repair(), None);
        let mut written = Vec::new();
        record.write_mirrored(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "{\"a\": 1}\n{\"a\":2}\n{\"a\":3}\n");
    }

    #[test]
    fn every_turn_without_an_end_is_remembered_until_the_agent_knows_of_it() {
        let home = tempfile::tempdir().unwrap();
        let mut record = Record::open(home.path()).unwrap();
        let runs = |record: &Record| {
            let runs: Vec<String> = record.unfinished().map(|cut| cut.run.clone()).collect();
            let again = Record::open(home.path()).unwrap();
            assert_eq!(again.unfinished().map(|cut| cut.run.clone()).collect::<Vec<_>>(), runs);
            runs
        };
        for run in ["r1", "r2", "r3"] {
            record.begin(run, &raw(r#""hi""#)).unwrap();
        }
        assert_eq!(runs(&record), ["r1", "r2", "r3"]);
        // One that the agent never saw told it nothing of the others.
        record.end_unseen("r3", "interrupted").unwrap();
        assert_eq!(runs(&record), ["r1", "r2"]);
        record.begin("r4", &raw(r#""hi""#)).unwrap();
        record.end("r4", "end_turn").unwrap();
        assert_eq!(runs(&record), [""; 0]);
        for run in 0..2 * MAX_UNFINISHED {
            record.begin(&run.to_string(), &raw(r#""hi""#)).unwrap();
        }
        assert_eq!(runs(&record).len(), MAX_UNFINISHED);
    }

    #[test]
    fn calls_without_a_result_are_remembered_with_their_turn() {
        let home = tempfile::tempdir().unwrap();
        let mut record = Record::open(home.path()).unwrap();
        record.begin("r1", &raw(r#""hi""#)).unwrap();
        record.call("r1", "t1", "Bash", r#"{"command":"pay \"it\""}"#).unwrap();
        record.call("r1", "t2", "Bash", &format!("{{\"x\":\"{}\"}}", "é".repeat(2_000))).unwrap();
        record.call("nobody's", "t3", "Bash", "{}").unwrap();
        record.answered("r1", "t2").unwrap();
        let calls = |record: &Record| {
            let all = record.unfinished().flat_map(|cut| cut.calls.clone());
            all.map(|call| call.what).collect::<Vec<_>>()
        };
        let expected = [r#"Bash {"command":"pay \"it\""}"#];
        assert_eq!(calls(&record), expected);
        assert_eq!(calls(&Record::open(home.path()).unwrap()), expected);
        for id in 0..2 * MAX_CALLS {
            record.call("r1", &id.to_string(), "Read", "{}").unwrap();
        }
        assert_eq!(calls(&Record::open(home.path()).unwrap()).len(), MAX_CALLS);
        record.end("r1", "end_turn").unwrap();
        assert_eq!(calls(&record), [""; 0]);
    }

    #[test]
    fn a_conversation_that_was_given_up_does_not_come_back() {
        let home = tempfile::tempdir().unwrap();
        let mut record = Record::open(home.path()).unwrap();
        record.begin("r1", &raw(r#""hi""#)).unwrap();
        record.mirror("r1", "c", &[raw(r#"{"a":1}"#)]).unwrap();
        record.begin_anew("r1").unwrap();
        assert_eq!(record.conversation(), None);
        let mut record = Record::open(home.path()).unwrap();
        assert_eq!((record.conversation(), record.turns()), (None, 1));
        record.mirror("r1", "d", &[raw(r#"{"a":2}"#)]).unwrap();
        let mut written = Vec::new();
        Record::open(home.path()).unwrap().write_mirrored(&mut written).unwrap();
        assert_eq!(written, b"{\"a\":2}\n");
    }

    #[test]
    fn turns_before_a_conversation_was_begun_anew_are_not_known() {
        let home = tempfile::tempdir().unwrap();
        let mut record = Record::open(home.path()).unwrap();
        for run in ["r1", "r2", "r3"] {
            record.begin(run, &raw(r#""hi""#)).unwrap();
        }
        record.begin_anew("r3").unwrap();
        assert_eq!((record.turns(), record.fingerprint().2), (3, 1));
        record.begin("r4", &raw(r#""hi""#)).unwrap();
        assert_eq!(record.fingerprint().2, 2);
        assert_eq!(Record::open(home.path()).unwrap().fingerprint(), record.fingerprint());
    }

    #[test]
    fn what_was_cut_off_does_not_come_back() {
        let home = tempfile::tempdir().unwrap();
        let mut record = Record::open(home.path()).unwrap();
        record.begin("r1", &raw(r#""hi""#)).unwrap();
        let entries = ["a", "b", "c"].map(|uuid| raw(&format!(r#"{{"uuid":"{uuid}"}}"#)));
        record.mirror("r1", "c", &entries).unwrap();
        record.cut("r1", "b").unwrap();
        record.cut("r1", "never").unwrap();
        record.mirror("r1", "c", &[raw(r#"{"uuid":"b"}"#), raw(r#"{"uuid":"d"}"#)]).unwrap();
        let mut written = Vec::new();
        Record::open(home.path()).unwrap().write_mirrored(&mut written).unwrap();
        let expected = ["a", "b", "d"].map(|uuid| format!("{{\"uuid\":\"{uuid}\"}}\n")).concat();
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
