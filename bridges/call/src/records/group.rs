//! Groups of records that belong to one call, and an index that finds the groups of a new record by
//! its ids, channel names, and bridges.

use super::record::Record;
use crate::assemble::index::{Keys, Schedule};
use crate::trunk;
use crate::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum number of records of one call. Further records are dropped.
const RECORDS_MAX: usize = 1024;
/// Times have whole seconds, so one record can end in the second before the next begins.
const TOUCHING: Duration = Duration::from_secs(1);
/// A call whose last record arrives within this time after its end happens now, and is not part of
/// a backlog.
pub(super) const LIVE: Duration = Duration::from_secs(5);
/// Records of one call follow each other within this time.
pub(super) const FAR_APART: Duration = Duration::from_secs(60);
/// Longest time between two records of one call if they share only an id that no PBX made.
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

    /// Returns how long after the last record an API command can still dial another line, or zero
    /// if there's no such command or the line that it dialed last was answered.
    pub(super) fn patience(&self) -> Duration {
        let lines = self.records.iter();
        let lines = lines.filter(|record| record.commanded_number().is_some());
        let last = lines.max_by_key(|record| record.end);
        last.map_or(Duration::ZERO, Record::command_patience)
    }

    /// Returns `true` if a record is still missing, whether it's for the channel that started the
    /// call, the one that dialed a Local half, the calling party, or someone else in a conference
    /// room.
    ///
    /// Since a record is written when its channel ends, a channel that outlives the others is
    /// recorded later.
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
        self.records.iter().any(|record| self.is_alone(record))
            || self.records.iter().all(Record::is_dialed_side)
    }

    /// Returns `true` if the record's channel was in a conference room and no record shows who else
    /// was there. Anyone still in the room will be recorded later.
    fn is_alone(&self, record: &Record) -> bool {
        let mut others = self.records.iter();
        record.room().is_some()
            && record.answered
            && record.dest.is_empty()
            && record.billed_from < record.end
            && !others.any(|other| {
                let has_another = other.channel != record.channel || !other.dest.is_empty();
                has_another && same_room(other, record)
            })
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
    /// same value. Removes the records of the extension `h` if there are other records, because the
    /// hangup handler ran after the call.
    pub(super) fn complete(&mut self) {
        let mut foreign = Vec::new();
        for record in &self.records {
            let id = record.linkedid.as_str();
            foreign.push(!is_made_by_pbx(id) && !self.has_channel(id));
        }
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

    /// Returns `true` if one of the records names a channel of a trunk.
    pub(super) fn has_trunk(&self, endpoints: &trunk::Endpoints) -> bool {
        self.records.iter().any(|record| {
            let mut legs = record.legs.iter();
            legs.any(|leg| leg.endpoint(endpoints).is_some())
                || endpoints.find(&record.channel).is_some()
                || endpoints.find(&record.dest).is_some()
        })
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

/// Returns `true` if the channels of two records were in the same bridge at the same time.
fn same_room(a: &Record, b: &Record) -> bool {
    let rooms_of_b = b.rooms();
    for (room, from, to) in a.rooms() {
        for &(other_room, other_from, other_to) in &rooms_of_b {
            if room == other_room && from < other_to && other_from < to {
                return true;
            }
        }
    }
    false
}

/// Returns `true` if the API command that dialed one record's channel may have dialed the other one,
/// because the earlier one went unanswered.
fn same_attempt(a: &Record, b: &Record) -> bool {
    let earlier = if a.start <= b.start { a } else { b };
    a.commanded_number() == b.commanded_number()
        && !earlier.answered
        && are_near(a, b, earlier.command_patience())
}

/// Returns `true` if two records share an id that makes them records of one call. If two channels
/// with one unique id are far apart in time, the PBX used the id for two calls.
fn same_id(a: &Record, b: &Record) -> bool {
    if a.uniqueid == b.uniqueid && a.channel != b.channel && !are_near(a, b, FAR_APART) {
        return false;
    }
    let mut common = a.ids().filter(|id| b.ids().any(|other| *id == other));
    common.any(|id| is_made_by_pbx(id) || ties(id, a, b))
}

/// Returns `true` if neither record begins more than `apart` after the end of the other.
fn are_near(a: &Record, b: &Record, apart: Duration) -> bool {
    a.start <= b.end.plus(apart) && b.start <= a.end.plus(apart)
}

/// Returns `true` if two records with the same id belong to one call although no PBX made the id. A
/// dialplan, an API, or a database's default can give one text to unrelated calls, so one of the
/// records must be that of the channel with this unique id.
fn ties(id: &str, a: &Record, b: &Record) -> bool {
    if a.uniqueid == id && b.uniqueid == id {
        return a.channel == b.channel;
    }
    are_near(a, b, FOLLOWING) && (a.uniqueid == id || b.uniqueid == id)
}

/// Returns `true` if the id has the form that Asterisk (`1795151317.146`) or FreeSWITCH (a UUID)
/// makes.
pub(super) fn is_made_by_pbx(id: &str) -> bool {
    let is_uuid = id.len() == 36
        && id.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    is_uuid || UniqueId::epoch_in(id).is_some()
}

/// Returns `true` if the text can be an id. `0`, `-`, and `unknown` mean that there is no id.
fn can_be_id(text: &str) -> bool {
    text.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

/// Returns `true` if two records name the same channel. The PBX can use a name again. So the
/// records of a channel must have the same unique id, and if its name has no unique suffix, they
/// must overlap.
fn same_channel(a: &Record, b: &Record) -> bool {
    let lacks_id = a.uniqueid.is_empty() || b.uniqueid.is_empty();
    if a.channel == b.channel && (lacks_id || a.uniqueid == b.uniqueid) {
        let is_exact = lacks_id && (a.end == b.start || b.end == a.start);
        let goes_on = is_unique(&a.channel) && are_near(a, b, FAR_APART);
        if is_exact || goes_on || can_be_in_both(&a.channel, a, b) {
            return true;
        }
    }
    for (name, other) in [
        (&a.channel, &b.dest),
        (&a.dest, &b.channel),
        (&a.dest, &b.dest),
    ] {
        let is_same = name == other && !name.is_empty() || are_halves(name, other);
        if is_same && can_be_in_both(name, a, b) {
            return true;
        }
    }
    are_halves(&a.channel, &b.channel) && can_be_in_both(&a.channel, a, b)
}

/// Returns `true` if the times of both records allow that they are about one channel with this
/// name.
fn can_be_in_both(name: &str, a: &Record, b: &Record) -> bool {
    if !is_unique(name) {
        return a.start < b.end && b.start < a.end;
    }
    // From being parked until being picked up, a channel has no record.
    if is_parked(a) || is_parked(b) {
        are_near(a, b, FAR_APART)
    } else {
        are_near(a, b, TOUCHING)
    }
}

fn is_parked(record: &Record) -> bool {
    record.app.eq_ignore_ascii_case("ParkedCall")
}

/// Returns `true` if these are the names of the two halves of one Local channel.
fn are_halves(name: &str, other: &str) -> bool {
    let pair = trunk::local_pair(name);
    name != other && pair.is_some() && pair == trunk::local_pair(other)
}

/// Returns `true` for a name with a suffix that a PBX uses only once: at least eight hex digits, or
/// the number of a Local channel.
pub(super) fn is_unique(name: &str) -> bool {
    let name = trunk::local_pair(name).unwrap_or(name);
    let suffix = name.rsplit_once('-').map_or("", |(_, suffix)| suffix);
    suffix.len() >= 8 && suffix.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The groups by number, with indexes of their ids, channel names, and bridges.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) by_key: BTreeMap<u64, Group>,
    pub(super) ids: Keys,
    names: Keys,
    /// Groups by the order in which their last records arrived. `count` numbers the arrivals.
    touched: Schedule<u64>,
    count: u64,
    next: u64,
}

impl Groups {
    /// Returns the number of the group that has had no new record for the longest time.
    pub(super) fn longest_silent(&self) -> Option<u64> {
        self.touched.first().map(|(_, key)| key)
    }

    /// Adds the record to its group, and merges all groups that the record belongs to. Returns the
    /// numbers of the changed and the removed groups. The result is empty if the record is already
    /// known.
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
        let mut keys = BTreeSet::new();
        for id in record.ids() {
            let found = self.ids.get(id);
            keys.extend(found.filter(|key| self.has_match(*key, record, same_id)));
        }
        for name in record.names() {
            let found = self.names.get(name);
            keys.extend(found.filter(|key| self.has_match(*key, record, same_channel)));
        }
        for (room, ..) in record.rooms() {
            let found = self.names.get(room);
            keys.extend(found.filter(|key| self.has_match(*key, record, same_room)));
        }
        if let Some(number) = record.commanded_number() {
            let found = self.names.get(number);
            keys.extend(found.filter(|key| self.has_match(*key, record, same_attempt)));
        }
        keys
    }

    /// Returns `true` if `is_match` is true for `record` and a record of the group `key`.
    fn has_match(&self, key: u64, record: &Record, is_match: fn(&Record, &Record) -> bool) -> bool {
        let mut known = self.by_key[&key].records.iter();
        known.any(|known| is_match(known, record))
    }

    /// Inserts a group under the number `key`, and adds its ids, names, and bridges to the indexes.
    pub(super) fn put(&mut self, key: u64, group: Group) {
        self.next = self.next.max(key.saturating_add(1));
        self.index(&group, |keys, text| keys.insert(text, key));
        self.count += 1;
        self.touched.put(key, self.count);
        self.by_key.insert(key, group);
    }

    /// Removes a group, and its ids, names, and bridges from the indexes.
    pub(super) fn remove(&mut self, key: u64) -> Option<Group> {
        let group = self.by_key.remove(&key)?;
        self.touched.remove(key);
        self.index(&group, |keys, text| keys.remove(text, key));
        Some(group)
    }

    /// Calls `change` for each id, channel name, and bridge of the group, with the index that
    /// contains it.
    fn index(&mut self, group: &Group, change: impl Fn(&mut Keys, &str)) {
        for record in &group.records {
            record.ids().for_each(|id| change(&mut self.ids, id));
            let rooms = record.rooms();
            let names = record.names().chain(rooms.iter().map(|(room, ..)| *room));
            let names = names.chain(record.commanded_number());
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
