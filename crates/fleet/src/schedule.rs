//! When a status report is due. Pure: time comes in from outside.

use std::time::Duration;

/// Interval between two status reports.
pub const EVERY: Duration = Duration::from_secs(60);
/// Time from the start to the first report: by then the sources are up, or something is wrong with
/// them.
const FIRST: Duration = Duration::from_secs(5);
/// Time from the first report to the second: the first may not know yet by which token it sends.
const SECOND: Duration = Duration::from_secs(15);
/// Time to wait after a report that was not taken; doubled with each further failure, up to
/// [`EVERY`].
const AGAIN: Duration = Duration::from_secs(5);

/// The time of the next status report, and the failures before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    due: Duration,
    is_first: bool,
    /// The wait after the next failure.
    again: Duration,
    /// Reason for which the last report was not taken; `None` where it was.
    pub(crate) why: Option<String>,
}

impl Schedule {
    /// The schedule of a process that starts now.
    pub fn new(now: Duration) -> Self {
        Self {
            due: now + FIRST,
            is_first: true,
            again: AGAIN,
            why: None,
        }
    }

    /// Returns the time left until the next report.
    pub fn wait(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// Notes that a broker has confirmed a report; returns `true` where the last one had failed.
    pub fn said(&mut self, now: Duration) -> bool {
        self.due = now + if self.is_first { SECOND } else { EVERY };
        (self.is_first, self.again) = (false, AGAIN);
        self.why.take().is_some()
    }

    /// Notes that a report was not taken, and returns `true` where the reason is another than
    /// before. The report is not kept: the next one says more.
    pub fn failed(&mut self, now: Duration, why: &str) -> bool {
        self.due = now + self.again;
        self.again = (2 * self.again).min(EVERY);
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
