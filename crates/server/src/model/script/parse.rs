//! Reads one line.

use std::time::Duration;

use serde_json::Value;

use super::step::{Broken, Call, Fault, Part, Step, StopReason, UsageFigures};

/// What a `/repeat` may come to. It is held in memory when the client does not stream.
const MAX_REPEAT_BYTES: u64 = 64 << 20;

/// What a `/flood` may come to, for the same reason.
const MAX_FLOOD: u64 = 10_000_000;

/// What `/endless` says when it is not told.
const ENDLESS_PIECE: &str = "and so on ";

/// The step that a line is, or why it is none, or `None` if it does not begin like one.
///
/// A line begins like a step if its first word is a slash and a verb that exists. So
/// `/usr/bin/env is missing` is text, and so is a verb that is misspelled: a model that refused
/// every path at the beginning of a line could not be used with real prompts.
pub(crate) fn step(line: &str) -> Option<Result<Step, String>> {
    let line = line.trim().strip_prefix('/')?;
    let (verb, rest) = first_word(line);
    Some(arguments(verb, rest)?.map_err(|reason| format!("/{verb}: {reason}")))
}

/// Like [`step`], for places where nothing but steps can stand.
pub(crate) fn required_step(line: &str) -> Result<Step, String> {
    step(line).unwrap_or_else(|| Err(format!("{} is not a step", first_word(line.trim()).0)))
}

fn arguments(verb: &str, rest: &str) -> Option<Result<Step, String>> {
    let part = |part| Ok(Step::Part(part));
    Some(match verb {
        "say" => part(Part::Say(text(rest))),
        "think" => part(Part::Think(text(rest))),
        "repeat" => repeat(rest).map(Step::Part),
        "flood" => flood(rest).map(Step::Part),
        "endless" if rest.is_empty() => part(Part::Endless(ENDLESS_PIECE.to_owned())),
        "endless" => part(Part::Endless(text(rest))),
        "recall" => alone(rest, Step::Part(Part::Recall)),
        "results" => alone(rest, Step::Part(Part::Results)),
        "unknown" => alone(rest, Step::Part(Part::Unknown)),
        "empty" => alone(rest, Step::Empty),
        "tool" | "bash" | "bad-tool" => call(verb, rest).map(|call| Step::Part(Part::Call(call))),
        "and" => {
            let (verb, rest) = first_word(rest);
            match verb {
                "say" => Ok(Step::Together(Part::Say(text(rest)))),
                _ => call(verb, rest).map(|call| Step::Together(Part::Call(call))),
            }
        }
        "error" | "html" | "hang" | "cut" | "error-event" | "broken" => fault(verb, rest),
        "stop" => StopReason::ALL
            .into_iter()
            .find(|reason| reason.word() == rest)
            .map(Step::Stop)
            .ok_or_else(|| format!("`{rest}` is no stop reason")),
        "usage" => usage(rest).map(Step::Usage),
        "slow" => duration(rest).map(Step::Slow),
        "wait" => duration(rest).map(Step::Wait),
        _ => return None,
    })
}

fn first_word(line: &str) -> (&str, &str) {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    (word, rest.trim())
}

/// The rest of a line as it stands, or decoded if it is one JSON string.
fn text(rest: &str) -> String {
    let quoted = rest.starts_with('"');
    quoted.then(|| serde_json::from_str(rest).ok()).flatten().unwrap_or_else(|| rest.to_owned())
}

fn alone(rest: &str, step: Step) -> Result<Step, String> {
    if rest.is_empty() { Ok(step) } else { Err(format!("takes nothing, but has `{rest}`")) }
}

fn number(word: &str, of: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{of} must be a number, not `{word}`"))
}

fn repeat(rest: &str) -> Result<Part, String> {
    let (times, rest) = first_word(rest);
    let times = number(times, "the first word")?;
    let text = text(rest);
    if times.saturating_mul(text.len() as u64) > MAX_REPEAT_BYTES {
        return Err(format!("comes to more than {MAX_REPEAT_BYTES} bytes"));
    }
    Ok(Part::Repeat { times, text })
}

fn flood(rest: &str) -> Result<Part, String> {
    match number(rest, "the number of deltas")? {
        times if times > MAX_FLOOD => Err(format!("is more than {MAX_FLOOD}")),
        times => Ok(Part::Flood(times)),
    }
}

fn call(verb: &str, rest: &str) -> Result<Call, String> {
    if verb == "bash" {
        return Ok(Call::Bash(text(rest)));
    }
    let (name, rest) = first_word(rest);
    if name.is_empty() {
        return Err("the name of the tool is missing".to_owned());
    }
    let name = name.to_owned();
    match verb {
        "tool" if rest.is_empty() => Ok(Call::Tool { name, input: serde_json::Map::new() }),
        "tool" => match serde_json::from_str(rest) {
            Ok(Value::Object(input)) => Ok(Call::Tool { name, input }),
            Ok(_) => Err("the input must be a JSON object".to_owned()),
            Err(error) => Err(format!("the input is not JSON ({error}); see /bad-tool")),
        },
        "bad-tool" => Ok(Call::BadTool { name, raw: text(rest) }),
        _ => Err(format!("`{verb}` cannot be joined; only say, tool, bash and bad-tool can")),
    }
}

/// The named arguments of a fault, in any order; `message` takes the rest of the line.
#[derive(Default)]
struct Named {
    after: Option<u64>,
    times: Option<u64>,
    retry_after: Option<u64>,
    message: Option<String>,
    /// What has no name.
    bare: Vec<String>,
}

impl Named {
    fn read(mut rest: &str) -> Result<Self, String> {
        let mut named = Self::default();
        while !rest.is_empty() {
            let (word, after_word) = first_word(rest);
            let (value, after_value) = first_word(after_word);
            let field = match word {
                "after" => &mut named.after,
                "times" => &mut named.times,
                "retry-after" => &mut named.retry_after,
                "message" => {
                    named.message = Some(text(after_word));
                    return Ok(named);
                }
                _ => {
                    named.bare.push(word.to_owned());
                    rest = after_word;
                    continue;
                }
            };
            if field.replace(number(value, word)?).is_some() {
                return Err(format!("`{word}` is said twice"));
            }
            rest = after_value;
        }
        Ok(named)
    }

    fn bare(&mut self) -> Option<String> {
        (!self.bare.is_empty()).then(|| self.bare.remove(0))
    }

    fn status(&mut self) -> Result<Option<u16>, String> {
        let Some(word) = self.bare() else { return Ok(None) };
        match word.parse() {
            Ok(status @ 200..=599) => Ok(Some(status)),
            _ => Err(format!("the status must be a number from 200 to 599, not `{word}`")),
        }
    }
}

fn fault(verb: &str, rest: &str) -> Result<Step, String> {
    let mut named = Named::read(rest)?;
    let fault = match verb {
        "error" => Fault::Error {
            status: named.status()?.ok_or("the status is missing")?,
            kind: named.bare(),
            retry_after_secs: named.retry_after.take(),
            message: named.message.take(),
        },
        "html" => Fault::Html { status: named.status()?.unwrap_or(200) },
        "hang" => Fault::Hang { after: named.after.take() },
        "cut" => Fault::Cut { after: named.after.take() },
        "error-event" => Fault::ErrorEvent {
            kind: named.bare().unwrap_or_else(|| "overloaded_error".to_owned()),
            after: named.after.take().unwrap_or(0),
        },
        _ => {
            let word = named.bare().ok_or("say what is broken: line, json or content-type")?;
            let how = Broken::ALL.into_iter().find(|how| how.word() == word);
            Fault::Broken {
                how: how.ok_or_else(|| format!("`{word}` is not line, json or content-type"))?,
                after: named.after.take().unwrap_or(0),
            }
        }
    };
    let left = [
        named.bare().map(|word| format!("does not know `{word}`")),
        named.after.map(|_| "takes no `after`".to_owned()),
        named.retry_after.map(|_| "takes no `retry-after`".to_owned()),
        named.message.map(|_| "takes no `message`".to_owned()),
        (named.times == Some(0)).then(|| "`times` must be at least 1".to_owned()),
    ];
    match left.into_iter().flatten().next() {
        Some(reason) => Err(reason),
        None => Ok(Step::Fault { fault, times: named.times }),
    }
}

fn usage(rest: &str) -> Result<UsageFigures, String> {
    let mut usage = UsageFigures::default();
    for word in rest.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let field = match name {
            "input" => &mut usage.input,
            "output" => &mut usage.output,
            "cache-read" => &mut usage.cache_read,
            "cache-write" => &mut usage.cache_write,
            _ => return Err(format!("`{name}` is not input, output, cache-read or cache-write")),
        };
        *field = Some(number(value, name)?);
    }
    if usage == UsageFigures::default() { Err("has no figure".to_owned()) } else { Ok(usage) }
}

/// What `/slow` and `/wait` may come to: more than that is `/hang`.
const MAX_DELAY: Duration = Duration::from_secs(3600);

fn duration(rest: &str) -> Result<Duration, String> {
    let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = rest[..rest.len() - unit.len()].parse();
    let duration = match (number, unit) {
        (Ok(number), "ms") => Duration::from_millis(number),
        (Ok(number), "s") => Duration::from_secs(number),
        _ => return Err(format!("`{rest}` is not a duration such as 50ms or 2s")),
    };
    if duration > MAX_DELAY { Err("is more than an hour".to_owned()) } else { Ok(duration) }
}
