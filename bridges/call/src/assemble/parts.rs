//! Emits the calls of customers who have left while an agent's channel continues, whether because
//! the agent is in a conference, is logged in all day, dials the next customer on a list, or has a
//! stuck channel. Such an open call contains several calls, each of which is over once its last
//! outside line has hung up.
//!
//! ```text
//! agent         |------------------------------------------- …   up: it stays in the open call
//! customer A       |----|                                        ended: emitted
//! supervisor              |------|                               ended: emitted, kept as a guest
//! customer B                 |-------|                           ended: emitted with its guest
//! customer C                              |---------- …          up
//! ```
//! A channel that has been emitted stays in the open call as long as there's a customer still up
//! who may have been connected to it, or as long as the call that it was part of continues.

use super::Assembler;
use super::index::has_id;
use crate::age::by_age;
use crate::facts::{Leg, OpenCall, Texts};
use crate::resolve::{CallWithin, EndReason, calls_within, channels_of_live_calls};
use crate::{CLOCK_TOLERANCE, EventTime, Settings, UniqueId};
use std::collections::{BTreeMap, BTreeSet};

/// Number of facts at which a call is first searched for calls that are over.
const FACTS_MANY: usize = 256;
/// Number of additional facts after which it's searched again.
const FACTS_MORE: usize = 64;
/// A channel in a room, or of an agent waiting for calls, keeps its old bridge stays until it has
/// more facts than this.
const SEAT_FACTS_MANY: usize = 64;
/// A call outside of rooms with more channels than this is a flood, so it isn't searched on every
/// event. It ends with its last channel.
const LEGS_MANY: usize = 256;

/// A call within an open call, whose channels have all hung up or continue without the customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndedGroup {
    pub(super) channels: BTreeSet<UniqueId>,
    /// When the last channel hung up, and when we received that by our own clock (`arrived`). If
    /// another line could still have been dialed for the call after that, it's the end of that
    /// period instead.
    pub(super) at: EventTime,
    pub(super) arrived: EventTime,
    /// Whether the birth of the call's first channel was received.
    pub(super) begun: bool,
}

impl OpenCall {
    /// Returns the calls that are over while the open call continues, in the order they ended. A
    /// call whose first channel hasn't had any events is omitted, because it may still be in
    /// progress.
    pub(super) fn ended_groups(&self, settings: &Settings) -> Vec<EndedGroup> {
        let mut ended = self.groups_hung_up(settings);
        ended.retain(|group| self.is_rooted(&group.channels));
        ended
    }

    /// Returns the calls whose known outside lines, or whose known channels, have all hung up, in
    /// the order they ended.
    fn groups_hung_up(&self, settings: &Settings) -> Vec<EndedGroup> {
        let mut unreported = self
            .legs
            .values()
            .filter(|leg| !self.parts.reported.contains(&leg.id));
        let can_contain_ended = if self.has_seats() {
            unreported.any(Leg::is_over)
        } else {
            let mut lines = unreported.filter(|leg| leg.endpoint(&settings.endpoints).is_some());
            self.legs.len() <= LEGS_MANY && lines.any(Leg::is_over)
        };
        if !can_contain_ended || self.is_over() {
            return Vec::new();
        }
        let mut ended = Vec::new();
        for within in calls_within(&self.as_of_latest(), settings) {
            ended.extend(self.ended_group(within));
        }
        ended.sort_by_key(|group| (group.at, group.arrived));
        ended
    }

    /// Returns a copy in which every channel that's still up was there until the latest event.
    fn as_of_latest(&self) -> Self {
        let mut copy = self.clone();
        for leg in copy.legs.values_mut().filter(|leg| leg.is_up()) {
            leg.last = leg.last.max(self.times.latest);
        }
        copy
    }

    /// Returns `true` if any channel of the call was in a conference or a holding bridge, or
    /// belongs to a logged-in agent.
    fn has_seats(&self) -> bool {
        !self.rooms.is_empty() || self.legs.values().any(|leg| has_seat(leg, &self.rooms))
    }

    fn ended_group(&self, within: CallWithin) -> Option<EndedGroup> {
        let legs = within.channels.iter().filter_map(|id| self.legs.get(id));
        let is_up = legs.clone().any(Leg::is_up);
        if !legs.clone().any(Leg::is_real) || is_up && !within.is_left {
            return None;
        }
        let over = legs.clone().filter(|leg| leg.is_over());
        let arrived = over
            .clone()
            .map(|leg| leg.over_arrived.unwrap_or(self.times.quiet_arrived))
            .max()?;
        let at = over.filter_map(Leg::ended).max()?;
        let mut roots = legs.filter_map(|leg| {
            let root = leg.first_linkedid().and_then(UniqueId::new)?;
            self.legs.get(&root)
        });
        let begun = roots.all(Leg::is_born);
        Some(EndedGroup {
            channels: within.channels,
            at: at.plus(within.patience),
            arrived: arrived.plus(within.patience),
            begun,
        })
    }

    /// Returns `true` if each of these channels was born in the call of a channel that is known, or
    /// known to have ended.
    fn is_rooted(&self, channels: &BTreeSet<UniqueId>) -> bool {
        let mut legs = channels.iter().filter_map(|id| self.legs.get(id));
        self.gaps.rootless
            || legs.all(|leg| {
                let root = leg.first_linkedid().and_then(UniqueId::new);
                root.is_none_or(|id| self.legs.contains_key(&id))
            })
    }

    /// Returns `true` if the call has so many facts that its past parts must be emitted.
    pub(super) fn is_over_limit(&self) -> bool {
        self.size.facts >= FACTS_MANY.max(self.parts.checked_facts + FACTS_MORE)
    }

    /// Returns `true` if a phone in this call is currently talking, that is, in a bridge that isn't
    /// a holding bridge.
    pub(super) fn is_room(&self) -> bool {
        self.legs.values().any(|leg| {
            let last = leg.last_passage();
            leg.is_up()
                && leg.is_telephone()
                && last.is_some_and(|last| last.enters && !last.holding)
        })
    }

    /// Returns when the earliest call within this one started, considering only calls that have a
    /// customer and haven't been emitted yet.
    fn needed_since(&self, settings: &Settings) -> Option<EventTime> {
        let mut since: Option<EventTime> = None;
        for within in calls_within(&self.as_of_latest(), settings) {
            let legs = within.channels.iter().filter_map(|id| self.legs.get(id));
            let mut own = legs.clone();
            let has_customer = own.any(|leg| leg.endpoint(&settings.endpoints).is_some());
            if has_customer {
                let first = legs.map(|leg| leg.first).min();
                since = since.into_iter().chain(first).min();
            }
        }
        since
    }

    /// Marks these channels as emitted, and returns those of their IDs that no longer belong to an
    /// open call.
    fn mark_reported(&mut self, channels: &BTreeSet<UniqueId>) -> BTreeSet<UniqueId> {
        let legs = channels.iter().filter_map(|id| self.legs.get(id));
        let legs: Vec<&Leg> = legs.collect();
        let mut past = channels.clone();
        // A channel that's still up can keep the linkedid of one that has hung up, even if no event
        // has shown that yet, and the channels it dials will start out with this linkedid.
        if legs.iter().any(|leg| leg.is_up()) {
            past.retain(|id| !legs.iter().any(|leg| leg.linkedids.has(id.as_str())));
        }
        for leg in self.legs.values().filter(|leg| leg.is_up()) {
            past.retain(|id| *id != leg.id && Some(id.as_str()) != leg.first_linkedid());
        }
        for leg in self.legs.values_mut() {
            if !channels.contains(&leg.id) {
                let linkedids = &mut leg.linkedids.0;
                linkedids.retain(|linkedid| !has_id(&past, &linkedid.text));
            }
        }
        self.parts.reported.extend(channels.iter().cloned());
        self.parts.relieved = true;
        self.userfields.clear();
        self.unread.retain(|id| !channels.contains(id));
        past
    }

    /// Returns the channels that were emitted, have hung up, and can't have been connected to a
    /// customer whose channel is still up.
    ///
    /// The earliest of those customers' calls began at `since`.
    fn past_channels(&self, since: Option<EventTime>) -> BTreeSet<UniqueId> {
        // On AMI 1.x, a channel that has hung up can show which phone another one became.
        if self.legs.values().any(|leg| leg.names.iter().count() > 1) {
            return BTreeSet::new();
        }
        let mut named: BTreeSet<&str> = BTreeSet::new();
        for leg in self.legs.values().filter(|leg| leg.is_up()) {
            named.extend(leg.linkedids.iter().map(|linkedid| linkedid.text.as_str()));
        }
        named.extend(self.oldest_given().map(UniqueId::as_str));
        let mut past = BTreeSet::new();
        for leg in self.legs.values() {
            let is_needed = since.is_some_and(|since| leg.last >= since);
            let is_reported = self.parts.reported.contains(&leg.id);
            if leg.is_over() && is_reported && !is_needed && !named.contains(leg.id.as_str()) {
                past.insert(leg.id.clone());
            }
        }
        past
    }

    /// Returns the oldest channel whose call has been emitted and whose ID may live on as a
    /// linkedid. When a PBX chooses between linkedids, it keeps the oldest.
    fn oldest_given(&self) -> Option<&UniqueId> {
        let given: Vec<&Leg> = self
            .legs
            .values()
            .filter(|leg| self.parts.given.contains(&leg.id))
            .collect();
        let ages: Vec<_> = given.iter().map(|leg| leg.age()).collect();
        by_age(&ages).first().map(|&oldest| &given[oldest].id)
    }

    /// Removes bridge stays that ended before `since`, along with links to the channels in `past`.
    ///
    /// Unless `all` is set, this affects only channels that stay for many calls, i.e., those in
    /// rooms and those of logged-in agents.
    fn forget_stays(&mut self, past: &BTreeSet<UniqueId>, since: Option<EventTime>, all: bool) {
        let forgotten = past.iter().filter_map(|id| self.legs.get(id));
        let forgotten = forgotten.map(|leg| leg.last).max();
        let since = since.unwrap_or(self.times.latest);
        for leg in self.legs.values_mut() {
            if all && self.parts.reported.contains(&leg.id) {
                leg.forgotten_until = leg.forgotten_until.max(forgotten);
            }
            let is_long = has_seat(leg, &self.rooms) && leg.facts.len() > SEAT_FACTS_MANY;
            if leg.is_up() && (all || is_long) {
                forget_stays(leg, since, past);
            }
        }
    }

    /// Removes these channels.
    fn forget_channels(&mut self, past: &BTreeSet<UniqueId>) {
        self.legs.retain(|id, _| !past.contains(id));
        self.parts.reported.retain(|id| !past.contains(id));
        self.joined
            .retain(|(a, b)| !past.contains(a) && !past.contains(b));
        self.size.facts = self.joined.len() + self.legs.len();
        self.size.facts += self.legs.values().map(|leg| leg.facts.len()).sum::<usize>();
    }
}

/// Returns `true` if the channel was in a room or a holding bridge, or belongs to a logged-in
/// agent.
fn has_seat(leg: &Leg, rooms: &Texts) -> bool {
    let mut passages = leg.facts.iter().filter_map(|fact| fact.what.passage());
    leg.applications.agent.is_some()
        || passages.any(|passage| passage.holding || rooms.contains(passage.bridge))
}

/// Removes the channel's bridge stays that ended before `since`, along with its links to past
/// channels.
fn forget_stays(leg: &mut Leg, since: EventTime, past: &BTreeSet<UniqueId>) {
    let mut left: BTreeMap<_, EventTime> = BTreeMap::new();
    for fact in &leg.facts {
        if let Some(passage) = fact.what.passage()
            && !passage.enters
            && fact.at < since
        {
            let last = left
                .entry((fact.origin, passage.bridge.to_owned()))
                .or_insert(fact.at);
            *last = fact.at.max(*last);
        }
    }
    let last_left = left.values().max().copied();
    leg.forgotten_until = leg.forgotten_until.max(last_left);
    leg.retain_facts(|fact| match fact.what.bridge() {
        Some(bridge) => {
            let last = left.get(&(fact.origin, bridge.to_owned()));
            last.is_none_or(|&last| fact.at > last)
        }
        None => fact
            .what
            .link()
            .is_none_or(|(with, _)| !past.contains(with)),
    });
}

impl Assembler {
    /// Finishes the call within the open call `key` that ended first, while the rest stays open.
    ///
    /// If events from before its end may still arrive, its deadline is pushed back instead, for as
    /// long as events keep arriving.
    pub(super) fn emit_ended(&mut self, key: u64) {
        let call = self.calls.get(key);
        let ended = call.map(|call| call.ended_groups(&self.settings));
        let Some(group) = ended.and_then(|ended| ended.into_iter().next()) else {
            return;
        };
        if !self.has_overtaken(&group) || !self.move_deadline(key, &group) {
            self.emit_group(key, &group.channels, EndReason::HungUp);
        }
    }

    /// Pushes the ended call's deadline back to the last arrival of any event, returning `false` if
    /// nothing has arrived since the deadline was set.
    fn move_deadline(&mut self, key: u64, group: &EndedGroup) -> bool {
        let arrived = self.stream.arrived;
        let Some(call) = self.calls.get_mut(key) else {
            return false;
        };
        let mut is_moved = false;
        for leg in call.legs.values_mut() {
            if group.channels.contains(&leg.id) && leg.over_arrived < arrived {
                leg.over_arrived = arrived;
                is_moved = true;
            }
        }
        self.update_settling(key);
        is_moved
    }

    /// Emits all ended calls of an open call, because the stream has ended.
    pub(super) fn emit_all_ended(&mut self, key: u64) {
        loop {
            let call = self.calls.get(key);
            let ended = call.map(|call| call.ended_groups(&self.settings));
            let Some(group) = ended.and_then(|ended| ended.into_iter().next()) else {
                return;
            };
            self.emit_group(key, &group.channels, EndReason::HungUp);
        }
    }

    /// Emits the calls within the open call `key` that ended more than `settle` before its latest
    /// event, even if their first channels haven't had any events. Used when the open call is too
    /// old or too large.
    pub(super) fn emit_rootless(&mut self, key: u64) {
        while let Some(call) = self.calls.get(key) {
            let mut ended = call.groups_hung_up(&self.settings).into_iter();
            let settled = call.times.latest.minus(self.settings.settle);
            let Some(group) = ended.find(|group| group.at < settled) else {
                break;
            };
            self.emit_group(key, &group.channels, EndReason::HungUp);
        }
        self.sweep(key);
        if self.calls.get(key).is_some() {
            self.changes.insert(key);
        }
    }

    /// Removes those channels of the call that `past_channels` returns, so that their late or
    /// duplicate events are ignored from now on.
    fn sweep(&mut self, key: u64) {
        let Some(call) = self.calls.get(key) else {
            return;
        };
        let since = call.needed_since(&self.settings);
        let mut past = call.past_channels(since);
        let is_over_limit = call.is_over_limit();
        if !is_over_limit {
            let live = channels_of_live_calls(call, &self.settings);
            past.retain(|id| !live.contains(id));
        }
        self.calls.forget_ids(key, &past);
        if let Some(call) = self.calls.get_mut(key) {
            call.forget_stays(&past, since, is_over_limit);
            call.forget_channels(&past);
            if is_over_limit {
                call.parts.checked_facts = call.size.facts;
            }
        }
    }

    /// Returns `true` if the last hangup overtook earlier events that haven't arrived yet, which is
    /// the case if its own time is far ahead of its arrival.
    fn has_overtaken(&self, group: &EndedGroup) -> bool {
        let settled = self.stream.at.map(|at| at.plus(self.settings.settle));
        group.at.since(group.arrived) > CLOCK_TOLERANCE && settled < Some(group.at)
    }

    /// Emits the call that these channels make up within the open call `key`, for the reason
    /// `ended`, and closes the open call if no channel is left.
    fn emit_group(&mut self, key: u64, channels: &BTreeSet<UniqueId>, ended: EndReason) {
        let mut ids = Texts::default();
        channels
            .iter()
            .for_each(|id| ids.insert(id.as_str().into()));
        let early = self.early.take_of_call(&ids);
        self.give_early(key, early);
        let Some(call) = self.calls.get(key) else {
            return;
        };
        let mut past = call.as_of_latest();
        past.parts.only.clone_from(channels);
        past.parts.past = true;
        let mut finished = self.resolve_call(&past, ended);
        for call in &mut finished {
            // A linkedid whose channel only appears later doesn't belong to this call.
            call.also_known_as.retain(|id| channels.contains(id));
        }
        let ids: Vec<UniqueId> = finished.iter().map(|call| call.linkedid.clone()).collect();
        self.finished.append(&mut finished);
        let Some(call) = self.calls.get_mut(key) else {
            return;
        };
        let past = call.mark_reported(channels);
        let going_on = ids.into_iter().filter(|id| !past.contains(id));
        call.parts.given.extend(going_on);
        self.calls.forget_ids(key, &past);
        self.sweep(key);
        if self.calls.get(key).is_some_and(|call| call.legs.len() == 0) {
            self.settling.remove(key);
            self.overdue.remove(key);
            self.changes.remove(key);
            self.calls.close(key);
            return;
        }
        self.calls.forget_bridges(key);
        self.calls.forget_numbers(key);
        self.changes.insert(key);
        self.update_settling(key);
    }

    /// Ends the call of channel `id` at its last event and emits it if the open call `key` contains
    /// several calls, or else returns `false`.
    pub(super) fn end_one_of_several(&mut self, key: u64, id: &str) -> bool {
        let Some(call) = self.calls.get(key).filter(|call| !call.has_traits()) else {
            return false;
        };
        let all = calls_within(&call.as_of_latest(), &self.settings);
        if all.len() <= 1 {
            return false;
        }
        let mut all = all.into_iter().map(|within| within.channels);
        let own = all.find(|channels| channels.iter().any(|channel| channel.as_str() == id));
        let Some(own) = own else {
            return false;
        };
        if let Some(call) = self.calls.get_mut(key) {
            for leg in call.legs.values_mut() {
                if own.contains(&leg.id) && !leg.is_over() {
                    leg.note_gone(leg.last);
                }
            }
        }
        self.emit_group(key, &own, EndReason::Missed);
        true
    }
}
