//! Groups steps into answers: one answer per round.

use std::time::Duration;

use super::step::{Fault, Part, Step, StopReason, UsageFigures};

/// One answer of the model, as far as the script knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) parts: Vec<Part>,
    /// What goes wrong first, each as often as it says, `None` being always.
    pub(crate) faults: Vec<(Fault, Option<u64>)>,
    pub(crate) stop: Option<StopReason>,
    pub(crate) usage: UsageFigures,
    pub(crate) slow: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) empty: bool,
}

impl Answer {
    /// What goes wrong at this attempt, the first being zero.
    pub(crate) fn fault(&self, attempt: u64) -> Option<&Fault> {
        let mut end = 0_u64;
        for (fault, times) in &self.faults {
            end = times.map_or(u64::MAX, |times| end.saturating_add(times));
            if attempt < end {
                return Some(fault);
            }
        }
        None
    }

    /// Takes from the defaults what it does not say itself. The faults of both happen.
    pub(crate) fn with_defaults(mut self, defaults: &Self) -> Self {
        self.slow = self.slow.or(defaults.slow);
        self.wait = self.wait.or(defaults.wait);
        self.usage = UsageFigures {
            input: self.usage.input.or(defaults.usage.input),
            output: self.usage.output.or(defaults.usage.output),
            cache_read: self.usage.cache_read.or(defaults.usage.cache_read),
            cache_write: self.usage.cache_write.or(defaults.usage.cache_write),
        };
        self.faults.splice(0..0, defaults.faults.iter().cloned());
        self
    }

    fn is_begun(&self) -> bool {
        self.empty || self.wait.is_some() || !self.parts.is_empty() || !self.faults.is_empty()
    }

    /// A model that has called tools waits for what they give: only what is joined can follow.
    fn has_called(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Call(_)))
    }
}

/// The answers that the steps make, in order: at least one. The error is the index of a step and a
/// reason.
pub(crate) fn answers(steps: &[Step]) -> Result<Vec<Answer>, (usize, String)> {
    let mut plan = Plan::default();
    for (index, step) in steps.iter().enumerate() {
        plan.add(step.clone()).map_err(|reason| (index, reason))?;
    }
    if plan.current.is_begun() || plan.done.is_empty() {
        plan.finish(None);
    }
    Ok(plan.done)
}

#[derive(Default)]
struct Plan {
    done: Vec<Answer>,
    current: Answer,
}

impl Plan {
    fn add(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Stop(reason) => self.finish(Some(reason)),
            Step::Together(part) => self.join(part)?,
            Step::Part(part) => self.open().parts.push(part),
            Step::Fault { fault, times } => self.open().faults.push((fault, times)),
            Step::Usage(usage) => self.open().usage = usage,
            Step::Slow(delay) => self.open().slow = Some(delay),
            Step::Wait(delay) => self.open().wait = Some(delay),
            Step::Empty => self.open().empty = true,
        }
        Ok(())
    }

    fn join(&mut self, part: Part) -> Result<(), String> {
        if !self.current.has_called() {
            return Err("/and: there is no tool call before it to join".to_owned());
        }
        self.current.parts.push(part);
        Ok(())
    }

    fn open(&mut self) -> &mut Answer {
        if self.current.has_called() {
            self.finish(None);
        }
        &mut self.current
    }

    fn finish(&mut self, stop: Option<StopReason>) {
        // Usage and slowness last until they are changed; all else is said per answer.
        let next =
            Answer { usage: self.current.usage, slow: self.current.slow, ..Answer::default() };
        self.current.stop = stop;
        self.done.push(std::mem::replace(&mut self.current, next));
    }
}
