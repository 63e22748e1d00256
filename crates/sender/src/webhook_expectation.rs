//! Webhooks that confirm calls (CALL_COMPLETED, §6.8) cost nothing: while they flow, polls and
//! reconciliations stand back for what has come too late to come.

use callbridge_call::EventTime;
use callbridge_spool::{HELD_MAX, WebhookPace};
use std::time::Duration;

/// Without a confirmation for so long nothing is expected of them.
const SILENT: Duration = Duration::from_secs(10 * 60);

/// Least and most time for which a call is left to webhooks; between them it is twice the usual
/// time.
///
/// What does not get through comes again after 30 s (§6.9.1): that and as much again are worth
/// waiting for.
const LEFT: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(5 * 60));

/// So many calls that had to be asked for, with no webhook in between, and they flow no more.
const MISSED_MAX: u32 = 3;

/// State of the webhooks: the newest confirmation, and calls that they missed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WebhookExpectation {
    hooked: Option<WebhookPace>,
    missed: u32,
}

impl WebhookExpectation {
    /// Takes in the newest confirmation by a webhook, as the spool has it.
    pub(super) fn seen(&mut self, hooked: Option<WebhookPace>) {
        if self.hooked != hooked {
            self.missed = 0;
        }
        self.hooked = hooked;
    }

    /// So long after its acceptance a call is left to them; none while they do not flow.
    pub(super) fn left(&self, now: EventTime) -> Duration {
        let flows = |it: &WebhookPace| {
            let ahead = it.at > now.plus(HELD_MAX); // the clock was set back since
            !ahead && now.since(it.at) < SILENT && self.missed < MISSED_MAX
        };
        let (least, most) = LEFT;
        let hooked = self.hooked.as_ref().filter(|it| flows(it));
        hooked.map_or(Duration::ZERO, |it| (it.usual * 2).clamp(least, most))
    }

    /// A call so old had to be asked for, and was in the journal.
    pub(super) fn asked_for(&mut self, now: EventTime, age: Duration) {
        let left = self.left(now);
        if !left.is_zero() && age >= left {
            self.missed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: EventTime = EventTime::from_seconds(1_795_151_000);

    fn after(seconds: u64) -> EventTime {
        T0.plus(Duration::from_secs(seconds))
    }

    fn expectation(usual: u64) -> WebhookExpectation {
        let mut expectation = WebhookExpectation::default();
        expectation.seen(Some(WebhookPace {
            at: T0,
            after: Duration::from_secs(usual),
            usual: Duration::from_secs(usual),
        }));
        expectation
    }

    #[test]
    fn a_call_is_left_to_webhooks_for_twice_their_usual_time_within_bounds() {
        let left = |usual| expectation(usual).left(after(5)).as_secs();
        assert_eq!([left(2), left(75), left(2000)], [120, 150, 300]);
        assert_eq!(WebhookExpectation::default().left(T0), Duration::ZERO);
    }

    #[test]
    fn webhooks_that_fell_silent_are_not_waited_for() {
        let expectation = expectation(2);
        assert!(!expectation.left(after(599)).is_zero());
        assert!(expectation.left(after(600)).is_zero());
        let set_back = T0.minus(Duration::from_secs(7 * 24 * 3600));
        assert!(expectation.left(set_back).is_zero());
    }

    #[test]
    fn three_calls_that_had_to_be_asked_for_end_it_until_the_next_webhook() {
        let mut expectation = expectation(2);
        for _ in 0..5 {
            expectation.asked_for(after(30), Duration::from_secs(119)); // a deadline's poll
        }
        assert!(!expectation.left(after(121)).is_zero());
        for _ in 0..3 {
            expectation.asked_for(after(121), Duration::from_secs(120));
        }
        assert!(expectation.left(after(121)).is_zero());
        let hooked = expectation.hooked.map(|it| WebhookPace {
            at: after(130),
            ..it
        });
        expectation.seen(hooked);
        assert!(!expectation.left(after(131)).is_zero());
    }
}
