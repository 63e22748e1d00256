//! The spool's health as its thread reports it: its disk, the check of its file, how long commits
//! take, and the sessions that were lost.

use crate::Error;
use crate::check::Integrity;
use callbridge_call::EventTime;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Health of the spool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Error of the last write, if it is retryable, such as a full disk. `None` after a successful
    /// write. An empty [`Handle::write`](crate::Handle::write) tests whether the error has passed.
    pub trouble: Option<Error>,
    pub integrity: Integrity,
    pub commits: CommitTimes,
    pub lost_sessions: LostSessions,
}

/// How long the commits of the last minute took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitTimes {
    /// Each commit after which there was no slower one: when it ended, and how long it took.
    slowest: VecDeque<(Instant, Duration)>,
}

/// Time for which a commit counts.
const COUNTED: Duration = Duration::from_secs(60);

impl CommitTimes {
    /// Notes a commit that ended at `now`.
    pub(crate) fn note(&mut self, now: Instant, took: Duration) {
        let commits = &mut self.slowest;
        while commits.back().is_some_and(|(_, other)| *other <= took) {
            commits.pop_back();
        }
        while commits.front().is_some_and(|(at, _)| is_old(*at, now)) {
            commits.pop_front();
        }
        commits.push_back((now, took));
    }

    /// Returns how long the slowest commit of the last minute took, or `None` if there was none.
    pub fn slowest(&self, now: Instant) -> Option<Duration> {
        let mut recent = self.slowest.iter().filter(|(at, _)| !is_old(*at, now));
        recent.next().map(|(_, took)| *took)
    }
}

fn is_old(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) > COUNTED
}

/// The sessions with the database that were lost while this process was the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostSessions {
    pub count: u64,
    /// When and why the last one was lost.
    pub last: Option<(EventTime, String)>,
}

impl LostSessions {
    pub(crate) fn note(&mut self, error: &Error, at: EventTime) {
        let why = match error {
            Error::SessionLost(_, why) => why.clone(),
            error => error.to_string(),
        };
        self.count += 1;
        self.last = Some((at, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowest_commit_counts_for_a_minute() {
        let start = Instant::now();
        let mut commits = CommitTimes::default();
        assert_eq!(commits.slowest(start), None);
        for (second, millis) in [(0, 90), (10, 20), (20, 40), (30, 30)] {
            let at = start + Duration::from_secs(second);
            commits.note(at, Duration::from_millis(millis));
        }
        for (second, millis) in [
            (30, Some(90)),
            (60, Some(90)),
            (61, Some(40)),
            (90, Some(30)),
        ] {
            let slowest = commits.slowest(start + Duration::from_secs(second));
            assert_eq!(slowest, millis.map(Duration::from_millis), "{second}");
        }
        assert_eq!(commits.slowest(start + Duration::from_secs(91)), None);
        commits.note(start + Duration::from_secs(99), Duration::ZERO);
        assert_eq!(commits.slowest.len(), 1, "old commits are forgotten");
    }
}
