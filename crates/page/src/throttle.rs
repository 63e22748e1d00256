//! Decides which logins are hashed, and in which order.
//!
//! Hashing a password takes a tenth of a second, and only one is hashed at a time. A flood of
//! logins must not keep a right password out, even if it comes from the same address and uses the
//! same name. So no try is refused because of its address or name. Wrong passwords are counted by
//! both, and a try over a limit only waits. Addresses under their limit are hashed first.
//!
//! When all places are taken, a new try takes the place of a random waiting one, chosen from the
//! address with the most waiting tries. A flood from one address therefore only loses its own.

use callbridge_listener::places::PeerGroup;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Wrong passwords are counted over this time.
const WINDOW: Duration = Duration::from_secs(60);
/// Wrong passwords of an address or a name before it is over its limit.
const WRONG_MAX: usize = 5;
/// Wrong passwords of all addresses and names together before every try waits.
const WRONG_OF_ALL_MAX: usize = 60;
/// The first wait of an address over its limit. Each further wrong password doubles it.
const WAIT_FIRST: Duration = Duration::from_millis(500);
/// The longest wait before a try is hashed.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(2);
/// The wait of an address under its limit while the name or the sum of all is over its limit.
const WAIT_OF_OTHERS: Duration = Duration::from_secs(1);
/// Maximum tries under way from addresses under their limit, and also from those over it. Hashing
/// that many takes about six seconds, so a right password doesn't wait longer than that.
const PLACES: usize = 64;
/// Maximum tries that are remembered of one address or name. This many have the longest wait.
const TRIES_MAX: usize = 16;
/// Maximum addresses, and maximum names, that are remembered. If there are more, those without a
/// try for the longest time are forgotten.
const KEYS_MAX: usize = 10_000;
/// Maximum characters of a typed name that are remembered.
const NAME_CHARS_MAX: usize = 64;

/// The tries of the last minute and the tries under way, in time since boot. A try counts as wrong
/// from its beginning, so many tries at once do not evade the limits.
#[derive(Debug, Default)]
pub(crate) struct LoginThrottle {
    addresses: TriesByKey<PeerGroup>,
    names: TriesByKey<String>,
    all: Tries,
    next_id: u64,
    pending: BTreeMap<Rank, LoginTry>,
}

/// The order in which tries are hashed: addresses under their limit first, then names under their
/// limit, then the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    address_is_over: bool,
    name_is_over: bool,
    id: u64,
}

/// A login try under way.
#[derive(Debug)]
struct LoginTry {
    began: Duration,
    from: PeerGroup,
    name: String,
    progress: TryProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TryProgress {
    /// The try must still wait.
    Waits,
    /// The wait is over. The try is hashed when it is the first of all ready tries.
    Ready,
    Hashes,
}

/// A try that has a place, which it may lose to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) rank: Rank,
    /// Time before the try becomes ready.
    pub(crate) wait: Duration,
}

/// What a try whose wait is over has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginTurn {
    /// The password can be hashed.
    Hash,
    /// Other tries come first. Ask again when a try has entered or left.
    Wait,
    /// Another try has taken the place.
    Displaced,
}

impl LoginThrottle {
    /// Admits a try, which must end with [`LoginThrottle::leave`]. If all places are taken, another
    /// try loses its place, chosen with `roll`, which returns a random number below its argument.
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

    /// Displaces a waiting try if all places for addresses over their limit, or for those under it,
    /// are taken. It doesn't count as wrong, since its password isn't checked.
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

    /// Marks a try as ready after its wait, and begins to hash it if its turn has come.
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

    /// Ends a try. With `forgives`, it no longer counts as wrong.
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

/// Returns the wait of an address with this many wrong passwords over its limit.
fn wait_after(wrong_over: usize) -> Duration {
    WAIT_MAX.min(WAIT_FIRST * (1 << wrong_over.min(8)))
}

/// Times at which the tries began that are not known to be right, oldest first.
#[derive(Debug, Default)]
struct Tries(VecDeque<Duration>);

impl Tries {
    /// Counts the tries of the last minute.
    fn count(&mut self, now: Duration) -> usize {
        while self.0.front().is_some_and(|at| *at + WINDOW <= now) {
            self.0.pop_front();
        }
        self.0.len()
    }

    /// Adds a try. At most `most` tries are remembered: the oldest try is dropped.
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

/// The tries of each address or name.
type TriesByKey<K> = BTreeMap<K, Tries>;

/// Counts the tries of this key in the last minute.
fn count<K: Ord>(all: &mut TriesByKey<K>, now: Duration, key: &K) -> usize {
    all.get_mut(key).map_or(0, |tries| tries.count(now))
}

/// Adds a try of this key.
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
        // A tenth is forgotten at once, so a crowd does not cause a search of all keys each time.
        let mut ends: Vec<Duration> = all.values().map(Tries::last).collect();
        let (_, silent_since, _) = ends.select_nth_unstable(KEYS_MAX / 10);
        let silent_since = *silent_since;
        all.retain(|_, tries| tries.last() > silent_since);
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
