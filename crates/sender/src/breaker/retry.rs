//! When a failed call is sent again, and when it is given up.

use crate::jitter::Jitter;
use callbridge_spool::RowId;
use std::collections::BTreeMap;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Waits before the next attempt, by the number of failures that count against the call. After five
/// such failures, the call is given up.
const WAITS: [Duration; 5] = [
    MINUTE,
    MINUTE.saturating_mul(4),
    MINUTE.saturating_mul(10),
    MINUTE.saturating_mul(20),
    MINUTE.saturating_mul(25),
];

/// Jitter shortens a wait by up to this part: a sixteenth.
const JITTER_PART: u32 = 16;

/// Maximum number of calls whose last failure is remembered.
const REMEMBERED_MAX: usize = 10_000;

/// The failures of calls, and whether submissions of other calls succeeded meanwhile.
#[derive(Debug)]
pub struct CallFailures {
    jitter: Jitter,
    /// Number of submissions that succeeded since the start.
    succeeded: u64,
    /// The value of `succeeded` at the last failure of each call.
    last: BTreeMap<RowId, u64>,
}

impl CallFailures {
    pub const fn new(seed: u64) -> Self {
        Self {
            jitter: Jitter::new(seed),
            succeeded: 0,
            last: BTreeMap::new(),
        }
    }

    /// Notes that a submission succeeded.
    pub fn note_success(&mut self, row: RowId) {
        self.succeeded += 1;
        self.last.remove(&row);
    }

    /// Forgets a call that is not tried again.
    pub fn forget(&mut self, row: RowId) {
        self.last.remove(&row);
    }

    /// Notes that a call failed. `counted` is the number of its failures that count against it so
    /// far. Returns the new number: this failure counts only if another submission succeeded since
    /// the call's previous failure.
    pub fn note_failure(&mut self, row: RowId, counted: u32) -> u32 {
        if self.last.len() >= REMEMBERED_MAX && !self.last.contains_key(&row) {
            self.last.pop_first();
        }
        match self.last.insert(row, self.succeeded) {
            Some(before) if before < self.succeeded => counted + 1,
            Some(_) | None => counted,
        }
    }

    /// Returns the wait before the next attempt. `None` if the call is given up.
    pub fn wait(&mut self, counted: u32) -> Option<Duration> {
        let wait = *WAITS.get(counted as usize)?;
        Some(wait - self.jitter.up_to(wait / JITTER_PART))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: RowId = RowId(1);
    const OTHER: RowId = RowId(2);

    #[test]
    fn failure_counts_only_after_another_submission_succeeded() {
        let mut failures = CallFailures::new(7);
        assert_eq!(failures.note_failure(ONE, 0), 0, "the first one");
        assert_eq!(failures.note_failure(ONE, 0), 0, "no other call succeeded");
        failures.note_success(OTHER);
        failures.note_success(OTHER);
        assert_eq!(failures.note_failure(ONE, 0), 1);
        assert_eq!(
            failures.note_failure(ONE, 1),
            1,
            "none since the last failure"
        );
        failures.note_success(OTHER);
        assert_eq!(failures.note_failure(ONE, 1), 2);
    }

    #[test]
    fn first_failure_after_success_or_restart_does_not_count() {
        let mut failures = CallFailures::new(7);
        failures.note_failure(ONE, 0);
        failures.note_success(ONE);
        assert_eq!(failures.note_failure(ONE, 0), 0);
        failures.note_success(OTHER);
        failures.forget(ONE);
        assert_eq!(
            failures.note_failure(ONE, 3),
            3,
            "the previous one is not known"
        );
    }

    fn retry_waits(seed: u64) -> [Duration; 5] {
        let mut failures = CallFailures::new(seed);
        [0, 1, 2, 3, 4].map(|counted| failures.wait(counted).expect("another attempt"))
    }

    #[test]
    fn retry_waits_are_1_4_10_20_25_minutes_and_then_none() {
        for seed in 0..500 {
            for (wait, minutes) in retry_waits(seed).into_iter().zip([1, 4, 10, 20, 25]) {
                let most = MINUTE * minutes;
                assert!(wait <= most && wait > most - most / 16, "{wait:?}");
            }
        }
        assert_ne!(retry_waits(1), retry_waits(2));
        let mut failures = CallFailures::new(7);
        assert_eq!(failures.wait(5), None);
        assert_eq!(failures.wait(u32::MAX), None);
    }

    #[test]
    fn failures_beyond_limit_forget_the_oldest_call() {
        let mut failures = CallFailures::new(7);
        for row in 0..=10_000 {
            failures.note_failure(RowId(row), 0);
        }
        failures.note_success(RowId(-1));
        assert_eq!(failures.note_failure(RowId(1), 0), 1);
        assert_eq!(failures.note_failure(RowId(0), 0), 0, "forgotten");
        assert_eq!(failures.last.len(), REMEMBERED_MAX);
    }
}
