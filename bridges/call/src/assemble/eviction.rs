//! Rooms that are never empty. Customers come and go, and the open call that they are all part of
//! does not end. The finished parts are given out while it is open, so it does not grow without
//! limit and does not hold finished calls back.
//!
//! ```text
//! room's telephone  |--------------------------------------------- …   up: it stays in the call
//! customer A          |----|                                           past: given out
//! customer B                  |-----|                                  past: given out
//! colleague                     |----------|                           C may have heard it: kept
//! customer C                            |------------- …               up
//! ```
//!
//! The same is done for channels that are left behind, such as an agent who waits off the hook for
//! the next call of a queue, or colleagues in a room. They go on in a separate call when all
//! outside channels are gone.
//!
//! This module is for PBXs that report links. `rooms` does the same for those that report bridges.

use super::index::has_id;
use crate::facts::{Leg, OpenCall};
use crate::{Endpoints, EventTime, UniqueId};
use std::collections::BTreeSet;

/// Number of facts from which on a call is searched for past parts.
const FACTS_MANY: usize = 2048;
/// Number of further facts after which it is searched again.
const FACTS_MORE: usize = 64;

impl OpenCall {
    /// Returns `true` if the call has too many facts, so its past parts must be given out.
    pub(super) fn is_over_limit(&self) -> bool {
        self.size.facts >= FACTS_MANY.max(self.parts.checked_facts + FACTS_MORE)
    }

    /// Returns `true` if a telephone waits in a bridge of the call.
    pub(super) fn is_room(&self) -> bool {
        self.legs.values().any(|leg| {
            let last = leg.last_passage();
            leg.is_up()
                && leg.is_telephone()
                && last.is_some_and(|last| last.enters && !last.holding)
        })
    }

    /// Returns `true` if all channels from outside have hung up and no channel that is still up
    /// belongs to their calls. Such a channel began in another call, or was dialed by a channel
    /// that did. Known only if the source reports with each new channel which call it belongs to.
    pub(crate) fn is_left(&self, endpoints: &Endpoints) -> bool {
        let has_traits = self.legs.values().any(|leg| leg.traits.is_some());
        let mut up = self.legs.values().filter(|leg| leg.is_up()).peekable();
        if !has_traits || up.peek().is_none() || !self.has_past_customer(endpoints) {
            return false;
        }
        let outside = self
            .legs
            .values()
            .filter(|leg| leg.endpoint(endpoints).is_some());
        let origins: Option<BTreeSet<&UniqueId>> = outside.map(|leg| self.origin(leg)).collect();
        let Some(origins) = origins else {
            return false;
        };
        let is_apart = up.all(|leg| {
            let origin = self.origin(leg);
            leg.is_telephone() && origin.is_some_and(|origin| !origins.contains(origin))
        });
        is_apart && (self.gaps.rootless || self.unheard_root().is_none())
    }

    /// Returns the channel that began the call in which this one was born.
    fn origin<'l>(&'l self, leg: &'l Leg) -> Option<&'l UniqueId> {
        let mut at = leg;
        for _ in 0..self.legs.len() {
            let call = at.first_linkedid()?;
            if call == at.id.as_str() {
                return Some(&at.id);
            }
            at = self.legs.get(&UniqueId::new(call)?)?;
        }
        None
    }

    /// Returns `true` if an outside channel was in the call and has hung up.
    fn has_past_customer(&self, endpoints: &Endpoints) -> bool {
        self.legs
            .values()
            .any(|leg| leg.is_over() && leg.endpoint(endpoints).is_some())
    }

    /// Removes and returns the channels that are over for good. They hung up before any outside
    /// channel that is still up joined the call, and before `settled`. The result also has copies,
    /// as of now, of the channels that are still up and may have heard them.
    pub(super) fn take_past(&mut self, endpoints: &Endpoints, settled: EventTime) -> Option<Self> {
        let came = self
            .legs
            .values()
            .filter(|leg| leg.is_up() && leg.endpoint(endpoints).is_some())
            .map(|leg| leg.first)
            .min();
        let before = came.unwrap_or(settled).min(settled);
        let past: BTreeSet<UniqueId> = self
            .legs
            .values()
            .filter(|leg| leg.is_over() && leg.last < before)
            .map(|leg| leg.id.clone())
            .collect();
        self.parts.checked_facts = self.size.facts;
        if past.is_empty() || !self.has_past_customer(endpoints) {
            return None;
        }
        let mut gone = self.clone();
        self.legs.retain(|id, _| !past.contains(id));
        // The call no longer waits for the end of the past channels.
        for leg in self.legs.values_mut() {
            let linkedids = &mut leg.linkedids.0;
            linkedids.retain(|linkedid| !has_id(&past, &linkedid.text));
        }
        gone.legs
            .retain(|id, leg| past.contains(id) || (leg.is_up() && leg.first < before));
        let latest = gone.times.latest;
        for leg in gone.legs.values_mut() {
            if !past.contains(&leg.id) {
                leg.last = latest;
            }
        }
        gone.ties.ids.retain(|id| has_id(&past, id));
        self.joined
            .retain(|(a, b)| !past.contains(a) && !past.contains(b));
        self.size.facts = self.joined.len() + self.legs.len();
        self.size.facts += self.legs.values().map(|leg| leg.facts.len()).sum::<usize>();
        self.parts.checked_facts = self.size.facts;
        self.userfields.clear();
        self.parts.relieved = true;
        gone.parts.past = true;
        Some(gone)
    }
}
