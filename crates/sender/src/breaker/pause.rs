//! Reasons to send nothing, or no call: problems that the CRM reports, or that callbridge detects.
//! A pause takes precedence over the breakers. Each pause has one kind of probe, which finds out
//! whether its cause is removed.

use callbridge_model::Reason;
use callbridge_spool::RowId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Number of refusals of one kind in a row that shows that the configuration is wrong, not the
/// calls.
pub const REFUSALS_MAX: usize = 5;

/// Refused calls that are remembered, to be sent again when the pause ends.
const REMEMBERED_MAX: usize = 100;

/// Time between two probes with `token/info`.
pub const PROBE: Duration = Duration::from_secs(60);

/// Time between two trial submissions while the CRM refuses to log calls.
const TRIAL: Duration = Duration::from_secs(3600);

/// A reason to send nothing, or no call. The text of a variant is the message of the CRM, or our
/// own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pause {
    /// This machine's clock shows a time before this program was built.
    WrongClock,
    /// `--dry-run` is given.
    DryRun,
    /// No token was given, its file cannot be read, or the keeper that renews it has none.
    TokenMissing,
    /// The CRM refused the token (401 or 406).
    TokenRefused(String),
    /// The token belongs to another company or application.
    WrongCompany(String),
    /// The token has no right to submit calls (403).
    NoGrant(String),
    /// The CRM's API is not at this address.
    WrongAddress(String),
    /// Five calls in a row were refused for this reason.
    CallsRefused(Reason, String),
}

impl Pause {
    /// Returns `true` if only submissions stop. Calls that were sent before are still confirmed.
    pub fn stops_only_submissions(&self) -> bool {
        matches!(self, Self::CallsRefused(..) | Self::DryRun)
    }
}

/// The request that can end a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// No request: no probe is due yet, or only another token ends the pause.
    Never,
    /// A request to `token/info`.
    TokenInfo,
    /// One submission, because `token/info` has succeeded, or says nothing about the cause.
    Submission,
}

/// A pause and its next probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paused {
    pub pause: Pause,
    /// Time since boot at which the pause began.
    since: Duration,
    probe: Probe,
    /// Time since boot before which there is no probe.
    next: Duration,
}

impl Paused {
    /// Begins a pause. The first probe waits for a whole interval, as every later probe does.
    pub fn new(now: Duration, pause: Pause) -> Self {
        let next = now + interval(&pause);
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

    /// Returns `true` if a request that was sent at `sent`, a time since boot, was sent after the
    /// pause began. Only such a request can end the pause. The CRM might have answered an earlier
    /// request before the problem began.
    pub fn began_before(&self, sent: Duration) -> bool {
        self.since <= sent
    }

    /// Returns the probe that can go now.
    pub fn probe(&self, now: Duration) -> Probe {
        if now < self.next {
            return Probe::Never;
        }
        self.probe
    }

    /// Returns the time since boot of the next probe. `None` if only another token ends the pause.
    pub fn next(&self) -> Option<Duration> {
        match self.probe {
            Probe::Never => None,
            Probe::TokenInfo | Probe::Submission => Some(self.next),
        }
    }

    /// Notes that a probe is sent. The next probe waits for a whole interval, unless the answer
    /// changes the pause.
    pub fn probe_sent(&mut self, now: Duration) {
        self.probe = first_probe(&self.pause);
        self.next = now + interval(&self.pause);
    }

    /// Notes that `token/info` succeeded. Returns `true` if that ends the pause. If a call was
    /// refused for its grant or its address, one submission must show whether the pause is over.
    pub fn token_verified(&mut self, now: Duration) -> bool {
        match self.pause {
            Pause::TokenRefused(_) | Pause::TokenMissing | Pause::WrongCompany(_) => true,
            // The record showed that the grant was missing, and now shows the grant.
            Pause::NoGrant(ref why) if why.is_empty() => true,
            Pause::NoGrant(_) | Pause::WrongAddress(_) => {
                self.probe = Probe::Submission;
                self.next = now;
                false
            }
            Pause::CallsRefused(..) | Pause::WrongClock | Pause::DryRun => false,
        }
    }

    /// Returns `true` if `token/info` succeeded, and one submission finds out whether the pause is
    /// over.
    pub fn is_half_open(&self) -> bool {
        let tries = self.probe == Probe::Submission;
        tries && !matches!(self.pause, Pause::CallsRefused(..))
    }

    /// Returns `true` if an accepted call ends the pause. Calls that FAILED were accepted too, so a
    /// pause because of them needs a journaled call.
    pub fn is_ended_by_accepted(&self) -> bool {
        match self.pause {
            Pause::NoGrant(_) | Pause::WrongAddress(_) => true,
            Pause::CallsRefused(reason, _) => reason != Reason::Failed,
            Pause::TokenRefused(_)
            | Pause::TokenMissing
            | Pause::WrongCompany(_)
            | Pause::WrongClock
            | Pause::DryRun => false,
        }
    }

    /// Returns `true` if a journaled call ends the pause.
    pub fn is_ended_by_journaled(&self) -> bool {
        matches!(self.pause, Pause::CallsRefused(Reason::Failed, _))
    }

    /// Returns `true` if the token itself is the problem. Other refusals do not replace such a
    /// pause.
    pub fn is_about_token(&self) -> bool {
        matches!(
            self.pause,
            Pause::TokenMissing | Pause::TokenRefused(_) | Pause::WrongCompany(_)
        )
    }
}

fn first_probe(pause: &Pause) -> Probe {
    match pause {
        Pause::TokenMissing | Pause::WrongCompany(_) | Pause::WrongClock | Pause::DryRun => {
            Probe::Never
        }
        Pause::TokenRefused(_) | Pause::NoGrant(_) | Pause::WrongAddress(_) => Probe::TokenInfo,
        Pause::CallsRefused(..) => Probe::Submission,
    }
}

fn interval(pause: &Pause) -> Duration {
    match pause {
        Pause::CallsRefused(..) => TRIAL,
        _ => PROBE,
    }
}

/// Refusals of one kind in a row, with their calls. Kept over restarts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    kind: Option<Reason>,
    calls: Vec<RowId>,
}

impl Refusals {
    /// Notes that a call was refused. Returns `true` if at least five calls in a row were refused
    /// for this reason.
    pub fn note_refusal(&mut self, kind: Reason, call: RowId) -> bool {
        if self.kind != Some(kind) {
            self.kind = Some(kind);
            self.calls.clear();
        }
        if self.calls.len() < REMEMBERED_MAX && !self.calls.contains(&call) {
            self.calls.push(call);
        }
        self.calls.len() >= REFUSALS_MAX
    }

    /// Notes that a call was accepted, which ends a series of refused submissions.
    pub fn note_accepted(&mut self) {
        if self.kind != Some(Reason::Failed) {
            *self = Self::default();
        }
    }

    /// Notes that a call is journaled, which ends a series of calls that FAILED.
    pub fn note_journaled(&mut self) {
        if self.kind == Some(Reason::Failed) {
            *self = Self::default();
        }
    }

    /// Ends the series of refusals, and returns its calls, which are sent again. Returns none, and
    /// keeps the series, if it has fewer than five calls.
    pub fn take(&mut self) -> Vec<RowId> {
        if self.calls.len() < REFUSALS_MAX {
            return Vec::new();
        }
        self.kind = None;
        std::mem::take(&mut self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn no_grant() -> Pause {
        Pause::NoGrant("403".to_owned())
    }

    fn calls_refused(reason: Reason) -> Paused {
        Paused::new(S, Pause::CallsRefused(reason, String::new()))
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

    #[test]
    fn refused_calls_stop_only_submissions_and_probe_hourly() {
        let mut paused = calls_refused(Reason::Rejected);
        assert!(paused.pause.stops_only_submissions() && !no_grant().stops_only_submissions());
        assert_eq!(paused.probe(3600 * S), Probe::Never);
        assert_eq!(paused.probe(3601 * S), Probe::Submission);
        assert!(!paused.token_verified(3601 * S));
        paused.probe_sent(3601 * S);
        assert_eq!(paused.probe(7200 * S), Probe::Never);
        assert_eq!(paused.probe(7201 * S), Probe::Submission);
    }

    #[test]
    fn accepted_call_ends_refusals_and_journaled_ends_failed() {
        let (rejected, failed) = (
            calls_refused(Reason::Rejected),
            calls_refused(Reason::Failed),
        );
        assert!(rejected.is_ended_by_accepted() && !rejected.is_ended_by_journaled());
        assert!(!failed.is_ended_by_accepted() && failed.is_ended_by_journaled());
    }

    #[test]
    fn fifth_refusal_of_one_kind_in_a_row_pauses() {
        let mut refusals = Refusals::default();
        for call in 1..=4 {
            assert!(!refusals.note_refusal(Reason::Rejected, RowId(call)));
        }
        assert!(
            !refusals.note_refusal(Reason::Conflict, RowId(5)),
            "another kind"
        );
        for call in 6..=8 {
            assert!(!refusals.note_refusal(Reason::Conflict, RowId(call)));
        }
        assert!(
            !refusals.note_refusal(Reason::Conflict, RowId(8)),
            "the same call"
        );
        assert!(refusals.note_refusal(Reason::Conflict, RowId(9)));
        let calls = refusals.take();
        assert_eq!(calls, [5, 6, 7, 8, 9].map(RowId));
        assert_eq!(refusals, Refusals::default());
    }

    #[test]
    fn four_refusals_reopen_no_call() {
        let mut refusals = Refusals::default();
        for call in 1..=4 {
            refusals.note_refusal(Reason::Rejected, RowId(call));
        }
        assert_eq!(refusals.take(), []);
        assert!(
            refusals.note_refusal(Reason::Rejected, RowId(5)),
            "the row goes on"
        );
    }

    #[test]
    fn refusals_remember_at_most_a_hundred_calls() {
        let mut refusals = Refusals::default();
        for call in 0..150 {
            refusals.note_refusal(Reason::Rejected, RowId(call));
        }
        assert_eq!(refusals.take().len(), 100);
    }

    #[test]
    fn success_resets_refusals_of_its_own_kind_only() {
        let mut rejected = Refusals::default();
        rejected.note_refusal(Reason::Rejected, RowId(1));
        let before = rejected.clone();
        rejected.note_journaled();
        assert_eq!(rejected, before);
        rejected.note_accepted();
        assert_eq!(rejected, Refusals::default());
        let mut failed = Refusals::default();
        failed.note_refusal(Reason::Failed, RowId(1));
        let before = failed.clone();
        failed.note_accepted();
        assert_eq!(failed, before);
        failed.note_journaled();
        assert_eq!(failed, Refusals::default());
    }
}
