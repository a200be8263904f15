//! What tokens cost. It is written once: for the agent that stops by itself when its budget is spent,
//! and for the proxy that stops whoever does not.

use crate::report::Usage;

/// The name of the family that costs most, as its older models do: for what nobody has said the model of.
pub const DEAREST: &str = "opus";

/// Prices in hundredths of a millionth of a US dollar per token, which are hundredths of a dollar
/// per million tokens.
struct Price {
    input: u64,
    output: u64,
    cache_creation: u64,
    cache_read: u64,
}

const OPUS: Price = Price { input: 1_500, output: 7_500, cache_creation: 1_875, cache_read: 150 };
const NEWER_OPUS: Price = Price { input: 500, output: 2_500, cache_creation: 625, cache_read: 50 };
const SONNET: Price = Price { input: 300, output: 1_500, cache_creation: 375, cache_read: 30 };
const HAIKU: Price = Price { input: 100, output: 500, cache_creation: 125, cache_read: 10 };

/// The models of the dearest family that cost a third of what it did before them. One that comes later counts as dear
/// until its price is known: a budget that ends too early is said to have ended, one that ends too late is spent.
const NEWER: [&str; 2] = ["opus-4-5", "opus-4-6"];

/// What the tokens of an answer cost, in hundredths of a millionth of a US dollar: rounding each
/// answer would add up.
pub fn cost(model: &str, usage: &Usage) -> u64 {
    let price = price(model);
    let parts = [
        (usage.input_tokens, price.input),
        (usage.output_tokens, price.output),
        (usage.cache_creation_tokens, price.cache_creation),
        (usage.cache_read_tokens, price.cache_read),
    ];
    parts
        .iter()
        .fold(0, |sum: u64, (count, price)| sum.saturating_add(count.saturating_mul(*price)))
}

/// By the name, and else by the family in it. A model that is not known costs what most do.
fn price(model: &str) -> Price {
    let model = model.to_lowercase();
    match () {
        () if NEWER.iter().any(|newer| model.contains(newer)) => NEWER_OPUS,
        () if model.contains(DEAREST) => OPUS,
        () if model.contains("haiku") => HAIKU,
        () => SONNET,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn an_answer_costs_what_its_family_does() {
        let usage = Usage {
            input_tokens: 1_000,
            output_tokens: 100,
            cache_creation_tokens: 10,
            cache_read_tokens: 1_000_000,
            ..Usage::default()
        };
        let micro_usd = |model| cost(model, &usage).div_ceil(100);
        assert_eq!(micro_usd("claude-opus-4-1"), 15_000 + 7_500 + 188 + 1_500_000);
        assert_eq!(micro_usd("claude-opus-4-5-20251101"), 5_000 + 2_500 + 63 + 500_000);
        assert_eq!(micro_usd("claude-opus-9"), micro_usd("claude-opus-4-1"));
        assert_eq!(micro_usd("claude-sonnet-4-5"), 3_000 + 1_500 + 38 + 300_000);
        assert_eq!(micro_usd("claude-haiku-4-5"), 1_000 + 500 + 13 + 100_000);
        assert_eq!(micro_usd("somebody-else"), micro_usd("claude-sonnet-4-5"));
        let endless = Usage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..usage };
        assert_eq!(cost(DEAREST, &endless), u64::MAX);
    }
}
