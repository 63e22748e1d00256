//! A room that is never empty: customers come and go, and the call that all of them are part of
//! does not end. What is past of it is given out while it is open, so that it neither grows without
//! limit nor keeps a finished call back.
//!
//! ```text
//! room's telephone  |--------------------------------------------- …   up: it stays in the call
//! customer A          |----|                                           past: given out
//! customer B                  |-----|                                  past: given out
//! colleague                     |----------|                           C may have heard her: kept
//! customer C                            |------------- …               up
//! ```

use crate::facts::leg::Leg;
use crate::facts::open::OpenCall;
use crate::trunk::Endpoints;
use crate::units::{EventTime, UniqueId};
use std::collections::BTreeSet;
use std::time::Duration;

/// From so many facts on, a call is looked through for what is past…
const FACTS_MANY: usize = 2048;
/// …each time that it gained so many more.
const FACTS_MORE: usize = 64;

impl OpenCall {
    /// It holds so much that what is past should go.
    pub(super) fn is_crowded(&self) -> bool {
        self.size.facts >= FACTS_MANY.max(self.parts.looked_through + FACTS_MORE)
    }

    /// A telephone waits in a bridge of it.
    pub(super) fn is_room(&self) -> bool {
        let waits = |leg: &Leg| {
            let mut latest = leg.facts.iter().rev();
            let last = latest.find_map(|fact| fact.what.passage());
            last.is_some_and(|last| last.enters && !last.holding)
        };
        let up = self.legs.values().filter(|leg| leg.is_up());
        up.into_iter().any(|leg| leg.is_telephone() && waits(leg))
    }

    /// Somebody outside was in it, and has gone.
    fn has_past_customer(&self, endpoints: &Endpoints) -> bool {
        let outside = |leg: &Leg| leg.endpoint(endpoints).is_some();
        self.legs.values().any(|leg| leg.is_over() && outside(leg))
    }

    /// Takes out the channels that are over for good: gone before anybody outside who is still in
    /// the call came into it. With them come, as they were by now, those that may have heard them
    /// and are still up.
    pub(super) fn take_past(
        &mut self,
        endpoints: &Endpoints,
        settle: Duration,
        now: EventTime,
    ) -> Option<Self> {
        let outside = |leg: &&Leg| leg.endpoint(endpoints).is_some();
        let up = self.legs.values().filter(|leg| leg.is_up());
        let came = up.filter(outside).map(|leg| leg.first).min();
        let settled = if now >= self.times.heard_arrived.plus(settle) {
            self.times.heard.plus(Duration::from_micros(1))
        } else {
            self.times.heard.minus(settle)
        };
        let before = came.unwrap_or(settled).min(settled);
        let past = |leg: &Leg| leg.is_over() && leg.last < before;
        let past: BTreeSet<UniqueId> = self
            .legs
            .values()
            .filter(|leg| past(leg))
            .map(|leg| leg.id.clone())
            .collect();
        self.parts.looked_through = self.size.facts;
        if past.is_empty() || !self.has_past_customer(endpoints) {
            return None;
        }
        let mut gone = self.clone();
        self.legs.retain(|id, _| !past.contains(id));
        gone.legs
            .retain(|id, leg| past.contains(id) || (leg.is_up() && leg.first < before));
        let heard = gone.times.heard;
        let still_up = gone.legs.values_mut().filter(|leg| !past.contains(&leg.id));
        still_up.for_each(|leg| leg.last = heard);
        gone.ties.ids.retain(|id| {
            let id = UniqueId::new(id.as_str());
            id.is_some_and(|id| past.contains(&id))
        });
        self.joined
            .retain(|(a, b)| !past.contains(a) && !past.contains(b));
        self.size.facts = self.joined.len() + self.legs.len();
        self.size.facts += self.legs.values().map(|leg| leg.facts.len()).sum::<usize>();
        self.parts.looked_through = self.size.facts;
        self.userfields.clear();
        self.parts.relieved = true;
        gone.parts.past = true;
        Some(gone)
    }
}
