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
    DialedLine, Plan, Sets, apart, by_customer, in_dial_data, is_number, subscriber,
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
    let mut plans = by_customer(
        trunks,
        |i| channels[i].came_in(),
        |i| dialed_line(&channels[i]),
        |customers| talk(records, channels, customers),
    );
    if plans.is_empty() {
        plans.push((Direction::Internal, vec![first]));
    }
    let owns = apart(records.len(), &plans, |those| {
        of_customers(records, channels, those)
    });
    let plans = plans.into_iter().zip(owns).enumerate();
    let made = plans.filter_map(|(i, ((direction, customers), own))| {
        Some(Plan {
            linkedid: match i {
                0 => oldest(records)?,
                _ => own_id(&channels[customers[0]])?,
            },
            direction,
            talk: talk(records, channels, &customers),
            customers,
            own: own.into_iter().map(|at| records[at]).collect(),
            begins_with: Vec::new(),
        })
    });
    made.collect()
}

/// Returns the line that was dialed on this channel. All records of a group belong to one call.
fn dialed_line(channel: &Channel<'_>) -> DialedLine {
    let number = channel.dialed().map(|(number, _)| subscriber(&number.text));
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
            ages.push((id.made(), record.start));
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
fn of_customers(
    records: &[&Record],
    channels: &[Channel<'_>],
    customers: &[usize],
) -> BTreeSet<usize> {
    let root = oldest(records);
    let names: Vec<&str> = customers.iter().map(|&i| channels[i].name).collect();
    let own = channels[customers[0]].own.first().and_then(|it| it.id());
    let own = own.filter(|own| Some(own) != root.as_ref());
    let is_own = |record: &Record| {
        names.contains(&record.channel.as_str())
            || own.is_some() && record.id() == own
            || names.contains(&record.dest.as_str()) && own.is_none()
    };
    (0..records.len())
        .filter(|&at| is_own(records[at]))
        .collect()
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
        let mut dialed = self.reached.iter().filter(|it| !it.is_of_conference());
        dialed.all(|dialed| {
            let is_same_second = first.start.floor_seconds() == dialed.start.floor_seconds();
            first.start < dialed.start || is_same_second && is_older(first, dialed)
        })
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &'a Record> {
        self.own.iter().chain(&self.reached).copied()
    }

    /// Returns the number that was dialed on this trunk channel.
    pub(super) fn dialed(&self) -> Option<(RawNumber, &'static str)> {
        let mut reached = self.reached.iter();
        if let Some(text) = reached.find_map(|it| in_dial_data(&it.data, self.name)) {
            return Some((RawNumber::new(text, true), "the data of Dial"));
        }
        let mut dst = self.reached.iter().map(|it| it.destination.as_str());
        let text = dst.find(|text| is_number(text))?;
        Some((RawNumber::new(text, false), "the record's destination"))
    }
}

/// Returns `true` if the channel of `first` is older than that of `dialed`, which therefore cannot
/// have dialed it.
fn is_older(first: &Record, dialed: &Record) -> bool {
    let made = |record: &Record| {
        let id = UniqueId::new(record.uniqueid.as_str())?;
        UniqueId::epoch_in(id.as_str()).map(|_| (id.age().0, id.age().1))
    };
    let ages = made(first).zip(made(dialed));
    ages.is_some_and(|(first, dialed)| first < dialed)
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
        for (name, own) in [(&record.channel, true), (&record.dest, false)] {
            if name.is_empty() {
                continue;
            }
            let known = channels.iter().position(|channel| channel.name == name);
            let at = known.unwrap_or_else(|| {
                channels.push(Channel {
                    name,
                    party: party(name, endpoints),
                    own: Vec::new(),
                    reached: Vec::new(),
                    is_invited: false,
                });
                channels.len() - 1
            });
            match own {
                true => channels[at].own.push(record),
                false => channels[at].reached.push(record),
            }
        }
    }
    let invited: Vec<bool> = channels
        .iter()
        .map(|it| is_invited(it, &channels))
        .collect();
    for (channel, is_invited) in channels.iter_mut().zip(invited) {
        channel.is_invited = is_invited;
    }
    (records, channels)
}

/// Returns `true` for a trunk's channel that the PBX dialed into a conference. No record has the
/// dialing. The channel's first record is already of the conference. It shows that the channel
/// rang before it was answered, and began in the context of the extensions, where no caller begins.
fn is_invited(channel: &Channel<'_>, channels: &[Channel<'_>]) -> bool {
    let mut reached = channel.reached.iter();
    let Some(first) = channel
        .own
        .first()
        .filter(|_| reached.any(|it| it.is_of_conference()))
    else {
        return false;
    };
    let rang = first
        .answer
        .is_some_and(|at| at.since(first.start) >= Duration::from_secs(1));
    let extensions = channels.iter().filter(|it| it.party.extension().is_some());
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
        Some(id) => id.made().unwrap_or_default(),
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
    let agent = name.strip_prefix("Agent/").filter(|it| !it.is_empty());
    match (trunk::party(name, endpoints), agent) {
        (Party::Plumbing, Some(agent)) => Party::Extension(Extension::new(agent)),
        (party, _) => party,
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
    let lines: Vec<ConnectedPair> = records.iter().filter_map(|it| line(it, channels)).collect();
    let times = lines.iter().flat_map(|line| [line.from, line.to]).collect();
    let pairs = local_pairs(channels.iter().map(|channel| channel.name));
    Talk::between(times, |from, to| {
        let there = |line: &&ConnectedPair| line.from <= from && line.to >= to;
        let there: Vec<ConnectedPair> = lines.iter().filter(there).copied().collect();
        connected(channels, customers, &there, &pairs)
    })
}

/// Returns the channels that a record connects. The connection begins no earlier than the answer of
/// its destination, as the record of that channel's beginning shows, and no earlier than the
/// destination's entry into the conference of the record.
fn line(record: &Record, channels: &[Channel<'_>]) -> Option<ConnectedPair> {
    let (from, to) = record.talk()?;
    let at = |name: &str| channels.iter().position(|channel| channel.name == name);
    let (a, b) = (at(&record.channel)?, at(&record.dest)?);
    let own = channels[b].own.iter();
    let births = own.clone().filter(|own| own.is_birth());
    let answered = births.filter_map(|own| own.answer).min();
    let there = own.filter(|own| record.is_of_conference() && own.app == record.app);
    let entered = there.map(|own| own.start).min();
    let from = [Some(from), answered, entered]
        .into_iter()
        .max()
        .flatten()?;
    (from < to).then_some(ConnectedPair {
        ends: [a, b],
        from,
        to,
        consultation: record.is_dialed_side(),
    })
}

/// Returns the real parties, other than the customer's own channels, that one of these is connected
/// with.
fn connected(
    channels: &[Channel<'_>],
    customers: &[usize],
    there: &[ConnectedPair],
    pairs: &[[usize; 2]],
) -> Vec<usize> {
    let consulting = |end: &usize| {
        let mut asides = there.iter().filter(|line| line.consultation);
        asides.any(|line| line.ends.contains(end))
    };
    let mut sets = Sets::new(channels.len());
    for line in there {
        if line.consultation || !line.ends.iter().any(consulting) {
            sets.join(line.ends[0], line.ends[1]);
        }
    }
    for pair in pairs {
        sets.join(pair[0], pair[1]);
    }
    let own: Vec<usize> = customers.iter().map(|&i| sets.of(i)).collect();
    let others = (0..channels.len()).filter(|i| !customers.contains(i));
    let real = others.filter(|&i| channels[i].party.is_real());
    real.filter(|&i| own.contains(&sets.of(i))).collect()
}
