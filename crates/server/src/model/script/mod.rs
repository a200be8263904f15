//! What the model is told to do: the vocabulary, the script file, and which answer is due.
//!
//! A script is a list of rules; a rule is a condition and a list of steps; steps make answers, one
//! per round. The same steps may stand in a prompt. `docs/scripted-model.md` is the manual.

mod file;
mod parse;
mod plan;
mod print;
pub(crate) mod step;
#[cfg(test)]
mod test;

use std::path::{Path, PathBuf};
use std::{fs, io};

pub(crate) use parse::step as parse_step;
pub(crate) use plan::{Answer, answers};
use step::Step;

/// A script file that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    defaults: Vec<Step>,
    rules: Vec<Rule>,
}

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file is not there, or is not text.
    #[error("could not read the script {}", path.display())]
    Read {
        /// The file that was asked for.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A line is not understood.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from one.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// Steps, and when they apply.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    conditions: Vec<Condition>,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Any,
    Prompt(Pattern),
    Model(Pattern),
    System(Pattern),
    Turn(u64),
    Round(u64),
}

/// Text that must occur; a `*` in it stands for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern(String);

/// What a rule can look at.
pub(crate) struct Situation<'a> {
    pub(crate) prompt: &'a str,
    pub(crate) model: &'a str,
    pub(crate) system: &'a str,
    pub(crate) turn: u64,
    pub(crate) round: u64,
}

impl Script {
    /// Reads a script from a file.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is not understood.
    pub fn read(path: &Path) -> Result<Self, ScriptError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ScriptError::Read { path: path.to_owned(), source })?;
        Self::parse(&text)
    }

    /// Reads a script.
    ///
    /// # Errors
    /// A line is not understood.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        file::parse(text)
    }

    /// What the first rule that applies answers in this round; `None` if no rule applies.
    pub(crate) fn answer(&self, situation: &Situation<'_>) -> Option<Due> {
        let rule = self.rules.iter().find(|rule| rule.applies(situation))?;
        // A rule for one round has one answer, for that round.
        let first = rule.round().unwrap_or(1);
        Some(due(&rule.steps, situation.round - first))
    }

    /// What every answer has that does not say otherwise.
    pub(crate) fn defaults(&self) -> Answer {
        answers(&self.defaults).unwrap_or_default().into_iter().next().unwrap_or_default()
    }
}

/// The answer of a round.
pub(crate) enum Due {
    Answer(Answer),
    /// The script has fewer answers than there were rounds.
    Over,
}

/// The answer of a round, counted from zero.
pub(crate) fn due(steps: &[Step], round: u64) -> Due {
    // What cannot be planned was refused when it was read.
    let mut planned = answers(steps).unwrap_or_default();
    match usize::try_from(round) {
        Ok(round) if round < planned.len() => Due::Answer(planned.swap_remove(round)),
        _ => Due::Over,
    }
}

impl Rule {
    fn applies(&self, situation: &Situation<'_>) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::Any => true,
            Condition::Prompt(pattern) => pattern.occurs_in(situation.prompt),
            Condition::Model(pattern) => pattern.occurs_in(situation.model),
            Condition::System(pattern) => pattern.occurs_in(situation.system),
            Condition::Turn(turn) => *turn == situation.turn,
            Condition::Round(round) => *round == situation.round,
        })
    }

    fn round(&self) -> Option<u64> {
        self.conditions.iter().find_map(|condition| match condition {
            Condition::Round(round) => Some(*round),
            Condition::Any
            | Condition::Prompt(_)
            | Condition::Model(_)
            | Condition::System(_)
            | Condition::Turn(_) => None,
        })
    }
}

impl Pattern {
    fn occurs_in(&self, mut text: &str) -> bool {
        self.0.split('*').all(|piece| match text.find(piece) {
            Some(at) => {
                text = &text[at + piece.len()..];
                true
            }
            None => false,
        })
    }
}
