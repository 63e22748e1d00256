//! Counts refusals since the process started, by branch and reason, for metrics and the log.

use crate::protocol::RefusedLine;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Refusals by branch and reason. The branch is empty for requests without a valid token.
pub type Refusals = BTreeMap<(String, &'static str), u64>;

/// Minimum time between two log lines about one branch's refusals for the same reason.
const LOG_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    refusals: Refusals,
    logged: BTreeMap<(String, &'static str), (Duration, u64)>,
}

impl Tally {
    /// Counts refusals and logs them once a minute.
    pub fn refuse(&self, branch: &str, reason: &'static str, times: u64, now: Duration) {
        if let Some(times) = self.count(branch, reason, times, now) {
            tracing::warn!(branch, reason, times, "refused a request of a branch");
        }
    }

    /// Counts refused lines and logs them once a minute, along with the last of them.
    pub fn refuse_lines(&self, branch: &str, lines: u64, last: &RefusedLine, now: Duration) {
        if let Some(lines) = self.count(branch, "line", lines, now) {
            let id = last.id.as_deref().unwrap_or_default();
            let error = &last.error;
            tracing::warn!(branch, lines, id, %error, "refused lines of a branch");
        }
    }

    /// Counts refusals. If a log line is due, returns how many there have been since the last one.
    fn count(&self, branch: &str, reason: &'static str, times: u64, now: Duration) -> Option<u64> {
        let key = (branch.to_owned(), reason);
        let mut counts = self.lock();
        *counts.refusals.entry(key.clone()).or_default() += times;
        let (logged_at, since) = counts.logged.entry(key).or_default();
        *since += times;
        if *logged_at != Duration::ZERO && now < *logged_at + LOG_EVERY {
            return None;
        }
        *logged_at = now;
        Some(std::mem::take(since))
    }

    /// Returns the counts so far.
    pub fn refusals(&self) -> Refusals {
        self.lock().refusals.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
