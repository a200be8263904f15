//! A conversation that survives the process: every message is on disk before the next step depends
//! on it.
//!
//! The file has it all, one message to a line; memory has what is still sent to the model. A crash
//! can leave three things behind, and each is put right before anything is sent: half a line (see
//! [`Journal`]), a tool that was called and has no result, and a turn without an end. The last two
//! are told to the model, because only it can find out what really happened.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::rc::Rc;

use ash_protocol::Ending;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::context::{self, Room};
use super::delegate::DELEGATE_CODER;
use super::memory::{Memory, Remembered};
use super::message::{Block, Kind, Message, Role};
use super::request::sanitized;
use crate::journal::{Journal, Repair};

const VERSION: u32 = 1;

const UNKNOWN_OUTCOME: &str = "outcome unknown: the process ended before this tool's result was \
                               recorded; it may or may not have taken effect. Check before \
                               repeating it.";

/// How often, while a file is read, what is held is brought down to what will be sent: each time
/// it has grown by this.
const LOAD_STEP_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Conversation {
    journal: Journal,
    run: String,
    turns: u64,
    previous: Previous,
    messages: Vec<Message>,
    rejected: bool,
    /// The ids of all tool calls in the file, also of those that are no longer sent.
    called: HashSet<Rc<str>>,
    /// Results of tools whose message is not complete yet.
    results: Vec<Block>,
    left_out: u64,
    memory: Memory,
    coder: Option<Remembered>,
    repair: Repair,
}

/// How the turn before this one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Previous {
    Ended,
    Interrupted,
    CutOff,
}

#[derive(Deserialize)]
struct Line {
    #[expect(dead_code, reason = "a line without a version is none of ours")]
    v: u32,
    run: Option<String>,
    turn: Option<u64>,
    message: Option<Box<RawValue>>,
    memory: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    plain: Option<usize>,
    turn_end: Option<u64>,
    how: Option<String>,
}

#[derive(Serialize)]
struct NewLine<'a> {
    v: u32,
    run: &'a str,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum What<'a> {
    Message { turn: u64, message: &'a Message },
    Memory { turn: u64, memory: &'a Remembered },
    Result { turn: u64, result: &'a RawValue },
    Plain { turn: u64, plain: usize },
    End { turn_end: u64, how: &'a str },
}

impl Conversation {
    /// Reads a conversation back, as far as there is room for it, and repairs it.
    pub(super) fn open(path: &Path, room: Room) -> io::Result<Self> {
        let mut loaded = Loaded::default();
        let (journal, repair) = Journal::open(path, |line| loaded.take(line, room))?;
        let Loaded { run, turns, previous, messages, results, called, left_out, .. } = loaded;
        let Loaded { memory, coder, .. } = loaded;
        let previous = previous.unwrap_or(Previous::Ended);
        let mut conversation = Self {
            journal,
            run,
            turns,
            previous,
            messages,
            rejected: false,
            called,
            results,
            left_out,
            memory,
            coder,
            repair,
        };
        conversation.answer_dangling()?;
        Ok(conversation)
    }

    /// Begins a turn with a prompt. If the one before has no end, the model is told so: in its own
    /// name where it did not get to answer, so that two prompts never run together, and in front of
    /// the prompt otherwise.
    pub(super) fn begin(&mut self, run: &str, mut prompt: Vec<Block>) -> io::Result<()> {
        self.answer_dangling()?;
        if self.messages.last().is_some_and(|last| last.role == Role::User) {
            let note = match self.previous {
                Previous::Ended => "[This turn ended before it was answered.]",
                Previous::Interrupted => "[The user interrupted this turn.]",
                Previous::CutOff => "[This turn was cut off before it finished.]",
            };
            self.push(Message { role: Role::Assistant, blocks: vec![Block::text(note)] })?;
        } else {
            let note = match self.previous {
                Previous::Ended => None,
                Previous::Interrupted => Some("[The user interrupted the previous turn.]"),
                Previous::CutOff => Some("[The previous turn was cut off before it finished.]"),
            };
            prompt.splice(0..0, note.map(Block::text));
        }
        run.clone_into(&mut self.run);
        self.turns += 1;
        self.rejected = false;
        self.push(Message { role: Role::User, blocks: prompt })?;
        self.previous = Previous::CutOff;
        Ok(())
    }

    /// Adds a message. It is on disk when this returns. One that says nothing is not added: no
    /// model takes it.
    pub(super) fn push(&mut self, message: Message) -> io::Result<()> {
        if message.blocks.is_empty() {
            return Ok(());
        }
        self.write(What::Message { turn: self.turns, message: &message })?;
        self.journal.sync()?;
        self.called.extend(message.calls().cloned());
        self.messages.push(message);
        self.results.clear();
        Ok(())
    }

    /// Notes the result of a tool while others of the same message still run, so that a crash
    /// makes only the outcome of those unknown.
    pub(super) fn note_result(&mut self, result: Block) -> io::Result<()> {
        self.write(What::Result { turn: self.turns, result: result.raw_value() })?;
        self.results.push(result);
        Ok(())
    }

    /// Notes a memory. It is on disk with the next message: nothing depends on it before.
    pub(super) fn remember(&mut self, remembered: Remembered) -> io::Result<()> {
        self.write(What::Memory { turn: self.turns, memory: &remembered })?;
        if remembered.is_main() {
            self.memory = remembered.memory;
        } else {
            self.coder = Some(remembered);
        }
        Ok(())
    }

    /// Ends the turn.
    pub(super) fn end(&mut self, ending: &Ending) -> io::Result<()> {
        let (how, previous) = match ending {
            Ending::EndTurn => ("end_turn", Previous::Ended),
            Ending::MaxTurns => ("max_turns", Previous::Ended),
            Ending::Budget => ("budget", Previous::Ended),
            Ending::Quota => (QUOTA, Previous::CutOff),
            Ending::Interrupted => (INTERRUPTED, Previous::Interrupted),
            Ending::Failed { .. } if self.rejected => (REJECTED, Previous::CutOff),
            Ending::Failed { .. } | Ending::Refused { .. } => (FAILED, Previous::CutOff),
        };
        self.previous = previous;
        if how == REJECTED {
            make_turn_plain(&mut self.messages);
        }
        self.write(What::End { turn_end: self.turns, how })?;
        self.journal.sync()
    }

    /// Leaves only text in one message from now on, and says whether that changed anything: in the
    /// one that the model has named, by its place in what was sent, or else in the newest. It is in
    /// the file as well, so that another process sends the same.
    pub(super) fn leave_out(&mut self, named: Option<usize>) -> io::Result<bool> {
        let count = self.messages.len();
        // A place says something only as long as every message was sent as one. What it says must
        // also hold in the file, where the first one is further from the end if some are left out.
        let named = named
            .filter(|&at| at < count && (at > 0 || self.left_out == 0))
            .filter(|_| sanitized(&self.messages, 0).len() == count);
        let has_more = |&at: &usize| !self.messages[at].is_plain();
        let Some(at) = named.into_iter().chain(count.checked_sub(1)).find(has_more) else {
            return Ok(false);
        };
        let plain = count - at;
        self.write(What::Plain { turn: self.turns, plain })?;
        make_plain(&mut self.messages, plain);
        Ok(true)
    }

    /// Whether a tool was called under this id before.
    pub(super) fn has_called(&self, id: &str) -> bool {
        self.called.contains(id)
    }

    /// Notes that the model does not take what this turn has added. From the turn's end on it is
    /// sent as text only, so that one bad picture does not end the whole conversation.
    pub(super) fn reject(&mut self) {
        self.rejected = true;
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// How many messages are in the file but are no longer sent.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Brings what is sent down to the room there is.
    pub(super) fn trim(&mut self, room: Room) -> Option<context::Trimmed> {
        let trimmed = context::fit(&mut self.messages, room)?;
        self.left_out += trimmed.dropped_messages;
        Some(trimmed)
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What was repaired, once.
    pub(super) fn take_repair(&mut self) -> Option<Repair> {
        let repair = std::mem::take(&mut self.repair);
        (repair != Repair::default()).then_some(repair)
    }

    /// The file's size and hash, and how many turns are in it.
    pub(super) fn fingerprint(&self) -> (u64, String, u64) {
        let (bytes, hash) = self.journal.fingerprint();
        (bytes, hash, self.turns)
    }

    /// Answers tools that were called when the process ended.
    fn answer_dangling(&mut self) -> io::Result<()> {
        let Some(last) = self.messages.last().filter(|last| last.role == Role::Assistant) else {
            return Ok(());
        };
        let noted = |wanted: &Rc<str>| {
            let is_it =
                |block: &&Block| matches!(&block.kind, Kind::ToolResult { id } if id == wanted);
            self.results.iter().find(is_it).cloned()
        };
        let unknown = |id: &Rc<str>| match &self.coder {
            Some(coder) if coder.is_of(id) && !coder.memory.is_empty() => Block::error_result(
                id,
                &format!(
                    "{UNKNOWN_OUTCOME}\nThe coder's working memory, as of {DELEGATE_CODER}'s last \
                     step:\n{}",
                    coder.memory.in_words()
                ),
            ),
            _ => Block::error_result(id, UNKNOWN_OUTCOME),
        };
        let blocks = last.calls().map(|id| noted(id).unwrap_or_else(|| unknown(id))).collect();
        self.push(Message { role: Role::User, blocks })
    }

    fn write(&mut self, what: What<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(&NewLine { v: VERSION, run: &self.run, what })?;
        line.push(b'\n');
        self.journal.append(&line)
    }
}

const INTERRUPTED: &str = "interrupted";
const FAILED: &str = "failed";
const REJECTED: &str = "rejected";
const QUOTA: &str = "quota";

/// Leaves only text in a message, counted from the end.
fn make_plain(messages: &mut [Message], from_end: usize) {
    let at = messages.len().checked_sub(from_end);
    if let Some(message) = at.and_then(|at| messages.get_mut(at)) {
        context::plain(message);
    }
}

/// Leaves only text in the messages of the last turn. It begins with its prompt, which is never
/// left out, so this means the same whatever was.
fn make_turn_plain(messages: &mut [Message]) {
    let start = messages.iter().rposition(Message::is_prompt).unwrap_or(0);
    messages[start..].iter_mut().for_each(context::plain);
}

/// What was read so far.
#[derive(Default)]
struct Loaded {
    run: String,
    turns: u64,
    previous: Option<Previous>,
    messages: Vec<Message>,
    results: Vec<Block>,
    left_out: u64,
    memory: Memory,
    coder: Option<Remembered>,
    called: HashSet<Rc<str>>,
    grown_bytes: usize,
}

impl Loaded {
    fn take(&mut self, line: Line, room: Room) {
        if let Some(run) = line.run {
            self.run = run;
        }
        self.turns = self.turns.max(line.turn.unwrap_or(0));
        if let Some(message) = line.message.as_deref().and_then(Message::read) {
            self.previous = Some(Previous::CutOff);
            self.grown_bytes += message.bytes();
            self.called.extend(message.calls().cloned());
            self.messages.push(message);
            self.results.clear();
            if self.grown_bytes > LOAD_STEP_BYTES {
                self.grown_bytes = 0;
                let trimmed = context::fit(&mut self.messages, room);
                self.left_out += trimmed.map_or(0, |trimmed| trimmed.dropped_messages);
            }
        }
        if let Some(plain) = line.plain {
            make_plain(&mut self.messages, plain);
        }
        self.results.extend(line.result.as_deref().and_then(Block::read));
        if let Some(memory) = line.memory {
            match serde_json::from_str::<Remembered>(memory.get()) {
                Ok(remembered) if remembered.is_main() => self.memory = remembered.memory,
                Ok(remembered) => self.coder = Some(remembered),
                Err(_) => {}
            }
        }
        if let Some(turn) = line.turn_end {
            self.turns = self.turns.max(turn);
            if line.how.as_deref() == Some(REJECTED) {
                make_turn_plain(&mut self.messages);
            }
            self.previous = Some(match line.how.as_deref() {
                Some(INTERRUPTED) => Previous::Interrupted,
                Some(FAILED | QUOTA | REJECTED) => Previous::CutOff,
                _ => Previous::Ended,
            });
        }
    }
}

#[cfg(test)]
mod test {
    use serde_json::json;

    use super::super::memory::Scope;
    use super::super::request::test::check;
    use super::*;

    const ROOM: Room = Room { tokens: 1_000_000, bytes: usize::MAX };

    fn call(id: &str) -> Message {
        let call = json!({ "type": "tool_use", "id": id, "name": "bash", "input": {} });
        Message { role: Role::Assistant, blocks: vec![Block::of(&call)] }
    }

    fn result(id: &str) -> Message {
        Message { role: Role::User, blocks: vec![Block::result(id, &[], false)] }
    }

    fn texts(conversation: &Conversation) -> String {
        serde_json::to_string(&sanitized(conversation.messages(), 0)).unwrap()
    }

    #[test]
    fn cut_at_any_byte_it_can_be_gone_on_with() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.jsonl");
        let mut conversation = Conversation::open(&path, ROOM).unwrap();
        conversation.begin("r1", vec![Block::text("first")]).unwrap();
        conversation.push(call("a")).unwrap();
        conversation.push(result("a")).unwrap();
        let mut memory = Memory::default();
        memory.touch("file");
        conversation.remember(Remembered::new(&Scope::Main, &memory)).unwrap();
        conversation.push(call("b")).unwrap();
        conversation.push(result("b")).unwrap();
        conversation.push(Message::text(Role::Assistant, "done")).unwrap();
        conversation.end(&Ending::EndTurn).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let garbage = [&b""[..], b"\0\0\0", b"{\"v\":1,\"tu", b"\xff\n\n"];
        // Every fifth: each costs a few syncs, and four kinds of garbage meet all of them.
        let cuts = (0..=whole.len()).step_by(5);
        for (cut, garbage) in cuts.zip(garbage.into_iter().cycle()) {
            std::fs::write(&path, [&whole[..cut], garbage].concat()).unwrap();
            let mut conversation = Conversation::open(&path, ROOM).unwrap();
            conversation.begin("r2", vec![Block::text("second")]).unwrap();
            let sent = sanitized(conversation.messages(), 0);
            check(&sent).unwrap_or_else(|why| panic!("cut at {cut}: {why}"));
            let before = texts(&conversation);
            let again = Conversation::open(&path, ROOM).unwrap();
            assert_eq!(again.repair, Repair::default(), "cut at {cut}");
            assert_eq!(texts(&again), before, "cut at {cut}");
            let _nothing = std::fs::remove_file(directory.path().join("c.jsonl.damaged-1"));
        }
    }

    #[test]
    fn a_long_file_is_not_held_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.jsonl");
        let mut conversation = Conversation::open(&path, ROOM).unwrap();
        let text = "x".repeat(1024 * 1024);
        for _ in 0..20 {
            conversation.begin("r", vec![Block::text(&text)]).unwrap();
            conversation.end(&Ending::EndTurn).unwrap();
        }
        let room = Room { tokens: 1_000_000, bytes: 4 * 1024 * 1024 };
        let conversation = Conversation::open(&path, room).unwrap();
        let held: usize = conversation.messages().iter().map(Message::bytes).sum();
        assert!(held <= LOAD_STEP_BYTES + room.bytes, "{held}");
        // Each prompt but the last is followed by the note that it was not answered.
        assert_eq!(conversation.messages().len() as u64 + conversation.left_out(), 39);
    }
}
