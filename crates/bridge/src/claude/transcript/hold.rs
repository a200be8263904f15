//! A transcript held against the record.

use std::collections::{HashMap, HashSet};
use std::io;

use serde_json::Value;

use super::Head;
use crate::claude::record::Record;

/// What was found in a file, beside what the record tells.
#[derive(Default)]
pub(super) struct Held {
    recorded: HashMap<String, Recorded>,
    /// Where the last prompt stands among the recorded lines, and its name.
    last_prompt: Option<(usize, String)>,
    /// What every line follows that was found, by its name.
    follows: HashMap<String, Option<String>>,
    seen: HashMap<String, usize>,
    /// The last message.
    last: Option<String>,
    /// Messages that the record does not tell of, and how many of them stand before one that it tells of.
    strangers: Vec<String>,
    strangers_before: usize,
    last_recorded: Option<String>,
    /// Where the agent's last answer stands among the recorded lines.
    last_answer: usize,
    damaged: usize,
    orphans: usize,
    changed: usize,
    repeated: usize,
}

/// What the record tells of a line.
#[derive(Default)]
struct Recorded {
    /// Where it stands, when it was mirrored first and last.
    first_at: usize,
    at: usize,
    /// What it says: it may have been mirrored more than once, and differently.
    says: Vec<blake3::Hash>,
    /// Whether nothing comes before it.
    is_first: bool,
}

impl Held {
    pub(super) fn against(record: &Record) -> io::Result<Self> {
        let prompts: HashSet<String> = record.prompts()?;
        let mut held = Self::default();
        let mut at = 0;
        record.mirrored(|entry| {
            at += 1;
            let Ok(head) = serde_json::from_str::<Head>(entry) else { return Ok(()) };
            let is_answer = head.is_said() && !head.is_sidechain && head.is_of_the_agent();
            let Head { uuid: Some(uuid), parent_uuid, .. } = head else { return Ok(()) };
            if prompts.contains(&uuid) {
                held.last_prompt = Some((at, uuid.clone()));
            }
            let is_known = held.recorded.contains_key(&uuid);
            let recorded = held.recorded.entry(uuid).or_default();
            if !is_known {
                recorded.first_at = at;
                held.last_answer = if is_answer { at } else { held.last_answer };
            }
            recorded.at = at;
            recorded.is_first = parent_uuid.is_none();
            recorded.says.extend(meaning(entry.as_bytes()));
            Ok(())
        })?;
        Ok(held)
    }

    /// Whether the record tells of a line.
    pub(super) fn has(&self, uuid: &str) -> bool {
        self.recorded.contains_key(uuid)
    }

    /// Whether a line that the record tells of is the last prompt, or came after it.
    pub(super) fn is_of_the_last_turn(&self, uuid: &str) -> bool {
        let last = self.last_prompt.as_ref().map_or(0, |(at, _)| *at);
        self.recorded.get(uuid).is_some_and(|recorded| recorded.at >= last)
    }

    /// Whether the agent has said nothing after a line that the record tells of: what goes on from there leaves nothing
    /// out.
    pub(super) fn is_at_the_end(&self, uuid: &str) -> bool {
        self.recorded.get(uuid).is_some_and(|recorded| recorded.first_at >= self.last_answer)
    }

    /// Takes the next line of the file; it is damaged if it says nothing of itself.
    pub(super) fn take(&mut self, line: &[u8], head: Option<Head>) {
        let Some(head) = head else {
            self.damaged += 1;
            return;
        };
        let is_message = head.is_said() && !head.is_sidechain;
        let Head { uuid: Some(uuid), parent_uuid, .. } = head else { return };
        let seen = self.seen.entry(uuid.clone()).or_default();
        *seen += 1;
        match self.recorded.get(&uuid) {
            Some(recorded) => {
                let is_as_told = meaning(line).is_some_and(|says| recorded.says.contains(&says));
                self.changed += usize::from(!is_as_told);
                self.repeated += usize::from(*seen > recorded.says.len().max(1));
            }
            None => self.repeated += usize::from(*seen > 1),
        }
        let is_orphan = parent_uuid.as_ref().is_some_and(|it| !self.follows.contains_key(it));
        self.orphans += usize::from(is_orphan);
        self.follows.insert(uuid.clone(), parent_uuid);
        if is_message {
            if self.recorded.contains_key(&uuid) {
                self.strangers_before = self.strangers.len();
                self.last_recorded = Some(uuid.clone());
            } else {
                self.strangers.push(uuid.clone());
            }
            self.last = Some(uuid);
        }
    }

    /// What is wrong with the file, once all of it was taken.
    pub(super) fn lacks(&self) -> Option<String> {
        let missing = self.recorded.keys().filter(|uuid| !self.seen.contains_key(*uuid)).count();
        let why = match self {
            _ if self.seen.is_empty() => "there is nothing in it".to_owned(),
            Self { damaged: damaged @ 1.., .. } => format!("{damaged} of its lines are damaged"),
            _ if missing > 0 => format!("{missing} of its lines are missing"),
            Self { changed: changed @ 1.., .. } => {
                format!("{changed} of its lines are not as they were")
            }
            Self { repeated: repeated @ 1.., .. } => {
                format!("{repeated} of its lines are there more than once")
            }
            Self { orphans: orphans @ 1.., .. } => {
                format!("{orphans} of its messages follow none that is there")
            }
            _ if self.has_strayed() => {
                "its last message does not follow the last prompt".to_owned()
            }
            _ if self.leaves_answers_out() => {
                "its last message does not follow the last answer".to_owned()
            }
            _ => match self.intruders() {
                0 => return None,
                others => format!("{others} of its messages are somebody else's"),
            },
        };
        Some(why)
    }

    /// What a message goes back to, itself first.
    fn line_of<'a>(&'a self, from: &'a str) -> impl Iterator<Item = &'a str> {
        let next = |uuid: &&'a str| self.follows.get(*uuid)?.as_deref();
        // Nothing follows itself, unless somebody made it so.
        std::iter::successors(Some(from), next).take(self.follows.len() + 1)
    }

    /// Whether the last message goes on from somewhere before the agent's last answer.
    fn leaves_answers_out(&self) -> bool {
        let Some(last) = &self.last else { return false };
        let known = self.line_of(last).find(|uuid| self.recorded.contains_key(*uuid));
        known.is_some_and(|uuid| !self.is_at_the_end(uuid))
    }

    /// How many messages stand in the middle that nothing of the conversation goes back to: another program has written
    /// them, and ours might go on from there.
    fn intruders(&self) -> usize {
        let (strangers, Some(last)) =
            (&self.strangers[..self.strangers_before], &self.last_recorded)
        else {
            return 0;
        };
        if strangers.is_empty() {
            return 0;
        }
        let ours: HashSet<&str> = self.line_of(last).collect();
        strangers.iter().filter(|uuid| !ours.contains(uuid.as_str())).count()
    }

    /// Whether the last message goes on from somewhere before the last prompt.
    fn has_strayed(&self) -> bool {
        let (Some((at, prompt)), Some(last)) = (&self.last_prompt, &self.last) else {
            return false;
        };
        let mut uuid = last;
        // Nothing follows itself: every line follows one that was there before it.
        for _ in 0..=self.follows.len() {
            if uuid == prompt {
                return false;
            }
            match self.follows.get(uuid) {
                Some(Some(before)) => uuid = before,
                // A summary of all that was said begins anew.
                Some(None) | None => {
                    let recorded = self.recorded.get(uuid);
                    return !recorded.is_some_and(|it| it.is_first && it.at > *at);
                }
            }
        }
        true
    }
}

/// What a line says, however it is spelled.
fn meaning(line: &[u8]) -> Option<blake3::Hash> {
    let value: Value = serde_json::from_slice(line).ok()?;
    Some(blake3::hash(value.to_string().as_bytes()))
}
