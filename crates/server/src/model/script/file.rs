//! Reads and writes script files, line by line.

use std::fmt;

use super::parse::required_step;
use super::plan::answers;
use super::step::Step;
use super::{Condition, Pattern, Rule, Script, ScriptError};

pub(super) fn parse(text: &str) -> Result<Script, ScriptError> {
    let mut sections: Vec<Section> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let at = |reason| ScriptError::Line { line: index + 1, reason };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('/') {
            let step = required_step(line).map_err(at)?;
            let Some(section) = sections.last_mut() else {
                return Err(at("a step needs a `when` or `defaults` above it".to_owned()));
            };
            section.steps.push((index + 1, step));
            continue;
        }
        let heading = heading(line).map_err(at)?;
        if heading == Heading::Defaults && sections.iter().any(|of| of.heading == heading) {
            return Err(at("there are defaults already".to_owned()));
        }
        sections.push(Section { line: index + 1, heading, steps: Vec::new() });
    }
    let mut script = Script::default();
    for section in sections {
        section.add_to(&mut script)?;
    }
    Ok(script)
}

struct Section {
    line: usize,
    heading: Heading,
    steps: Vec<(usize, Step)>,
}

#[derive(PartialEq)]
enum Heading {
    Defaults,
    When(Vec<Condition>),
}

impl Section {
    fn add_to(self, script: &mut Script) -> Result<(), ScriptError> {
        let (lines, steps): (Vec<usize>, Vec<Step>) = self.steps.into_iter().unzip();
        if steps.is_empty() {
            let reason = "it has no steps below it".to_owned();
            return Err(ScriptError::Line { line: self.line, reason });
        }
        let planned = answers(&steps)
            .map_err(|(index, reason)| ScriptError::Line { line: lines[index], reason })?;
        match self.heading {
            Heading::Defaults => {
                for (line, step) in lines.into_iter().zip(&steps) {
                    if !matches!(
                        step,
                        Step::Fault { .. } | Step::Usage(_) | Step::Slow(_) | Step::Wait(_)
                    ) {
                        let reason = format!("{step} cannot be a default");
                        return Err(ScriptError::Line { line, reason });
                    }
                }
                script.defaults = steps;
            }
            Heading::When(conditions) => {
                let rule = Rule { conditions, steps };
                if rule.round().is_some() && planned.len() > 1 {
                    let reason =
                        format!("a rule for one round has {} answers below it", planned.len());
                    return Err(ScriptError::Line { line: self.line, reason });
                }
                script.rules.push(rule);
            }
        }
        Ok(())
    }
}

fn heading(line: &str) -> Result<Heading, String> {
    if line == "defaults" {
        return Ok(Heading::Defaults);
    }
    let words = match line.strip_prefix("when") {
        Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => words(rest)?,
        _ => return Err("expected `when …`, `defaults`, a step or a comment".to_owned()),
    };
    let mut conditions = Vec::new();
    let mut words = words.into_iter();
    while let Some(name) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("`{name}` needs a value"));
        let condition = match name.as_str() {
            "any" => Condition::Any,
            "prompt" => Condition::Prompt(Pattern(value()?)),
            "model" => Condition::Model(Pattern(value()?)),
            "system" => Condition::System(Pattern(value()?)),
            "turn" => Condition::Turn(count(&name, &value()?)?),
            "round" => Condition::Round(count(&name, &value()?)?),
            _ => {
                return Err(format!("`{name}` is not any, prompt, model, system, turn or round"));
            }
        };
        let same =
            |of: &Condition| std::mem::discriminant(of) == std::mem::discriminant(&condition);
        if matches!(condition, Condition::Turn(_) | Condition::Round(_))
            && conditions.iter().any(same)
        {
            return Err(format!("`{name}` is said twice"));
        }
        conditions.push(condition);
    }
    if conditions.is_empty() {
        return Err("`when` needs a condition; `when any` always applies".to_owned());
    }
    Ok(Heading::When(conditions))
}

fn count(name: &str, value: &str) -> Result<u64, String> {
    match value.parse() {
        Ok(count @ 1..) => Ok(count),
        _ => Err(format!("`{name}` must be a number from 1 on, not `{value}`")),
    }
}

/// Words, where one that begins with a quote is a JSON string.
fn words(mut rest: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Ok(words);
        }
        if rest.starts_with('"') {
            let mut strings = serde_json::Deserializer::from_str(rest).into_iter::<String>();
            match strings.next() {
                Some(Ok(word)) => words.push(word),
                Some(Err(error)) => return Err(format!("a string is not well formed: {error}")),
                None => return Ok(words),
            }
            rest = &rest[strings.byte_offset()..];
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            words.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = |f: &mut fmt::Formatter<'_>, steps: &[Step]| {
            steps.iter().try_for_each(|step| writeln!(f, "{step}"))
        };
        if !self.defaults.is_empty() {
            writeln!(f, "defaults")?;
            steps(f, &self.defaults)?;
        }
        for rule in &self.rules {
            write!(f, "when")?;
            for condition in &rule.conditions {
                write!(f, " {condition}")?;
            }
            writeln!(f)?;
            steps(f, &rule.steps)?;
        }
        Ok(())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Prompt(pattern) => write!(f, "prompt {pattern}"),
            Self::Model(pattern) => write!(f, "model {pattern}"),
            Self::System(pattern) => write!(f, "system {pattern}"),
            Self::Turn(turn) => write!(f, "turn {turn}"),
            Self::Round(round) => write!(f, "round {round}"),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = serde_json::to_string(&self.0).map_err(|_| fmt::Error)?;
        f.write_str(&quoted)
    }
}
