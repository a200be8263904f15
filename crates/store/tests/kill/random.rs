//! Choices that a seed repeats.

/// A small generator of pseudo-random numbers (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Ten bytes for an id.
    pub(crate) fn bytes(&mut self) -> [u8; 10] {
        let (high, low) = (self.next().to_le_bytes(), self.next().to_le_bytes());
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&high);
        bytes[8..].copy_from_slice(&low[..2]);
        bytes
    }
}
