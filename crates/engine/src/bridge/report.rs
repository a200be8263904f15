//! From what a bridge sends to what the domain takes in.

use ash_core::id::RunId;
use ash_core::json::Json;
use ash_core::number::SpoolPosition;
use ash_core::permission::AnsweredHow;
use ash_core::run::{Completion, Phase, Usage};
use ash_core::session::{AgentEnding, NumberedReport, Report, ReportBody};
use ash_protocol::{Ending, Event, NO_RUN, Reported};

/// Reads reports in the order they must come, and counts what it does not understand.
#[derive(Clone, Debug)]
pub(super) struct Understanding {
    /// The last position that was passed on.
    last: u64,
    /// Whether anything came over this connection yet.
    begun: bool,
    /// How many reports said nothing to us.
    skipped: u64,
}

/// A bridge whose numbers cannot be right.
#[derive(Debug, thiserror::Error)]
#[error("report {found} came after report {last}")]
pub(super) struct OutOfOrder {
    last: u64,
    found: u64,
}

impl Understanding {
    pub(super) fn after(position: u64) -> Self {
        Self { last: position, begun: false, skipped: 0 }
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Another connection: what comes over it may begin later than where we stopped, if the
    /// bridge has forgotten something, and the log will say so.
    pub(super) fn reconnected(&mut self) {
        self.begun = false;
    }

    /// Reads one report. Its number counts, whatever it says.
    pub(super) fn read(&mut self, reported: Reported) -> Result<NumberedReport, OutOfOrder> {
        let found = reported.position;
        let follows = found > self.last && (found == self.last + 1 || !self.begun);
        if !follows {
            return Err(OutOfOrder { last: self.last, found });
        }
        (self.last, self.begun) = (found, true);
        let run = reported.run.parse::<RunId>().ok();
        let is_of_something = run.is_some() || reported.run == NO_RUN;
        let body = match reported.event() {
            Ok(event) if is_of_something => translate(event),
            Ok(_) | Err(_) => None,
        };
        self.skipped += u64::from(body.is_none());
        Ok(NumberedReport {
            position: SpoolPosition::new(found),
            report: Report { run, body: body.unwrap_or(ReportBody::Skipped) },
        })
    }
}

fn translate(event: Event) -> Option<ReportBody> {
    let json = |raw: Box<serde_json::value::RawValue>| Json::parse(Box::<str>::from(raw).into());
    Some(match event {
        Event::Begun => ReportBody::Begun,
        Event::Phase { phase, round } => ReportBody::Phase { phase: phase_of(phase), round },
        Event::Retry { round } => ReportBody::Retry { round },
        Event::TextDelta(text) => ReportBody::TextDelta(text),
        Event::ThinkingDelta(text) => ReportBody::ThinkingDelta(text),
        Event::Message(body) => ReportBody::Message(json(body).ok()?),
        Event::Output { name, body } => ReportBody::Output { name, body: json(body).ok()? },
        Event::Question { id, tool, input } => {
            ReportBody::Question { id: id.parse().ok()?, tool, input: json(input).ok()? }
        }
        Event::Answered { id, how } => {
            ReportBody::Answered { id: id.parse().ok()?, how: answered_how(how) }
        }
        Event::Ended { how, usage } => {
            ReportBody::Ended { how: ending_of(how), usage: usage_of(usage) }
        }
    })
}

fn answered_how(how: ash_protocol::AnsweredHow) -> AnsweredHow {
    match how {
        ash_protocol::AnsweredHow::Allowed => AnsweredHow::Allowed,
        ash_protocol::AnsweredHow::Denied => AnsweredHow::Denied,
        ash_protocol::AnsweredHow::TimedOut => AnsweredHow::TimedOut,
        ash_protocol::AnsweredHow::Withdrawn => AnsweredHow::Withdrawn,
    }
}

fn phase_of(phase: ash_protocol::Phase) -> Phase {
    match phase {
        ash_protocol::Phase::StreamingLlm => Phase::StreamingLlm,
        ash_protocol::Phase::ExecutingTools => Phase::ExecutingTools,
        ash_protocol::Phase::DelegatingCoder => Phase::DelegatingCoder,
    }
}

fn ending_of(ending: Ending) -> AgentEnding {
    match ending {
        Ending::EndTurn => AgentEnding::Completed(Completion::EndTurn),
        Ending::MaxTurns => AgentEnding::Completed(Completion::MaxTurns),
        Ending::Budget => AgentEnding::Completed(Completion::Budget),
        Ending::Quota => AgentEnding::Completed(Completion::Quota),
        Ending::Interrupted => AgentEnding::Interrupted,
        Ending::Failed { message } => AgentEnding::Failed { message },
        Ending::Refused { message } => AgentEnding::Refused { message },
    }
}

fn usage_of(usage: ash_protocol::Usage) -> Usage {
    let ash_protocol::Usage {
        input_tokens,
        output_tokens,
        cache_creation_tokens,
        cache_read_tokens,
        tool_calls,
        cost_micro_usd,
    } = usage;
    Usage {
        input_tokens,
        output_tokens,
        cache_creation_tokens,
        cache_read_tokens,
        tool_calls,
        cost_micro_usd,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const RUN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn reported(position: u64, run: &str, kind: &str, body: &str) -> Reported {
        let body = Some(serde_json::from_str(body).unwrap());
        Reported { position, run: run.to_owned(), kind: kind.to_owned(), body }
    }

    #[test]
    fn what_is_not_understood_takes_its_number_and_is_counted() {
        let mut understanding = Understanding::after(4);
        let strange = [
            reported(5, RUN, "dream", "{}"),
            reported(6, RUN, "phase", r#"{"phase":"resting","round":1}"#),
            reported(7, RUN, "text_delta", "17"),
            reported(8, "../../etc", "begun", "null"),
            reported(9, RUN, "ended", r#"{"how":"well"}"#),
            reported(10, RUN, "question", r#"{"id":"../up","tool":"bash","input":{}}"#),
            reported(11, RUN, "answered", r#"{"id":"7","how":"allowed"}"#),
        ];
        for report in strange {
            let read = understanding.read(report).unwrap();
            assert_eq!(read.report.body, ReportBody::Skipped);
        }
        assert_eq!((understanding.last(), understanding.skipped()), (11, 7));
        let known = understanding.read(reported(12, RUN, "text_delta", r#""hi""#)).unwrap();
        assert_eq!(known.report.body, ReportBody::TextDelta("hi".to_owned()));
    }

    #[test]
    fn what_is_said_without_a_run_is_understood() {
        let mut understanding = Understanding::after(0);
        let read = understanding.read(reported(1, NO_RUN, "message", r#"{"a":1}"#)).unwrap();
        assert_eq!(read.report.run, None);
        assert!(matches!(read.report.body, ReportBody::Message(_)), "{read:?}");
        assert_eq!(understanding.skipped(), 0);
    }

    #[test]
    fn numbers_that_stand_still_or_jump_are_not_believed() {
        for lie in [3, 4, 7, u64::MAX] {
            let mut understanding = Understanding::after(4);
            understanding.read(reported(5, RUN, "begun", "null")).unwrap();
            assert!(understanding.read(reported(lie, RUN, "begun", "null")).is_err(), "{lie}");
        }
    }

    #[test]
    fn a_connection_may_begin_later_than_the_last_one_ended() {
        let mut understanding = Understanding::after(4);
        understanding.read(reported(9, RUN, "begun", "null")).unwrap();
        understanding.reconnected();
        understanding.read(reported(20, RUN, "begun", "null")).unwrap();
        assert!(understanding.read(reported(20, RUN, "begun", "null")).is_err());
    }
}
