//! What the agent asks about before it does it.

use serde_json::json;
use serde_json::value::RawValue;

use super::agent::Agent;
use super::memory::shortened;
use super::tools::Outcome;
use crate::questions::Decided;

/// How much of an input that somebody changed is told to the model.
const MAX_TOLD_BYTES: usize = 2_000;

/// How much an agent may do by itself. Reading never asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Everything.
    Bypass,
    /// Nothing that changes something.
    Default,
    /// Changing files of the workspace.
    AcceptEdits,
    /// Nothing that changes something, and there is no point in asking.
    Plan,
}

/// What becomes of a call before it is run.
#[derive(Debug, PartialEq, Eq)]
enum Rule {
    Run,
    Ask,
    Refuse,
}

/// What came of asking.
pub(super) enum Permitted {
    AsAsked,
    With(Box<RawValue>),
    No(Outcome),
}

impl Mode {
    /// Nothing said is no question asked; what is not understood is the strictest of those that ask.
    pub(super) fn read(said: Option<&str>) -> Self {
        match said {
            // This agent has no rules of its own that could say otherwise.
            None | Some("bypassPermissions" | "permissionsByAgent") => Self::Bypass,
            Some("acceptEdits") => Self::AcceptEdits,
            Some("plan") => Self::Plan,
            Some(_) => Self::Default,
        }
    }

    fn rule(self, tool: &str) -> Rule {
        let edits = matches!(tool, "write_file" | "edit_file" | "apply_patchset");
        match self {
            _ if matches!(tool, "read_file" | "list_files") => Rule::Run,
            Self::Bypass => Rule::Run,
            Self::AcceptEdits if edits => Rule::Run,
            // Also what a server calls reading: that is its word, and nobody else's.
            Self::AcceptEdits | Self::Default => Rule::Ask,
            Self::Plan => Rule::Refuse,
        }
    }
}

/// What is to be said about a mode that is not understood.
pub(super) fn problem(mode: &str) -> Option<String> {
    let known = ["bypassPermissions", "permissionsByAgent", "default", "acceptEdits", "plan"];
    (!known.contains(&mode))
        .then(|| format!("the permission mode {mode:?} is not known: everything is asked about"))
}

/// Tells the model that something else was done than it wanted.
pub(super) fn with_note(mut outcome: Outcome, input: &RawValue) -> Outcome {
    let input = shortened(input.get(), MAX_TOLD_BYTES);
    let text = format!("[The user had this run with another input: {input}]");
    outcome.content.insert(0, json!({ "type": "text", "text": text }));
    outcome
}

impl Agent<'_> {
    /// Whether a call may be run, which may take as long as somebody needs to answer.
    pub(super) async fn permitted(&self, tool: &str, input: &RawValue) -> Permitted {
        match self.mode.rule(tool) {
            Rule::Run => return Permitted::AsAsked,
            Rule::Refuse => {
                return Permitted::No(Outcome::error(
                    "not run: only plans are made now, and this may change something",
                ));
            }
            Rule::Ask => {}
        }
        match self.questions.ask(self.reports, tool, input.to_owned(), self.interrupt).await {
            Decided::Allowed { input: None } => Permitted::AsAsked,
            Decided::Allowed { input: Some(input) } => Permitted::With(input),
            Decided::Denied { message } => {
                Permitted::No(Outcome::error(format!("not run: {message}")))
            }
            Decided::Withdrawn => Permitted::No(Outcome::error("not run: interrupted by the user")),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_mode_says_what_is_asked_about() {
        let reading = ["read_file", "list_files"];
        let editing = ["write_file", "edit_file", "apply_patchset"];
        let other = ["bash", "mcp__git__log"];
        let rules = |mode: Mode, tools: &[&str]| {
            let mut rules: Vec<Rule> = tools.iter().map(|tool| mode.rule(tool)).collect();
            rules.dedup();
            rules
        };
        let expected = [
            (Mode::Bypass, Rule::Run, Rule::Run),
            (Mode::AcceptEdits, Rule::Run, Rule::Ask),
            (Mode::Default, Rule::Ask, Rule::Ask),
            (Mode::Plan, Rule::Refuse, Rule::Refuse),
        ];
        for (mode, edits, others) in expected {
            assert_eq!(rules(mode, &reading), [Rule::Run], "{mode:?}");
            assert_eq!(rules(mode, &editing), [edits], "{mode:?}");
            assert_eq!(rules(mode, &other), [others], "{mode:?}");
        }
    }

    #[test]
    fn a_mode_that_is_not_known_asks_and_is_spoken_of() {
        assert_eq!(Mode::read(Some("yolo")), Mode::Default);
        assert!(problem("yolo").unwrap().contains("yolo"));
        for known in ["bypassPermissions", "permissionsByAgent", "default", "acceptEdits", "plan"] {
            assert_eq!(problem(known), None);
        }
        assert_eq!(Mode::read(None), Mode::Bypass);
        assert_eq!(Mode::read(Some("permissionsByAgent")), Mode::Bypass);
    }
}
