//! What a session has spent, as the server has counted it.

/// The largest sum that is kept; what is beyond it counts as this much.
pub(crate) const MAX_SPEND: u64 = 1 << 60;

/// What the model's answers to a session have consumed, counted outside of its sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spend {
    /// In hundredths of a millionth of a US dollar: rounding each answer would add up.
    pub cost: u64,
    /// Tokens of every kind, those from and to the cache included.
    pub tokens: u64,
}

impl Spend {
    /// This and some more, as far as it can be kept.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            cost: self.cost.saturating_add(more.cost).min(MAX_SPEND),
            tokens: self.tokens.saturating_add(more.tokens).min(MAX_SPEND),
        }
    }

    /// What of this is not in an earlier sum.
    #[must_use]
    pub fn minus(self, earlier: Self) -> Self {
        Self {
            cost: self.cost.saturating_sub(earlier.cost),
            tokens: self.tokens.saturating_sub(earlier.tokens),
        }
    }
}
