//! The channels that the records of one call name.

use super::group::Group;
use super::record::Record;
use crate::call::RawNumber;
use crate::resolve::{in_dial_data, is_number};
use crate::trunk::{self, Endpoints, Party};
use crate::units::{EventTime, Extension, UniqueId};

/// A channel, by its name: a record tells the unique id of one of its two channels alone.
#[derive(Clone, Debug)]
pub(super) struct Channel<'a> {
    pub(super) name: &'a str,
    pub(super) party: Party<'a>,
    /// The records told by this channel, and those that name it as destination, by their start.
    pub(super) own: Vec<&'a Record>,
    pub(super) reached: Vec<&'a Record>,
}

impl<'a> Channel<'a> {
    /// Somebody called in on it: it told a record before it was the destination of one, and not
    /// as the other side of a dialling.
    pub(super) fn came_in(&self) -> bool {
        let Some(first) = self.own.first().filter(|first| !first.was_called()) else {
            return false;
        };
        self.reached
            .first()
            .is_none_or(|reached| first.start < reached.start)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &'a Record> {
        self.own.iter().chain(&self.reached).copied()
    }

    /// The number that was dialled on this trunk channel.
    pub(super) fn dialled(&self) -> Option<(RawNumber, &'static str)> {
        let mut reached = self.reached.iter();
        if let Some(text) = reached.find_map(|it| in_dial_data(&it.data, self.name)) {
            return Some((RawNumber::new(text, true), "the data of Dial"));
        }
        let mut dst = self.reached.iter().map(|it| it.destination.as_str());
        let text = dst.find(|text| is_number(text))?;
        Some((RawNumber::new(text, false), "the record's destination"))
    }

    /// Returns the time at which the channel was answered, where the record of its beginning has
    /// it.
    pub(super) fn answered_at(&self) -> Option<EventTime> {
        let births = self.own.iter().filter(|record| record.is_birth());
        births.filter_map(|record| record.answer).min()
    }
}

/// The records by their start, and the channels in the order in which they appear in them.
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
                });
                channels.len() - 1
            });
            let place = &mut channels[at];
            if own {
                place.own.push(record);
            } else {
                place.reached.push(record);
            }
        }
    }
    (records, channels)
}

/// By start; of those of one second, the other side of a dialling last, then by age, and what a
/// Local channel did after what dialled it; then by end and names, so that it is one order however
/// the records came.
fn order(record: &Record) -> impl Ord {
    let age = UniqueId::new(record.uniqueid.as_str());
    let age = age.map_or((u64::MAX, u64::MAX), |id| (id.age().0, id.age().1));
    let local = trunk::local_pair(&record.channel).is_some();
    let names = (record.channel.as_str(), record.dest.as_str());
    (
        (record.start, record.is_dialled_side(), age, local),
        (record.end, names),
    )
}

/// Returns the part of a channel, as everywhere; but an `Agent/1001` of Asterisk before 12 stands
/// for the telephone at which that agent sat.
fn party<'a>(name: &str, endpoints: &'a Endpoints) -> Party<'a> {
    let agent = || {
        name.strip_prefix("Agent/")
            .filter(|agent| !agent.is_empty())
    };
    match trunk::party(name, endpoints) {
        Party::Plumbing => agent().map_or(Party::Plumbing, |agent| {
            Party::Extension(Extension::new(agent))
        }),
        real @ (Party::Trunk(_) | Party::Extension(_) | Party::Outsider) => real,
    }
}
