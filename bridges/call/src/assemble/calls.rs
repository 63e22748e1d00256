//! The open calls, and what leads from an event to one of them.
//!
//! Whoever names channels, bridges and variables decides how long their texts are, so a call is
//! weighed when it is written down, by the bytes that takes, after each batch. One that has grown
//! too large is ended with the next event, and where all together are, the largest is: not the one
//! longest silent, which may be anybody's.

use super::index::{FinishedIds, Index, Schedule, in_order};
use crate::facts::{Leg, LinkKeys, OpenCall, Texts, is_holding};
use crate::trunk;
use crate::{ChannelEvent, ChannelRef, EventTime, Kind, Text, UNNAMED, UniqueId};
use foldhash::fast::RandomState;
use smol_str::SmolStr;
use std::collections::{BTreeSet, HashMap};

/// Bytes of one call. As many facts as a call may hold take a third of it, told in usual texts.
pub(super) const CALL_BYTES_MAX: usize = 4 << 20;

/// The call that an event belongs to is finished.
#[derive(Clone, Copy)]
pub(super) struct Finished;

/// Something that ties channels together.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkKey<'a> {
    /// A unique id or a linkedid.
    Id(&'a str),
    /// A bridge in which channels hear each other.
    Bridge(&'a str),
    /// The name of a Local channel, without its half.
    Local(&'a str),
}

/// All that an event says about what belongs to its channel.
pub(super) fn ties<'a>(
    id: &'a UniqueId,
    event: &'a ChannelEvent<'_>,
) -> impl Iterator<Item = LinkKey<'a>> {
    let by = event.kind.other();
    let mut met = None;
    let mut with: &[Text<'_>] = &[];
    match &event.kind {
        // Who leaves has entered, though that may not have been heard.
        Kind::BridgeEnter { bridge, technology } | Kind::BridgeLeave { bridge, technology } => {
            let named = !bridge.starts_with(UNNAMED);
            met = Some(bridge).filter(|_| named && !is_holding(technology));
        }
        Kind::Joined { with: others } => with = others,
        Kind::Renamed { holder, .. } => with = std::slice::from_ref(holder),
        Kind::Monitors { target, mode, .. } if mode.is_heard() => {
            with = std::slice::from_ref(target);
        }
        _ => {}
    }
    let of_channel = |channel: &'a ChannelRef<'_>| {
        let local = trunk::local_pair(&channel.name).map(LinkKey::Local);
        std::iter::once(LinkKey::Id(&channel.linkedid)).chain(local)
    };
    std::iter::once(LinkKey::Id(id.as_str()))
        .chain(of_channel(&event.channel))
        .chain(by.map(|by| LinkKey::Id(&by.uniqueid)))
        .chain(by.into_iter().flat_map(of_channel))
        .chain(met.map(|bridge| LinkKey::Bridge(bridge)))
        .chain(with.iter().map(|id| LinkKey::Id(id)))
}

/// The open calls by number, with an index of all that leads to them.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    pub(super) calls: HashMap<u64, Box<OpenCall>, RandomState>,
    ids: Index<u64>,
    bridges: Index<u64>,
    locals: Index<u64>,
    /// The unique id of each channel of an open call, for events that tell the name alone.
    pub(super) names: Index<UniqueId>,
    /// Calls in the order in which their first events arrived, and, in `opened`, of these events'
    /// own times.
    pub(super) opened_arrived: Schedule<EventTime>,
    opened: Schedule<EventTime>,
    /// The calls by when something was heard of them, as far as that was noted: it is set right
    /// when the longest silent is asked for, not at every event.
    silent: Schedule<EventTime>,
    /// Bytes of all calls, as each was last written down.
    pub(super) bytes: usize,
    /// Calls that took more bytes than one may.
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

    /// The calls of which this is true, in the order in which they were opened.
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

    /// The open call that this unique id or linkedid is part of.
    pub(super) fn knows(&self, id: &str) -> Option<u64> {
        self.ids.get(id).copied()
    }

    /// Finds the open call that an event of this channel belongs to; `None` if none is known yet.
    pub(super) fn of(&self, id: &UniqueId, linkedid: &str) -> Result<Option<u64>, Finished> {
        for id in [id.as_str(), linkedid] {
            if let Some(key) = self.knows(id) {
                return Ok(Some(key));
            }
            if self.has_finished(id) {
                return Err(Finished);
            }
        }
        Ok(None)
    }

    /// Returns `true` when the event came in its turn: not before its channel's birth, nor after
    /// its end, as in a batch that is given backwards. Only then a time far from the arrival speaks
    /// of a clock that was set, and not of an event that is late.
    pub(super) fn is_in_order(&self, id: &UniqueId, event: &ChannelEvent<'_>) -> bool {
        let call = self.knows(id.as_str()).and_then(|key| self.get(key));
        match call.and_then(|call| call.legs.get(id)) {
            Some(leg) => leg.is_born() && !leg.is_over(),
            None => matches!(event.kind, Kind::Born { .. }),
        }
    }

    /// Returns `true` when the event ties nothing to the call that was not tied before: most do
    /// not.
    pub(super) fn is_tied(&self, key: u64, id: &UniqueId, event: &ChannelEvent<'_>) -> bool {
        let linkedid = event.channel.linkedid.as_ref();
        let Some((call, leg)) = self.get(key).and_then(|it| Some((it, it.legs.get(id)?))) else {
            return false;
        };
        let ties_more = match &event.kind {
            Kind::BridgeLeave { bridge, .. } => !call.ties.bridges.contains(bridge),
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

    /// A number that none had before.
    pub(super) fn next_key(&mut self) -> u64 {
        let key = self.next;
        self.next += 1;
        key
    }

    /// A number that was given out before the last restart.
    pub(super) fn key_is_used(&mut self, key: u64) {
        self.next = self.next.max(key.saturating_add(1));
    }

    /// Returns `true` when a call with this id was finished, as long as that is remembered here.
    pub(super) fn has_finished(&self, id: &str) -> bool {
        self.finished.known.get(id).is_some()
    }

    /// Puts a call back under the number it had.
    pub(super) fn put_back(&mut self, key: u64, call: OpenCall) {
        self.close(key);
        self.key_is_used(key);
        self.point_to(key, &call.ties);
        let legs: Vec<UniqueId> = call.legs.keys().cloned().collect();
        let names = call.names.clone();
        self.insert(key, Box::new(call));
        for id in legs {
            self.met(key, &id);
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

    /// Each index, with the texts of these that stand in it.
    fn indexes<'t>(&mut self, ties: &'t LinkKeys) -> [(&mut Index<u64>, &'t Texts); 3] {
        let (ids, bridges, locals) = (&mut self.ids, &mut self.bridges, &mut self.locals);
        [
            (ids, &ties.ids),
            (bridges, &ties.bridges),
            (locals, &ties.locals),
        ]
    }

    fn point_to(&mut self, key: u64, ties: &LinkKeys) {
        for (index, texts) in self.indexes(ties) {
            for text in texts.iter() {
                index.insert(text, key);
            }
        }
    }

    /// Ties something to the call `key`. If that was tied to another call, the two become one
    /// under the smaller number, which `key` becomes; the number that is no more is returned.
    pub(super) fn tie(&mut self, key: &mut u64, tie: LinkKey<'_>, at: EventTime) -> Option<u64> {
        if let LinkKey::Local(pair) = tie
            && let Some(other) = self.locals.get(pair).filter(|other| *other != key)
        {
            // A PBX that has started again counts its Locals from nought again.
            let holder = self.get(*other);
            let taken = holder.and_then(|it| it.began_local(pair)).unwrap_or(at);
            if self.get(*key)?.has_ended_local(pair, taken) {
                return None;
            }
            if holder.is_none_or(|it| it.has_ended_local(pair, at)) {
                self.locals.remove(pair);
            }
        }
        let call = self.calls.get_mut(key)?;
        let (index, texts, text) = match tie {
            LinkKey::Id(text) if self.finished.known.get(text).is_some() => return None,
            LinkKey::Id(text) => (&mut self.ids, &mut call.ties.ids, text),
            LinkKey::Bridge(text) => (&mut self.bridges, &mut call.ties.bridges, text),
            LinkKey::Local(text) => (&mut self.locals, &mut call.ties.locals, text),
        };
        if text.is_empty() {
            return None;
        }
        match index.get(text).copied() {
            Some(known) if known == *key => None,
            Some(other) => {
                let (into, from) = (other.min(*key), other.max(*key));
                *key = into;
                self.merge(into, from)
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

    /// Takes a call out, with all that leads to it.
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

    /// Part of a call is over, while the rest of it goes on.
    pub(super) fn forget_past(&mut self, key: u64, past: &OpenCall) {
        for id in past.ties.ids.iter() {
            self.finished.insert(id, ());
            self.ids.remove(id);
        }
        let Some(call) = self.calls.get_mut(&key) else {
            return;
        };
        call.ties.ids.retain(|id| !past.ties.ids.contains(id));
        let over = |leg: &&Leg| past.ties.ids.contains(leg.id.as_str());
        for leg in past.legs.values().filter(over) {
            if self.names.get(leg.name()) == Some(&leg.id) {
                self.names.remove(leg.name());
            }
            if let Some(local) = trunk::local_pair(leg.name()) {
                self.locals.remove(local);
                call.ties.locals.remove(local);
            }
        }
        let still = |bridge: &str| call.legs.values().any(|leg| leg.was_in(bridge));
        let empty = call.ties.bridges.iter().filter(|bridge| !still(bridge));
        for bridge in empty.cloned().collect::<Vec<SmolStr>>() {
            self.bridges.remove(&bridge);
            call.ties.bridges.remove(&bridge);
        }
    }

    /// These ids belong to no open call any more; those of the others in the call go on.
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

    /// Bridges that none of its channels was in lead to the call no more.
    pub(super) fn forget_bridges(&mut self, key: u64) {
        let Some(call) = self.calls.get_mut(&key) else {
            return;
        };
        let still = |bridge: &str| call.legs.values().any(|leg| leg.was_in(bridge));
        let bridges = call.ties.bridges.iter().cloned();
        for bridge in bridges.collect::<Vec<_>>() {
            if !still(&bridge) {
                self.bridges.remove(&bridge);
                call.ties.bridges.remove(&bridge);
                call.rooms.remove(&bridge);
            }
        }
    }

    /// The call counts as opened when it was last heard of: by its own time, and by ours.
    pub(super) fn reopen(&mut self, key: u64, (at, arrived): (EventTime, EventTime)) {
        if let Some(mut call) = self.remove(key) {
            (call.times.opened, call.times.opened_arrived) = (at, arrived);
            self.insert(key, call);
        }
    }

    pub(super) fn forget_finished(&mut self) {
        self.finished = FinishedIds::default();
    }

    /// Late events with one of the call's ids raise no ghost.
    pub(super) fn remember_finished(&mut self, call: &OpenCall) {
        let names = call.legs.values().map(|leg| leg.name());
        let ids = call.ties.ids.iter().map(SmolStr::as_str);
        ids.chain(names).for_each(|id| self.finished.insert(id, ()));
    }

    /// Calls of which something arrived before this moment.
    pub(super) fn arrived_before(&self, moment: EventTime) -> Vec<u64> {
        self.keys_of(|call| {
            let first = call.times.opened_arrived.min(call.times.latest_arrived);
            first.min(call.times.quiet_arrived) < moment
        })
    }

    /// Sets what arrived of a call before `right_from` to `now`; the call is not live from here on.
    pub(super) fn arrived(&mut self, key: u64, now: EventTime, right_from: EventTime) {
        let Some(mut call) = self.remove(key) else {
            return;
        };
        let right = |stamp: EventTime| if stamp < right_from { now } else { stamp };
        let times = &mut call.times;
        times.opened_arrived = right(times.opened_arrived);
        times.latest_arrived = right(times.latest_arrived);
        times.quiet_arrived = right(times.quiet_arrived);
        times.live = false;
        self.insert(key, call);
    }

    /// Calls of a backlog that were opened by then, by the times of the events.
    pub(super) fn backlog_until(&self, stream: EventTime) -> Vec<u64> {
        let backlog = |key: &u64| self.get(*key).is_some_and(|call| !call.times.live);
        self.opened.until(stream).filter(backlog).collect()
    }

    /// The call that nothing was heard of for the longest time.
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

    /// Notes the bytes that the call took when it was written down.
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
