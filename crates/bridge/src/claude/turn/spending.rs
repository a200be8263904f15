//! What an answer takes: as the program says it at the end, and as it was heard bit by bit until then.

use ash_protocol::Usage;
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tokens {
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) cache_creation_input_tokens: u64,
    pub(super) cache_read_input_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct OfModel {
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) cache_read_input_tokens: u64,
    pub(super) cache_creation_input_tokens: u64,
    #[serde(rename = "costUSD")]
    pub(super) cost_usd: f64,
}

impl Tokens {
    /// The same, and what it cost.
    pub(super) fn usage(self, usd: f64) -> Usage {
        Usage {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cache_creation_tokens: self.cache_creation_input_tokens,
            cache_read_tokens: self.cache_read_input_tokens,
            tool_calls: 0,
            cost_micro_usd: micro(usd),
        }
    }
}

impl OfModel {
    pub(super) fn usage(self) -> Usage {
        let tokens = Tokens {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cache_creation_input_tokens: self.cache_creation_input_tokens,
            cache_read_input_tokens: self.cache_read_input_tokens,
        };
        tokens.usage(self.cost_usd)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, and nothing costs less than nothing"
)]
fn micro(usd: f64) -> u64 {
    (usd * 1_000_000.0).round() as u64
}

/// What was used and is in no sum yet. What it cost is known with the sum only.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unbooked {
    before: Usage,
    /// Of the answer that goes on. What is said of it later stands for what was said before.
    last: Tokens,
}

impl Unbooked {
    /// An answer begins, with what it was asked.
    pub(super) fn begin(&mut self, usage: &Value) {
        self.before = self.before.plus(self.last.usage(0.0));
        self.last = Tokens::default();
        self.go_on(usage);
    }

    /// More is known of it.
    pub(super) fn go_on(&mut self, usage: &Value) {
        let told = Tokens::deserialize(usage).unwrap_or_default();
        let last = &mut self.last;
        last.input_tokens = last.input_tokens.max(told.input_tokens);
        last.output_tokens = last.output_tokens.max(told.output_tokens);
        last.cache_creation_input_tokens =
            last.cache_creation_input_tokens.max(told.cache_creation_input_tokens);
        last.cache_read_input_tokens =
            last.cache_read_input_tokens.max(told.cache_read_input_tokens);
    }

    /// Together with what is in a sum.
    pub(super) fn with(self, usage: Usage) -> Usage {
        usage.plus(self.before).plus(self.last.usage(0.0))
    }
}
