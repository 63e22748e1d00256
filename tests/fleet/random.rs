//! Numbers that come alike for the same seed.

/// splitmix64
pub struct SeededRandom(u64);

impl SeededRandom {
    /// Of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound
    }

    /// An index of so many.
    pub fn index(&mut self, of: usize) -> usize {
        let of = u64::try_from(of).expect("few");
        usize::try_from(self.below(of)).expect("few")
    }

    /// Seconds, at least and at most.
    pub const fn seconds(&mut self, least: u64, most: u64) -> std::time::Duration {
        std::time::Duration::from_secs(least + self.below(most - least + 1))
    }
}
