//! Writes one line, such that reading it gives the same step.

use std::fmt;

use super::step::{Call, Fault, Part, Step, UsageFigures};

/// Text that stands at the end of a line.
pub(super) struct Text<'a>(pub(super) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0;
        let plain = !text.is_empty()
            && !text.starts_with('"')
            && text.trim() == text
            && !text.contains(char::is_control);
        if plain {
            return f.write_str(text);
        }
        let quoted = serde_json::to_string(text).map_err(|_| fmt::Error)?;
        f.write_str(&quoted)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(Part::Call(call)) => write!(f, "/{call}"),
            Self::Part(part) => write!(f, "{part}"),
            Self::Together(part) => write!(f, "/and {}", part.to_string().trim_start_matches('/')),
            Self::Fault { fault, times } => {
                write!(f, "/{}", fault.name())?;
                fault.arguments(f)?;
                option(f, "times", *times)?;
                match fault {
                    // The message takes the rest of the line, so it comes after everything else.
                    Fault::Error { message: Some(message), .. } => {
                        write!(f, " message {}", Text(message))
                    }
                    Fault::Error { message: None, .. }
                    | Fault::Html { .. }
                    | Fault::Hang { .. }
                    | Fault::Cut { .. }
                    | Fault::ErrorEvent { .. }
                    | Fault::Broken { .. } => Ok(()),
                }
            }
            Self::Stop(reason) => write!(f, "/stop {}", reason.word()),
            Self::Usage(usage) => write!(f, "/usage{usage}"),
            Self::Slow(delay) => write!(f, "/slow {}ms", delay.as_millis()),
            Self::Wait(delay) => write!(f, "/wait {}ms", delay.as_millis()),
            Self::Empty => f.write_str("/empty"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Say(text) => write!(f, "/say {}", Text(text)),
            Self::Think(text) => write!(f, "/think {}", Text(text)),
            Self::Repeat { times, text } => write!(f, "/repeat {times} {}", Text(text)),
            Self::Flood(times) => write!(f, "/flood {times}"),
            Self::Endless(text) => write!(f, "/endless {}", Text(text)),
            Self::Recall => f.write_str("/recall"),
            Self::Results => f.write_str("/results"),
            Self::Unknown => f.write_str("/unknown"),
            Self::Call(call) => write!(f, "/{call}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool { name, input } => {
                let input = serde_json::to_string(input).map_err(|_| fmt::Error)?;
                write!(f, "tool {name} {input}")
            }
            Self::Bash(command) => write!(f, "bash {}", Text(command)),
            Self::BadTool { name, raw } => write!(f, "bad-tool {name} {}", Text(raw)),
        }
    }
}

impl Fault {
    /// The verb of the fault.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Error { .. } => "error",
            Self::Html { .. } => "html",
            Self::Hang { .. } => "hang",
            Self::Cut { .. } => "cut",
            Self::ErrorEvent { .. } => "error-event",
            Self::Broken { .. } => "broken",
        }
    }

    fn arguments(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error { status, kind, retry_after_secs, message: _ } => {
                write!(f, " {status}")?;
                if let Some(kind) = kind {
                    write!(f, " {kind}")?;
                }
                option(f, "retry-after", *retry_after_secs)
            }
            Self::Html { status } => write!(f, " {status}"),
            Self::Hang { after } | Self::Cut { after } => option(f, "after", *after),
            Self::ErrorEvent { kind, after } => write!(f, " {kind} after {after}"),
            Self::Broken { how, after } => write!(f, " {} after {after}", how.word()),
        }
    }
}

impl fmt::Display for UsageFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = [
            ("input", self.input),
            ("output", self.output),
            ("cache-read", self.cache_read),
            ("cache-write", self.cache_write),
        ];
        for (name, figure) in figures {
            if let Some(figure) = figure {
                write!(f, " {name}={figure}")?;
            }
        }
        Ok(())
    }
}

fn option(f: &mut fmt::Formatter<'_>, name: &str, value: Option<u64>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name} {value}"))
}
