//! Decides when a failed call is resent and when it's given up (§7.7).
//!
//! ```text
//! call 1   ✗ 1 min ✗ 4 min ✗ 10 min ✗ 20 min ✗   given up after five sends while others passed
//! others      ✓       ✓       ✓        ✓
//! call 1   ✗ 1 min ✗ 4 min ✗ 10 min ✗ 20 min ✗ 25 min ✗ 1 h ✗ 1 h …   no other call passed
//! ```

use crate::jitter::Jitter;
use callbridge_spool::RowId;
use std::collections::BTreeMap;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// Waits after a failed send, indexed by the number of sends so far.
const WAITS: [Duration; 5] = [
    MINUTE,
    MINUTE.saturating_mul(4),
    MINUTE.saturating_mul(10),
    MINUTE.saturating_mul(20),
    MINUTE.saturating_mul(25),
];
/// Wait after any later send.
const WAIT_MAX: Duration = MINUTE.saturating_mul(60);

/// Number of times a call is sent if it keeps failing while other calls succeed (§7.7).
const SENDS_MAX: u32 = 5;

/// Jitter shortens a wait by up to a sixteenth of it.
const JITTER_PART: u32 = 16;

/// How long after its next send was due a call that hasn't been sent still counts as failing. It's
/// probably gone by then, confirmed by a webhook or discarded by a person.
const OVERDUE_MAX: Duration = MINUTE.saturating_mul(10);

/// Maximum number of calls whose last failure is remembered.
const REMEMBERED_MAX: usize = 10_000;

/// The calls' failures, and whether submissions of other calls succeeded in the meantime.
#[derive(Debug)]
pub struct CallFailures {
    jitter: Jitter,
    /// Whether the last submission before startup failed.
    failed_before: bool,
    /// Number of successful submissions since startup.
    succeeded: u64,
    last: BTreeMap<RowId, LastFailure>,
    /// Whether a request of any kind has succeeded since a call failed, which rules out an outage.
    works: bool,
}

/// The last failure of one call.
#[derive(Clone, Copy, Debug)]
struct LastFailure {
    /// Number of submissions that had succeeded by then.
    succeeded: u64,
    /// Number of failed sends so far, not counting those during which other requests failed too.
    sends: u32,
    /// Time since boot at which the next send is due.
    due: Duration,
}

/// The result of a failed send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedSend {
    /// Number of sends that count against the call.
    pub counted: u32,
    /// Wait before the next send, or `None` if the call is given up.
    pub wait: Option<Duration>,
}

impl CallFailures {
    /// `failed_before` tells whether the last submission before startup failed.
    pub const fn new(seed: u64, failed_before: bool) -> Self {
        Self {
            jitter: Jitter::new(seed),
            failed_before,
            succeeded: 0,
            last: BTreeMap::new(),
            works: false,
        }
    }

    /// Notes that a request of any kind succeeded.
    pub fn note_works(&mut self) {
        self.works = true;
    }

    /// Notes that a submission succeeded.
    pub fn note_success(&mut self, row: RowId) {
        self.succeeded += 1;
        self.works = true;
        self.last.remove(&row);
    }

    /// Forgets a call that won't be tried again.
    pub fn forget(&mut self, row: RowId) {
        self.last.remove(&row);
    }

    /// Notes that sending a call failed. `counted` is the number of sends that count against it so
    /// far. The first one always counts, and a later one only if another submission has succeeded
    /// since the call's previous failure. The waits grow only while other requests succeed and no
    /// other call fails, since all calls should be sent soon after an outage.
    pub fn note_failure(&mut self, now: Duration, row: RowId, counted: u32) -> FailedSend {
        if self.last.len() >= REMEMBERED_MAX && !self.last.contains_key(&row) {
            self.last.pop_first();
        }
        let last = self.last.get(&row);
        let others_passed = match last {
            Some(last) => last.succeeded < self.succeeded,
            None => self.succeeded > 0 || !self.failed_before,
        };
        let counted = if counted == 0 || others_passed {
            counted + 1
        } else {
            counted
        };
        // If several calls have failed since the last success, none of them is the cause.
        let mut others = self.last.iter().filter(|(other, _)| **other != row);
        let several_fail = others.any(|(_, failure)| {
            failure.succeeded == self.succeeded && now <= failure.due + OVERDUE_MAX
        });
        let grows = u32::from(self.works && !several_fail);
        self.works = false;
        let sends = last.map_or(1, |last| last.sends + grows).max(counted);
        let wait = self.wait(sends);
        let failure = LastFailure {
            succeeded: self.succeeded,
            sends,
            due: now + wait,
        };
        self.last.insert(row, failure);
        FailedSend {
            counted,
            wait: (counted < SENDS_MAX).then_some(wait),
        }
    }

    /// Returns the wait after this many sends.
    fn wait(&mut self, sends: u32) -> Duration {
        let wait = WAITS.get(sends.saturating_sub(1) as usize);
        let wait = *wait.unwrap_or(&WAIT_MAX);
        wait - self.jitter.up_to(wait / JITTER_PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: RowId = RowId(1);
    const OTHER: RowId = RowId(2);

    #[test]
    fn call_is_given_up_after_five_sends_while_others_passed() {
        for seed in 0..500 {
            let mut failures = CallFailures::new(seed, false);
            let mut counted = 0;
            for minutes in [1, 4, 10, 20] {
                let failed = failures.note_failure(Duration::ZERO, ONE, counted);
                let wait = failed.wait.expect("it goes on");
                let most = MINUTE * minutes;
                assert!(wait <= most && wait > most - most / 16, "{wait:?}");
                counted = failed.counted;
                failures.note_success(OTHER);
            }
            assert_eq!(
                failures.note_failure(Duration::ZERO, ONE, counted).wait,
                None
            );
        }
    }

    #[test]
    fn call_that_fails_alone_is_sent_hourly_in_the_end() {
        for seed in 0..500 {
            let mut failures = CallFailures::new(seed, false);
            let mut counted = 0;
            for minutes in [1, 4, 10, 20, 25, 60, 60] {
                let failed = failures.note_failure(Duration::ZERO, ONE, counted);
                counted = failed.counted;
                failures.note_works();
                let wait = failed.wait.expect("it goes on");
                let most = MINUTE * minutes;
                assert!(wait <= most && wait > most - most / 16, "{wait:?}");
            }
        }
    }

    #[test]
    fn send_counts_only_after_another_submission_succeeded() {
        let mut failures = CallFailures::new(7, false);
        let count = |failures: &mut CallFailures, counted| {
            failures.note_failure(Duration::ZERO, ONE, counted).counted
        };
        assert_eq!(count(&mut failures, 0), 1, "the first one");
        assert_eq!(count(&mut failures, 1), 1, "no other call succeeded");
        failures.note_success(OTHER);
        failures.note_success(OTHER);
        assert_eq!(count(&mut failures, 1), 2);
        assert_eq!(count(&mut failures, 2), 2, "none since the last failure");
        failures.note_success(OTHER);
        assert_eq!(count(&mut failures, 2), 3);
    }

    #[test]
    fn waits_grow_only_while_other_requests_work() {
        let mut failures = CallFailures::new(7, true);
        for (row, others_work, minutes) in [
            (ONE, false, 1),
            (ONE, false, 1),
            (ONE, true, 4),
            (OTHER, true, 1),
            (ONE, true, 4),
        ] {
            if others_work {
                failures.note_works();
            }
            let wait = failures
                .note_failure(Duration::ZERO, row, 1)
                .wait
                .expect("another send");
            assert_eq!(wait.as_secs().div_ceil(60), minutes, "{row:?}");
        }
    }

    #[test]
    fn call_that_was_given_up_does_not_count_as_failing() {
        let mut failures = CallFailures::new(7, true);
        failures.note_failure(Duration::ZERO, ONE, 1);
        failures.forget(ONE);
        for minutes in [1, 4, 10] {
            failures.note_works();
            let wait = failures
                .note_failure(Duration::ZERO, OTHER, 1)
                .wait
                .expect("another send");
            assert_eq!(wait.as_secs().div_ceil(60), minutes);
        }
    }

    #[test]
    fn call_that_is_not_sent_again_stops_counting_as_failing() {
        for (minutes_later, wanted) in [(11, 1), (12, 4)] {
            let mut failures = CallFailures::new(7, true);
            failures.note_failure(Duration::ZERO, OTHER, 1);
            failures.note_failure(Duration::ZERO, ONE, 1);
            failures.note_works();
            let later = MINUTE * minutes_later - MINUTE / 8;
            let failed = failures.note_failure(later, ONE, 1);
            let wait = failed.wait.expect("another send");
            assert_eq!(wait.as_secs().div_ceil(60), wanted, "{minutes_later}");
        }
    }

    #[test]
    fn restart_hides_no_success_of_other_calls() {
        for (failed_before, succeeds, wanted) in [
            (false, false, 4),
            (false, true, 4),
            (true, true, 4),
            (true, false, 3),
        ] {
            let mut failures = CallFailures::new(7, failed_before);
            if succeeds {
                failures.note_success(OTHER);
            }
            let counted = failures.note_failure(Duration::ZERO, ONE, 3).counted;
            assert_eq!(counted, wanted, "{failed_before} {succeeds}");
        }
    }

    #[test]
    fn failures_beyond_limit_forget_the_oldest_call() {
        let mut failures = CallFailures::new(7, true);
        for row in 0..=10_000 {
            failures.note_failure(Duration::ZERO, RowId(row), 0);
        }
        assert_eq!(failures.last.len(), REMEMBERED_MAX);
        assert!(!failures.last.contains_key(&RowId(0)), "forgotten");
    }
}
