//! The open calls, with indexes for finding the call that an event belongs to.
//!
//! The length of texts such as channel, bridge, and variable names is up to other systems, so a
//! call's size is measured in bytes when it's serialized after each batch. A call that's too large
//! is ended when the next event arrives. If all calls together are too large, the largest one is
//! ended rather than the one that's been quiet the longest, which may be perfectly ordinary.

use super::index::{FinishedIds, Index, Schedule, in_order};
use crate::facts::{Leg, LinkKeys, OpenCall, Texts, is_holding};
use crate::trunk;
use crate::{ChannelEvent, ChannelRef, EventTime, Kind, Text, UNNAMED, UniqueId};
use foldhash::fast::RandomState;
use smol_str::SmolStr;
use std::collections::{BTreeSet, HashMap};

/// Maximum size of a call in bytes. A call with the maximum number of facts and texts of typical
/// length takes up a third of it.
pub(super) const CALL_BYTES_MAX: usize = 4 << 20;

/// An error indicating that the event's call has already finished.
#[derive(Clone, Copy)]
pub(super) struct Finished;

/// A key that ties channels together.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkKey<'a> {
    /// A unique ID or linkedid.
    Id(&'a str),
    /// A bridge whose channels can hear each other.
    Bridge(&'a str),
    /// A Local channel's name, without the `;1` or `;2` suffix of its half.
    Local(&'a str),
    /// An outside number that FreeSWITCH dials for an API command (`originate a|b`).
    Number(&'a str),
}

/// Returns the keys that tie the event's channel to others, apart from the number that it was
/// created to dial.
pub(super) fn ties<'a>(
    id: &'a UniqueId,
    event: &'a ChannelEvent<'_>,
) -> impl Iterator<Item = LinkKey<'a>> {
    let by = event.kind.other();
    let mut met = None;
    let mut with: &[Text<'_>] = &[];
    match &event.kind {
        // A channel that leaves must have entered, even if that event wasn't received.
        Kind::BridgeEnter { bridge, technology } | Kind::BridgeLeave { bridge, technology }
            if !bridge.starts_with(UNNAMED) && !is_holding(technology) =>
        {
            met = Some(bridge);
        }
        Kind::Sits { bridge } => met = Some(bridge),
        // AMI 1.x doesn't report linkedids, so the bridge alone shows which channels belong
        // together.
        Kind::Listed { bridge, .. } if event.channel.linkedid.is_empty() && !bridge.is_empty() => {
            met = Some(bridge);
        }
        Kind::Joined { with: others } => with = others,
        Kind::Renamed { holder, .. } => with = std::slice::from_ref(holder),
        Kind::Monitors { target, mode, .. } if mode.is_heard() => {
            with = std::slice::from_ref(target);
        }
        _ => {}
    }
    std::iter::once(LinkKey::Id(id.as_str()))
        .chain(ties_of_channel(&event.channel))
        .chain(by.map(|by| LinkKey::Id(&by.uniqueid)))
        .chain(by.into_iter().flat_map(ties_of_channel))
        .chain(met.map(|bridge| LinkKey::Bridge(bridge)))
        .chain(with.iter().map(|id| LinkKey::Id(id)))
}

/// Returns the channel's linkedid and, for a Local channel, the name shared by its two halves.
fn ties_of_channel<'a>(channel: &'a ChannelRef<'_>) -> impl Iterator<Item = LinkKey<'a>> {
    let local = trunk::local_pair(&channel.name).map(LinkKey::Local);
    std::iter::once(LinkKey::Id(&channel.linkedid)).chain(local)
}

/// The open calls by number, with indexes for looking them up by key.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    pub(super) calls: HashMap<u64, Box<OpenCall>, RandomState>,
    ids: Index<u64>,
    bridges: Index<u64>,
    locals: Index<u64>,
    numbers: Index<u64>,
    /// The unique ID of each channel in an open call by name, for events that only contain the
    /// name.
    pub(super) names: Index<UniqueId>,
    /// Calls by the arrival of their first event. (`opened` is ordered by that event's own time.)
    pub(super) opened_arrived: Schedule<EventTime>,
    opened: Schedule<EventTime>,
    /// Calls by the recorded time of their last event. This isn't updated with every event, so
    /// `longest_silent` corrects it.
    silent: Schedule<EventTime>,
    /// Total size of all calls in bytes, as of when each one was last serialized.
    pub(super) bytes: usize,
    /// Calls larger than [`CALL_BYTES_MAX`].
    pub(super) oversized: BTreeSet<u64>,
    next: u64,
    finished: FinishedIds<()>,
}

impl OpenCalls {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn keys(&self) -> Vec<u64> {
        self.keys_of(|_| true)
    }

    /// Returns the calls that satisfy the predicate, in the order they were opened.
    pub(super) fn keys_of(&self, is: impl Fn(&OpenCall) -> bool) -> Vec<u64> {
        let those = self.calls.iter().filter(|(_, call)| is(call));
        in_order(those.map(|(&key, _)| key))
    }

    pub(super) fn get(&self, key: u64) -> Option<&OpenCall> {
        self.calls.get(&key).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut OpenCall> {
        self.calls.get_mut(&key).map(Box::as_mut)
    }

    /// Returns the open call that has this unique ID or linkedid.
    pub(super) fn find(&self, id: &str) -> Option<u64> {
        self.ids.get(id).copied()
    }

    /// Returns the open call that an event of this channel belongs to, or `None` if it isn't known
    /// yet.
    ///
    /// # Errors
    ///
    /// Returns [`Finished`] if the call is over.
    pub(super) fn find_for_event(
        &self,
        id: &UniqueId,
        linkedid: &str,
    ) -> Result<Option<u64>, Finished> {
        for id in [id.as_str(), linkedid] {
            if let Some(key) = self.find(id) {
                return Ok(Some(key));
            }
            if self.has_finished(id) {
                return Err(Finished);
            }
        }
        Ok(None)
    }

    /// Returns `true` if the event arrived after its channel's birth and before its end, which
    /// isn't the case for a batch in reverse order.
    ///
    /// A jump in the times only means that a clock was set if events arrive in order. Otherwise,
    /// the event may simply be late.
    pub(super) fn is_in_order(&self, id: &UniqueId, event: &ChannelEvent<'_>) -> bool {
        let call = self.find(id.as_str()).and_then(|key| self.get(key));
        match call.and_then(|call| call.legs.get(id)) {
            Some(leg) => leg.is_born() && !leg.is_over(),
            None => matches!(event.kind, Kind::Born { .. }),
        }
    }

    /// Returns `true` if all of the event's keys already lead to the call, which is the case for
    /// most events.
    pub(super) fn is_tied(&self, key: u64, id: &UniqueId, event: &ChannelEvent<'_>) -> bool {
        let linkedid = event.channel.linkedid.as_ref();
        let Some(call) = self.get(key) else {
            return false;
        };
        let Some(leg) = call.legs.get(id) else {
            return false;
        };
        let ties_more = match &event.kind {
            Kind::BridgeLeave { bridge, .. } | Kind::Sits { bridge } => {
                !call.ties.bridges.contains(bridge)
            }
            Kind::DialBegin { .. } | Kind::DialEnd { .. } => true,
            Kind::Renamed { .. } | Kind::Joined { .. } => true,
            Kind::Monitors { mode, .. } => mode.is_heard(),
            kind => kind.is_of_bridge(),
        };
        let known = linkedid.is_empty() || leg.linkedids.has(linkedid);
        !ties_more && known && !leg.is_renamed(event)
    }

    pub(super) fn open(&mut self, call: OpenCall) -> u64 {
        let key = self.next_key();
        self.insert(key, Box::new(call));
        key
    }

    /// Returns a number that no call or early CDR has used before.
    pub(super) fn next_key(&mut self) -> u64 {
        let key = self.next;
        self.next += 1;
        key
    }

    /// Reserves a number that was in use before the last restart.
    pub(super) fn key_is_used(&mut self, key: u64) {
        self.next = self.next.max(key.saturating_add(1));
    }

    /// Returns `true` if a call with this ID has finished. Only the most recent IDs are remembered
    /// here.
    pub(super) fn has_finished(&self, id: &str) -> bool {
        self.finished.known.get(id).is_some()
    }

    /// Restores a call under its previous number.
    pub(super) fn put_back(&mut self, key: u64, call: OpenCall) {
        self.close(key);
        self.key_is_used(key);
        self.point_to(key, &call.ties);
        let legs: Vec<UniqueId> = call.legs.keys().cloned().collect();
        let names = call.names.clone();
        self.insert(key, Box::new(call));
        for id in legs {
            self.register_name(key, &id);
        }
        self.know_names(key, names);
    }

    fn insert(&mut self, key: u64, call: Box<OpenCall>) {
        self.opened_arrived.put(key, call.times.opened_arrived);
        self.opened.put(key, call.times.opened);
        self.silent.put(key, call.times.latest_arrived);
        self.bytes += call.size.bytes;
        self.calls.insert(key, call);
    }

    /// Pairs each index with the texts in `ties` that belong in it.
    fn indexes<'t>(&mut self, ties: &'t LinkKeys) -> [(&mut Index<u64>, &'t Texts); 4] {
        [
            (&mut self.ids, &ties.ids),
            (&mut self.bridges, &ties.bridges),
            (&mut self.locals, &ties.locals),
            (&mut self.numbers, &ties.numbers),
        ]
    }

    fn point_to(&mut self, key: u64, ties: &LinkKeys) {
        for (index, texts) in self.indexes(ties) {
            for text in texts.iter() {
                index.insert(text, key);
            }
        }
    }

    /// Ties `tie` to the call `key`, and returns a number that's no longer in use, if any.
    ///
    /// If `tie` leads to a different call, the two are merged under the smaller number, and `key`
    /// is set to it. `at` is the time of the event that the tie comes from.
    pub(super) fn tie(&mut self, key: &mut u64, tie: LinkKey<'_>, at: EventTime) -> Option<u64> {
        if let LinkKey::Local(pair) = tie
            && let Some(other) = self.locals.get(pair).filter(|other| *other != key)
        {
            // After a restart, a PBX starts numbering its Local channels from zero again.
            let holder = self.get(*other);
            let taken = holder.and_then(|call| call.began_local(pair)).unwrap_or(at);
            if self.get(*key)?.has_ended_local(pair, taken) {
                return None;
            }
            if holder.is_none_or(|call| call.has_ended_local(pair, at)) {
                self.locals.remove(pair);
            }
        }
        let call = self.calls.get_mut(key)?;
        let (index, texts, text) = match tie {
            LinkKey::Id(text) if self.finished.known.get(text).is_some() => return None,
            LinkKey::Id(text) => (&mut self.ids, &mut call.ties.ids, text),
            LinkKey::Bridge(text) => (&mut self.bridges, &mut call.ties.bridges, text),
            LinkKey::Local(text) => (&mut self.locals, &mut call.ties.locals, text),
            LinkKey::Number(text) => (&mut self.numbers, &mut call.ties.numbers, text),
        };
        if text.is_empty() {
            return None;
        }
        match index.get(text).copied() {
            Some(known) if known == *key => None,
            Some(other) => {
                let absorbed = other.max(*key);
                *key = other.min(*key);
                self.merge(*key, absorbed)
            }
            None => {
                index.insert(text, *key);
                texts.insert(text.into());
                None
            }
        }
    }

    fn merge(&mut self, into: u64, from: u64) -> Option<u64> {
        let absorbed = self.remove(from)?;
        self.point_to(into, &absorbed.ties);
        let mut call = self.remove(into)?;
        call.absorb(*absorbed);
        self.insert(into, call);
        Some(from)
    }

    fn remove(&mut self, key: u64) -> Option<Box<OpenCall>> {
        let call = self.calls.remove(&key)?;
        self.bytes = self.bytes.saturating_sub(call.size.bytes);
        self.opened_arrived.remove(key);
        self.opened.remove(key);
        self.silent.remove(key);
        Some(call)
    }

    /// Removes a call along with all keys that lead to it.
    pub(super) fn close(&mut self, key: u64) -> Option<Box<OpenCall>> {
        let call = self.remove(key)?;
        for (index, texts) in self.indexes(&call.ties) {
            for text in texts.iter() {
                if index.get(text) == Some(&key) {
                    index.remove(text);
                }
            }
        }
        let born = call.legs.values().map(|leg| leg.name());
        for name in born.chain(call.names.renamed_to.iter().map(SmolStr::as_str)) {
            if (self.names.get(name)).is_some_and(|id| call.legs.contains_key(id)) {
                self.names.remove(name);
            }
        }
        Some(call)
    }

    /// Removes the IDs of these channels, which no longer belong to an open call. The call's other
    /// channels keep theirs.
    pub(super) fn forget_ids(&mut self, key: u64, past: &BTreeSet<UniqueId>) {
        let Some(call) = self.calls.get_mut(&key) else {
            return;
        };
        for leg in past.iter().filter_map(|id| call.legs.get(id)) {
            if self.names.get(leg.name()) == Some(&leg.id) {
                self.names.remove(leg.name());
            }
            if let Some(local) = trunk::local_pair(leg.name()) {
                self.locals.remove(local);
                call.ties.locals.remove(local);
            }
        }
        for id in past {
            self.finished.insert(id.as_str(), ());
            self.ids.remove(id.as_str());
            call.ties.ids.remove(id.as_str());
        }
    }

    /// Removes the numbers that belong only to calls that have already been emitted, so if one of
    /// them is dialed again, the line starts a new call.
    pub(super) fn forget_numbers(&mut self, key: u64) {
        let Some(call) = self.calls.get_mut(&key) else {
            return;
        };
        let reported = &call.parts.reported;
        let staying = call.legs.values().filter(|leg| !reported.contains(&leg.id));
        let needed: BTreeSet<&str> = staying.filter_map(Leg::commanded_number).collect();
        let known = call.ties.numbers.iter();
        let past = known.filter(|number| !needed.contains(number.as_str()));
        for number in past.cloned().collect::<Vec<SmolStr>>() {
            self.numbers.remove(&number);
            call.ties.numbers.remove(&number);
        }
    }

    /// Removes the bridges that none of the call's remaining channels has been in.
    pub(super) fn forget_bridges(&mut self, key: u64) {
        let Some(call) = self.calls.get_mut(&key) else {
            return;
        };
        for bridge in empty_bridges(call) {
            self.bridges.remove(&bridge);
            call.ties.bridges.remove(&bridge);
            call.rooms.remove(&bridge);
        }
    }

    /// Sets when the call is considered to have opened, both by the clock of its events (`at`) and
    /// by ours (`arrived`).
    pub(super) fn reopen(&mut self, key: u64, (at, arrived): (EventTime, EventTime)) {
        if let Some(mut call) = self.remove(key) {
            call.times.opened = at;
            call.times.opened_arrived = arrived;
            self.insert(key, call);
        }
    }

    pub(super) fn forget_finished(&mut self) {
        self.finished = FinishedIds::default();
    }

    /// Remembers the IDs of a finished call, so that late events don't open a new one.
    pub(super) fn remember_finished(&mut self, call: &OpenCall) {
        let names = call.legs.values().map(|leg| leg.name());
        let ids = call.ties.ids.iter().map(SmolStr::as_str);
        ids.chain(names).for_each(|id| self.finished.insert(id, ()));
    }

    /// Returns the calls with an event that arrived before this moment.
    pub(super) fn arrived_before(&self, moment: EventTime) -> Vec<u64> {
        self.keys_of(|call| {
            let first = call.times.opened_arrived.min(call.times.latest_arrived);
            first.min(call.times.quiet_arrived) < moment
        })
    }

    /// Sets each of the call's arrival times that's before `right_from` to `now`. The call no
    /// longer counts as live after that.
    pub(super) fn arrived(&mut self, key: u64, now: EventTime, right_from: EventTime) {
        let Some(mut call) = self.remove(key) else {
            return;
        };
        let times = &mut call.times;
        for arrival in [
            &mut times.opened_arrived,
            &mut times.latest_arrived,
            &mut times.quiet_arrived,
        ] {
            if *arrival < right_from {
                *arrival = now;
            }
        }
        times.live = false;
        self.insert(key, call);
    }

    /// Returns the backlogged calls that were opened by this time of the stream.
    pub(super) fn backlog_until(&self, stream: EventTime) -> Vec<u64> {
        self.opened
            .due_at(stream)
            .filter(|key| self.get(*key).is_some_and(|call| !call.times.live))
            .collect()
    }

    /// Returns the call that has gone the longest without an event.
    pub(super) fn longest_silent(&mut self) -> Option<u64> {
        loop {
            let (noted, key) = self.silent.first()?;
            let call = self.calls.get(&key);
            let latest = call.map_or(noted, |call| call.times.latest_arrived);
            if latest == noted {
                return Some(key);
            }
            self.silent.put(key, latest);
        }
    }

    /// Records the size of a serialized call in bytes.
    pub(super) fn weigh(&mut self, key: u64, bytes: usize) {
        let Some(call) = self.get_mut(key) else {
            return;
        };
        let before = std::mem::replace(&mut call.size.bytes, bytes);
        self.bytes = self.bytes.saturating_sub(before) + bytes;
        if bytes > CALL_BYTES_MAX {
            self.oversized.insert(key);
        }
    }

    pub(super) fn largest(&self) -> Option<u64> {
        Some(*self.calls.iter().max_by_key(|(_, call)| call.size.bytes)?.0)
    }
}

/// Returns the bridges tied to the call that none of its channels has been in.
fn empty_bridges(call: &OpenCall) -> Vec<SmolStr> {
    call.ties
        .bridges
        .iter()
        .filter(|bridge| !call.legs.values().any(|leg| leg.was_in(bridge)))
        .cloned()
        .collect()
}
