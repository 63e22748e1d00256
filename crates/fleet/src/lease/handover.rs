//! When a holder that cannot send gives its turn to one that can. Pure: `now` comes in.
//!
//! Whether the CRM is down or the way there from this machine alone, a machine cannot know by
//! itself. So each reports with its ticks whether it could send, to whoever is fed.

use std::time::Duration;

/// Time that has to pass before an inability to send is shown.
const SHOWN_AFTER: Duration = Duration::from_secs(10);

/// Time that a holder tries before it gives its turn away, and time within which it does so only
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time without being able to send after which the turn is given away.
    pub unable_for: Duration,
    /// Time after a handover within which there is no other.
    pub not_again_within: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            unable_for: Duration::from_secs(120),
            not_again_within: Duration::from_secs(15 * 60),
        }
    }
}

/// The decision of one process to give its turn away, and the facts it rests on.
#[derive(Clone, Debug, Default)]
pub struct Handover {
    patience: Patience,
    unable_since: Option<Duration>,
    given_away: Option<Duration>,
}

impl Handover {
    /// The handover of a process that can send.
    pub fn new(patience: Patience) -> Self {
        Self {
            patience,
            ..Self::default()
        }
    }

    /// Records for this moment since boot that the process can or cannot send.
    pub fn check(&mut self, now: Duration, is_able: bool) {
        match is_able {
            true => self.unable_since = None,
            false => drop(self.unable_since.get_or_insert(now)),
        }
    }

    /// Returns the time for which it could not send; `None` where that is not yet long enough to be
    /// shown.
    pub fn unable_for(&self, now: Duration) -> Option<Duration> {
        let unable_for = self.unable_since.map(|since| now.saturating_sub(since));
        unable_for.filter(|it| *it >= SHOWN_AFTER)
    }

    /// Returns `true` once where the turn is to be given away: sending has failed for long enough,
    /// another process can send, and the last handover is long enough ago.
    pub fn is_due(&mut self, now: Duration, another_is_able: bool) -> bool {
        let age = |at: Duration| now.saturating_sub(at);
        let is_due = another_is_able
            && (self.unable_since).is_some_and(|at| age(at) >= self.patience.unable_for)
            && (self.given_away).is_none_or(|at| age(at) >= self.patience.not_again_within);
        if is_due {
            self.given_away = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_turn_is_given_away_after_two_minutes_to_one_that_can_send_and_not_again_within_fifteen() {
        let mut handover = Handover::default();
        handover.check(10 * S, false);
        handover.check(100 * S, false);
        assert!(!handover.is_due(129 * S, true), "it may pass");
        assert!(!handover.is_due(500 * S, false), "nobody else can, either");
        assert!(handover.is_due(501 * S, true));
        assert!(!handover.is_due(502 * S, true));
        assert!(!handover.is_due(1_400 * S, true));
        assert!(handover.is_due(1_401 * S, true));
    }

    #[test]
    fn whoever_could_send_meanwhile_begins_anew() {
        let mut handover = Handover::default();
        handover.check(10 * S, false);
        handover.check(120 * S, true);
        handover.check(125 * S, false);
        assert!(!handover.is_due(240 * S, true));
        assert!(handover.is_due(245 * S, true));
    }
}
