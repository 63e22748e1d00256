//! What a second account of a PBX's calls (a file of CEL or CDRs: `--catch-up`) adds to the first.
//!
//! The primary source tells calls as they happen. Of a call that it may have missed something of,
//! the finished call is held here until the second account has told it, too. A call told by the
//! second account alone is added when the primary has had its chance to tell of it. All others are
//! known, and change nothing.
//!
//! ```text
//! primary ──▶ complete ───────────────────────────────▶ finished
//!        └──▶ incomplete: held ──▶ patience is over ──▶ finished, incomplete
//!                   │
//!                   ▼
//! second  ──▶ told ─┴─ the same call ─────────────────▶ finished, by the second account
//!               ├──── unknown, and its chance is over ─▶ finished
//!               └──── known ──▶ forgotten
//! ```
//! Pure: `now` comes in, decisions go out. Everything held survives a restart by its snapshots.

use crate::age::by_age;
use crate::snapshots::{Changes, Error, OpenChange, bytes};
use crate::{EventTime, FinishedCall, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Calls held at most, of each account; the one held longest is decided as if its time were over.
const HELD_MAX: usize = 10_000;

/// Times for which a call is held, by the account that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time in which the second account may report a call of which the primary may have missed
    /// something.
    pub second: Duration,
    /// Time in which the primary may report a call that the second account alone has reported.
    pub primary: Duration,
}

impl Patience {
    /// CEL is written as it happens.
    pub const CEL: Self = Self {
        second: Duration::from_secs(15),
        primary: Duration::from_secs(30),
    };
    /// CDRs in batch mode are written every 300 s by default.
    pub const CDR: Self = Self {
        second: Duration::from_secs(330),
        primary: Duration::from_secs(60),
    };
}

/// State of a unique id beside what is held here.
#[derive(Clone, Debug, PartialEq)]
pub enum Knowledge {
    /// No call with this id is known.
    Unknown,
    /// The primary has it in an open call; `doubt`: something of it may have been missed.
    Open {
        /// Something of it may have been missed.
        doubt: bool,
    },
    /// The id is part of a finished call; `incomplete`: of one that may still be corrected.
    Finished {
        /// Set when that call waits as an incomplete one, and nobody has sent it.
        incomplete: bool,
        /// The incomplete call itself, for what it knows and the new account cannot know stays.
        call: Option<Box<FinishedCall>>,
    },
}

/// A decision that the caller has to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// The call is finished. It may be a better account of an incomplete one.
    Finish(Box<FinishedCall>),
    /// The second account told the end of a call that the primary still has open: it is to be
    /// [ended](crate::Assembler::end_unheard) by this id.
    End(UniqueId),
}

/// The account that a held call is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum By {
    Primary,
    Second,
}

/// Serialized to survive a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct HeldCall {
    by: By,
    /// Time at which the call came, by our own clock.
    since: EventTime,
    call: FinishedCall,
}

/// Holds what is not decided yet.
#[derive(Debug)]
pub struct Reconciler {
    patience: Patience,
    held: BTreeMap<u64, HeldCall>,
    next: u64,
    changes: Changes,
}

impl Reconciler {
    /// Makes a reconciler that holds no call.
    pub fn new(patience: Patience) -> Self {
        Self {
            patience,
            held: BTreeMap::new(),
            next: 0,
            changes: Changes::default(),
        }
    }

    /// Nothing waits for a decision.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Calls of the primary that wait for the second account.
    pub fn waiting(&self) -> usize {
        self.of(By::Primary).count()
    }

    /// The primary has finished a call: it is given back at once if nothing of it is missing.
    pub fn on_primary(&mut self, call: FinishedCall, now: EventTime) -> Option<FinishedCall> {
        let earlier = self.of(By::Primary);
        let earlier = earlier.filter(|(_, held)| held.call.linkedid == call.linkedid);
        for key in earlier.map(|(key, _)| key).collect::<Vec<_>>() {
            self.drop(key);
        }
        if call.incomplete.is_none() {
            return Some(call);
        }
        self.hold(By::Primary, call, now);
        None
    }

    /// The second account has finished a call.
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

    fn of(&self, by: By) -> impl Iterator<Item = (u64, &HeldCall)> {
        let own = self.held.iter().filter(move |(_, held)| held.by == by);
        own.map(|(key, held)| (*key, held))
    }

    /// Everything that can be decided by `now`. `known` says what is known of an id; `unheard` that
    /// the primary could not hear of a call, for nobody listened; `is_open` that the second account
    /// is in the middle of a call with this id.
    pub fn decide(
        &mut self,
        now: EventTime,
        unheard: &dyn Fn(&FinishedCall) -> bool,
        known: &mut dyn FnMut(&UniqueId) -> Knowledge,
        is_open: &dyn Fn(&UniqueId) -> bool,
    ) -> Vec<Decision> {
        let over_limit = self.held.len() > HELD_MAX;
        let (mut decisions, mut done) = (Vec::new(), BTreeSet::new());
        for (key, held) in self.of(By::Second) {
            let same =
                |call: &FinishedCall| call.ids().any(|id| held.call.ids().any(|it| it == id));
            let of_primary = self.of(By::Primary).filter(|(_, it)| same(&it.call));
            let (keys, halves): (Vec<u64>, Vec<_>) =
                of_primary.map(|(key, held)| (key, &held.call)).unzip();
            let chance_over = over_limit || now >= held.since.plus(self.patience.primary);
            let (decision, is_done) = second(&held.call, halves, chance_over, unheard, known);
            done.extend(is_done.then_some(key));
            if matches!(decision, Some(Decision::Finish(_))) {
                done.extend(keys);
            }
            decisions.extend(decision);
        }
        for (key, held) in self.of(By::Primary) {
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

    /// Returns the moment at which something held can be decided by the time alone.
    pub fn next_deadline(&self) -> Option<EventTime> {
        let at = |held: &HeldCall| match held.by {
            By::Primary => held.since.plus(self.patience.second),
            By::Second => held.since.plus(self.patience.primary),
        };
        self.held.values().map(at).min()
    }

    /// Returns the calls that were held, or are held no more, since the last take.
    pub fn take_changes(&mut self) -> Vec<OpenChange> {
        let held = &self.held;
        self.changes.take(|key| held.get(&key).and_then(bytes))
    }

    /// Puts back what was held.
    ///
    /// # Errors
    /// When the bytes are not a snapshot.
    pub fn restore(&mut self, key: u64, snapshot: &[u8]) -> Result<(), Error> {
        let held = self.changes.restored(key, snapshot)?;
        self.next = self.next.max(key + 1);
        self.held.insert(key, held);
        Ok(())
    }
}

/// Decision on a call of the second account, of which the primary's `halves` are held; and `true`
/// when there will be no other. `chance_over`: the primary has had its time to tell of it.
fn second(
    call: &FinishedCall,
    halves: Vec<&FinishedCall>,
    chance_over: bool,
    unheard: &dyn Fn(&FinishedCall) -> bool,
    known: &mut dyn FnMut(&UniqueId) -> Knowledge,
) -> (Option<Decision>, bool) {
    let whole = call.incomplete.is_none();
    let (mut open, mut finished, mut correctable) = (false, false, false);
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
                let call = call.filter(|_| incomplete);
                letters.extend(call.map(|call| (call.linkedid.clone(), call)));
            }
        }
    }
    if open && !finished {
        return (None, false);
    }
    // Two halves make no whole: the primary's is kept.
    if finished || (!whole && (correctable || !halves.is_empty())) {
        return (None, true);
    }
    let letters = letters.values().map(Box::as_ref);
    let halves: Vec<&FinishedCall> = halves.into_iter().chain(letters).collect();
    // Who was heard to talk has talked, whatever an account says that tells of no bridge.
    if !call.estimate && !call.answered && halves.iter().any(|half| half.answered) {
        return (None, true);
    }
    let finish = !halves.is_empty() || correctable || chance_over || unheard(call);
    let decision = finish.then(|| Decision::Finish(Box::new(by_both(call, &halves))));
    (decision, finish)
}

/// The second account's call, with what only the primary can know of it: a file of CEL has no
/// channel variables, and CDRs know neither those nor who talked with whom for how long.
fn by_both(second: &FinishedCall, halves: &[&FinishedCall]) -> FinishedCall {
    let mut call = second.clone();
    for half in halves {
        call.live |= half.live;
        for variable in &half.variables {
            if !call.variables.iter().any(|it| it.name == variable.name) {
                call.variables.push(variable.clone());
            }
        }
        for field in &half.userfields {
            if !call.userfields.contains(field) {
                call.userfields.push(field.clone());
            }
        }
        // What the primary takes for a number without having seen it dialed may be another's.
        if call.number.is_none()
            && let Some(number) = &half.number
            && number.from_dial_string
        {
            call.number = Some(number.clone());
        }
        let shown = call.shown_number.take();
        let shown = shown.or_else(|| half.shown_number.clone());
        call.shown_number = shown.filter(|_| call.number.is_none());
        call.did = call.did.take().or_else(|| half.did.clone());
        if call.estimate && !half.estimate {
            complete_estimate(&mut call, half);
        }
        let why = half.incomplete.iter();
        call.remarks
            .extend(why.map(|it| format!("filled from the catch-up file: {it}")));
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

/// Returns the oldest linkedid of both accounts. Records of Asterisk do not always name the channel
/// that the call began with. Those of FreeSWITCH do, and Asterisk made none of its ids. Records
/// have whole seconds, so of two calls that began in one second the primary's decides.
fn oldest_id<'a>(second: &'a FinishedCall, halves: &[&'a FinishedCall]) -> &'a UniqueId {
    let own = second.linkedid.made();
    let mut ids = vec![&second.linkedid];
    let mut ages = vec![(own, (second.started.floor_seconds(), true))];
    for half in halves {
        let made = half.linkedid.made();
        if own.is_some() || made.is_some() {
            ids.push(&half.linkedid);
            ages.push((made, (half.started.floor_seconds(), false)));
        }
    }
    ids[by_age(&ages)[0]]
}

/// An estimate learns what records may not know: the trunk, and that somebody was heard to talk,
/// and with whom. A talk that it tells of itself stands as it is: what was heard of it ended, or
/// went on, while nobody listened.
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
