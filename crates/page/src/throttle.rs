//! Decides which logins are hashed, and in which order.
//!
//! Hashing a password takes a tenth of a second, and only one is hashed at a time. A flood of
//! logins mustn't keep out a correct password, even one from the same address and with the same
//! name. That's why no attempt is rejected because of its address or name. Instead, wrong passwords
//! are counted for both, and an attempt that exceeds a limit merely has to wait. Addresses below
//! their limit are hashed first.
//!
//! Each wait delays an attempt but doesn't limit how many of them an address makes, since they wait
//! side by side. Hashing fewer would also keep out the address's correct passwords, which only
//! hashing can tell from wrong ones. With 40 attempts waiting, a correct password gets in within
//! 10 s only if more than four are hashed per second, and at most ten can be.
//!
//! When all places are taken, a new attempt replaces a random waiting one from the address with the
//! most waiting attempts. This way, a flood from a single address can only displace its own
//! attempts.

use callbridge_listener::places::PeerGroup;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The period over which wrong passwords are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Number of wrong passwords that puts an address or a name over its limit.
const WRONG_MAX: usize = 5;
/// Number of wrong passwords, for all addresses and names together, after which every attempt has
/// to wait.
const WRONG_OF_ALL_MAX: usize = 60;
/// The first wait for an address over its limit, which doubles with each further wrong password.
const WAIT_FIRST: Duration = Duration::from_millis(500);
/// The longest wait before an attempt is hashed.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(2);
/// The wait for an address below its limit while the name or the overall total is over its limit.
const WAIT_OF_OTHERS: Duration = Duration::from_secs(1);
/// Maximum number of attempts in progress from addresses below their limit, and likewise from those
/// over it. Hashing that many takes about six seconds, so a correct password doesn't have to wait
/// longer than that.
const PLACES: usize = 64;
/// Maximum number of attempts to remember per address or name. Once there are this many, the wait
/// is the longest one.
const TRIES_MAX: usize = 16;
/// Maximum number of addresses, and of names, to remember. Beyond that, those without an attempt
/// for the longest time are forgotten.
const KEYS_MAX: usize = 10_000;
/// Maximum number of characters to remember of a typed name.
const NAME_CHARS_MAX: usize = 64;

/// The attempts in the last minute and those in progress, in time since boot. An attempt counts as
/// wrong from its start, so making many at once doesn't get around the limits.
#[derive(Debug, Default)]
pub(crate) struct LoginThrottle {
    addresses: TriesByKey<PeerGroup>,
    names: TriesByKey<String>,
    all: Tries,
    next_id: u64,
    pending: BTreeMap<Rank, LoginTry>,
}

/// The order in which attempts are hashed, which puts addresses below their limit first, then names
/// below theirs, and then goes by order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    address_is_over: bool,
    name_is_over: bool,
    id: u64,
}

/// A login attempt in progress.
#[derive(Debug)]
struct LoginTry {
    began: Duration,
    from: PeerGroup,
    name: String,
    progress: TryProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TryProgress {
    /// The attempt still has to wait.
    Waits,
    /// The wait is over. The attempt will be hashed once it's the first of all ready ones.
    Ready,
    Hashes,
}

/// An attempt that has a place, which it may lose to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) rank: Rank,
    /// How long to wait before the attempt becomes ready.
    pub(crate) wait: Duration,
}

/// What an attempt has to do once its wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginTurn {
    /// Hash the password.
    Hash,
    /// Wait, because other attempts come first, and ask again when an attempt has entered or left.
    Wait,
    /// Give up, because another attempt has taken the place.
    Displaced,
}

impl LoginThrottle {
    /// Admits an attempt, which must end with [`LoginThrottle::leave`]. If all places are taken,
    /// another attempt loses its place. It's chosen using `roll`, which returns a random number
    /// below its argument.
    pub(crate) fn enter(
        &mut self,
        now: Duration,
        from: PeerGroup,
        name: &str,
        roll: impl FnOnce(usize) -> usize,
    ) -> Admitted {
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        let wrong_of_address = count(&mut self.addresses, now, &from);
        let wrong_of_name = count(&mut self.names, now, &name);
        let rank = Rank {
            address_is_over: wrong_of_address >= WRONG_MAX,
            name_is_over: wrong_of_name >= WRONG_MAX,
            id: self.next_id,
        };
        self.make_room(rank.address_is_over, roll);
        let all_are_over = self.all.count(now) >= WRONG_OF_ALL_MAX;
        let mut wait = Duration::ZERO;
        if rank.name_is_over || all_are_over {
            wait = WAIT_OF_OTHERS;
        }
        if let Some(wrong_over) = wrong_of_address.checked_sub(WRONG_MAX) {
            wait = wait.max(wait_after(wrong_over));
        }
        enter(&mut self.addresses, now, from);
        enter(&mut self.names, now, name.clone());
        self.all.enter(now, WRONG_OF_ALL_MAX);
        self.next_id += 1;
        let progress = TryProgress::Waits;
        let began = now;
        let entered = LoginTry {
            began,
            from,
            name,
            progress,
        };
        self.pending.insert(rank, entered);
        Admitted { rank, wait }
    }

    /// Displaces a waiting attempt if all places for addresses over their limit, or for those below
    /// it, are taken. It isn't counted as wrong, since its password isn't checked.
    fn make_room(&mut self, address_is_over: bool, roll: impl FnOnce(usize) -> usize) {
        let mut taken = 0;
        let mut waiting: BTreeMap<PeerGroup, Vec<Rank>> = BTreeMap::new();
        for (rank, pending) in &self.pending {
            if rank.address_is_over == address_is_over {
                taken += 1;
                if pending.progress != TryProgress::Hashes {
                    waiting.entry(pending.from).or_default().push(*rank);
                }
            }
        }
        if taken < PLACES {
            return;
        }
        let most = waiting.values().map(Vec::len).max();
        let busiest = waiting
            .into_values()
            .filter(|tries| Some(tries.len()) == most);
        let candidates: Vec<Rank> = busiest.flatten().collect();
        if !candidates.is_empty() {
            self.leave(candidates[roll(candidates.len())], true);
        }
    }

    /// Marks an attempt as ready after its wait, and starts hashing it if its turn has come.
    pub(crate) fn try_begin(&mut self, rank: Rank) -> LoginTurn {
        match self.pending.get_mut(&rank) {
            Some(pending) => pending.progress = TryProgress::Ready,
            None => return LoginTurn::Displaced,
        }
        for pending in self.pending.values() {
            if pending.progress == TryProgress::Hashes {
                return LoginTurn::Wait;
            }
        }
        for (first, pending) in &mut self.pending {
            if pending.progress == TryProgress::Ready {
                if *first != rank {
                    return LoginTurn::Wait;
                }
                pending.progress = TryProgress::Hashes;
                return LoginTurn::Hash;
            }
        }
        LoginTurn::Wait
    }

    /// Ends an attempt. With `forgives`, it's no longer counted as wrong.
    pub(crate) fn leave(&mut self, rank: Rank, forgives: bool) {
        let Some(left) = self.pending.remove(&rank) else {
            return;
        };
        if forgives {
            forgive(&mut self.addresses, left.began, &left.from);
            forgive(&mut self.names, left.began, &left.name);
            self.all.forgive(left.began);
        }
    }
}

/// Returns the wait for an address that's this many wrong passwords over its limit.
fn wait_after(wrong_over: usize) -> Duration {
    WAIT_MAX.min(WAIT_FIRST * (1 << wrong_over.min(8)))
}

/// When each attempt started that isn't known to be correct, oldest first.
#[derive(Debug, Default)]
struct Tries(VecDeque<Duration>);

impl Tries {
    /// Counts the attempts in the last minute.
    fn count(&mut self, now: Duration) -> usize {
        while self.0.front().is_some_and(|at| *at + WINDOW <= now) {
            self.0.pop_front();
        }
        self.0.len()
    }

    /// Adds an attempt. If more than `most` would have to be remembered, the oldest one is dropped.
    fn enter(&mut self, now: Duration, most: usize) {
        if self.0.len() >= most {
            self.0.pop_front();
        }
        self.0.push_back(now);
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

/// The attempts for each address or name.
type TriesByKey<K> = BTreeMap<K, Tries>;

/// Counts this key's attempts in the last minute.
fn count<K: Ord>(all: &mut TriesByKey<K>, now: Duration, key: &K) -> usize {
    all.get_mut(key).map_or(0, |tries| tries.count(now))
}

/// Adds an attempt for this key.
fn enter<K: Ord>(all: &mut TriesByKey<K>, now: Duration, key: K) {
    if all.len() >= KEYS_MAX && !all.contains_key(&key) {
        forget(all, now);
    }
    all.entry(key).or_default().enter(now, TRIES_MAX);
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
        // A tenth of them is forgotten at once, so that a crowd doesn't cause all keys to be
        // searched every time.
        let mut ends: Vec<Duration> = all.values().map(Tries::last).collect();
        let (_, silent_since, _) = ends.select_nth_unstable(KEYS_MAX / 10);
        let silent_since = *silent_since;
        all.retain(|_, tries| tries.last() > silent_since);
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
