//! What was said in the session, in words, in a file of ours.
//!
//! The program remembers as long as it lives and no longer. So what a person said and what the agent answered is written
//! down, in the lines that our own agent has (`docs/builtin-agent.md`): the server proves the file, brings it back from snapshots
//! and makes it anew from the log as it does there. A program that was started anew is told from it.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::journal::{Journal, Repair};

/// How much of one message is written down, and how much of all of them is told again, in bytes.
const MAX_MESSAGE_BYTES: usize = 32 * 1024;
const MAX_TOLD_BYTES: usize = 128 * 1024;

const CUT_OFF: &str = "[This turn was cut off before it finished.]";

#[derive(Deserialize)]
struct Line {
    turn: Option<u32>,
    message: Option<Message>,
    turn_end: Option<u32>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Value,
}

/// The record of a session.
#[derive(Debug)]
pub(super) struct Record {
    journal: Journal,
    repair: Option<Repair>,
    turns: u32,
    told: Told,
}

/// What is told again.
#[derive(Debug, Default)]
struct Told {
    messages: VecDeque<String>,
    bytes: usize,
    is_short: bool,
    /// Whether the last turn has no end.
    is_open: bool,
}

impl Told {
    fn take(&mut self, role: &str, text: &str) {
        let who = if role == "user" { "The person" } else { "You" };
        let message = format!("{who}: {}", shortened(text, MAX_MESSAGE_BYTES));
        self.bytes += message.len();
        self.messages.push_back(message);
        while self.bytes > MAX_TOLD_BYTES
            && let Some(oldest) = self.messages.pop_front()
        {
            self.bytes -= oldest.len();
            self.is_short = true;
        }
    }

    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_open, true) {
            self.take("assistant", CUT_OFF);
        }
    }
}

impl Record {
    /// Reads the record back and repairs its end.
    pub(super) fn open(home: &Path) -> io::Result<Self> {
        let path = home.join(".ash/conversation.jsonl");
        let (mut turns, mut told) = (0, Told::default());
        let (journal, repair) = Journal::open(&path, |line: Line| {
            let Line { turn, message, turn_end } = line;
            if let Some(turn) = turn.filter(|turn| *turn > turns) {
                turns = turn;
                told.begin();
            }
            if let Some(Message { role, content }) = message {
                let text = words(&content);
                if !text.is_empty() {
                    told.take(&role, &text);
                }
            }
            if turn_end.is_some() {
                told.is_open = false;
            }
        })?;
        let repair = Some(repair).filter(|repair| *repair != Repair::default());
        Ok(Self { journal, repair, turns, told })
    }

    /// What was done to the file when it was opened, once.
    pub(super) fn take_repair(&mut self) -> Option<Repair> {
        self.repair.take()
    }

    /// How many turns there were.
    pub(super) fn turns(&self) -> u32 {
        self.turns
    }

    /// What was said, for somebody who was not there; nothing, if nothing was.
    pub(super) fn told(&self) -> Option<String> {
        let Told { messages, is_short, is_open, .. } = &self.told;
        if messages.is_empty() {
            return None;
        }
        let mut parts = Vec::new();
        if *is_short {
            parts.push("[What was said first is left out.]");
        }
        parts.extend(messages.iter().map(String::as_str));
        if *is_open {
            parts.push(CUT_OFF);
        }
        Some(parts.join("\n\n"))
    }

    /// Writes a prompt down. It is on disk when this returns.
    pub(super) fn begin(&mut self, run: &str, content: &Value) -> io::Result<()> {
        self.told.begin();
        self.turns += 1;
        let text = words(content);
        self.say(run, "user", if text.is_empty() { "[something that is no text]" } else { &text })?;
        self.journal.sync()
    }

    /// Writes down what the agent said. Not synced: the end of the turn is.
    pub(super) fn answer(&mut self, run: &str, text: &str) -> io::Result<()> {
        self.say(run, "assistant", text)
    }

    /// Writes down that the turn is over. Everything is on disk when this returns.
    pub(super) fn end(&mut self, run: &str, how: &str) -> io::Result<()> {
        self.told.is_open = false;
        self.append(&json!({ "v": 1, "run": run, "turn_end": self.turns, "how": how }))?;
        self.journal.sync()
    }

    /// How many bytes there are, their hash, and how many turns are in them.
    pub(super) fn fingerprint(&self) -> (u64, String, u32) {
        let (bytes, hash) = self.journal.fingerprint();
        (bytes, hash, self.turns)
    }

    fn say(&mut self, run: &str, role: &str, text: &str) -> io::Result<()> {
        let text = shortened(text, MAX_MESSAGE_BYTES);
        self.told.take(role, &text);
        let content = [json!({ "type": "text", "text": text })];
        let message = json!({ "role": role, "content": content });
        self.append(&json!({ "v": 1, "run": run, "turn": self.turns, "message": message }))
    }

    fn append(&mut self, line: &Value) -> io::Result<()> {
        self.journal.append(format!("{line}\n").as_bytes())
    }
}

/// What somebody said in words.
pub(super) fn words(content: &Value) -> String {
    if let Value::String(text) = content {
        return text.clone();
    }
    let blocks = content.as_array().into_iter().flatten();
    let texts = blocks.filter(|block| block["type"] == "text");
    texts.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most);
    format!("{} […]", &text[..end])
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_was_said_is_told_again() {
        let home = tempfile::tempdir().unwrap();
        let mut record = Record::open(home.path()).unwrap();
        assert_eq!((record.turns(), record.told()), (0, None));
        record.begin("r1", &json!("Hello")).unwrap();
        record.answer("r1", "Hi.").unwrap();
        record.end("r1", "end_turn").unwrap();
        record.begin("r2", &json!([{ "type": "image" }])).unwrap();
        let (told, fingerprint) = (record.told().unwrap(), record.fingerprint());
        assert_eq!(
            told,
            "The person: Hello\n\nYou: Hi.\n\nThe person: [something that is no text]\n\n[This turn was cut off before it finished.]"
        );
        drop(record);
        let mut record = Record::open(home.path()).unwrap();
        assert_eq!((record.told().unwrap(), record.fingerprint()), (told, fingerprint));
        record.begin("r3", &json!("Go on")).unwrap();
        record.end("r3", "end_turn").unwrap();
        let told = record.told().unwrap();
        assert!(
            told.ends_with("You: [This turn was cut off before it finished.]\n\nThe person: Go on"),
            "{told}"
        );
        assert_eq!((record.turns(), record.take_repair()), (3, None));
    }

    #[test]
    fn a_long_session_is_told_from_its_end() {
        let home = tempfile::tempdir().unwrap();
        let mut record = Record::open(home.path()).unwrap();
        for number in 0..100 {
            let run = format!("r{number}");
            record.begin(&run, &json!(format!("{number} {}", "ü".repeat(40_000)))).unwrap();
            record.end(&run, "end_turn").unwrap();
        }
        for told in [record.told().unwrap(), Record::open(home.path()).unwrap().told().unwrap()] {
            assert!(told.starts_with("[What was said first is left out.]"));
            assert!(told.contains("The person: 99 ü") && !told.contains("The person: 1 "));
            assert!(told.len() < 2 * MAX_TOLD_BYTES);
        }
    }
}
