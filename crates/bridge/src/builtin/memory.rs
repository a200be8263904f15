//! What an agent keeps in mind, whatever happens to its conversation.
//!
//! Its plan and its open tasks are its own words; the files it touched and the errors it met are
//! noted for it. All of it is bounded, because it stands in every request.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::tools::Definition;

pub(super) const UPDATE_MEMORY: &str = "update_memory";

const MAX_PLAN_CHARS: usize = 8_000;
const MAX_TASKS: usize = 50;
const MAX_TASK_CHARS: usize = 500;
const MAX_FILES: usize = 100;
const MAX_FILE_CHARS: usize = 500;
const MAX_ERRORS: usize = 10;
const MAX_ERROR_CHARS: usize = 300;

/// The memory of one loop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Memory {
    plan: String,
    open_tasks: Vec<String>,
    files_touched: Vec<String>,
    errors: Vec<String>,
}

/// Whose memory it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Main,
    /// A coder, by the call that started it.
    Coder {
        delegation: String,
    },
}

/// A memory as it is reported and written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Remembered {
    scope: String,
    delegation: Option<String>,
    #[serde(flatten)]
    pub(super) memory: Memory,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update {
    plan: Option<String>,
    open_tasks: Option<Vec<String>>,
}

impl Memory {
    pub(super) fn definition() -> Definition {
        Definition {
            name: UPDATE_MEMORY.to_owned(),
            description: "Replaces your plan and your list of open tasks. They survive when old \
                          messages are left out and when this process is restarted: keep them \
                          current while you work on anything that takes more than a few steps."
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "plan": { "type": "string", "description": "The whole plan, in a few lines." },
                    "openTasks": {
                        "type": "array",
                        "items": { "type": "string" },
                        "description": "What is left to do; an empty list when all is done.",
                    },
                },
            }),
        }
    }

    /// Takes what the agent wants to keep in mind. A refusal is for the agent to read.
    pub(super) fn update(&mut self, input: &str) -> Result<(), String> {
        let update: Update = serde_json::from_str(input)
            .map_err(|error| format!("the input of {UPDATE_MEMORY} is not understood: {error}"))?;
        if let Some(plan) = update.plan {
            self.plan = shortened(&plan, MAX_PLAN_CHARS);
        }
        if let Some(tasks) = update.open_tasks {
            let tasks = tasks.iter().take(MAX_TASKS);
            self.open_tasks = tasks.map(|task| shortened(task, MAX_TASK_CHARS)).collect();
        }
        Ok(())
    }

    /// Notes a file that was changed. The last ones are kept.
    pub(super) fn touch(&mut self, file: &str) {
        let file = shortened(file, MAX_FILE_CHARS);
        if !self.files_touched.contains(&file) {
            self.files_touched.push(file);
            let excess = self.files_touched.len().saturating_sub(MAX_FILES);
            self.files_touched.drain(..excess);
        }
    }

    /// Notes an error. The last ones are kept.
    pub(super) fn err(&mut self, tool: &str, message: &str) {
        self.errors.push(shortened(&format!("{tool}: {message}"), MAX_ERROR_CHARS));
        let excess = self.errors.len().saturating_sub(MAX_ERRORS);
        self.errors.drain(..excess);
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The memory in words, for a prompt.
    pub(super) fn in_words(&self) -> String {
        let list = |title: &str, items: &[String]| {
            let items = items.iter().map(|item| format!("\n- {item}")).collect::<String>();
            if items.is_empty() { items } else { format!("\n{title}:{items}") }
        };
        let plan = match self.plan.trim() {
            "" => String::new(),
            plan => format!("\nPlan:\n{plan}"),
        };
        [
            plan,
            list("Open tasks", &self.open_tasks),
            list("Files touched", &self.files_touched),
            list("Errors met", &self.errors),
        ]
        .concat()
        .trim_start()
        .to_owned()
    }
}

impl Remembered {
    pub(super) fn new(scope: &Scope, memory: &Memory) -> Self {
        let (scope, delegation) = match scope {
            Scope::Main => ("main", None),
            Scope::Coder { delegation } => ("coder", Some(delegation.clone())),
        };
        Self { scope: scope.to_owned(), delegation, memory: memory.clone() }
    }

    pub(super) fn is_main(&self) -> bool {
        self.scope == "main"
    }

    pub(super) fn is_of(&self, delegation: &str) -> bool {
        self.delegation.as_deref() == Some(delegation)
    }
}

/// The first line or so of what a tool complained of.
pub(super) fn complaint(content: &[Value]) -> String {
    let text = content.iter().find_map(|block| block["text"].as_str()).unwrap_or("(no text)");
    shortened(text, MAX_ERROR_CHARS)
}

pub(super) fn shortened(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        let tasks = vec!["t".repeat(10_000); 1_000];
        let update = json!({ "plan": "p".repeat(100_000), "openTasks": tasks });
        memory.update(&update.to_string()).unwrap();
        for number in 0..1_000 {
            memory.touch(&format!("{number}{}", "f".repeat(10_000)));
            memory.err("bash", &format!("{number}{}", "e".repeat(10_000)));
        }
        assert!(memory.in_words().len() < 100_000);
        assert!(memory.errors[9].starts_with("bash: 999"));
    }

    #[test]
    fn an_update_that_is_not_understood_changes_nothing() {
        let mut memory = Memory::default();
        memory.update(r#"{"plan":"a"}"#).unwrap();
        assert!(memory.update(r#"{"plan":7}"#).is_err());
        assert_eq!(memory.in_words(), "Plan:\na");
        memory.update(r#"{"openTasks":["b"]}"#).unwrap();
        assert_eq!(memory.in_words(), "Plan:\na\nOpen tasks:\n- b");
    }
}
