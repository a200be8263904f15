//! What tokens cost, and how many a model writes.

use ash_protocol::{Usage, cost};

use super::model::Tokens;

/// What one run has consumed and may consume, the work of its coders included.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    usage: Usage,
    /// Hundredths of a millionth of a dollar: rounding each answer would add up.
    cost: u64,
    budget_micro_usd: Option<u64>,
}

impl Ledger {
    pub(super) fn with_budget(budget_micro_usd: Option<u64>) -> Self {
        Self { budget_micro_usd, ..Self::default() }
    }

    /// Books what an answer, or the part of it that came, consumed.
    pub(super) fn book(&mut self, model: &str, tokens: &Tokens) {
        let consumed = Usage {
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            cache_creation_tokens: tokens.cache_creation,
            cache_read_tokens: tokens.cache_read,
            ..Usage::default()
        };
        self.usage = self.usage.plus(consumed);
        self.cost = self.cost.saturating_add(cost(model, &consumed));
    }

    pub(super) fn book_calls(&mut self, count: u64) {
        self.usage.tool_calls += count;
    }

    pub(super) fn usage(&self) -> Usage {
        Usage { cost_micro_usd: self.cost.div_ceil(100), ..self.usage }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.budget_micro_usd.is_some_and(|budget| self.usage().cost_micro_usd >= budget)
    }
}

/// The most that a model of a family writes in one answer, its thinking included. The first name
/// that is part of the model's holds.
const OUTPUT_LIMITS: [(&str, u32); 10] = [
    ("opus-4-5", 64_000),
    ("opus-4-6", 64_000),
    ("opus-4", 32_000),
    ("3-7-sonnet", 64_000),
    ("3-5-sonnet", 8_192),
    ("3-5-haiku", 8_192),
    ("3-opus", 4_096),
    ("3-sonnet", 4_096),
    ("3-haiku", 4_096),
    // Sonnet 4, Haiku 4.5, and what is not known. If it is too much, the API says so and how much
    // it may be.
    ("", 64_000),
];

pub(super) fn output_limit(model: &str) -> u32 {
    let model = model.to_lowercase();
    let known = OUTPUT_LIMITS.iter().find(|(family, _)| model.contains(family));
    known.map_or(u32::MAX, |&(_, limit)| limit)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_its_family_writes() {
        assert_eq!(output_limit("claude-opus-4-1"), 32_000);
        assert_eq!(output_limit("claude-sonnet-4-5"), 64_000);
        assert_eq!(output_limit("us.anthropic.claude-3-5-sonnet-20241022-v2:0"), 8_192);
        assert_eq!(output_limit("claude-3-haiku-20240307"), 4_096);
        assert_eq!(output_limit("somebody-else"), 64_000);
    }

    #[test]
    fn a_budget_is_spent_when_it_is_reached() {
        let mut ledger = Ledger::with_budget(Some(3));
        assert!(!ledger.is_spent());
        ledger.book("sonnet", &Tokens { input: 1, ..Tokens::default() });
        assert!(ledger.is_spent());
        let mut endless = Ledger::default();
        endless.book("opus", &Tokens { input: u64::MAX, ..Tokens::default() });
        assert!(!endless.is_spent());
    }
}
