//! Wrong passwords make the next try wait, by address, by name, and in sum: for seconds, so that
//! guessing is slow, and never longer, so that nobody is kept out by what others try.

use callbridge_listener::places::PeerGroup;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// In which wrong ones are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Wrong ones of an address, or with a name, after which a try waits.
const WRONG_MAX: usize = 5;
/// Wrong ones of all addresses and names together.
const WRONG_OF_ALL_MAX: usize = 60;
/// The first wait; each further wrong one doubles it.
const WAIT_FIRST: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(4);
/// The wait where the sum alone is over its limit.
const WAIT_OF_ALL: Duration = Duration::from_secs(1);
/// Tries that are remembered of one address or name: with so many the wait is the longest.
const TRIES_MAX: usize = 16;
/// Addresses, and names, that are remembered: where more come, those that are silent longest are
/// forgotten.
const KEYS_MAX: usize = 10_000;
/// Characters of a typed name that are remembered.
const NAME_CHARS_MAX: usize = 64;

/// Tries in time since boot. A try counts as wrong from its beginning, so that many at once are no
/// way around it.
#[derive(Debug, Default)]
pub(crate) struct LoginThrottle {
    addresses: TriesByKey<PeerGroup>,
    names: TriesByKey<String>,
    all: Tries,
}

/// One try to log in, to be forgiven when its password is right.
#[derive(Clone, Debug)]
pub(crate) struct LoginTry {
    began: Duration,
    from: PeerGroup,
    name: String,
}

impl LoginThrottle {
    /// Begins a try: how long it waits. It counts as wrong until [`LoginThrottle::forgive`].
    pub(crate) fn enter(
        &mut self,
        now: Duration,
        from: PeerGroup,
        name: &str,
    ) -> (LoginTry, Duration) {
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        let of_one = enter(&mut self.addresses, now, from);
        let of_name = enter(&mut self.names, now, name.clone());
        let of_all = self.all.enter(now, WRONG_OF_ALL_MAX + 1) > WRONG_OF_ALL_MAX;
        let of_all = if of_all { WAIT_OF_ALL } else { Duration::ZERO };
        let wait = wait_after(of_one).max(wait_after(of_name)).max(of_all);
        let began = now;
        (LoginTry { began, from, name }, wait)
    }

    /// Takes a try that was right out of the counts.
    pub(crate) fn forgive(&mut self, right: &LoginTry) {
        forgive(&mut self.addresses, right.began, &right.from);
        forgive(&mut self.names, right.began, &right.name);
        self.all.forgive(right.began);
    }
}

/// So long does a try wait that is the `count`th.
fn wait_after(count: usize) -> Duration {
    match count.checked_sub(WRONG_MAX + 1) {
        None => Duration::ZERO,
        Some(over) => WAIT_MAX.min(WAIT_FIRST * (1 << over.min(8))),
    }
}

/// The beginnings of tries that are not known to be right, the oldest first.
#[derive(Debug, Default)]
struct Tries(VecDeque<Duration>);

impl Tries {
    /// Returns the count of tries with this one, of which `most` are remembered.
    fn enter(&mut self, now: Duration, most: usize) -> usize {
        while self.0.len() >= most || self.0.front().is_some_and(|at| *at + WINDOW <= now) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.0.len()
    }

    fn forgive(&mut self, began: Duration) {
        if let Some(at) = self.0.iter().position(|at| *at == began) {
            self.0.remove(at);
        }
    }

    fn last(&self) -> Duration {
        self.0.back().copied().unwrap_or_default()
    }
}

/// The tries of each address or name.
type TriesByKey<K> = BTreeMap<K, Tries>;

/// Counts a try of this key, with those before it.
fn enter<K: Ord>(all: &mut TriesByKey<K>, now: Duration, key: K) -> usize {
    if all.len() >= KEYS_MAX && !all.contains_key(&key) {
        forget(all, now);
    }
    all.entry(key).or_default().enter(now, TRIES_MAX)
}

fn forgive<K: Ord>(all: &mut TriesByKey<K>, began: Duration, key: &K) {
    if let Some(tries) = all.get_mut(key) {
        tries.forgive(began);
        if tries.0.is_empty() {
            all.remove(key);
        }
    }
}

fn forget<K: Ord>(all: &mut TriesByKey<K>, now: Duration) {
    all.retain(|_, tries| tries.last() + WINDOW > now);
    if all.len() >= KEYS_MAX {
        // A tenth at once, so that a crowd does not cost a look at all of them each time.
        let mut ends: Vec<Duration> = all.values().map(Tries::last).collect();
        let (_, silent_since, _) = ends.select_nth_unstable(KEYS_MAX / 10);
        let silent_since = *silent_since;
        all.retain(|_, tries| tries.last() > silent_since);
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const fn from(n: u32) -> PeerGroup {
        PeerGroup::V4(Ipv4Addr::from_bits(n))
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn after_five_wrong_ones_each_waits_longer_and_never_more_than_four_seconds() {
        let mut throttle = LoginThrottle::default();
        let waits: Vec<u128> = (0..12)
            .map(|n| throttle.enter(at(100 + n), from(1), "anna").1.as_millis())
            .collect();
        assert_eq!(
            waits,
            [0, 0, 0, 0, 0, 500, 1000, 2000, 4000, 4000, 4000, 4000]
        );
        let (_, wait) = throttle.enter(at(110), from(2), "bek");
        assert_eq!(wait, at(0), "another name from another address");
        let (_, wait) = throttle.enter(at(110), from(3), "anna");
        assert_eq!(wait, at(4), "the same name from another address");
        let (_, wait) = throttle.enter(at(200), from(1), "anna");
        assert_eq!(wait, at(0), "a minute later");
    }

    #[test]
    fn names_and_addresses_that_change_each_time_wait_by_their_sum() {
        let mut throttle = LoginThrottle::default();
        let wait = |throttle: &mut LoginThrottle, n: u32| {
            throttle.enter(at(10), from(n), &format!("name{n}")).1
        };
        assert!((0..60).all(|n| wait(&mut throttle, n) == at(0)));
        assert!((60..1000).all(|n| wait(&mut throttle, n) == at(1)));
    }

    #[test]
    fn right_ones_do_not_count() {
        let mut throttle = LoginThrottle::default();
        for n in 0..100 {
            let (right, wait) = throttle.enter(at(n / 10), from(1), "anna");
            assert_eq!(wait, at(0));
            throttle.forgive(&right);
        }
        assert!(throttle.addresses.is_empty() && throttle.names.is_empty());
    }

    #[test]
    fn a_crowd_of_addresses_and_names_takes_a_bounded_memory() {
        let mut throttle = LoginThrottle::default();
        for n in 0..20_000 {
            let now = Duration::from_millis(u64::from(n) / 10);
            throttle.enter(now, from(n), &n.to_string());
        }
        assert!(throttle.addresses.len() <= KEYS_MAX);
        assert!(throttle.names.len() <= KEYS_MAX);
        for n in 0..200 {
            throttle.enter(at(3600), from(100_000 + n), "anna");
        }
        assert!(throttle.addresses.len() <= 200, "what is old makes room");
    }
}
