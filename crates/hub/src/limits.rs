//! Limits a branch's requests and bytes per minute, and the bytes of its new calls per day. Given
//! the requests, the stored calls, and `now`, this decides whether to accept a request.

use std::collections::BTreeMap;
use std::time::Duration;

pub const WINDOW: Duration = Duration::from_secs(60);
pub const REQUESTS_MAX: u32 = 60;
pub const BYTES_MAX: u64 = 20 << 20;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Maximum total length in bytes of the call messages that a branch may add to the state in a day,
/// enough for about a million calls.
pub const DAY_BYTES_MAX: u64 = 1 << 30;

/// How many bytes of new calls each branch has sent in its current day, which begins with its first
/// call. A repeated call adds nothing to the state and isn't counted, so a collector can safely
/// resend everything.
#[derive(Debug)]
pub struct DailyQuota {
    bytes_max: u64,
    /// When the day began, and the bytes so far.
    days: BTreeMap<String, (Duration, u64)>,
}

impl Default for DailyQuota {
    fn default() -> Self {
        Self::new(DAY_BYTES_MAX)
    }
}

impl DailyQuota {
    pub fn new(bytes_max: u64) -> Self {
        let days = BTreeMap::new();
        Self { bytes_max, days }
    }

    /// Checks whether the branch may store calls.
    ///
    /// # Errors
    /// Returns the time until the branch's next day if its quota is used up.
    pub fn check(&mut self, branch: &str, now: Duration) -> Result<(), Duration> {
        self.days.retain(|_, (began, _)| now < *began + DAY);
        match self.days.get(branch) {
            Some((began, bytes)) if *bytes >= self.bytes_max => {
                Err((*began + DAY).saturating_sub(now))
            }
            _ => Ok(()),
        }
    }

    /// Counts new calls with this many bytes.
    pub fn note_stored(&mut self, branch: &str, bytes: u64, now: Duration) {
        if bytes > 0 {
            let (_, counted) = self.days.entry(branch.to_owned()).or_insert((now, 0));
            *counted = counted.saturating_add(bytes);
        }
    }
}

/// Each branch's requests and bytes in its current minute.
#[derive(Debug, Default)]
pub struct BranchRates {
    minutes: BTreeMap<String, Minute>,
}

#[derive(Clone, Copy, Debug)]
struct Minute {
    began: Duration,
    requests: u32,
    bytes: u64,
}

impl BranchRates {
    /// Counts a request and checks both limits. `length` is the length of its body, or 0 if
    /// unknown.
    ///
    /// # Errors
    /// Returns the time until the branch may send again if a limit is reached.
    pub fn admit(&mut self, branch: &str, length: u64, now: Duration) -> Result<(), Duration> {
        let minute = self.minute(branch, now);
        if minute.requests >= REQUESTS_MAX || minute.bytes.saturating_add(length) > BYTES_MAX {
            return Err((minute.began + WINDOW).saturating_sub(now));
        }
        minute.requests += 1;
        Ok(())
    }

    /// Counts the bytes of a body that has arrived.
    pub fn note_bytes(&mut self, branch: &str, bytes: u64, now: Duration) {
        let minute = self.minute(branch, now);
        minute.bytes = minute.bytes.saturating_add(bytes);
    }

    /// Forgets branches whose current minute is over. If such a branch sends again, it starts a new
    /// minute.
    pub fn forget_idle(&mut self, now: Duration) {
        self.minutes.retain(|_, minute| now < minute.began + WINDOW);
    }

    fn minute(&mut self, branch: &str, now: Duration) -> &mut Minute {
        let new = Minute {
            began: now,
            requests: 0,
            bytes: 0,
        };
        let minute = self.minutes.entry(branch.to_owned()).or_insert(new);
        if now >= minute.began + WINDOW {
            *minute = new;
        }
        minute
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn request_limit_applies_to_each_branch_separately() {
        let mut rates = BranchRates::default();
        for _ in 0..REQUESTS_MAX {
            rates.admit("a", 0, time_at(10)).expect("admitted");
        }
        assert_eq!(rates.admit("a", 0, time_at(40)), Err(time_at(30)));
        rates.admit("b", 0, time_at(40)).expect("another branch");
        rates.admit("a", 0, time_at(70)).expect("the next minute");
    }

    #[test]
    fn daily_quota_applies_to_each_branch_until_its_next_day() {
        let mut quota = DailyQuota::new(100);
        quota.note_stored("a", 0, time_at(0));
        quota.note_stored("a", 99, time_at(10));
        assert_eq!(quota.check("a", time_at(20)), Ok(()));
        quota.note_stored("a", 1, time_at(20));
        assert_eq!(quota.check("a", time_at(30)), Err(DAY - time_at(20)));
        assert_eq!(quota.check("b", time_at(30)), Ok(()));
        assert_eq!(quota.check("a", DAY + time_at(10)), Ok(()));
        assert!(quota.days.is_empty());
    }

    #[test]
    fn branch_bytes_per_minute_are_limited() {
        let mut rates = BranchRates::default();
        rates.admit("a", BYTES_MAX, time_at(0)).expect("admitted");
        rates.note_bytes("a", BYTES_MAX, time_at(1));
        assert_eq!(rates.admit("a", 1, time_at(20)), Err(time_at(40)));
        rates.forget_idle(time_at(60));
        rates.admit("a", 1, time_at(60)).expect("the next minute");
    }
}
