//! Who is connected. When all places are taken somebody makes room, and never one who is being
//! answered: of the origin that holds most places, one at random among the half of its
//! connections that has waited longer.
//!
//! - Whoever opens many connections takes places from himself alone, while others hold fewer.
//! - At random, because the longest waiting would be cut for certain by whoever connects fast
//!   enough: a delivery that takes a tenth of a second to come would never get through.
//! - Of the longer waiting half, because a newcomer then has a sure time: half as many arrivals as
//!   there are places, also where the flood comes by the same address (a proxy, a NAT).

use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::net::{IpAddr, Ipv4Addr};
use std::{collections::BTreeMap, sync::Arc};
use tokio::task::AbortHandle;

/// The origin by which connections are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerGroup {
    /// A whole IPv4 address, also one that is written as IPv6.
    V4(Ipv4Addr),
    /// The first half of an address: the other half is its owner's to choose.
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

/// The connections of one listener, whose caller holds to its own limit, and the choice of the one
/// to cut when it is full.
#[derive(Debug, Default)]
pub struct Places {
    taken: Arc<Mutex<Taken>>,
}

type Connections = BTreeMap<u64, Option<AbortHandle>>;

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    /// Connections whose request is not whole yet, by origin, the longest waiting first. No origin
    /// is without any.
    waiting: BTreeMap<PeerGroup, Connections>,
    /// Connections whose request is being answered, which are not cut.
    answering: Connections,
    /// All that have not ended, those that are being cut among them.
    held: usize,
}

/// One place; free again when dropped.
#[derive(Debug)]
pub struct ConnectionPlace {
    /// The connection's number: later ones are higher.
    pub id: u64,
    /// The origin with whose connections this one is counted together.
    pub origin: PeerGroup,
    taken: Arc<Mutex<Taken>>,
}

/// While it lives the place's connection is not cut.
#[derive(Debug)]
pub struct Answering<'a>(&'a ConnectionPlace);

/// A number below `below`, which is not 0. That it is not spread quite evenly is of no use to
/// anybody.
fn random(below: usize) -> usize {
    let mut bytes = [0; 8];
    // A system that gives no random bytes cuts the longest waiting.
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

    /// Chooses the connection to cut; `roll` gives a number below its own.
    fn whom(&self, mut roll: impl FnMut(usize) -> usize) -> Option<(PeerGroup, u64)> {
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
    /// Takes a place for a connection of this origin, also beyond the limit.
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

    /// Stores the handle that cuts the connection in that place.
    pub fn may_cut(&self, id: u64, origin: PeerGroup, handle: AbortHandle) {
        let mut taken = self.taken.lock();
        let taken = &mut *taken;
        let waits = taken.waiting.get_mut(&origin);
        let waits = waits.and_then(|all| all.get_mut(&id));
        // It may have ended already.
        if let Some(place) = waits.or_else(|| taken.answering.get_mut(&id)) {
            *place = Some(handle);
        }
    }

    /// Number of connections that have not ended, those being cut among them.
    pub fn held(&self) -> usize {
        self.taken.lock().held
    }

    /// Returns `true` where a connection waits for its request and could be cut.
    pub fn is_anybody_waiting(&self) -> bool {
        !self.taken.lock().waiting.is_empty()
    }

    /// Cuts one connection; false when none waits. Its place is free when it has ended.
    pub fn make_room(&self) -> bool {
        let mut taken = self.taken.lock();
        let Some((origin, id)) = taken.whom(random) else {
            return false;
        };
        if let Some(Some(handle)) = taken.leave(origin, id) {
            handle.abort();
        }
        true
    }
}

impl ConnectionPlace {
    /// A request is whole and is being answered.
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
