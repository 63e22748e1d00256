//! The PBX's clock as seen through one connection or file.
//!
//! It's given the times of events and of responses to our pings, along with when each arrived by
//! our boot clock. From these, it works out whether the PBX's clock was set, how far apart the two
//! clocks are, and whether a new channel was reported late.
//!
//! ```text
//! time of the event   10:00:00   10:00:08   10:00:20    the last two arrive late because the
//! its arrival         10:00:00   10:00:21   10:00:21    line stalled, so no clock was set
//!
//! time of the event   10:00:00   10:00:08   10:00:03    the time runs backward by 5 s,
//! its arrival         10:00:00   10:00:08   10:00:10    so the clock was set
//!
//! time of the event   10:00:00   10:00:08   10:01:00    the time is 40 s ahead of what the
//! its arrival         10:00:00   10:00:08   10:00:20    smallest delay allows, so it was set
//! ```

use crate::{ClockDifference, EventTime};
use std::time::Duration;

/// Minimum jump in the times that shows that the clock was set.
const JUMP: Duration = Duration::from_secs(2);
/// The smallest delay is confirmed by an event with the same delay that both happened and arrived
/// at least this much later. Until then, the delay may be due to a stalled connection or a busy
/// machine.
const CONFIRMED_AFTER: Duration = Duration::from_secs(2);
/// How quickly a PBX must respond to a ping for the response to count as prompt. A slower one
/// reveals little about the PBX's clock and means that events may be late as well. A stall of 4 s
/// delays a ping by at least 2 s.
pub const PROMPT_RESPONSE: Duration = Duration::from_millis(1_500);
/// Length of a span. Differences from the current span and the one before it count as recent.
const SHOWN_SPAN: Duration = Duration::from_secs(300);

/// How a clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockSet {
    /// The time went backward.
    Back,
    /// The time is further ahead than the smallest delay allows.
    Ahead,
}

/// A PBX's clock as seen in one connection or one file.
#[derive(Clone, Debug, Default)]
pub struct ConnectionClock {
    /// The latest time so far.
    latest: Option<EventTime>,
    least_delayed: Option<LeastDelayed>,
    shown: RecentDifference,
    /// Difference between the time in a new channel's ID and the time at which its first event
    /// arrived.
    ids: RecentDifference,
}

/// The event with the smallest delay.
#[derive(Clone, Copy, Debug)]
struct LeastDelayed {
    /// How far its time was ahead of its arrival.
    ahead: ClockDifference,
    at: EventTime,
    arrived: EventTime,
    /// Set once the smallest delay is known not to come from a stalled line. Before that, an event
    /// with a smaller delay may only have been held for a shorter time.
    confirmed: bool,
}

/// The largest difference in each of the last two spans, and when the later span began.
#[derive(Clone, Copy, Debug, Default)]
struct RecentDifference {
    before: Option<ClockDifference>,
    now: Option<ClockDifference>,
    since: EventTime,
}

impl ConnectionClock {
    /// Processes an event's time, and returns how the clock was set before the event, if it was.
    ///
    /// `arrived` is when the event arrived by our boot clock, or `None` for a file, where the
    /// arrival is meaningless.
    pub fn on_event(&mut self, at: EventTime, arrived: Option<EventTime>) -> Option<ClockSet> {
        let ahead = arrived.map(|arrived| ClockDifference::between(at, arrived));
        let went_back = self.latest.is_some_and(|latest| latest.since(at) > JUMP);
        let confirmed = self.least_delayed.filter(|least| least.confirmed);
        let ran_ahead = match (ahead, confirmed) {
            (Some(ahead), Some(least)) => ahead.above(least.ahead) > JUMP,
            _ => false,
        };
        let was_set = if went_back {
            Some(ClockSet::Back)
        } else if ran_ahead {
            Some(ClockSet::Ahead)
        } else {
            None
        };
        if was_set.is_some() {
            *self = Self::default();
        }
        self.latest = self.latest.max(Some(at));
        if let (Some(ahead), Some(arrived)) = (ahead, arrived) {
            self.note_delay(ahead, at, arrived);
        }
        was_set
    }

    /// Processes a new channel's event, given the start of the second in its unique ID, and returns
    /// `true` if the event is late.
    ///
    /// It's late if its delay is over two seconds longer than that of the promptest such event, or
    /// than the difference between the clocks allows.
    pub fn is_id_late(&mut self, second: EventTime, arrived: EventTime) -> bool {
        let ahead = ClockDifference::between(second, arrived);
        self.ids.note(ahead, arrived);
        let promptest = self.ids.greatest().max(self.recent_difference());
        match promptest {
            Some(promptest) => promptest.above(ahead) > JUMP,
            None => false,
        }
    }

    /// Processes the PBX's time in the response to a ping that was sent at `asked` and answered at
    /// `answered`, returning how the clock was set before that, if it was.
    pub fn on_answer(
        &mut self,
        at: EventTime,
        asked: EventTime,
        answered: EventTime,
    ) -> Option<ClockSet> {
        let was_set = self.on_event(at, Some(answered));
        if answered.since(asked) <= PROMPT_RESPONSE {
            // The PBX can't have read its clock before we asked, so no message can have a smaller
            // delay.
            self.least_delayed = Some(LeastDelayed {
                ahead: ClockDifference::between(at, asked),
                at,
                arrived: answered,
                confirmed: true,
            });
        }
        was_set
    }

    /// Returns the offset between the PBX's clock and our boot clock in the last few minutes, based
    /// on the event with the smallest delay.
    pub fn recent_difference(&self) -> Option<ClockDifference> {
        self.shown.greatest()
    }

    fn note_delay(&mut self, ahead: ClockDifference, at: EventTime, arrived: EventTime) {
        self.shown.note(ahead, arrived);
        let Some(least) = &mut self.least_delayed else {
            self.least_delayed = Some(LeastDelayed {
                ahead,
                at,
                arrived,
                confirmed: false,
            });
            return;
        };
        if ahead.above(least.ahead) > JUMP {
            *least = LeastDelayed {
                ahead,
                at,
                arrived,
                confirmed: false,
            };
            return;
        }
        let as_small = least.ahead.above(ahead) <= JUMP;
        let seen_later = at.since(least.at) >= CONFIRMED_AFTER
            && arrived.since(least.arrived) >= CONFIRMED_AFTER;
        least.confirmed |= as_small && seen_later;
        least.ahead = least.ahead.max(ahead);
    }
}

impl RecentDifference {
    fn greatest(&self) -> Option<ClockDifference> {
        self.before.max(self.now)
    }

    fn note(&mut self, ahead: ClockDifference, arrived: EventTime) {
        if self.now.is_none() || arrived.since(self.since) >= SHOWN_SPAN {
            self.before = self.now.take();
            self.since = arrived;
        }
        self.now = self.now.max(Some(ahead));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(seconds: f64) -> EventTime {
        EventTime::from_micros((seconds * 1e6).round() as i64)
    }

    /// Returns, for each event, whether it shows that the clock was set. Each item of `events`
    /// consists of an event's time and its arrival.
    fn clock_set_signs(events: &[(f64, f64)]) -> Vec<bool> {
        let mut clock = ConnectionClock::default();
        let mut shown = Vec::new();
        for &(time, arrived) in events {
            let was_set = clock.on_event(time_at(time), Some(time_at(arrived)));
            shown.push(was_set.is_some());
        }
        shown
    }

    #[test]
    fn late_events_do_not_show_a_set_clock() {
        let stalled = [
            (0.0, 0.0),
            (3.0, 3.0),
            (4.0, 49.0),
            (20.0, 49.0),
            (48.9, 49.0),
            (50.0, 50.0),
        ];
        assert_eq!(clock_set_signs(&stalled), [false; 6]);
    }

    #[test]
    fn line_stalled_from_its_beginning_shows_no_set_clock() {
        for ahead in [-3600.0, -10.0, 0.0, 10.0, 3600.0] {
            let stalled = [
                (0.0, 20.0),
                (3.0, 20.0),
                (19.0, 20.0),
                (21.0, 21.0),
                (30.0, 30.0),
            ];
            let stalled = stalled.map(|(time, arrived)| (time + ahead, arrived));
            assert_eq!(clock_set_signs(&stalled), [false; 5], "{ahead}");
        }
    }

    #[test]
    fn events_of_one_second_read_late_show_no_set_clock() {
        let read_late = [
            (100.0, 0.0),
            (100.5, 2.2),
            (110.0, 2.3),
            (120.0, 4.4),
            (120.1, 6.5),
            (130.0, 6.6),
        ];
        assert_eq!(clock_set_signs(&read_late), [false; 6]);
    }

    #[test]
    fn constant_clock_difference_is_known_and_shows_no_set_clock() {
        for ahead in [-3600.0, -10.0, 10.0, 3600.0] {
            let mut clock = ConnectionClock::default();
            for second in 0..30 {
                let second = f64::from(second);
                let was_set = clock.on_event(time_at(second + ahead), Some(time_at(second + 0.1)));
                assert_eq!(was_set, None);
            }
            let known = ClockDifference::between(time_at(ahead), time_at(0.1));
            assert_eq!(clock.recent_difference(), Some(known));
        }
    }

    #[test]
    fn time_that_runs_back_by_over_two_seconds_shows_a_set_clock() {
        assert_eq!(
            clock_set_signs(&[(10.0, 10.0), (8.1, 12.0)]),
            [false, false]
        );
        assert_eq!(clock_set_signs(&[(10.0, 10.0), (7.9, 12.0)]), [false, true]);
        assert_eq!(
            clock_set_signs(&[(10.0, 10.0), (5.0, 12.0), (7.0, 14.0), (1.0, 15.0)]),
            [false, true, false, true]
        );
        let mut file = ConnectionClock::default();
        assert_eq!(file.on_event(time_at(10.0), None), None);
        assert_eq!(file.on_event(time_at(500.0), None), None, "a quiet time");
        assert_eq!(file.on_event(time_at(400.0), None), Some(ClockSet::Back));
    }

    #[test]
    fn time_ahead_of_the_smallest_delay_shows_a_set_clock() {
        for ahead in [-3600.0, 0.0, 3600.0] {
            let events = [
                (0.0, 0.0),
                (2.5, 2.5),
                (10.0, 8.5),
                (20.0, 16.0),
                (30.0, 26.0),
            ];
            let events = events.map(|(time, arrived)| (time + ahead, arrived));
            assert_eq!(
                clock_set_signs(&events),
                [false, false, false, true, false],
                "{ahead}"
            );
        }
    }

    /// Returns whether each new channel is late, given the second in its ID and its arrival time.
    fn late_ids(clock: &mut ConnectionClock, ids: &[(i64, f64)]) -> Vec<bool> {
        let late = ids.iter().map(|&(second, arrived)| {
            clock.is_id_late(EventTime::from_seconds(second), time_at(arrived))
        });
        late.collect()
    }

    #[test]
    fn channel_over_two_seconds_later_than_the_promptest_is_late() {
        let mut clock = ConnectionClock::default();
        let ids = [(10, 10.1), (20, 20.9), (30, 32.0), (40, 42.2), (50, 50.0)];
        let late = late_ids(&mut clock, &ids);
        assert_eq!(late, [false, false, false, true, false]);
        // A clock that's an hour ahead makes no difference.
        let ids = ids.map(|(second, arrived)| (second + 3600, arrived));
        let late = late_ids(&mut ConnectionClock::default(), &ids);
        assert_eq!(late, [false, false, false, true, false]);
    }

    #[test]
    fn first_channel_is_late_by_the_clock_in_a_ping() {
        let mut clock = ConnectionClock::default();
        clock.on_answer(time_at(103.0), time_at(3.0), time_at(3.1));
        assert_eq!(late_ids(&mut clock, &[(105, 5.9)]), [false]);
        assert_eq!(late_ids(&mut clock, &[(105, 8.0)]), [true]);
    }

    #[test]
    fn clock_set_back_makes_channels_late_for_minutes_only() {
        let mut clock = ConnectionClock::default();
        late_ids(&mut clock, &[(100, 100.0)]);
        let after = [(97, 110.0), (497, 510.0), (897, 910.0), (1297, 1310.0)];
        let late = late_ids(&mut clock, &after);
        assert_eq!(late, [true, true, false, false]);
    }

    #[test]
    fn prompt_answer_to_a_ping_proves_the_smallest_delay() {
        let mut clock = ConnectionClock::default();
        assert_eq!(
            clock.on_answer(time_at(100.0), time_at(0.0), time_at(0.1)),
            None
        );
        let seven_ahead = clock.on_event(time_at(110.0), Some(time_at(3.0)));
        assert_eq!(seven_ahead, Some(ClockSet::Ahead));
        // A response that was held up by the connection is inconclusive.
        let mut clock = ConnectionClock::default();
        assert_eq!(
            clock.on_answer(time_at(100.0), time_at(0.0), time_at(9.0)),
            None
        );
        assert_eq!(clock.on_event(time_at(109.5), Some(time_at(9.6))), None);
        // The clock was set back while there were no calls.
        let answer = clock.on_answer(time_at(60.0), time_at(20.0), time_at(20.1));
        assert_eq!(answer, Some(ClockSet::Back));
    }
}
