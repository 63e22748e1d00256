//! Keeps track of pings on a live connection and the responses to them. A response shows that
//! everything the PBX sent before it has arrived.

use crate::Item;
use callbridge_call::EventTime;
use std::collections::VecDeque;

/// Maximum number of unanswered pings to keep track of. Any beyond that are ignored.
const SENT_MAX: usize = 256;

/// A ping that was responded to, by our boot clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PingAnswer {
    pub(crate) asked: EventTime,
    pub(crate) answered: EventTime,
}

impl PingAnswer {
    /// Returns the report for the intake. `at` is the PBX's time in the response, if it has one.
    pub(crate) fn report(self, at: Option<EventTime>) -> Item {
        Item::Pong {
            at,
            asked: self.asked,
            answered: self.answered,
        }
    }
}

/// The unanswered pings of a connection, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// Number of each ping, and when it was sent.
    waiting: VecDeque<(u64, EventTime)>,
    last_answer: Option<PingAnswer>,
}

impl Pings {
    /// Records that the ping with this number is being sent `now`.
    pub(crate) fn note_sent(&mut self, number: u64, now: EventTime) {
        if self.waiting.len() < SENT_MAX {
            self.waiting.push_back((number, now));
        }
    }

    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Records the response to the ping with this number, which also covers earlier pings. Returns
    /// `None` if there's no such unanswered ping.
    pub(crate) fn note_answer(&mut self, number: u64, now: EventTime) -> Option<PingAnswer> {
        let place = self
            .waiting
            .iter()
            .position(|(known, _)| *known == number)?;
        let (_, asked) = self.waiting.drain(..=place).next_back()?;
        self.last_answer = Some(PingAnswer {
            asked,
            answered: now,
        });
        self.last_answer
    }

    /// Records the response to the oldest ping, for connections that respond in order.
    pub(crate) fn note_answer_to_oldest(&mut self, now: EventTime) -> Option<PingAnswer> {
        let (number, _) = *self.waiting.front()?;
        self.note_answer(number, now)
    }

    pub(crate) fn last_answer(&self) -> Option<PingAnswer> {
        self.last_answer
    }

    /// Returns when the oldest unanswered ping was sent. Since not every PBX responds to pings,
    /// this is `None` until the first response on the connection.
    pub(crate) fn unanswered_since(&self) -> Option<EventTime> {
        self.last_answer?;
        self.waiting.front().map(|(_, asked)| *asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(seconds: i64) -> EventTime {
        EventTime::from_seconds(seconds)
    }

    #[test]
    fn response_covers_earlier_pings_and_no_later_ones() {
        let mut pings = Pings::default();
        for number in 1..=3 {
            pings.note_sent(number, time_at(number as i64));
        }
        assert_eq!(pings.unanswered_since(), None, "it may never respond");
        let answer = pings.note_answer(2, time_at(9)).expect("a ping");
        assert_eq!((answer.asked, answer.answered), (time_at(2), time_at(9)));
        assert_eq!(pings.unanswered_since(), Some(time_at(3)));
        assert_eq!(pings.note_answer(1, time_at(9)), None, "covered already");
        let oldest = pings.note_answer_to_oldest(time_at(10));
        assert_eq!(oldest.map(|answer| answer.asked), Some(time_at(3)));
        assert!(!pings.are_waiting());
    }
}
