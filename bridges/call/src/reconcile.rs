//! Merges a second record of a PBX's calls (a CEL or CDR file, using `--catch-up`) into the first.
//!
//! The primary source reports calls as they happen. If it may have missed some of a call's events,
//! the finished call is held here until the second source has reported it too. A call that only the
//! second source has reported is added once the primary has had time to report it. All other calls
//! from the second source are already known and change nothing.
//!
//! ```text
//! primary ──▶ complete ───────────────────────────────▶ finished
//!       └──▶ incomplete: held ──▶ its time is up ────▶ finished, incomplete
//!            (or only with arrival times)
//!                   │
//!                   ▼
//! second  ──▶ call ─┴─ the same call ─────────────────▶ finished, as the second source has it
//!               ├──── unknown, and its time is up ─────▶ finished
//!               └──── known ──▶ forgotten
//! ```
//! This module does no I/O. It takes `now` as an argument and returns its decisions. Snapshots
//! allow all held calls to survive a restart.

use crate::age::by_age;
use crate::snapshots::{Changes, Error, OpenChange, bytes};
use crate::{EventTime, FinishedCall, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum number of held calls. Beyond that, all of them are decided as if their time were up.
const HELD_MAX: usize = 10_000;

/// How long a call is held, depending on which source it's waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// How long to wait for the second source if the primary may have missed some of a call's
    /// events.
    pub second: Duration,
    /// How long to wait for the primary if only the second source has reported a call.
    pub primary: Duration,
}

impl Patience {
    /// Delays for a CEL file, which is written as events happen.
    pub const CEL: Self = Self {
        second: Duration::from_secs(15),
        primary: Duration::from_secs(30),
    };
    /// Delays for a CDR file, which is written every 300 s by default in batch mode.
    pub const CDR: Self = Self {
        second: Duration::from_secs(330),
        primary: Duration::from_secs(60),
    };
}

/// What's known about a unique ID outside of the reconciler.
#[derive(Clone, Debug, PartialEq)]
pub enum Knowledge {
    /// No call with this ID is known.
    Unknown,
    /// The primary has an open call with this ID.
    Open {
        /// Whether events of the call may be missing.
        doubt: bool,
    },
    /// The ID belongs to a finished call.
    Finished {
        /// Whether that call is being held as incomplete and hasn't been sent, which means that it
        /// can still be corrected.
        incomplete: bool,
        /// The incomplete call, whose values complete the second source's call.
        call: Option<Box<FinishedCall>>,
    },
}

/// A decision for the caller to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The call is finished. It may replace an incomplete call with the same ID.
    Finish(Box<FinishedCall>),
    /// The second source reported the end of a call that the primary still has open. The caller
    /// must [end](crate::Assembler::end_unheard) the call with this ID.
    End(UniqueId),
}

/// The source that a held call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum By {
    Primary,
    Second,
}

/// A held call. Serialized to survive a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct HeldCall {
    by: By,
    /// When the call arrived, by our own clock.
    since: EventTime,
    call: FinishedCall,
}

/// Holds calls until they're decided.
#[derive(Debug)]
pub struct Reconciler {
    patience: Patience,
    held: BTreeMap<u64, HeldCall>,
    next: u64,
    changes: Changes,
}

impl Reconciler {
    /// Creates a reconciler without any calls.
    pub fn new(patience: Patience) -> Self {
        Self {
            patience,
            held: BTreeMap::new(),
            next: 0,
            changes: Changes::default(),
        }
    }

    /// Returns `true` if no calls are waiting for a decision.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the primary's calls that are waiting for the second source.
    pub fn waiting(&self) -> impl Iterator<Item = &FinishedCall> {
        self.held_by(By::Primary).map(|(_, held)| &held.call)
    }

    /// Processes a finished call from the primary, dropping any held ones with the same linkedid.
    ///
    /// A complete call is returned immediately, unless it only has arrival times and the second
    /// source is a CEL file, which has exact ones. In that case, or if the call is incomplete, it's
    /// held.
    pub fn on_primary(&mut self, call: FinishedCall, now: EventTime) -> Option<FinishedCall> {
        let earlier: Vec<u64> = self
            .held_by(By::Primary)
            .filter(|(_, held)| held.call.linkedid == call.linkedid)
            .map(|(key, _)| key)
            .collect();
        for key in earlier {
            self.drop(key);
        }
        let has_better_times = call.by_arrival && self.patience == Patience::CEL;
        if call.incomplete.is_none() && !has_better_times {
            return Some(call);
        }
        self.hold(By::Primary, call, now);
        None
    }

    /// Holds a finished call from the second source.
    pub fn on_second(&mut self, call: FinishedCall, now: EventTime) {
        self.hold(By::Second, call, now);
    }

    fn hold(&mut self, by: By, call: FinishedCall, since: EventTime) {
        let key = self.next;
        self.next += 1;
        self.held.insert(key, HeldCall { by, since, call });
        self.changes.insert(key);
    }

    fn drop(&mut self, key: u64) -> Option<HeldCall> {
        self.changes.insert(key);
        self.held.remove(&key)
    }

    fn held_by(&self, by: By) -> impl Iterator<Item = (u64, &HeldCall)> {
        let own = self.held.iter().filter(move |(_, held)| held.by == by);
        own.map(|(key, held)| (*key, held))
    }

    /// Returns all decisions that can be made at `now`.
    ///
    /// `known` looks up what's known about an ID. `unheard` returns `true` if the primary can't
    /// have reported a call, because no events were being received. `is_open` returns `true` if the
    /// second source has an open call with this ID.
    pub fn decide(
        &mut self,
        now: EventTime,
        unheard: &dyn Fn(&FinishedCall) -> bool,
        known: &mut dyn FnMut(&UniqueId) -> Knowledge,
        is_open: &dyn Fn(&UniqueId) -> bool,
    ) -> Vec<Decision> {
        let over_limit = self.held.len() > HELD_MAX;
        let mut decisions = Vec::new();
        let mut done = BTreeSet::new();
        for (key, held) in self.held_by(By::Second) {
            let (keys, halves): (Vec<u64>, Vec<&FinishedCall>) = self
                .held_by(By::Primary)
                .filter(|(_, primary)| share_id(&primary.call, &held.call))
                .map(|(key, primary)| (key, &primary.call))
                .unzip();
            let chance_over = over_limit || now >= held.since.plus(self.patience.primary);
            let (decision, is_done) = second(&held.call, halves, chance_over, unheard, known);
            if is_done {
                done.insert(key);
            }
            if matches!(decision, Some(Decision::Finish(_))) {
                done.extend(keys);
            }
            decisions.extend(decision);
        }
        for (key, held) in self.held_by(By::Primary) {
            let over = now >= held.since.plus(self.patience.second);
            let goes_on = held.call.ids().any(is_open);
            if (over_limit || (over && !goes_on)) && done.insert(key) {
                decisions.push(Decision::Finish(Box::new(held.call.clone())));
            }
        }
        for key in done {
            self.drop(key);
        }
        decisions
    }

    /// Returns when the next held call can be decided based on time alone.
    pub fn next_deadline(&self) -> Option<EventTime> {
        let deadlines = self.held.values().map(|held| match held.by {
            By::Primary => held.since.plus(self.patience.second),
            By::Second => held.since.plus(self.patience.primary),
        });
        deadlines.min()
    }

    /// Returns the calls that have been added or removed since the last time this was called.
    pub fn take_changes(&mut self) -> Vec<OpenChange> {
        let held = &self.held;
        self.changes.take(|key| held.get(&key).and_then(bytes))
    }

    /// Restores a held call.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes aren't a valid snapshot.
    pub fn restore(&mut self, key: u64, snapshot: &[u8]) -> Result<(), Error> {
        let held = self.changes.restore(key, snapshot)?;
        self.next = self.next.max(key + 1);
        self.held.insert(key, held);
        Ok(())
    }
}

/// Returns `true` if the two calls have an ID in common.
fn share_id(a: &FinishedCall, b: &FinishedCall) -> bool {
    a.ids().any(|id| b.ids().any(|other| other == id))
}

/// Decides what to do with a call from the second source, returning the decision and whether it's
/// the last one for this call.
///
/// `halves` are the primary's held calls with the same IDs. `chance_over` is `true` if the primary
/// has had enough time to report the call.
fn second(
    call: &FinishedCall,
    halves: Vec<&FinishedCall>,
    chance_over: bool,
    unheard: &dyn Fn(&FinishedCall) -> bool,
    known: &mut dyn FnMut(&UniqueId) -> Knowledge,
) -> (Option<Decision>, bool) {
    let whole = call.incomplete.is_none();
    let mut open = false;
    let mut finished = false;
    let mut correctable = false;
    let mut letters: BTreeMap<UniqueId, Box<FinishedCall>> = BTreeMap::new();
    for id in call.ids() {
        match known(id) {
            Knowledge::Unknown => {}
            Knowledge::Open { doubt } if whole && (doubt || chance_over) => {
                return (Some(Decision::End(id.clone())), false);
            }
            Knowledge::Open { .. } => open = true,
            Knowledge::Finished { incomplete, call } => {
                finished |= !incomplete;
                correctable |= incomplete;
                if incomplete && let Some(call) = call {
                    letters.insert(call.linkedid.clone(), call);
                }
            }
        }
    }
    if open && !finished {
        return (None, false);
    }
    if finished || (!whole && correctable) {
        return (None, true);
    }
    let letters = letters.values().map(Box::as_ref);
    let halves: Vec<&FinishedCall> = halves.into_iter().chain(letters).collect();
    let Some(better) = better_account(call, &halves) else {
        return (None, true);
    };
    let finish = !halves.is_empty() || correctable || chance_over || unheard(call);
    let decision = finish.then(|| Decision::Finish(Box::new(better)));
    (decision, finish)
}

/// Returns the call as reported by the second source, filling in values that are only in the
/// primary's incomplete versions (`halves`), or `None` if it's no better than those.
pub fn better_account(second: &FinishedCall, halves: &[&FinishedCall]) -> Option<FinishedCall> {
    // If both versions are incomplete, the primary's call is kept.
    if second.incomplete.is_some() && !halves.is_empty() {
        return None;
    }
    // If the primary saw a conversation, it took place, even if a source without bridges doesn't
    // show it.
    let has_talk = halves.iter().any(|half| half.answered);
    if has_talk && !second.answered && !second.estimate {
        return None;
    }
    Some(fill_from_primary(second, halves))
}

/// Fills in the values that only the primary source has. CEL has no channel variables, and CDRs
/// also don't show who talked to whom and for how long.
fn fill_from_primary(second: &FinishedCall, halves: &[&FinishedCall]) -> FinishedCall {
    let mut call = second.clone();
    for half in halves {
        call.live |= half.live;
        for variable in &half.variables {
            let is_known = call
                .variables
                .iter()
                .any(|known| known.name == variable.name);
            if !is_known {
                call.variables.push(variable.clone());
            }
        }
        for field in &half.userfields {
            if !call.userfields.contains(field) {
                call.userfields.push(field.clone());
            }
        }
        // Only a number from a dial string is copied, since any other number may be another
        // party's.
        if call.number.is_none()
            && let Some(number) = &half.number
            && number.from_dial_string
        {
            call.number = Some(number.clone());
        }
        call.shown_number = if call.number.is_none() {
            call.shown_number
                .take()
                .or_else(|| half.shown_number.clone())
        } else {
            None
        };
        call.did = call.did.take().or_else(|| half.did.clone());
        if call.estimate && !half.estimate {
            complete_estimate(&mut call, half);
        }
        if let Some(reason) = &half.incomplete {
            call.remarks
                .push(format!("filled from the catch-up file: {reason}"));
        } else if half.by_arrival {
            let remark = "times from the catch-up file, because the events had none";
            call.remarks.push(remark.to_owned());
        }
    }
    if call.estimate {
        let oldest = oldest_id(second, halves);
        if *oldest != second.linkedid {
            call.also_known_as.retain(|id| id != oldest);
            call.also_known_as.push(second.linkedid.clone());
            call.linkedid = oldest.clone();
        }
    }
    call.variables.sort_by(|a, b| a.name.cmp(&b.name));
    call
}

/// Returns the oldest linkedid found in either source.
///
/// Asterisk's records don't always have the ID of the channel that started the call, whereas
/// FreeSWITCH's do, and their IDs don't look like Asterisk's. Since times in records are whole
/// seconds, the primary's ID is used if two calls started in the same second.
fn oldest_id<'a>(second: &'a FinishedCall, halves: &[&'a FinishedCall]) -> &'a UniqueId {
    let own = second.linkedid.epoch_and_counter();
    let mut ids = vec![&second.linkedid];
    let mut ages = vec![(own, (second.started.floor_seconds(), true))];
    for half in halves {
        let made = half.linkedid.epoch_and_counter();
        if own.is_some() || made.is_some() {
            ids.push(&half.linkedid);
            ages.push((made, (half.started.floor_seconds(), false)));
        }
    }
    ids[by_age(&ages)[0]]
}

/// Copies values that CDRs may not have from the primary's call `half`, i.e., the trunk, whether
/// there was a conversation, and with whom. If the estimate has its own talk time, that's kept,
/// because the primary may have missed the end of the conversation.
fn complete_estimate(call: &mut FinishedCall, half: &FinishedCall) {
    if call.trunk.is_none() && half.trunk.is_some() {
        call.trunk.clone_from(&half.trunk);
        call.direction = half.direction;
    }
    if half.answered && !call.answered {
        call.talk = half.talk.min(call.ended.since(call.started));
    }
    if half.answered || !call.answered {
        call.employee = call.employee.take().or_else(|| half.employee.clone());
    }
    if half.answered && (!call.answered || call.employees_in_order.is_empty()) {
        call.employees_in_order.clone_from(&half.employees_in_order);
    }
    call.answered |= half.answered;
    call.timeline = call.timeline.take().or_else(|| half.timeline.clone());
}

#[cfg(test)]
mod stored {
    use super::*;

    #[test]
    fn stored_form_is_unchanged() {
        callbridge_testkit::golden::keeps::<HeldCall>("held-call");
        callbridge_testkit::golden::keeps::<HeldCall>("held-call-of-the-primary");
    }
}
