//! Small pseudorandom waits, so that several programs don't send their requests at the same time.

use std::time::Duration;

/// A generator of pseudorandom waits (splitmix64). The same seed produces the same waits.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a random time between zero and `most`.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = (bits ^ (bits >> 31)) >> 54; // of 1024
        most * u32::try_from(share).unwrap_or(0) / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_matches_published_splitmix64() {
        let mut jitter = Jitter::new(7);
        let shares = [(); 6].map(|()| jitter.up_to(Duration::from_secs(1024)).as_secs());
        // The expected values were produced by the published splitmix64 with seed 7.
        assert_eq!(shares, [399, 17, 922, 596, 463, 255]);
    }
}
