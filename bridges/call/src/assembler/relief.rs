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

use super::Assembler;
use super::calls::Calls;
use super::leg::{Leg, What};
use super::open::OpenCall;
use crate::call::Direction;
use crate::resolve::{self, Ended};
use crate::trunk::{self, Endpoints};
use crate::units::UniqueId;
use std::collections::BTreeSet;
use std::time::Duration;

/// From so many facts on, a call is looked through for what is past…
const FACTS_MANY: usize = 2048;
/// …each time that it gained so many more.
const FACTS_MORE: usize = 64;

impl OpenCall {
    /// It holds so much that what is past should go.
    pub(super) fn is_crowded(&self) -> bool {
        self.facts >= FACTS_MANY.max(self.looked_through + FACTS_MORE)
    }

    /// A telephone waits in a bridge of it.
    fn is_room(&self) -> bool {
        let waits = |leg: &Leg| {
            let passages = leg.facts.iter().rev();
            let mut passages = passages.filter_map(|fact| match &fact.what {
                What::Enter { holding, .. } => Some(!holding),
                What::Leave { .. } => Some(false),
                _ => None,
            });
            passages.next() == Some(true)
        };
        let up = self.legs.values().filter(|leg| leg.is_up());
        up.into_iter()
            .any(|leg| trunk::extension(leg.name()).is_some() && waits(leg))
    }

    /// Somebody outside was in it, and has gone.
    fn has_past_customer(&self, endpoints: &Endpoints) -> bool {
        let outside = |leg: &Leg| endpoints.of(leg.name()).is_some();
        self.legs.values().any(|leg| leg.is_over() && outside(leg))
    }

    /// Takes out the channels that are over for good: gone before anybody outside who is still in
    /// the call came into it. With them come, as they were by now, those that may have heard them
    /// and are still up.
    fn take_past(&mut self, endpoints: &Endpoints, settle: Duration) -> Option<Self> {
        let outside = |leg: &&Leg| endpoints.of(leg.name()).is_some();
        let up = self.legs.values().filter(|leg| leg.is_up());
        let came = up.filter(outside).map(|leg| leg.first).min();
        let before = came.unwrap_or(self.heard).min(self.heard.minus(settle));
        let past = |leg: &Leg| leg.is_over() && leg.last < before;
        let past: BTreeSet<UniqueId> = self
            .legs
            .values()
            .filter(|leg| past(leg))
            .map(|leg| leg.id.clone())
            .collect();
        self.looked_through = self.facts;
        if past.is_empty() || !self.has_past_customer(endpoints) {
            return None;
        }
        let mut gone = self.clone();
        self.legs.retain(|id, _| !past.contains(id));
        gone.legs
            .retain(|id, leg| past.contains(id) || (leg.is_up() && leg.first < before));
        let heard = gone.heard;
        let still_up = gone.legs.values_mut().filter(|leg| !past.contains(&leg.id));
        still_up.for_each(|leg| leg.last = heard);
        gone.ties.ids.retain(|id| {
            let id = UniqueId::new(id.as_str());
            id.is_some_and(|id| past.contains(&id))
        });
        self.joined
            .retain(|(a, b)| !past.contains(a) && !past.contains(b));
        self.facts = self.joined.len() + self.legs.len();
        self.facts += self.legs.values().map(|leg| leg.facts.len()).sum::<usize>();
        self.looked_through = self.facts;
        self.userfields.clear();
        self.relieved = true;
        // A linkedid whose channel is outside, and still there, will be that one's own.
        let linkedids = gone.legs.values().flat_map(|leg| leg.linkedids.iter());
        let linkedids = linkedids.filter_map(|linkedid| UniqueId::new(linkedid.text.as_str()));
        let oldest = linkedids.min_by(|a, b| a.age().cmp(&b.age()));
        gone.relieved |= oldest.is_some_and(|oldest| !gone.legs.contains_key(&oldest));
        Some(gone)
    }
}

impl Assembler {
    /// Gives out the calls in an open one that are over, whoever is still in its room.
    pub(super) fn relieve(&mut self, key: u64) {
        let settle = self.settings.settle;
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        let Some(past) = call.take_past(&self.settings.endpoints, settle) else {
            return;
        };
        let up: BTreeSet<UniqueId> = call.legs.keys().cloned().collect();
        self.calls.forget_past(key, &past);
        let mut finished = resolve::resolve(&past, &self.settings, Ended::HungUp);
        // Colleagues among themselves are not over: they are still in there.
        finished.retain(|call| call.direction != Direction::Internal);
        for call in &mut finished {
            call.also_known_as.retain(|id| !up.contains(id));
        }
        let given = finished.iter().map(|call| &call.linkedid);
        let given: Vec<UniqueId> = given.filter(|id| up.contains(id)).cloned().collect();
        if let Some(call) = self.calls.get_mut(key) {
            call.given.extend(given);
        }
        self.changed.insert(key);
        self.finished.append(&mut finished);
    }

    /// Ends the calls that are open for too long; a room that goes on may still be too old then.
    pub(super) fn end_too_long(&mut self, too_old: impl Fn(&Calls) -> Vec<u64>) {
        loop {
            let keys = too_old(&self.calls);
            if keys.is_empty() {
                return;
            }
            for key in keys {
                if !self.goes_on(key) {
                    self.finish(key, Ended::TooLong);
                }
            }
        }
    }

    /// A room is open for too long, but none of those outside who are in it: it goes on without
    /// what is past, and is as old as the oldest of them.
    fn goes_on(&mut self, key: u64) -> bool {
        if !self.calls.get(key).is_some_and(OpenCall::is_room) {
            return false;
        }
        self.relieve(key);
        let endpoints = &self.settings.endpoints;
        let Some(call) = self.calls.get(key) else {
            return false;
        };
        let outside = call.legs.values();
        let outside = outside.filter(|leg| endpoints.of(leg.name()).is_some());
        let empty = call.relieved.then_some(call.heard);
        let oldest = outside.map(|leg| leg.first).min().or(empty);
        let Some(oldest) = oldest.filter(|&at| at > call.opened) else {
            return false;
        };
        let arrived = call.opened_arrived.plus(oldest.since(call.opened));
        self.calls.reopen(key, (oldest, arrived));
        true
    }
}
