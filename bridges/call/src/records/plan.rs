//! The channels that the records of one call name, which of them is the customer's, and how many
//! calls the records make. The rules are those for calls from events.
//!
//! An answered record of two channels connects them for its billed seconds. The halves of a Local
//! channel are always connected. A record of the other side of a dialing (`AppDial`) is a
//! consultation: its two channels hear only each other.

use super::group::Group;
use super::record::Record;
use crate::age::by_age;
use crate::resolve::{
    DialedLine, Plan, Sets, divide_by_customer, divide_indices, in_dial_data, is_number, subscriber,
};
use crate::talk::{Talk, local_pairs};
use crate::trunk;
use crate::{Direction, Endpoints, EventTime, Extension, Party, RawNumber, UniqueId};
use std::collections::BTreeSet;
use std::time::Duration;

/// Returns the calls of these records. There are none if no real party took part.
pub(super) fn plans<'a>(records: &[&'a Record], channels: &[Channel<'a>]) -> Vec<Plan<&'a Record>> {
    let Some(first) = channels.iter().position(|channel| channel.party.is_real()) else {
        return Vec::new();
    };
    // These records have only the dialed side. Another group of records has the whole call.
    if records.iter().all(|record| record.is_dialed_side()) {
        return Vec::new();
    }
    let trunks = (0..channels.len()).filter(|&i| channels[i].party.trunk().is_some());
    let mut plans = divide_by_customer(
        trunks,
        |i| channels[i].came_in(),
        |i| dialed_line(&channels[i]),
        |customers| talk(records, channels, customers),
    );
    if plans.is_empty() {
        plans.push((Direction::Internal, vec![first]));
    }
    let owns = divide_indices(records.len(), &plans, |customers| {
        records_of_customers(records, channels, customers)
    });
    let mut made = Vec::new();
    for (i, ((direction, customers), own)) in plans.into_iter().zip(owns).enumerate() {
        let linkedid = if i == 0 {
            oldest(records)
        } else {
            own_id(&channels[customers[0]])
        };
        let Some(linkedid) = linkedid else {
            continue;
        };
        made.push(Plan {
            linkedid,
            direction,
            talk: talk(records, channels, &customers),
            customers,
            own: own.into_iter().map(|place| records[place]).collect(),
            begins_with: Vec::new(),
        });
    }
    made
}

/// Returns the line that was dialed on this channel. All records of a group belong to one call.
fn dialed_line(channel: &Channel<'_>) -> DialedLine {
    let number = channel
        .dialed_number()
        .map(|(number, _)| subscriber(&number.text));
    DialedLine {
        number: number.unwrap_or_default(),
        ..DialedLine::default()
    }
}

/// Returns the oldest id of the records. If they have none, an id is made from the first record. An
/// id is as old as the first record that has it.
fn oldest(records: &[&Record]) -> Option<UniqueId> {
    let mut ids = Vec::new();
    let mut ages = Vec::new();
    for record in records {
        if let Some(id) = record.id() {
            ages.push((id.epoch_and_counter(), record.start));
            ids.push(id);
        }
    }
    let oldest = by_age(&ages).first().map(|&i| ids[i].clone());
    oldest.or_else(|| records.first()?.made_id())
}

/// Returns the id of a second customer's call: the unique id of the customer's channel. A record
/// has it only if the channel is not its destination. Otherwise the id is made from name and start.
fn own_id(channel: &Channel<'_>) -> Option<UniqueId> {
    let own = channel.own.iter();
    let mut ids = own.filter_map(|record| UniqueId::new(record.uniqueid.as_str()));
    ids.next().or_else(|| {
        let start = channel.records().map(|record| record.start).min()?;
        UniqueId::new(format!("{}@{}", channel.name, start.floor_seconds()))
    })
}

/// Returns the records that name the customer's channels, and those with the id of the customer's
/// first record, unless that is the id of the whole.
fn records_of_customers(
    records: &[&Record],
    channels: &[Channel<'_>],
    customers: &[usize],
) -> BTreeSet<usize> {
    let root = oldest(records);
    let names: Vec<&str> = customers.iter().map(|&i| channels[i].name).collect();
    let first = channels[customers[0]].own.first();
    let first_id = first
        .and_then(|record| record.id())
        .filter(|id| Some(id) != root.as_ref());
    let mut own = BTreeSet::new();
    for (i, record) in records.iter().enumerate() {
        let has_id_or_dest = if first_id.is_some() {
            record.id() == first_id
        } else {
            names.contains(&record.dest.as_str())
        };
        if names.contains(&record.channel.as_str()) || has_id_or_dest {
            own.insert(i);
        }
    }
    own
}

/// A channel, identified by its name, because a record has the unique id of only one of its two
/// channels.
#[derive(Clone, Debug)]
pub(super) struct Channel<'a> {
    pub(super) name: &'a str,
    pub(super) party: Party<'a>,
    /// The channel's own records, by their start. `reached` are those that name it as destination.
    pub(super) own: Vec<&'a Record>,
    pub(super) reached: Vec<&'a Record>,
    /// Set if the PBX dialed the channel into a conference.
    is_invited: bool,
}

impl<'a> Channel<'a> {
    /// Returns `true` if a caller came in on this channel: it has a record from before it was
    /// dialed, and that record is not the other side of a dialing. A record of a conference names
    /// channels that met in it, and none of them dialed another.
    pub(super) fn came_in(&self) -> bool {
        let Some(first) = self.own.first().filter(|first| !first.was_called()) else {
            return false;
        };
        if self.is_invited {
            return false;
        }
        let mut reached = self.reached.iter();
        reached.all(|dialed| {
            if dialed.is_of_conference() {
                return true;
            }
            let is_same_second = first.start.floor_seconds() == dialed.start.floor_seconds();
            first.start < dialed.start || is_same_second && is_older(first, dialed)
        })
    }

    pub(super) fn is_extension(&self) -> bool {
        self.party.extension().is_some()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &'a Record> {
        self.own.iter().chain(&self.reached).copied()
    }

    /// Returns the number that was dialed on this trunk channel.
    pub(super) fn dialed_number(&self) -> Option<(RawNumber, &'static str)> {
        let mut reached = self.reached.iter();
        if let Some(text) = reached.find_map(|record| in_dial_data(&record.data, self.name)) {
            return Some((RawNumber::new(text, true), "the data of Dial"));
        }
        let reached = self.reached.iter();
        let mut destinations = reached.map(|record| record.destination.as_str());
        let text = destinations.find(|text| is_number(text))?;
        Some((RawNumber::new(text, false), "the record's destination"))
    }
}

/// Returns `true` if the channel of `first` is older than that of `dialed`, which therefore cannot
/// have dialed it.
fn is_older(first: &Record, dialed: &Record) -> bool {
    let ages = channel_age(first).zip(channel_age(dialed));
    ages.is_some_and(|(first, dialed)| first < dialed)
}

/// Returns the epoch and the counter in the unique id of the record's channel.
fn channel_age(record: &Record) -> Option<(u64, u64)> {
    let id = UniqueId::new(record.uniqueid.as_str())?;
    UniqueId::epoch_in(id.as_str())?;
    let (epoch, counter, _) = id.age();
    Some((epoch, counter))
}

/// Returns the records by their start, and the channels in the order in which they appear in them.
pub(super) fn channels<'a>(
    group: &'a Group,
    endpoints: &'a Endpoints,
) -> (Vec<&'a Record>, Vec<Channel<'a>>) {
    let mut records: Vec<&Record> = group.records.iter().collect();
    records.sort_by(|a, b| order(a).cmp(&order(b)));
    let mut channels: Vec<Channel<'a>> = Vec::new();
    for record in &records {
        for (name, is_own) in [(&record.channel, true), (&record.dest, false)] {
            if name.is_empty() {
                continue;
            }
            let place = place_of(name, &channels).unwrap_or_else(|| {
                channels.push(Channel {
                    name,
                    party: party(name, endpoints),
                    own: Vec::new(),
                    reached: Vec::new(),
                    is_invited: false,
                });
                channels.len() - 1
            });
            if is_own {
                channels[place].own.push(record);
            } else {
                channels[place].reached.push(record);
            }
        }
    }
    let invited: Vec<bool> = channels
        .iter()
        .map(|channel| is_invited(channel, &channels))
        .collect();
    for (channel, is_invited) in channels.iter_mut().zip(invited) {
        channel.is_invited = is_invited;
    }
    (records, channels)
}

fn place_of(name: &str, channels: &[Channel<'_>]) -> Option<usize> {
    channels.iter().position(|channel| channel.name == name)
}

/// Returns `true` for a trunk's channel that the PBX dialed into a conference. No record has the
/// dialing. The channel's first record is already of the conference. It shows that the channel
/// rang before it was answered, and began in the context of the extensions, where no caller begins.
fn is_invited(channel: &Channel<'_>, channels: &[Channel<'_>]) -> bool {
    let Some(first) = channel.own.first() else {
        return false;
    };
    let mut reached = channel.reached.iter();
    if !reached.any(|record| record.is_of_conference()) {
        return false;
    }
    let rang = first
        .answer
        .is_some_and(|at| at.since(first.start) >= Duration::from_secs(1));
    let extensions = channels.iter().filter(|channel| channel.is_extension());
    let mut records = extensions.flat_map(|extension| extension.own.iter());
    rang && first.is_of_conference()
        && !first.context.is_empty()
        && records.any(|record| record.context == first.context)
}

/// Returns the sort key of a record. The start comes first. Within one second, the other side of a
/// dialing comes last. Then follow the age of the ids, and Local channels after the channels that
/// dialed them. End and names come last, so the order does not depend on the order of arrival. An
/// id that was chosen through an API belongs to an originated channel, which exists before those
/// that it dials in the same second.
fn order(record: &Record) -> impl Ord {
    let age = match UniqueId::new(record.uniqueid.as_str()) {
        Some(id) => id.epoch_and_counter().unwrap_or_default(),
        None => (u64::MAX, u64::MAX),
    };
    let local = trunk::local_pair(&record.channel).is_some();
    let began = (record.start, record.is_dialed_side(), age, local);
    (
        began,
        record.end,
        record.channel.as_str(),
        record.dest.as_str(),
    )
}

/// Returns the party of a channel. An `Agent/1001` of Asterisk before 12 is the telephone of that
/// agent.
fn party<'a>(name: &str, endpoints: &'a Endpoints) -> Party<'a> {
    let party = trunk::party(name, endpoints);
    match name.strip_prefix("Agent/") {
        Some(agent) if !agent.is_empty() && matches!(party, Party::Plumbing) => {
            Party::Extension(Extension::new(agent))
        }
        _ => party,
    }
}

/// Two channels that heard each other.
#[derive(Clone, Copy)]
struct ConnectedPair {
    ends: [usize; 2],
    from: EventTime,
    to: EventTime,
    consultation: bool,
}

/// Returns the talk of the customer's channels, which are given as indices.
pub(super) fn talk(records: &[&Record], channels: &[Channel<'_>], customers: &[usize]) -> Talk {
    let mut lines: Vec<ConnectedPair> = Vec::new();
    for record in records {
        lines.extend(connected_pair(record, channels));
    }
    let times = lines.iter().flat_map(|line| [line.from, line.to]).collect();
    let pairs = local_pairs(channels.iter().map(|channel| channel.name));
    Talk::between(times, |from, to| {
        let there: Vec<ConnectedPair> = lines
            .iter()
            .filter(|line| line.from <= from && line.to >= to)
            .copied()
            .collect();
        connected_parties(channels, customers, &there, &pairs)
    })
}

/// Returns the channels that a record connects. The connection begins no earlier than the answer of
/// its destination, as the record of that channel's beginning shows, and no earlier than the
/// destination's entry into the conference of the record.
fn connected_pair(record: &Record, channels: &[Channel<'_>]) -> Option<ConnectedPair> {
    let (billed_from, to) = record.talk()?;
    let channel = place_of(&record.channel, channels)?;
    let dest = place_of(&record.dest, channels)?;
    let dest_records = channels[dest].own.iter();
    let births = dest_records.clone().filter(|own| own.is_birth());
    let mut from = billed_from;
    if let Some(answered) = births.filter_map(|own| own.answer).min() {
        from = from.max(answered);
    }
    if record.is_of_conference() {
        let same_app = dest_records.filter(|own| own.app == record.app);
        if let Some(entered) = same_app.map(|own| own.start).min() {
            from = from.max(entered);
        }
    }
    if from >= to {
        return None;
    }
    Some(ConnectedPair {
        ends: [channel, dest],
        from,
        to,
        consultation: record.is_dialed_side(),
    })
}

/// Returns the real parties, other than the customer's own channels, that one of these is connected
/// with.
fn connected_parties(
    channels: &[Channel<'_>],
    customers: &[usize],
    there: &[ConnectedPair],
    pairs: &[[usize; 2]],
) -> Vec<usize> {
    let mut consulting = BTreeSet::new();
    for line in there {
        if line.consultation {
            consulting.extend(line.ends);
        }
    }
    let mut sets = Sets::new(channels.len());
    for line in there {
        if line.consultation || !line.ends.iter().any(|end| consulting.contains(end)) {
            sets.join(line.ends[0], line.ends[1]);
        }
    }
    for pair in pairs {
        sets.join(pair[0], pair[1]);
    }
    let own: Vec<usize> = customers.iter().map(|&i| sets.find(i)).collect();
    let others = (0..channels.len()).filter(|i| !customers.contains(i));
    let real = others.filter(|&i| channels[i].party.is_real());
    real.filter(|&i| own.contains(&sets.find(i))).collect()
}
