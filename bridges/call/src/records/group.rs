//! Records that belong together, and the index of all that ties a record to them.

use super::record::Record;
use crate::assemble::index::{Keys, Schedule};
use crate::trunk;
use crate::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Records of one call; those beyond it find no room.
const RECORDS_MAX: usize = 256;
/// Whole seconds: one record may end in the second before the next begins.
const TOUCHING: Duration = Duration::from_secs(1);
/// A record that arrives so soon after its end happens now.
pub(super) const LIVE: Duration = Duration::from_secs(5);
/// Records of one call follow each other; of another call, this much lies between.
pub(super) const FAR_APART: Duration = Duration::from_secs(60);
/// Records that share an id which no PBX made are of one call only if they overlap, or follow
/// within this time.
pub(super) const FOLLOWING: Duration = Duration::from_secs(5);

/// The records of one call, as far as they have come. Serialized to survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) records: Vec<Record>,
    /// Arrival of the last record, by our own clock.
    pub(super) arrived: EventTime,
    /// Records that found no room.
    pub(super) dropped: u32,
}

impl Group {
    /// `false` when the same record is there already.
    pub(super) fn add(&mut self, record: Record, arrived: EventTime) -> bool {
        if self.records.contains(&record) {
            return false;
        }
        self.arrived = self.arrived.max(arrived);
        if self.records.len() < RECORDS_MAX {
            self.records.push(record);
        } else {
            self.dropped += 1;
        }
        true
    }

    /// The end of the record that ended last.
    pub(super) fn end(&self) -> EventTime {
        let ends = self.records.iter().map(|record| record.end);
        ends.max().unwrap_or(self.arrived)
    }

    /// Returns `true` when the last record arrived soon after its end: the call happens now.
    pub(super) fn is_live(&self) -> bool {
        self.arrived <= self.end().plus(LIVE)
    }

    /// A record of it is still to come, for its channel outlives those that were told of: the one
    /// that the call began with, the one that a Local half was dialed by, or the dialing side.
    pub(super) fn awaits_more(&self) -> bool {
        for record in &self.records {
            if can_be_id(&record.linkedid) && !self.has_channel(&record.linkedid) {
                return true;
            }
        }
        for record in &self.records {
            let half = record.channel.as_str();
            if record.linkedid.is_empty()
                && trunk::local_pair(half).is_some()
                && half.ends_with('2')
                && !self.has_other_half(half)
            {
                return true;
            }
        }
        self.records.iter().all(Record::is_dialed_side)
    }

    /// Returns `true` if one of the records names the other half of this Local channel.
    fn has_other_half(&self, half: &str) -> bool {
        for record in &self.records {
            for name in [&record.channel, &record.dest] {
                if name != half && trunk::local_pair(name) == trunk::local_pair(half) {
                    return true;
                }
            }
        }
        false
    }

    /// Returns `true` if one of the records is of the channel with this unique id.
    fn has_channel(&self, id: &str) -> bool {
        self.records.iter().any(|record| record.uniqueid == id)
    }

    /// Prepares the records of a call when all of them have arrived. Removes each linkedid that the
    /// PBX did not make and that names no channel of the call, because other calls can have the
    /// same value. Ignores a record of the extension `h` if there are others, because the hangup
    /// handler ran after the call.
    pub(super) fn complete(&mut self) {
        let names_channel = |id: &str| is_made_by_pbx(id) || self.has_channel(id);
        let foreign = self
            .records
            .iter()
            .map(|record| !names_channel(&record.linkedid));
        let foreign: Vec<bool> = foreign.collect();
        let since_12 = self.records.iter().any(Record::has_pjsip);
        for (record, is_foreign) in self.records.iter_mut().zip(foreign) {
            record.since_12 = since_12;
            if is_foreign {
                record.linkedid.clear();
            }
        }
        if self.records.iter().all(Record::is_of_hangup) {
            for record in &mut self.records {
                record.answered = false;
            }
        } else {
            self.records.retain(|record| !record.is_of_hangup());
        }
    }

    /// Returns `true` when a trunk took part.
    pub(super) fn has_trunk(&self, endpoints: &trunk::Endpoints) -> bool {
        let mut legs = self.records.iter().flat_map(|it| &it.legs);
        let mut names = self.records.iter().flat_map(|it| [&it.channel, &it.dest]);
        legs.any(|leg| leg.endpoint(endpoints).is_some())
            || names.any(|name| endpoints.of(name).is_some())
    }

    fn absorb(&mut self, other: Self) {
        self.arrived = self.arrived.max(other.arrived);
        self.dropped += other.dropped;
        let arrived = self.arrived;
        for record in other.records {
            self.add(record, arrived);
        }
    }
}

/// The channels of two records were in a room at the same time.
fn same_room(a: &Record, b: &Record) -> bool {
    let own = b.rooms();
    a.rooms().into_iter().any(|(room, from, to)| {
        let mut own = own.iter();
        own.any(|it| it.0 == room && it.1 < to && from < it.2)
    })
}

/// Two records have an id in common that ties them. Of two channels, long after each other, it is
/// one that was given again.
fn same_id(a: &Record, b: &Record) -> bool {
    let far = || a.start > b.end.plus(FAR_APART) || b.start > a.end.plus(FAR_APART);
    let again = a.uniqueid == b.uniqueid && a.channel != b.channel && far();
    let mut common = a.ids().filter(|id| b.ids().any(|other| *id == other));
    !again && common.any(|id| is_made_by_pbx(id) || ties(id, a, b))
}

/// Returns `true` if an id that no PBX made ties two records that share it. A dialplan, an API, or
/// a database's default can give the same text to strangers, so one of the records must be of the
/// channel with that unique id.
fn ties(id: &str, a: &Record, b: &Record) -> bool {
    let near = a.start <= b.end.plus(FOLLOWING) && b.start <= a.end.plus(FOLLOWING);
    if a.uniqueid == id && b.uniqueid == id {
        return a.channel == b.channel;
    }
    near && (a.uniqueid == id || b.uniqueid == id)
}

/// Returns `true` for an id as Asterisk or FreeSWITCH makes it: `1795151317.146`, a UUID.
pub(super) fn is_made_by_pbx(id: &str) -> bool {
    let is_uuid = id.len() == 36
        && id.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    is_uuid || UniqueId::epoch_in(id).is_some()
}

/// Returns `false` for a text that means no id: `0`, `-`, `unknown`.
fn can_be_id(text: &str) -> bool {
    text.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

/// Two records name one channel that lived in both. A name may come again: a channel has one
/// unique id, and of a name without a suffix of its own the records must overlap.
fn same_channel(a: &Record, b: &Record) -> bool {
    // Between being parked and being fetched a channel has no record.
    let is_parked = |it: &Record| it.app.eq_ignore_ascii_case("ParkedCall");
    let parked = is_parked(a) || is_parked(b);
    let near = |name: &str| {
        let slack = match is_unique(name) {
            true if parked => FAR_APART,
            true => TOUCHING,
            false => Duration::ZERO,
        };
        let touch = a.start <= b.end.plus(slack) && b.start <= a.end.plus(slack);
        touch && (slack > Duration::ZERO || a.start < b.end && b.start < a.end)
    };
    let own = !a.uniqueid.is_empty() && !b.uniqueid.is_empty() && a.uniqueid != b.uniqueid;
    let continued = a.channel == b.channel && !own;
    let bare = a.uniqueid.is_empty() || b.uniqueid.is_empty();
    let exactly = bare && (a.end == b.start || b.end == a.start);
    let apart = a.start <= b.end.plus(FAR_APART) && b.start <= a.end.plus(FAR_APART);
    let goes_on = apart && is_unique(&a.channel);
    if continued && (near(&a.channel) || exactly || goes_on) {
        return true;
    }
    let halves = |a: &str, b: &str| {
        let pair = trunk::local_pair(a);
        a != b && pair.is_some() && pair == trunk::local_pair(b)
    };
    let same = |a: &str, b: &str| (a == b && !a.is_empty() || halves(a, b)) && near(a);
    same(&a.channel, &b.dest)
        || same(&a.dest, &b.channel)
        || same(&a.dest, &b.dest)
        || halves(&a.channel, &b.channel) && near(&a.channel)
}

/// A name that ends in a suffix which comes once in the life of a PBX: at least eight hex digits,
/// or the number of a Local channel.
pub(super) fn is_unique(name: &str) -> bool {
    let name = trunk::local_pair(name).unwrap_or(name);
    let suffix = name.rsplit_once('-').map_or("", |(_, suffix)| suffix);
    suffix.len() >= 8 && suffix.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The groups by number, with an index of ids and names.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) by_key: BTreeMap<u64, Group>,
    pub(super) ids: Keys,
    names: Keys,
    /// By when a record came last, as a count.
    touched: Schedule<u64>,
    count: u64,
    next: u64,
}

impl Groups {
    /// The group that no record came of for the longest time.
    pub(super) fn longest_silent(&self) -> Option<u64> {
        self.touched.first().map(|(_, key)| key)
    }

    /// Puts the record where it belongs: the number of its group, and those of groups that became
    /// one with it. None of them when it was there already.
    pub(super) fn take_in(&mut self, record: Record, arrived: EventTime) -> BTreeSet<u64> {
        let mut keys = self.belongs_to(&record);
        let key = keys.pop_first().unwrap_or(self.next);
        let mut group = self.remove(key).unwrap_or_default();
        for &other in &keys {
            if let Some(other) = self.remove(other) {
                group.absorb(other);
            }
        }
        if group.add(record, arrived) || !keys.is_empty() {
            keys.insert(key);
        }
        self.put(key, group);
        keys
    }

    fn belongs_to(&self, record: &Record) -> BTreeSet<u64> {
        let near = |same: fn(&Record, &Record) -> bool| {
            move |key: &u64| {
                let mut known = self.by_key[key].records.iter();
                known.any(|known| same(known, record))
            }
        };
        let ids = record.ids().flat_map(|id| self.ids.get(id));
        let names = record.names().flat_map(|name| self.names.get(name));
        let rooms = record.rooms();
        let rooms = rooms.iter().flat_map(|(room, ..)| self.names.get(room));
        let (ids, names) = (ids.filter(near(same_id)), names.filter(near(same_channel)));
        let keys = ids.chain(names);
        keys.chain(rooms.filter(near(same_room))).collect()
    }

    /// Puts a group under this number, and everything that leads to it.
    pub(super) fn put(&mut self, key: u64, group: Group) {
        self.next = self.next.max(key.saturating_add(1));
        self.index(&group, |keys, text| keys.insert(text, key));
        self.count += 1;
        self.touched.put(key, self.count);
        self.by_key.insert(key, group);
    }

    /// Takes a group out, with everything that leads to it.
    pub(super) fn remove(&mut self, key: u64) -> Option<Group> {
        let group = self.by_key.remove(&key)?;
        self.touched.remove(key);
        self.index(&group, |keys, text| keys.remove(text, key));
        Some(group)
    }

    /// Does this with everything that leads to the group.
    fn index(&mut self, group: &Group, change: impl Fn(&mut Keys, &str)) {
        for record in &group.records {
            record.ids().for_each(|id| change(&mut self.ids, id));
            let rooms = record.rooms();
            let names = record.names().chain(rooms.iter().map(|(room, ..)| *room));
            names.for_each(|name| change(&mut self.names, name));
        }
    }
}

#[cfg(test)]
mod stored {
    use super::*;

    #[test]
    fn stored_form_is_unchanged() {
        callbridge_testkit::golden::keeps::<Group>("cdr-group");
    }
}
