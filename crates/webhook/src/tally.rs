//! Counts events by result, for `status`, metrics, and the log.

use callbridge_call::EventTime;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Number of events by kind and result. The kind is one of [`super::event::KINDS`], or `none` if
/// the delivery wasn't verified.
pub type Events = BTreeMap<(&'static str, &'static str), u64>;

/// Minimum interval between two log lines about the same kind of rejection.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// How long a signature that no secret matches is considered a problem. The CRM gives up after 36
/// minutes, so by then the event has either been verified or was never the CRM's.
const MISMATCH_SHOWN: Duration = Duration::from_secs(24 * 3600);

/// The newest delivery that no secret matches, although it may be the CRM's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub installation: String,
    pub at: EventTime,
}

/// Counts since the process was started.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    events: Events,
    last: Option<EventTime>,
    mismatch: Option<Mismatch>,
    logged: BTreeMap<&'static str, (EventTime, u64)>,
}

impl Tally {
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an event. An event with a `kind` was verified, and `now` becomes the time of the last
    /// event.
    pub fn count(&self, kind: Option<&'static str>, result: &'static str, now: EventTime) {
        let mut counts = self.lock();
        let key = (kind.unwrap_or("none"), result);
        *counts.events.entry(key).or_default() += 1;
        if kind.is_some() {
            counts.last = counts.last.max(Some(now));
        }
    }

    /// Records a delivery that no secret matches, although it may be the CRM's.
    pub fn note_mismatch(&self, installation: &str, at: EventTime) {
        let installation = installation.to_owned();
        self.lock().mismatch = Some(Mismatch { installation, at });
    }

    /// Records a verified delivery, which resolves its installation's mismatch.
    pub fn note_match(&self, installation: &str) {
        let mut counts = self.lock();
        if counts
            .mismatch
            .as_ref()
            .is_some_and(|mismatch| mismatch.installation == installation)
        {
            counts.mismatch = None;
        }
    }

    /// Returns the mismatch in the last 24 hours that hasn't been resolved by a delivery, if any.
    pub fn mismatch(&self, now: EventTime) -> Option<Mismatch> {
        let mismatch = self.lock().mismatch.clone();
        mismatch.filter(|mismatch| now.since(mismatch.at) < MISMATCH_SHOWN)
    }

    /// Counts a result for the log. Returns how often it has occurred since it was last logged,
    /// including this time, or `None` if it was logged less than a minute ago.
    pub fn due(&self, result: &'static str, now: EventTime) -> Option<u64> {
        let mut counts = self.lock();
        let Some((logged, since)) = counts.logged.get_mut(result) else {
            counts.logged.insert(result, (now, 0));
            return Some(1);
        };
        *since += 1;
        // Setting back the clock doesn't stop the log.
        if now.since(*logged) < LOG_EVERY && now >= *logged {
            return None;
        }
        *logged = now;
        Some(std::mem::take(since))
    }

    pub fn events(&self) -> Events {
        self.lock().events.clone()
    }

    /// Returns when the newest verified event arrived, or `None` before the first one.
    pub fn last(&self) -> Option<EventTime> {
        self.lock().last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_refusal_is_logged_once_a_minute_with_its_count() {
        let tally = Tally::new();
        let at = EventTime::from_seconds;
        assert_eq!(tally.due("forged", at(100)), Some(1));
        for second in 101..160 {
            assert_eq!(tally.due("forged", at(second)), None);
        }
        assert_eq!(tally.due("stale", at(130)), Some(1));
        assert_eq!(tally.due("forged", at(160)), Some(60));
        assert_eq!(tally.due("forged", at(50)), Some(1), "set back");
    }

    #[test]
    fn mismatch_ends_with_a_verified_delivery_or_after_a_day() {
        let tally = Tally::new();
        let at = EventTime::from_seconds;
        tally.note_mismatch("9001", at(100));
        tally.note_match("7");
        let shown = tally.mismatch(at(100 + 86_399)).expect("a mismatch");
        assert_eq!((&*shown.installation, shown.at), ("9001", at(100)));
        assert_eq!(tally.mismatch(at(100 + 86_400)), None);
        tally.note_match("9001");
        assert_eq!(tally.mismatch(at(100)), None);
    }

    #[test]
    fn unverified_delivery_does_not_count_as_an_event() {
        let tally = Tally::new();
        let at = EventTime::from_seconds(100);
        tally.count(None, "forged", at);
        assert_eq!(tally.last(), None);
        tally.count(Some("CALL_COMPLETED"), "confirmed", at);
        tally.count(Some("CALL_COMPLETED"), "confirmed", at);
        assert_eq!(tally.last(), Some(at));
        assert_eq!(tally.events()[&("CALL_COMPLETED", "confirmed")], 2);
    }
}
