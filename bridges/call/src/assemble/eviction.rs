//! Handles rooms that are never empty. Customers come and go, but they are all part of one open
//! call, which does not end. Finished parts are given out while this call is open. It then does not
//! grow without limit, and does not hold finished calls back.
//!
//! ```text
//! room's telephone  |--------------------------------------------- …   up: it stays in the call
//! customer A          |----|                                           past: given out
//! customer B                  |-----|                                  past: given out
//! colleague                     |----------|                           C may have met them: kept
//! customer C                            |------------- …               up
//! ```
//!
//! Channels that are left behind when all outside channels are gone go on in a separate call.
//! Examples are an agent who waits off the hook for the next call of a queue, and colleagues in a
//! room.
//!
//! This module is for PBXs that report links. For PBXs that report bridges, `rooms` gives out the
//! finished parts.

use super::index::has_id;
use crate::facts::{Leg, OpenCall};
use crate::{Endpoints, EventTime, UniqueId};
use std::collections::BTreeSet;

/// A call with at least this many facts is searched for parts that are over.
const FACTS_MANY: usize = 2048;
/// Number of further facts after which the call is searched again.
const FACTS_MORE: usize = 64;

impl OpenCall {
    /// Returns `true` if the call has too many facts, so its past parts must be given out.
    pub(super) fn is_over_limit(&self) -> bool {
        self.size.facts >= FACTS_MANY.max(self.parts.checked_facts + FACTS_MORE)
    }

    /// Returns `true` if a telephone of the call is in a bridge now. Holding bridges do not count.
    pub(super) fn is_room(&self) -> bool {
        self.legs.values().any(|leg| {
            let last = leg.last_passage();
            leg.is_up()
                && leg.is_telephone()
                && last.is_some_and(|last| last.enters && !last.holding)
        })
    }

    /// Returns `true` if all outside channels have hung up, and each channel that is still up is a
    /// telephone that began in a call without any of them. This is known only if the source reports
    /// for each new channel which call it belongs to.
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

    /// Returns the first channel of the call in which `leg` was born, or `None` if it is unknown.
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

    /// Removes and returns the channels that hung up before `settled` and before the first outside
    /// channel that is still up. The result also has copies of the channels that are up and may
    /// have heard the removed ones. Returns `None` if no channel can be removed, or if no outside
    /// channel has hung up.
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
