//! Wrong passwords by address: five a minute, then waiting.

use callbridge_listener::places::PeerGroup;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Wrong ones within [`WINDOW`].
pub const WRONG_MAX: usize = 5;
/// In which they are counted.
pub const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered: where more come, those that are silent longest are forgotten.
const ADDRESSES_MAX: usize = 10_000;

/// Tries by address, in time since boot. A try counts from its beginning, so that many at once
/// are no more than five.
#[derive(Debug, Default)]
pub(crate) struct LoginThrottle(BTreeMap<PeerGroup, VecDeque<Duration>>);

impl LoginThrottle {
    /// May this address try? If so the try counts as wrong until [`LoginThrottle::forgive`].
    pub(crate) fn enter(&mut self, now: Duration, from: PeerGroup) -> Result<(), Duration> {
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(&from) {
            self.forget(now);
        }
        let tries = self.0.entry(from).or_default();
        while tries.front().is_some_and(|at| *at + WINDOW <= now) {
            tries.pop_front();
        }
        match tries.front() {
            Some(first) if tries.len() >= WRONG_MAX => Err(*first + WINDOW - now),
            _ => {
                tries.push_back(now);
                Ok(())
            }
        }
    }

    /// The try that began then was right.
    pub(crate) fn forgive(&mut self, began: Duration, from: PeerGroup) {
        if let Some(tries) = self.0.get_mut(&from) {
            if let Some(at) = tries.iter().position(|at| *at == began) {
                tries.remove(at);
            }
            if tries.is_empty() {
                self.0.remove(&from);
            }
        }
    }

    fn forget(&mut self, now: Duration) {
        let last = |tries: &VecDeque<Duration>| tries.back().copied().unwrap_or_default();
        self.0.retain(|_, tries| last(tries) + WINDOW > now);
        if self.0.len() >= ADDRESSES_MAX {
            // A tenth at once, so that a crowd does not cost a look at all of them each time.
            let mut ends: Vec<Duration> = self.0.values().map(last).collect();
            let (_, silent_since, _) = ends.select_nth_unstable(ADDRESSES_MAX / 10);
            let silent_since = *silent_since;
            self.0.retain(|_, tries| last(tries) > silent_since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const fn from(n: u32) -> PeerGroup {
        PeerGroup::V4(Ipv4Addr::from_bits(n))
    }

    #[test]
    fn five_wrong_ones_a_minute_then_waiting_until_the_first_is_old() {
        let mut throttle = LoginThrottle::default();
        let at = Duration::from_secs;
        for n in 0..5 {
            assert_eq!(throttle.enter(at(100 + n), from(1)), Ok(()));
        }
        assert_eq!(throttle.enter(at(110), from(1)), Err(at(50)));
        assert_eq!(throttle.enter(at(110), from(2)), Ok(()), "another address");
        assert_eq!(throttle.enter(at(160), from(1)), Ok(()));
        assert_eq!(throttle.enter(at(160), from(1)), Err(at(1)));
    }

    #[test]
    fn right_ones_do_not_count() {
        let mut throttle = LoginThrottle::default();
        let at = Duration::from_secs;
        for n in 0..50 {
            assert_eq!(throttle.enter(at(n), from(1)), Ok(()));
            throttle.forgive(at(n), from(1));
        }
        assert!(throttle.0.is_empty());
    }

    #[test]
    fn a_crowd_of_addresses_takes_a_bounded_memory() {
        let mut throttle = LoginThrottle::default();
        for n in 0..20_000 {
            let now = Duration::from_millis(u64::from(n) / 10);
            assert_eq!(throttle.enter(now, from(n)), Ok(()));
        }
        assert!(throttle.0.len() <= ADDRESSES_MAX);
        let late = Duration::from_secs(3600);
        for n in 0..200 {
            assert_eq!(throttle.enter(late, from(100_000 + n)), Ok(()));
        }
        assert!(throttle.0.len() <= 200, "what is old makes room first");
    }
}
