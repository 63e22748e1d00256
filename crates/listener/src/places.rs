//! A listener's open connections. When all places are taken, one of the waiting connections is
//! closed, but never one whose request is being responded to. The connection to close is chosen at
//! random from the origin with the most waiting connections, considering only the half of them that
//! has been waiting the longest.
//!
//! - A client that opens many connections only loses its own, as long as other clients hold fewer.
//! - The choice is random, because if it were always the longest-waiting connection, a fast flood
//!   could reliably interrupt a delivery that takes a tenth of a second to arrive.
//! - Since only the longer-waiting half can be closed, a new connection is safe for a known time,
//!   which is until half as many others have arrived as there are places. This also helps if the
//!   flood comes from the same address (a proxy or a NAT).

use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::net::{IpAddr, Ipv4Addr};
use std::{collections::BTreeMap, sync::Arc};
use tokio::task::AbortHandle;

/// A connection's origin. Connections from the same origin are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerGroup {
    /// A complete IPv4 address, even if it was written as IPv6.
    V4(Ipv4Addr),
    /// The first 64 bits of an IPv6 address, since the network's owner is free to choose the other
    /// half.
    V6([u16; 4]),
}

impl From<IpAddr> for PeerGroup {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

/// A listener's connections, along with the choice of which one to close when the listener is full,
/// which is up to the caller to decide.
#[derive(Debug, Default)]
pub struct Places {
    taken: Arc<Mutex<Taken>>,
}

type Connections = BTreeMap<u64, Option<AbortHandle>>;

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// Connections whose request isn't complete yet by origin, longest wait first. Every origin in
    /// the map has at least one.
    waiting: BTreeMap<PeerGroup, Connections>,
    /// Connections whose request is being responded to, which mustn't be closed.
    answering: Connections,
    /// Number of connections that haven't ended, including those being closed.
    held: usize,
}

/// A connection's place, which becomes available again when this value is dropped.
#[derive(Debug)]
pub struct ConnectionPlace {
    /// The connection's number. Later connections have higher numbers.
    pub id: u64,
    /// The origin that the connection is counted under.
    pub origin: PeerGroup,
    taken: Arc<Mutex<Taken>>,
}

/// Protects a connection from being closed for as long as this value exists.
#[derive(Debug)]
pub struct Answering<'a>(&'a ConnectionPlace);

/// Returns a random number below `below`, which must not be 0. The slight bias of the remainder is
/// of no use to an attacker.
pub fn random(below: usize) -> usize {
    let mut bytes = [0; 8];
    // If the system doesn't provide random bytes, the result is 0, which closes the connection that
    // has been waiting the longest.
    let _ = SystemRandom::new().fill(&mut bytes);
    let below = below as u64;
    usize::try_from(u64::from_le_bytes(bytes) % below).unwrap_or(0)
}

impl Taken {
    fn leave(&mut self, origin: PeerGroup, id: u64) -> Option<Option<AbortHandle>> {
        let all = self.waiting.get_mut(&origin)?;
        let gone = all.remove(&id);
        if all.is_empty() {
            self.waiting.remove(&origin);
        }
        gone
    }

    /// Chooses the connection to close. `roll` returns a random number below its argument.
    fn choose_connection(&self, mut roll: impl FnMut(usize) -> usize) -> Option<(PeerGroup, u64)> {
        let most = self.waiting.values().map(BTreeMap::len).max()?;
        let those: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, all)| all.len() == most)
            .collect();
        let (origin, all) = those[roll(those.len())];
        let older = all.len().div_ceil(2);
        let (id, _) = all.iter().nth(roll(older))?;
        Some((*origin, *id))
    }
}

impl Places {
    /// Takes a place for a connection from this origin, even beyond the limit.
    pub fn enter(&self, origin: PeerGroup) -> ConnectionPlace {
        let mut taken = self.taken.lock();
        let id = taken.next;
        taken.next += 1;
        taken.held += 1;
        taken.waiting.entry(origin).or_default().insert(id, None);
        ConnectionPlace {
            id,
            origin,
            taken: Arc::clone(&self.taken),
        }
    }

    /// Stores the handle for closing the connection with this ID and origin.
    pub fn may_cut(&self, id: u64, origin: PeerGroup, handle: AbortHandle) {
        let mut taken = self.taken.lock();
        let taken = &mut *taken;
        let waiting = taken
            .waiting
            .get_mut(&origin)
            .and_then(|places| places.get_mut(&id));
        // The connection may have ended already.
        if let Some(place) = waiting.or_else(|| taken.answering.get_mut(&id)) {
            *place = Some(handle);
        }
    }

    /// Returns the number of connections that haven't ended, including those being closed.
    pub fn held(&self) -> usize {
        self.taken.lock().held
    }

    /// Returns `true` if a connection is waiting for its request and can be closed.
    pub fn is_anybody_waiting(&self) -> bool {
        !self.taken.lock().waiting.is_empty()
    }

    /// Closes one waiting connection, or returns `false` if there is none. The place becomes
    /// available once the closed connection has ended.
    pub fn make_room(&self) -> bool {
        let mut taken = self.taken.lock();
        let Some((origin, id)) = taken.choose_connection(random) else {
            return false;
        };
        if let Some(Some(handle)) = taken.leave(origin, id) {
            handle.abort();
        }
        true
    }
}

impl ConnectionPlace {
    /// Marks the connection as being responded to, because its request is complete.
    pub fn answer(&self) -> Answering<'_> {
        let mut taken = self.taken.lock();
        if let Some(handle) = taken.leave(self.origin, self.id) {
            taken.answering.insert(self.id, handle);
        }
        Answering(self)
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let ConnectionPlace { id, origin, taken } = self.0;
        let mut taken = taken.lock();
        if let Some(handle) = taken.answering.remove(id) {
            let all = taken.waiting.entry(*origin).or_default();
            all.insert(*id, handle);
        }
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        taken.held -= 1;
        taken.leave(self.origin, self.id);
        taken.answering.remove(&self.id);
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
