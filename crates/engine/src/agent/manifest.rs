//! `ash.toml`: what an agent says about how it is to be run.
//!
//! Reading has two steps. First the text becomes an [`AshToml`], which refuses unknown keys and wrong
//! types; then its values are looked at. Only the first happens to what is already stored, so a rule
//! that gets stricter does not make old versions unreadable.

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use super::destination::Destination;

/// What the file is called.
pub(super) const FILE_NAME: &str = "ash.toml";

/// How large the file may be.
pub(super) const MAX_FILE_BYTES: usize = 64 * 1024;
/// How long the name of a model may be, in characters.
const MAX_MODEL_CHARS: usize = 100;
/// How many words a command may have, and how long each may be.
const MAX_COMMAND_WORDS: usize = 100;
const MAX_WORD_BYTES: usize = 4096;
/// How many hosts may be reached.
const MAX_HOSTS: usize = 100;

/// What `ash.toml` can say; all of it is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AshToml {
    /// What runs the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    /// What is started, for the runtimes that start something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Which model it talks to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Who is asked before a tool is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// Which hosts may be reached through the proxy, as [`Destination`] reads them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<String>,
    /// How many sandboxes wait for a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prewarm: Option<u32>,
    /// What a sandbox may use.
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
}

/// What a sandbox may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Memory, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u32>,
    /// Processor time, in hundredths of one core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<u32>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    /// The workspace, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u32>,
    /// `/tmp`, in MiB. It is memory, and counts as that too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmp_mb: Option<u32>,
    /// Descriptors of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
    /// How long one run may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_timeout_ms: Option<u64>,
}

/// What runs an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runtime {
    /// Claude Code.
    Claude,
    /// Our own loop.
    Builtin,
    /// A program that speaks the Agent Client Protocol.
    Acp,
    /// A bridge of the original Ash.
    Legacy,
}

/// Who is asked before a tool is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PermissionMode {
    /// Nobody.
    BypassPermissions,
    /// Whoever the agent's own settings say.
    PermissionsByAgent,
    /// The person.
    Default,
}

/// Why an `ash.toml` is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct ManifestError {
    /// In which line, from 1.
    pub line: usize,
    /// At which character of it, from 1.
    pub column: usize,
    /// What is wrong there.
    pub reason: String,
}

/// Where a value stands: keys, and the place in a list.
#[derive(Clone, Copy)]
enum Step {
    Key(&'static str),
    Index(usize),
}

/// What is wrong with a value, and where it stands.
struct Fault {
    at: Vec<Step>,
    reason: String,
}

impl AshToml {
    /// Reads the content of an `ash.toml`.
    pub fn parse(content: &[u8]) -> Result<Self, ManifestError> {
        if content.len() > MAX_FILE_BYTES {
            let reason = format!("the file is larger than {MAX_FILE_BYTES} bytes");
            return Err(ManifestError { line: 1, column: 1, reason });
        }
        let text = std::str::from_utf8(content).map_err(|error| {
            let (good, _) = content.split_at(error.valid_up_to());
            let good = String::from_utf8_lossy(good);
            error_at(&good, good.len(), "this is not UTF-8".to_owned())
        })?;
        let manifest: Self = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            error_at(text, start, error.message().to_owned())
        })?;
        manifest.check().map_err(|fault| {
            error_at(text, place_of(text, &fault.at).unwrap_or(0), fault.reason)
        })?;
        Ok(manifest)
    }

    /// Whether the values can be.
    fn check(&self) -> Result<(), Fault> {
        self.check_command()?;
        if let Some(model) = &self.model {
            let fits = (1..=MAX_MODEL_CHARS).contains(&model.chars().count());
            if !fits || model.chars().any(char::is_control) {
                let reason = format!("model has 1 to {MAX_MODEL_CHARS} printable characters");
                return Err(fault_at(&[Step::Key("model")], reason));
            }
        }
        if self.egress.len() > MAX_HOSTS {
            let reason = format!("egress has at most {MAX_HOSTS} hosts");
            return Err(fault_at(&[Step::Key("egress")], reason));
        }
        for (index, host) in self.egress.iter().enumerate() {
            Destination::parse(host)
                .map_err(|reason| fault_at(&[Step::Key("egress"), Step::Index(index)], reason))?;
        }
        in_range(&[Step::Key("prewarm")], self.prewarm, 0, Some(100))?;
        self.limits.check()
    }

    /// Which hosts may be reached. What an earlier release took for one and this one does not is left
    /// out.
    pub fn destinations(&self) -> Vec<Destination> {
        self.egress.iter().filter_map(|entry| Destination::parse(entry).ok()).flatten().collect()
    }

    fn check_command(&self) -> Result<(), Fault> {
        let Some(command) = &self.command else {
            return match self.runtime {
                Some(Runtime::Acp) => {
                    let reason = "the runtime acp needs a command".to_owned();
                    Err(fault_at(&[Step::Key("runtime")], reason))
                }
                Some(Runtime::Claude | Runtime::Builtin | Runtime::Legacy) | None => Ok(()),
            };
        };
        let here = [Step::Key("command")];
        match self.runtime {
            Some(Runtime::Claude | Runtime::Builtin) => {
                let reason = "command is for the runtimes acp and legacy".to_owned();
                return Err(fault_at(&here, reason));
            }
            Some(Runtime::Acp | Runtime::Legacy) | None => {}
        }
        if command.first().is_none_or(String::is_empty) || command.len() > MAX_COMMAND_WORDS {
            let reason =
                format!("command has 1 to {MAX_COMMAND_WORDS} words, and the first says something");
            return Err(fault_at(&here, reason));
        }
        let bad =
            command.iter().position(|word| word.len() > MAX_WORD_BYTES || word.contains('\0'));
        if let Some(index) = bad {
            let reason = format!(
                "a word of command has at most {MAX_WORD_BYTES} bytes, and no NUL character"
            );
            return Err(fault_at(&[Step::Key("command"), Step::Index(index)], reason));
        }
        Ok(())
    }
}

impl Limits {
    /// Whether the values can be.
    fn check(&self) -> Result<(), Fault> {
        let Self { memory_mb, cpu_percent, pids, disk_mb, tmp_mb, open_files, turn_timeout_ms } =
            self;
        let limit = |key| [Step::Key("limits"), Step::Key(key)];
        in_range(&limit("memory_mb"), *memory_mb, 16, None)?;
        in_range(&limit("cpu_percent"), *cpu_percent, 1, Some(10_000))?;
        in_range(&limit("pids"), *pids, 8, None)?;
        in_range(&limit("disk_mb"), *disk_mb, 1, None)?;
        in_range(&limit("tmp_mb"), *tmp_mb, 1, None)?;
        in_range(&limit("open_files"), *open_files, 64, Some(1_048_576))?;
        in_range(&limit("turn_timeout_ms"), *turn_timeout_ms, 1000, None)
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn fault_at(at: &[Step], reason: String) -> Fault {
    Fault { at: at.to_vec(), reason }
}

fn in_range<T: Into<u64>>(
    at: &[Step],
    value: Option<T>,
    least: u64,
    most: Option<u64>,
) -> Result<(), Fault> {
    let Some(value) = value.map(Into::into) else { return Ok(()) };
    if value >= least && most.is_none_or(|most| value <= most) {
        return Ok(());
    }
    let name = match at.last() {
        Some(Step::Key(key)) => key,
        Some(Step::Index(_)) | None => "this",
    };
    let reason = match most {
        Some(most) => format!("{name} is {value}, and must be {least} to {most}"),
        None => format!("{name} is {value}, and must be {least} or more"),
    };
    Err(fault_at(at, reason))
}

/// At which byte of a text a value stands.
fn place_of(text: &str, at: &[Step]) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut place = table.span().start;
    let mut here = DeValue::Table(table.into_inner());
    for step in at {
        let value = match (step, &here) {
            (Step::Key(key), DeValue::Table(table)) => table.get(*key)?,
            (Step::Index(index), DeValue::Array(list)) => list.get(*index)?,
            (Step::Key(_) | Step::Index(_), _) => return None,
        };
        place = value.span().start;
        here = value.get_ref().clone();
    }
    Some(place)
}

/// An error at a byte of a text.
fn error_at(text: &str, at: usize, reason: String) -> ManifestError {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    ManifestError { line, column, reason }
}

#[cfg(test)]
mod test;
