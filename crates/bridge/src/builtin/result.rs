//! What a turn says last about itself, as clients of the original expect it: an output
//! `turn_complete`, and a message of type `result`.

use std::time::Duration;

use ash_protocol::{Ending, Event, Usage};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::agent::output;
use super::model::Tokens;
use crate::reports::Reports;

/// How far a turn has come when it ends.
#[derive(Debug, Default)]
pub(super) struct Last {
    /// How often the model was asked.
    pub(super) rounds: u32,
    /// What it said last.
    pub(super) text: String,
    /// Whether that was wanted in a shape.
    pub(super) has_shape: bool,
    pub(super) usage: Usage,
}

/// Reports it, if the turn was completed. One that was interrupted or failed has no result.
pub(super) async fn report(reports: &Reports, ending: &Ending, last: &Last, took: Duration) {
    let Some(subtype) = subtype(ending) else { return };
    let Last { rounds, text, has_shape, usage } = last;
    output(reports, "turn_complete", &json!({ "numTurns": rounds, "result": text })).await;
    let mut body = json!({
        "type": "result",
        "subtype": subtype,
        "is_error": *ending != Ending::EndTurn,
        "num_turns": rounds,
        "result": text,
        "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "total_cost_usd": usd(usage.cost_micro_usd),
        "usage": Tokens {
            input: usage.input_tokens,
            output: usage.output_tokens,
            cache_creation: usage.cache_creation_tokens,
            cache_read: usage.cache_read_tokens,
        },
    });
    // An answer that was cut or refused may have no shape.
    let structured = has_shape.then(|| serde_json::from_str::<Value>(text).ok()).flatten();
    if let Some(structured) = structured {
        body["structured_output"] = structured;
    }
    let body = to_raw_value(&body).expect("a value is JSON");
    reports.send(Event::Message(body)).await;
}

fn subtype(ending: &Ending) -> Option<&'static str> {
    match ending {
        Ending::EndTurn => Some("success"),
        Ending::MaxTurns => Some("error_max_turns"),
        Ending::Budget => Some("error_budget"),
        Ending::Quota => Some("error_quota"),
        Ending::Interrupted | Ending::Failed { .. } | Ending::Refused { .. } => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody spends enough to lose a millionth")]
fn usd(micro: u64) -> f64 {
    micro as f64 / 1_000_000.0
}
