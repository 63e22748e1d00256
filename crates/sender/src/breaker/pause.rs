//! Reasons for sending nothing, or no calls: problems that the CRM reports or that callbridge
//! detects itself. A pause takes precedence over the breakers. Each kind of pause has its own
//! probe, which finds out whether the cause is gone.

use super::refusals::RefusedBranch;
use std::time::Duration;

/// Time between two `token/info` probes.
pub const PROBE: Duration = Duration::from_secs(60);

/// A reason for sending nothing, or no calls. A variant's text is the CRM's message or our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pause {
    /// This machine's clock shows a time before this program was built.
    WrongClock,
    /// These branches showed that another hub is using a second database.
    SplitDatabase(String),
    /// `--dry-run` was given.
    DryRun,
    /// No token was given, its file can't be read, or the service that renews it has none.
    TokenMissing,
    /// The CRM refused the token (401 or 406).
    TokenRefused(String),
    /// The token belongs to another company or application.
    WrongCompany(String),
    /// The token has no right to submit calls (403).
    NoGrant(String),
    /// The CRM's API isn't at this URL.
    WrongAddress(String),
    /// Several calls in a row were refused. [`Refusals`](super::refusals::Refusals) decides when
    /// this pause begins and ends.
    CallsRefused(RefusedBranch),
}

/// The request that can end a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// None, because no probe is due yet or only another token can end the pause.
    Never,
    /// A request to `token/info`.
    TokenInfo,
    /// One submission, because `token/info` has succeeded or can't reveal the cause.
    Submission,
}

/// A pause and its next probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    pub pause: Pause,
    /// Time since boot at which the pause began.
    since: Duration,
    probe: Probe,
    /// Time since boot before which no probe is sent.
    next: Duration,
}

impl Paused {
    /// Begins a pause. The first probe waits for a full interval, like every later one.
    pub fn new(now: Duration, pause: Pause) -> Self {
        let next = now + PROBE;
        Self::with_probe_at(now, pause, next)
    }

    /// Begins a pause whose first probe is due at `next`, a time since boot.
    pub fn with_probe_at(now: Duration, pause: Pause, next: Duration) -> Self {
        Self {
            since: now,
            probe: first_probe(&pause),
            next,
            pause,
        }
    }

    /// Returns `true` if a request sent at `sent`, a time since boot, was sent after the pause
    /// began. Only such a request can end the pause, since the CRM may have handled an earlier one
    /// before the problem began.
    pub fn began_before(&self, sent: Duration) -> bool {
        self.since <= sent
    }

    /// Returns the probe that may be sent now.
    pub fn probe(&self, now: Duration) -> Probe {
        if now < self.next {
            return Probe::Never;
        }
        self.probe
    }

    /// Returns the time since boot at which the next probe is due, or `None` if only another token
    /// can end the pause.
    pub fn next(&self) -> Option<Duration> {
        match self.probe {
            Probe::Never => None,
            Probe::TokenInfo | Probe::Submission => Some(self.next),
        }
    }

    /// Notes that a probe is being sent. The next one waits for a full interval, unless the
    /// response changes the pause.
    pub fn probe_sent(&mut self, now: Duration) {
        self.probe = first_probe(&self.pause);
        self.next = now + PROBE;
    }

    /// Notes that `token/info` succeeded, returning `true` if that ends the pause. If a call was
    /// refused because of a missing grant or a wrong URL, a submission has to show whether the
    /// pause is over.
    pub fn token_verified(&mut self, now: Duration) -> bool {
        match self.pause {
            Pause::TokenRefused(_) | Pause::TokenMissing | Pause::WrongCompany(_) => true,
            // The token's record lacked the grant before, and now has it.
            Pause::NoGrant(ref why) if why.is_empty() => true,
            Pause::NoGrant(_) | Pause::WrongAddress(_) => {
                self.probe = Probe::Submission;
                self.next = now;
                false
            }
            Pause::CallsRefused(..)
            | Pause::WrongClock
            | Pause::SplitDatabase(_)
            | Pause::DryRun => false,
        }
    }

    /// Returns `true` if `token/info` has succeeded and a submission will show whether the pause is
    /// over.
    pub fn is_half_open(&self) -> bool {
        self.probe == Probe::Submission
    }

    /// Returns `true` if an accepted call ends the pause.
    pub fn is_ended_by_accepted(&self) -> bool {
        matches!(self.pause, Pause::NoGrant(_) | Pause::WrongAddress(_))
    }

    /// Returns `true` if the token itself is the problem. Such a pause isn't replaced by other
    /// refusals.
    pub fn is_about_token(&self) -> bool {
        matches!(
            self.pause,
            Pause::TokenMissing | Pause::TokenRefused(_) | Pause::WrongCompany(_)
        )
    }
}

fn first_probe(pause: &Pause) -> Probe {
    match pause {
        Pause::TokenMissing
        | Pause::WrongCompany(_)
        | Pause::WrongClock
        | Pause::SplitDatabase(_)
        | Pause::DryRun
        | Pause::CallsRefused(..) => Probe::Never,
        Pause::TokenRefused(_) | Pause::NoGrant(_) | Pause::WrongAddress(_) => Probe::TokenInfo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn no_grant() -> Pause {
        Pause::NoGrant("403".to_owned())
    }

    #[test]
    fn token_info_probe_is_due_once_a_minute() {
        for pause in [
            Pause::TokenRefused(String::new()),
            no_grant(),
            Pause::WrongAddress(String::new()),
        ] {
            let mut paused = Paused::new(S, pause);
            assert_eq!(paused.probe(60 * S), Probe::Never);
            assert_eq!(paused.next(), Some(61 * S));
            assert_eq!(paused.probe(61 * S), Probe::TokenInfo);
            paused.probe_sent(62 * S);
            assert_eq!(paused.probe(121 * S), Probe::Never);
            assert_eq!(paused.probe(122 * S), Probe::TokenInfo);
        }
    }

    #[test]
    fn successful_token_info_ends_pause_for_refused_token() {
        let mut paused = Paused::new(S, Pause::TokenRefused(String::new()));
        assert!(paused.token_verified(61 * S));
    }

    #[test]
    fn pause_for_403_needs_a_submission_after_token_info() {
        let mut paused = Paused::new(S, no_grant());
        assert!(!paused.token_verified(61 * S));
        assert_eq!(paused.probe(61 * S), Probe::Submission);
        assert!(paused.is_ended_by_accepted());
        paused.probe_sent(61 * S);
        assert_eq!(paused.probe(120 * S), Probe::Never);
        assert_eq!(paused.probe(121 * S), Probe::TokenInfo);
    }

    #[test]
    fn grant_that_token_info_shows_again_ends_the_pause() {
        let mut paused = Paused::new(S, Pause::NoGrant(String::new()));
        assert!(paused.token_verified(61 * S));
    }

    #[test]
    fn missing_token_and_wrong_company_pauses_have_no_probe() {
        for pause in [Pause::TokenMissing, Pause::WrongCompany(String::new())] {
            let mut paused = Paused::new(S, pause);
            assert_eq!(paused.probe(100_000 * S), Probe::Never);
            assert_eq!(paused.next(), None);
            assert!(paused.is_about_token() && !paused.is_ended_by_accepted());
            assert!(
                paused.token_verified(61 * S),
                "a verified token ends the pause"
            );
        }
        assert!(!Paused::new(S, no_grant()).is_about_token());
    }
}
