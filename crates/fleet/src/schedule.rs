//! When a word is due. Pure: time comes in from outside.

use std::time::Duration;

/// Between two words.
pub const EVERY: Duration = Duration::from_secs(60);
/// After the start: by then the sources are up, or something is wrong with them.
const FIRST: Duration = Duration::from_secs(5);
/// After the first one, which may not know yet by which token it sends.
const SECOND: Duration = Duration::from_secs(15);
/// After one that was not taken, so long at least; doubled with each further failure, up to
/// [`EVERY`].
const AGAIN: Duration = Duration::from_secs(5);

/// When the next word is due, and what of its fate is worth a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    due: Duration,
    is_first: bool,
    failures: u32,
    why: Option<String>,
}

impl Schedule {
    /// Of a process that starts now.
    pub fn new(now: Duration) -> Self {
        Self {
            due: now + FIRST,
            is_first: true,
            failures: 0,
            why: None,
        }
    }

    /// The last word was not taken.
    pub fn is_failing(&self) -> bool {
        self.why.is_some()
    }

    /// How long to wait for the next word.
    pub fn wait(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// A broker has confirmed a word; whether that is news after a failure.
    pub fn said(&mut self, now: Duration) -> bool {
        self.due = now + if self.is_first { SECOND } else { EVERY };
        self.is_first = false;
        self.failures = 0;
        self.why.take().is_some()
    }

    /// A word was not taken; whether the reason is another than before. The word is not kept: the
    /// next one says more.
    pub fn failed(&mut self, now: Duration, why: &str) -> bool {
        let wait = AGAIN.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.due = now + wait.min(EVERY);
        self.failures = self.failures.saturating_add(1);
        self.why.replace(why.to_owned()).as_deref() != Some(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Duration = Duration::from_secs(1);

    #[test]
    fn a_word_is_due_soon_after_the_start_and_each_minute_from_then() {
        let now = ONE * 1_000;
        let mut schedule = Schedule::new(now);
        assert_eq!(schedule.wait(now), FIRST);
        assert!(!schedule.said(now));
        assert_eq!(schedule.wait(now), SECOND);
        assert!(!schedule.said(now));
        assert_eq!(schedule.wait(now), EVERY);
        assert_eq!(schedule.wait(now + EVERY - ONE), ONE);
        assert_eq!(schedule.wait(now + EVERY * 2), Duration::ZERO);
    }

    #[test]
    fn a_reason_is_told_once_and_so_is_its_end() {
        let mut schedule = Schedule::new(ONE);
        let mut waits = Vec::new();
        for n in 0..6 {
            let told = schedule.failed(ONE, "no stream");
            assert_eq!(told, n == 0);
            waits.push(schedule.wait(ONE).as_secs());
        }
        assert_eq!(waits, [5, 10, 20, 40, 60, 60]);
        assert!(schedule.failed(ONE, "no right"));
        assert!(schedule.said(ONE));
        assert!(!schedule.said(ONE));
        assert!(schedule.failed(ONE, "no right"));
        assert_eq!(schedule.wait(ONE), AGAIN);
    }

    #[test]
    fn failures_for_years_do_no_harm() {
        let mut schedule = Schedule::new(ONE);
        for _ in 0..100 {
            schedule.failed(ONE, "away");
        }
        assert_eq!(schedule.wait(ONE), EVERY);
    }
}
