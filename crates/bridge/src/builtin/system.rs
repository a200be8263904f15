//! What an agent is told about itself.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::delegate::DELEGATE_CODER;
use super::memory::{Memory, Scope, UPDATE_MEMORY};
use super::selection::Selection;

/// How much of a project's own instructions is taken.
const MAX_INSTRUCTIONS_BYTES: u64 = 64 * 1024;

/// What a loop is told, line by line. What is about one tool is only told to those who have it.
type Lines = &'static [(Option<&'static str>, &'static str)];

const MAIN: Lines = &[
    (
        None,
        "You are a coding agent. You work on your own in a sandbox, with the tools you are given; \
         nobody answers questions while you work, so decide, do, check, and say at the end what you \
         did and what is left.",
    ),
    (None, "- Look before you change: read a file before you edit it, and run what you changed."),
    (
        Some(UPDATE_MEMORY),
        "- Keep your plan and open tasks current with update_memory when work takes more than a few \
         steps: old messages may be left out, the memory stays.",
    ),
    (
        Some(DELEGATE_CODER),
        "- delegate_coder hands a well-described, separate piece of programming to a coder with the \
         same tools and a conversation of its own. It knows only what you tell it.",
    ),
    (
        None,
        "- This process can be stopped and started again at any moment. When a tool's outcome is \
         unknown, find out what happened before you repeat it.",
    ),
];

const CODER: Lines = &[
    (
        None,
        "You are a coder. You were given one task by another agent; you know only what it told you, \
         and your last message is all it will read. Do the task with the tools you are given, check \
         that it works, and end with a short account: what you changed, in which files, how you \
         checked it, and what is left.",
    ),
    (None, "- Look before you change: read a file before you edit it."),
    (Some(UPDATE_MEMORY), "- Keep your plan and open tasks current with update_memory."),
    (None, "- When a tool's outcome is unknown, find out what happened before you repeat it."),
];

/// The system prompt, without the memory.
pub(super) fn of(
    scope: &Scope,
    workspace: &Path,
    selection: &Selection,
    of_session: Option<&str>,
) -> String {
    let lines = match scope {
        Scope::Main => MAIN,
        Scope::Coder { .. } => CODER,
    };
    let mut system = String::new();
    for (tool, line) in lines {
        if tool.is_none_or(|tool| selection.offers(tool)) {
            system.push_str(line);
            system.push('\n');
        }
    }
    system.push_str(&format!("\nThe workspace is {}.", workspace.display()));
    if let Some(instructions) = instructions(&workspace.join("CLAUDE.md")) {
        system.push_str("\n\nThe project's own instructions (CLAUDE.md):\n");
        system.push_str(&instructions);
    }
    if let Some(instructions) = of_session.map(str::trim).filter(|text| !text.is_empty()) {
        system.push_str("\n\nThe instructions of this session, which hold where others differ:\n");
        system.push_str(instructions);
    }
    system
}

/// The memory, as it stands in the system prompt.
pub(super) fn of_memory(memory: &Memory) -> String {
    if memory.is_empty() {
        return String::new();
    }
    format!("Your working memory, as you and your tools left it:\n{}", memory.in_words())
}

fn instructions(path: &Path) -> Option<String> {
    // Anything but a file (a pipe, say) could keep us waiting for ever.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_INSTRUCTIONS_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(text)
}
