//! Detects whether a connection is stalled, which is the case if a ping has waited too long for its
//! response or if the connection hasn't been read for too long. Its input is times by the boot
//! clock, and its output is the changes reported to the intake.
//!
//! ```text
//! pings        ▲1       ▲2 ▲3 ▲4   ▲5
//! line         ─────────┤░░░░░░░░░░├──────────
//! what arrives  1                  2 events 3 4 5
//! stalled                  ██████████████████      from the late response to ping 2 being due
//! ```
//! A ping sent during the stall is inconclusive, because its response may arrive before the events
//! that were held up behind it. Only ping 5, which was sent after the first late byte, ends the
//! stall.

use super::pings::Pings;
use crate::{Item, SourceFeed};
use callbridge_call::{EventTime, PROMPT_RESPONSE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Prompt,
    /// A ping has gone unanswered for too long, and nothing has arrived since.
    Held,
    /// Late bytes have been arriving since `since`.
    Late {
        since: EventTime,
    },
}

#[derive(Debug)]
pub(super) struct Stall {
    /// Time of the last check.
    checked: EventTime,
    flow: Flow,
    /// Whether the intake was told that the connection is stalled.
    reported: bool,
}

/// What the connection has to do after a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// Whether the reader itself was suspended, so that its silence says nothing about the line.
    pub(super) stood_still: bool,
    /// Whether to send a ping, since the stall can't end without one.
    pub(super) ping: bool,
}

impl Stall {
    pub(super) fn new(now: EventTime) -> Self {
        Self {
            checked: now,
            flow: Flow::Prompt,
            reported: false,
        }
    }

    /// Checks whether the connection is stalled at `now`. This must be called before and after each
    /// read, and at least every half second. `has_read` means that there are received bytes still
    /// to be processed.
    pub(super) fn check(&mut self, now: EventTime, pings: &Pings, has_read: bool) -> Checked {
        let stood_still = now.since(self.checked) > PROMPT_RESPONSE;
        self.checked = now;
        self.flow = match self.flow {
            // Any bytes waiting in the socket are read before the response to a ping sent now.
            _ if stood_still => Flow::Late { since: now },
            Flow::Prompt if is_overdue(now, pings) => after_stall(now, has_read),
            Flow::Held => after_stall(now, has_read),
            Flow::Late { since } if is_over(since, pings) => Flow::Prompt,
            flow => flow,
        };
        let is_late = matches!(self.flow, Flow::Late { .. });
        Checked {
            stood_still,
            ping: stood_still || is_late && !pings.are_waiting(),
        }
    }

    fn is_stalled(&self) -> bool {
        self.flow != Flow::Prompt
    }

    /// Reports whether the connection is stalled, if this has changed and there is room.
    pub(super) fn report(&mut self, feed: &SourceFeed) {
        let is_stalled = self.is_stalled();
        if is_stalled != self.reported && feed.try_report(Item::Stalled(is_stalled)) {
            self.reported = is_stalled;
        }
    }
}

fn is_overdue(now: EventTime, pings: &Pings) -> bool {
    let waits = pings.unanswered_since().map(|asked| now.since(asked));
    waits > Some(PROMPT_RESPONSE)
}

fn after_stall(now: EventTime, has_read: bool) -> Flow {
    if has_read {
        Flow::Late { since: now }
    } else {
        Flow::Held
    }
}

/// Returns `true` if a ping sent at or after `since` was answered promptly, or if the connection
/// has never responded to any.
fn is_over(since: EventTime, pings: &Pings) -> bool {
    match pings.last_answer() {
        Some(answer) => {
            answer.asked >= since && answer.answered.since(answer.asked) <= PROMPT_RESPONSE
        }
        None => true,
    }
}

#[cfg(test)]
mod played_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(seconds: f64) -> EventTime {
        EventTime::from_micros((seconds * 1e6) as i64)
    }

    /// Returns a connection that responded to ping 0 immediately and is first checked at second 0.
    fn connection() -> (Stall, Pings) {
        let mut pings = Pings::default();
        pings.note_sent(0, time_at(0.0));
        pings.note_answer(0, time_at(0.0));
        (Stall::new(time_at(0.0)), pings)
    }

    /// Checks every half second between `from` and `until`, during which nothing arrives.
    fn wait(stall: &mut Stall, pings: &Pings, from: f64, until: f64) {
        let mut now = from;
        while now <= until {
            stall.check(time_at(now), pings, false);
            now += 0.5;
        }
    }

    #[test]
    fn response_to_a_ping_from_before_the_late_bytes_ends_no_stall() {
        let (mut stall, mut pings) = connection();
        pings.note_sent(1, time_at(2.0));
        wait(&mut stall, &pings, 0.5, 3.5);
        assert_eq!(stall.flow, Flow::Prompt);
        wait(&mut stall, &pings, 4.0, 5.5);
        assert_eq!(stall.flow, Flow::Held);
        pings.note_sent(2, time_at(5.9));
        // The line resumes. The response to ping 2 arrives first, followed by the events behind it.
        let checked = stall.check(time_at(6.0), &pings, true);
        assert_eq!(checked, Checked::default(), "ping 2 still waits");
        pings.note_answer(2, time_at(6.0));
        let checked = stall.check(time_at(6.1), &pings, true);
        assert!(checked.ping && stall.is_stalled(), "it was sent too early");
        pings.note_sent(3, time_at(6.1));
        stall.check(time_at(6.3), &pings, true);
        assert!(stall.is_stalled(), "held events are still arriving");
        pings.note_answer(3, time_at(6.4));
        stall.check(time_at(6.5), &pings, true);
        assert_eq!(stall.flow, Flow::Prompt);
    }

    #[test]
    fn slow_response_after_late_bytes_ends_no_stall() {
        let (mut stall, mut pings) = connection();
        pings.note_sent(1, time_at(0.0));
        wait(&mut stall, &pings, 0.5, 3.0);
        stall.check(time_at(3.0), &pings, true);
        pings.note_sent(2, time_at(3.0));
        pings.note_answer(2, time_at(5.0));
        wait(&mut stall, &pings, 3.5, 5.0);
        assert!(stall.is_stalled(), "the line still trickles");
    }

    #[test]
    fn response_within_a_second_is_no_stall() {
        let (mut stall, mut pings) = connection();
        for number in 1..9 {
            let sent = number as f64 * 2.0;
            pings.note_sent(number, time_at(sent));
            wait(&mut stall, &pings, sent - 1.5, sent + 0.5);
            stall.check(time_at(sent + 1.0), &pings, true);
            pings.note_answer(number, time_at(sent + 1.0));
            assert!(!stall.is_stalled());
        }
    }

    #[test]
    fn suspended_reader_is_a_stall_until_a_later_response() {
        let (mut stall, mut pings) = connection();
        let checked = stall.check(time_at(50.0), &pings, false);
        assert!(checked.stood_still && checked.ping && stall.is_stalled());
        pings.note_sent(1, time_at(50.0));
        stall.check(time_at(50.2), &pings, true);
        assert!(stall.is_stalled());
        pings.note_answer(1, time_at(50.3));
        stall.check(time_at(50.3), &pings, true);
        assert!(!stall.is_stalled());
    }

    #[test]
    fn stall_without_responses_ends_at_the_next_check() {
        let mut stall = Stall::new(time_at(0.0));
        let mut pings = Pings::default();
        pings.note_sent(1, time_at(0.0));
        stall.check(time_at(8.0), &pings, false);
        assert!(stall.is_stalled());
        stall.check(time_at(8.5), &pings, false);
        assert!(!stall.is_stalled());
    }
}
