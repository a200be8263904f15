//! What an agent is told about itself.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::memory::{Memory, Scope};

/// How much of a project's own instructions is taken.
const MAX_INSTRUCTIONS_BYTES: u64 = 64 * 1024;

const MAIN: &str = "You are a coding agent. You work on your own in a sandbox, with the tools you \
    are given; nobody answers questions while you work, so decide, do, check, and say at the end \
    what you did and what is left.\n\
    - Look before you change: read a file before you edit it, and run what you changed.\n\
    - Keep your plan and open tasks current with update_memory when work takes more than a few \
    steps: old messages may be left out, the memory stays.\n\
    - delegate_coder hands a well-described, separate piece of programming to a coder with the \
    same tools and a conversation of its own. It knows only what you tell it.\n\
    - This process can be stopped and started again at any moment. When a tool's outcome is \
    unknown, find out what happened before you repeat it.";

const CODER: &str = "You are a coder. You were given one task by another agent; you know only what \
    it told you, and your last message is all it will read. Do the task with the tools you are \
    given, check that it works, and end with a short account: what you changed, in which files, \
    how you checked it, and what is left.\n\
    - Look before you change: read a file before you edit it.\n\
    - Keep your plan and open tasks current with update_memory.\n\
    - When a tool's outcome is unknown, find out what happened before you repeat it.";

/// The system prompt, without the memory.
pub(super) fn of(scope: &Scope, workspace: &Path) -> String {
    let text = match scope {
        Scope::Main => MAIN,
        Scope::Coder { .. } => CODER,
    };
    let mut system = format!("{text}\n\nThe workspace is {}.", workspace.display());
    if let Some(instructions) = instructions(&workspace.join("CLAUDE.md")) {
        system.push_str("\n\nThe project's own instructions (CLAUDE.md):\n");
        system.push_str(&instructions);
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
