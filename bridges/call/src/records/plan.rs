//! The channels that the records of one call name, which channels are the customer's, and how many
//! calls the records make. Calls from events are divided by the same rules.
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

/// Divides the records of one group into calls. The result is empty if no real party took part.
pub(super) fn plans<'a>(records: &[&'a Record], channels: &[Channel<'a>]) -> Vec<Plan<&'a Record>> {
    let Some(first) = channels.iter().position(|channel| channel.party.is_real()) else {
        return Vec::new();
    };
    // These records have only the dialed side. Another group of records has the whole call.
    if records.iter().all(|record| record.is_dialed_side()) {
        return Vec::new();
    }
    let trunks = (0..channels.len()).filter(|&i| channels[i].party.trunk().is_some());
    // All lines were dialed for a caller who was there first.
    let caller = trunks.clone().next().filter(|&i| channels[i].came_in());
    let mut plans = divide_by_customer(
        trunks,
        |i| channels[i].came_in(),
        |i| DialedLine {
            customer: caller.filter(|&caller| caller < i),
            ..dialed_line(&channels[i])
        },
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
            placed_by: None,
        });
    }
    made
}

/// Returns the number that was dialed on the channel, as a line. `origin` and the times stay empty,
/// because all records of a group belong to one call.
fn dialed_line(channel: &Channel<'_>) -> DialedLine {
    let number = channel
        .dialed_number()
        .map(|(number, _)| subscriber(&number.text));
    DialedLine {
        number: number.unwrap_or_default(),
        ..DialedLine::default()
    }
}

/// Returns the oldest id of the records, or an id made from the first record if no record has an
/// id. If an id contains no time, its age is the start of the record.
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
/// has no unique id of its destination channel. So if the channel has no other record, the id is
/// made from the channel's name and start.
fn own_id(channel: &Channel<'_>) -> Option<UniqueId> {
    let own = channel.own.iter();
    let mut ids = own.filter_map(|record| UniqueId::new(record.uniqueid.as_str()));
    ids.next().or_else(|| {
        let start = channel.records().map(|record| record.start).min()?;
        UniqueId::new(format!("{}@{}", channel.name, start.floor_seconds()))
    })
}

/// Returns the indices of the records that belong to a customer's call: those whose channel is a
/// customer's, and those with the id of the customer's first record. If that id is missing or is
/// the group's oldest, the records whose destination is a customer's are added instead.
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
    /// Records of which this is the first channel, by their start. `reached` has the records that
    /// name the channel as their destination.
    pub(super) own: Vec<&'a Record>,
    pub(super) reached: Vec<&'a Record>,
    /// Set if the PBX dialed the channel into a conference.
    is_invited: bool,
}

impl<'a> Channel<'a> {
    /// Returns `true` if a caller came in on this channel: its first own record began before any
    /// record that names the channel as destination, and the PBX did not call the channel. Records
    /// of a conference are ignored, because they name channels that only met there.
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

/// Returns `true` if the channel of `first` is older than the channel of `dialed`. The younger
/// channel cannot have dialed the older one.
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

/// Returns the group's records by their start, and its channels in the order in which the records
/// name them.
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

/// Returns `true` if the PBX dialed the channel into a conference. No record shows the dialing, so
/// the channel's first record decides: the record is of the conference, the channel rang before it
/// was answered, and the channel began in the context of an extension, where no caller begins.
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

/// Returns the sort key of a record. The start comes first. If starts are equal, the dialed side
/// comes last, then the age of the ids decides, and Local channels follow the channels that dialed
/// them. End and names make the order independent of the order of arrival. An id that was chosen
/// through an API counts as the oldest, because an originated channel exists before the channels
/// that it dials.
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

/// Returns the party of a channel. A channel `Agent/1001` (Asterisk before 12) is the telephone of
/// agent 1001.
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

/// Returns when the customer talked, and with whom. `customers` are the indices of the customer's
/// channels.
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

/// Returns the two channels that a record connects, and when. The connection does not begin before
/// the destination answered, which the destination's own first record shows. In a conference, it
/// does not begin before the destination entered.
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

/// Returns the real parties that are connected with one of the customer's channels. `there` has the
/// connections at one moment, and `pairs` has the halves of the Local channels.
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
