//! Finds out whether a connection is stalled: a ping has waited too long for its answer, or the
//! connection was not read for too long. Times of the boot clock go in, and changes are reported to
//! the intake.

use crate::{Item, SourceFeed};
use callbridge_call::EventTime;
use std::time::Duration;

/// A delay up to this time is not a stall.
const PROMPT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Stall {
    /// Time of the last check.
    checked: EventTime,
    /// The reader was suspended, and a ping that it sent afterwards has no answer yet.
    drains: bool,
    is_stalled: bool,
    reported: bool,
}

impl Stall {
    pub(super) fn new(now: EventTime) -> Self {
        Self {
            checked: now,
            drains: false,
            is_stalled: false,
            reported: false,
        }
    }

    /// Checks whether the connection is stalled at the time `now`. `unanswered` is when the oldest
    /// ping without an answer was sent. Call this at least once a second. Returns `true` if the
    /// last call was more than 5 s ago, because the reader was suspended.
    pub(super) fn check(&mut self, now: EventTime, unanswered: Option<EventTime>) -> bool {
        let stood_still = now.since(self.checked) > PROMPT;
        self.checked = now;
        // Bytes that arrived during the suspension are read before the answer to a ping that is
        // sent now.
        self.drains = stood_still || self.drains && unanswered.is_some();
        let waits = unanswered.is_some_and(|asked| now.since(asked) > PROMPT);
        self.is_stalled = waits || self.drains;
        stood_still
    }

    /// Reports whether the connection is stalled, if this has changed and there is room.
    pub(super) fn report(&mut self, feed: &SourceFeed) {
        let is_new = self.is_stalled != self.reported;
        if is_new && feed.try_report(Item::Stalled(self.is_stalled)) {
            self.reported = self.is_stalled;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(seconds: i64) -> EventTime {
        EventTime::from_seconds(seconds)
    }

    /// Checks the stall at `now`, and reports a change. Returns whether the reader was suspended,
    /// and the new value if it changed. `unanswered` is the time of a ping without answer.
    fn check(stall: &mut Stall, now: i64, unanswered: Option<i64>) -> (bool, Option<bool>) {
        let stood_still = stall.check(time_at(now), unanswered.map(time_at));
        let is_new = stall.is_stalled != stall.reported;
        stall.reported = stall.is_stalled;
        let reported = if is_new { Some(stall.is_stalled) } else { None };
        (stood_still, reported)
    }

    #[test]
    fn ping_answered_late_is_a_stall_until_its_answer() {
        let mut stall = Stall::new(time_at(0));
        for now in 1..6 {
            assert_eq!(check(&mut stall, now, Some(0)), (false, None), "{now}");
        }
        assert_eq!(check(&mut stall, 6, Some(0)), (false, Some(true)));
        assert_eq!(check(&mut stall, 7, Some(0)), (false, None));
        assert_eq!(check(&mut stall, 8, None), (false, Some(false)));
    }

    #[test]
    fn suspended_reader_is_a_stall_until_a_later_answer() {
        let mut stall = Stall::new(time_at(0));
        assert_eq!(check(&mut stall, 5, None), (false, None));
        assert_eq!(check(&mut stall, 50, None), (true, Some(true)));
        assert_eq!(check(&mut stall, 51, Some(50)), (false, None));
        assert_eq!(check(&mut stall, 51, None), (false, Some(false)));
    }

    #[test]
    fn stall_without_pings_ends_at_the_next_check() {
        let mut stall = Stall::new(time_at(0));
        assert_eq!(check(&mut stall, 8, None), (true, Some(true)));
        assert_eq!(check(&mut stall, 9, None), (false, Some(false)));
    }
}
