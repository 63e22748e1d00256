//! Groups of records that belong together, and the index of the keys that tie a record to them.

use super::record::Record;
use crate::assemble::index::{Keys, Schedule};
use crate::trunk;
use crate::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum number of records of one call. Further ones are dropped.
const RECORDS_MAX: usize = 256;
/// Times have whole seconds, so one record can end in the second before the next begins.
const TOUCHING: Duration = Duration::from_secs(1);
/// A record that arrives within this time after its end happens now.
pub(super) const LIVE: Duration = Duration::from_secs(5);
/// Records of one call follow each other within this time.
pub(super) const FAR_APART: Duration = Duration::from_secs(60);
/// Records that share an id which no PBX made are of one call only if they overlap, or follow
/// within this time.
pub(super) const FOLLOWING: Duration = Duration::from_secs(5);

/// The records of one call that have arrived. Serialized to survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    pub(super) records: Vec<Record>,
    /// Arrival of the last record, by our own clock.
    pub(super) arrived: EventTime,
    /// Number of records that were dropped.
    pub(super) dropped: u32,
}

impl Group {
    /// Adds a record. Returns `false` if the group already has it.
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

    /// Returns the end of the record that ended last.
    pub(super) fn end(&self) -> EventTime {
        let ends = self.records.iter().map(|record| record.end);
        ends.max().unwrap_or(self.arrived)
    }

    /// Returns `true` if the last record arrived soon after its end, so the call happens now.
    pub(super) fn is_live(&self) -> bool {
        self.arrived <= self.end().plus(LIVE)
    }

    /// Returns `true` if a record is still to arrive, because its channel outlives those of the
    /// known records. It is the record of the channel that began the call, of the channel that
    /// dialed a Local half, or of the dialing side.
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

    /// Returns `true` if one of the records belongs to the channel with this unique id.
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

    /// Returns `true` if a trunk took part.
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

/// Returns `true` if the channels of two records were in one room at the same time.
fn same_room(a: &Record, b: &Record) -> bool {
    let own = b.rooms();
    a.rooms().into_iter().any(|(room, from, to)| {
        let mut own = own.iter();
        own.any(|it| it.0 == room && it.1 < to && from < it.2)
    })
}

/// Returns `true` if two records share an id that ties them. If two channels with one unique id are
/// far apart in time, the id was used again.
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

/// Returns `true` if two records name one channel that lived in both. A name can be used again. So
/// a channel must have only one unique id, and if its name has no unique suffix, the records must
/// overlap.
fn same_channel(a: &Record, b: &Record) -> bool {
    // From being parked until being picked up, a channel has no record.
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

/// Returns `true` for a name with a suffix that a PBX uses only once: at least eight hex digits, or
/// the number of a Local channel.
pub(super) fn is_unique(name: &str) -> bool {
    let name = trunk::local_pair(name).unwrap_or(name);
    let suffix = name.rsplit_once('-').map_or("", |(_, suffix)| suffix);
    suffix.len() >= 8 && suffix.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The groups by number, with indexes of ids and names.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) by_key: BTreeMap<u64, Group>,
    pub(super) ids: Keys,
    names: Keys,
    /// Groups by the arrival of their last record, as a count.
    touched: Schedule<u64>,
    count: u64,
    next: u64,
}

impl Groups {
    /// Returns the group that has had no new record for the longest time.
    pub(super) fn longest_silent(&self) -> Option<u64> {
        self.touched.first().map(|(_, key)| key)
    }

    /// Adds the record to its group, and merges all groups that it ties together. Returns the
    /// numbers of the changed groups. There are none if the record was there already.
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

    /// Inserts a group under this number, with all keys that lead to it.
    pub(super) fn put(&mut self, key: u64, group: Group) {
        self.next = self.next.max(key.saturating_add(1));
        self.index(&group, |keys, text| keys.insert(text, key));
        self.count += 1;
        self.touched.put(key, self.count);
        self.by_key.insert(key, group);
    }

    /// Removes a group and all keys that lead to it.
    pub(super) fn remove(&mut self, key: u64) -> Option<Group> {
        let group = self.by_key.remove(&key)?;
        self.touched.remove(key);
        self.index(&group, |keys, text| keys.remove(text, key));
        Some(group)
    }

    /// Applies `change` to all keys that lead to the group.
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
