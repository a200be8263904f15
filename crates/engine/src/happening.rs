//! What an entry of the log says about the sandbox, in a line.

use ash_core::entry::Entry;
use ash_core::json::Json;
use ash_core::session::LogEntry;
use serde::Deserialize;

use crate::host::Happening;

/// What programs of the original call a line of their log.
const LINE: &str = "log";

/// What an entry says about the sandbox; nothing, if it is about something else.
pub(crate) fn happening(logged: &LogEntry) -> Option<Happening> {
    let (mut level, mut begins) = ("system", None);
    let text = match &logged.entry {
        Entry::SessionActive { incarnation } => {
            begins = Some(*incarnation);
            format!("Sandbox {incarnation} is up")
        }
        Entry::SessionResumed { path, incarnation, .. } => {
            begins = Some(*incarnation);
            format!("Session resumed {} in sandbox {incarnation}", path.as_str())
        }
        Entry::SessionPaused { reason } => format!("Session paused ({})", reason.as_str()),
        Entry::SessionStopped => "Session stopped".to_owned(),
        Entry::SessionFailed { failure } => format!("Session failed: {}", failure.message),
        Entry::SessionEnded { .. } => "Session ended".to_owned(),
        Entry::ContextLost { reason, .. } => format!("Context lost: {reason}"),
        Entry::Output { name, body, .. } if name == LINE => {
            let (of, text) = line(body)?;
            level = of;
            text
        }
        Entry::SessionCreated
        | Entry::SessionWaking
        | Entry::SessionForked { .. }
        | Entry::SessionImported { .. }
        | Entry::Rewound { .. }
        | Entry::Prompt { .. }
        | Entry::RunStarted { .. }
        | Entry::Phase { .. }
        | Entry::RunRetry { .. }
        | Entry::RunCancelling { .. }
        | Entry::TextDelta { .. }
        | Entry::ThinkingDelta { .. }
        | Entry::Message { .. }
        | Entry::Output { .. }
        | Entry::Aside { .. }
        | Entry::PermissionRequest { .. }
        | Entry::PermissionDecided { .. }
        | Entry::PermissionAnswered { .. }
        | Entry::ReportTooLarge { .. }
        | Entry::RunError { .. }
        | Entry::RunEnded { .. }
        | Entry::ReportsLost { .. } => return None,
    };
    Some(Happening { seq: logged.seq, at: logged.at, level, text, begins })
}

/// A line of the log of a program: which stream it is like, and what it says.
fn line(body: &Json) -> Option<(&'static str, String)> {
    #[derive(Deserialize)]
    struct Line {
        level: Option<String>,
        text: Option<String>,
    }
    let Line { level, text } = serde_json::from_str(body.get()).ok()?;
    let level = match level.as_deref() {
        Some("system") => "system",
        Some("stderr" | "error" | "warn" | "warning") => "stderr",
        Some(_) | None => "stdout",
    };
    Some((level, text?))
}
