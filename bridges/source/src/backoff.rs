//! How long to wait before the next attempt. This module does no I/O. The caller supplies times and
//! random numbers.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The first waits after refused connections, in order. A PBX that's being restarted is back within
/// seconds, and refusing a connection costs it nothing.
const REFUSED: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// Bounds for the wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Upper limit for the first wait, which doubles with each further failure.
    pub first: Duration,
    /// What that limit never exceeds.
    pub most: Duration,
    /// How long a connection must last to count as working, after which the wait starts over at
    /// `first`.
    pub healthy: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            most: Duration::from_secs(30),
            healthy: Duration::from_secs(10),
        }
    }
}

/// Exponential backoff with full jitter. Each wait is random up to a limit that doubles with each
/// failure, so that many connections lost at the same time aren't all reopened at the same time.
/// The shortest wait is a tenth of the first limit, so that a PBX that refuses connections
/// immediately isn't retried in a tight loop.
#[derive(Clone, Debug)]
pub struct Backoff {
    bounds: Bounds,
    failures: u32,
    /// Number of connections refused since the last one that was up.
    refused: usize,
}

impl Backoff {
    /// Creates a backoff without any failures or refusals so far.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            failures: 0,
            refused: 0,
        }
    }

    /// Returns `true` if the last connection lasted long enough to count as working, in which case
    /// earlier failures are forgotten.
    pub fn has_worked(&mut self, up: Duration) -> bool {
        let has_worked = up >= self.bounds.healthy;
        if has_worked {
            self.failures = 0;
            self.refused = 0;
        }
        has_worked
    }

    /// Returns how long to wait after being refused by a PBX that doesn't resend events. The first
    /// waits are short and fixed, and later ones are those of [`Backoff::wait`].
    pub fn wait_refused(&mut self, chance: u64) -> Duration {
        let soon = REFUSED.get(self.refused).copied();
        self.refused = self.refused.saturating_add(1);
        soon.unwrap_or_else(|| self.wait(Duration::ZERO, chance))
    }

    /// Returns how long to wait before the next connection, given how long the last one was `up`.
    /// `chance` is a random number, so that the connections of several programs are spread out.
    pub fn wait(&mut self, up: Duration, chance: u64) -> Duration {
        if !self.has_worked(up) && !up.is_zero() {
            self.refused = 0;
        }
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let ceiling = self
            .bounds
            .first
            .saturating_mul(doubled)
            .min(self.bounds.most);
        self.failures = self.failures.saturating_add(1);
        let floor = self.bounds.first / 10;
        let span = ceiling.saturating_sub(floor).as_micros();
        let jitter = span * u128::from(chance) / u128::from(u64::MAX);
        floor + Duration::from_micros(u64::try_from(jitter).unwrap_or(u64::MAX))
    }

    /// Forgets any failures, so that the first limit applies to the next wait again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Returns a random number derived from the keys that the standard library generates for its hash
/// maps.
pub fn chance() -> u64 {
    RandomState::new().hash_one(0_u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const NONE: Duration = Duration::ZERO;

    #[test]
    fn backoff_ceiling_doubles_from_half_a_second_to_thirty() {
        let mut backoff = Backoff::new(Bounds::default());
        let waits: Vec<_> = (0..9)
            .map(|_| backoff.wait(NONE, u64::MAX).as_millis())
            .collect();
        assert_eq!(
            waits,
            [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]
        );
    }

    #[test]
    fn backoff_resets_after_ten_healthy_seconds_and_not_before() {
        let mut backoff = Backoff::new(Bounds::default());
        for _ in 0..40 {
            backoff.wait(NONE, 1);
        }
        assert_eq!(backoff.wait(Duration::from_secs(9), u64::MAX).as_secs(), 30);
        assert_eq!(
            backoff.wait(Duration::from_secs(10), u64::MAX).as_millis(),
            500
        );
        backoff.reset();
        assert_eq!(backoff.wait(NONE, u64::MAX).as_millis(), 500);
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(chance(), chance());
    }

    proptest! {
        #[test]
        fn backoff_wait_is_between_its_floor_and_ceiling(chances in vec(any::<u64>(), 1..20)) {
            let mut backoff = Backoff::new(Bounds::default());
            for (failures, chance) in chances.into_iter().enumerate() {
                let ceiling = Duration::from_millis(500 << failures.min(10));
                let ceiling = ceiling.min(Duration::from_secs(30));
                let wait = backoff.wait(NONE, chance);
                prop_assert!(wait >= Duration::from_millis(50) && wait <= ceiling, "{wait:?}");
            }
        }
    }
}
