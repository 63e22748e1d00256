//! Limits the requests and bytes of a branch in a minute. In: requests and `now`. Out: whether a
//! request is accepted.

use std::collections::BTreeMap;
use std::time::Duration;

pub const WINDOW: Duration = Duration::from_secs(60);
pub const REQUESTS_MAX: u32 = 60;
pub const BYTES_MAX: u64 = 20 << 20;

/// The requests and bytes of each branch in its current minute.
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
    /// Counts a request, and checks both limits. `length` is the length of its body, or 0 if that
    /// is not known.
    ///
    /// # Errors
    /// The time until the branch can send again.
    pub fn admit(&mut self, branch: &str, length: u64, now: Duration) -> Result<(), Duration> {
        let minute = self.minute(branch, now);
        if minute.requests >= REQUESTS_MAX || minute.bytes.saturating_add(length) > BYTES_MAX {
            return Err((minute.began + WINDOW).saturating_sub(now));
        }
        minute.requests += 1;
        Ok(())
    }

    /// Counts the bytes of a body that arrived.
    pub fn note_bytes(&mut self, branch: &str, bytes: u64, now: Duration) {
        let minute = self.minute(branch, now);
        minute.bytes = minute.bytes.saturating_add(bytes);
    }

    /// Forgets branches whose current minute is over. A branch that sends again begins a new
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
    fn branch_bytes_per_minute_are_limited() {
        let mut rates = BranchRates::default();
        rates.admit("a", BYTES_MAX, time_at(0)).expect("admitted");
        rates.note_bytes("a", BYTES_MAX, time_at(1));
        assert_eq!(rates.admit("a", 1, time_at(20)), Err(time_at(40)));
        rates.forget_idle(time_at(60));
        rates.admit("a", 1, time_at(60)).expect("the next minute");
    }
}
