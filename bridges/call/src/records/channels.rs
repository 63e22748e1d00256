//! Collects the channels listed in the records of one call. Since a record only has the unique ID
//! of one of its two channels, they're identified by name.

use super::group::Group;
use super::record::{Record, birth};
use crate::resolve::is_number;
use crate::{Endpoints, EventTime, FinishedCall, UniqueId, trunk};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long before its first known record a channel may have started. Its actual first record may
/// be missing, for example because the file is truncated.
const BEGUN_BEFORE: Duration = Duration::from_secs(300);

/// The records of a group sorted by start time, and its channels in order of appearance.
pub(super) struct Channels<'a> {
    pub(super) records: Vec<&'a Record>,
    pub(super) all: Vec<Channel<'a>>,
}

/// A channel, along with the records that mention it.
pub(super) struct Channel<'a> {
    pub(super) name: &'a str,
    pub(super) id: UniqueId,
    /// Records with this as the first channel, whereas `reached` holds those with it as the
    /// destination.
    pub(super) own: Vec<&'a Record>,
    pub(super) reached: Vec<&'a Record>,
    pub(super) way: RecordedWay,
}

/// How a channel started, as far as the records show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RecordedWay {
    CameIn,
    /// It was dialed by another record's channel.
    Dialed,
    /// It was dialed by the PBX or a conference room, which no record shows.
    Originated,
    /// The records only show that it joined other channels.
    #[default]
    Unknown,
}

impl<'a> Channels<'a> {
    pub(super) fn of_group(group: &'a Group, endpoints: &Endpoints) -> Self {
        let mut records: Vec<&Record> = group.records.iter().collect();
        records.sort_by(|a, b| order(a).cmp(&order(b)));
        let mut channels = Self {
            records,
            all: Vec::new(),
        };
        for record in channels.records.clone() {
            if let Some(channel) = channels.get_or_add(&record.channel) {
                channel.own.push(record);
            }
            if let Some(channel) = channels.get_or_add(&record.dest) {
                channel.reached.push(record);
            }
        }
        let ways: Vec<RecordedWay> = channels
            .all
            .iter()
            .map(|channel| channels.way(channel, endpoints))
            .collect();
        for (channel, way) in channels.all.iter_mut().zip(ways) {
            channel.way = way;
        }
        channels
    }

    /// Returns the index of the channel with this name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.all.iter().position(|channel| channel.name == name)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Channel<'a>> {
        self.all.iter().find(|channel| channel.name == name)
    }

    /// Returns the channels of this call.
    pub(super) fn of_call(&self, call: &FinishedCall) -> impl Iterator<Item = &Channel<'a>> {
        let channels = self.all.iter();
        channels.filter(|channel| call.ids().any(|id| *id == channel.id))
    }

    /// Returns the records that mention a channel of this call.
    pub(super) fn records_of(&self, call: &FinishedCall) -> Vec<&'a Record> {
        let names: BTreeSet<&str> = self.of_call(call).map(|channel| channel.name).collect();
        let mut own = self.records.clone();
        own.retain(|record| {
            let mut both = [&record.channel, &record.dest].into_iter();
            both.any(|name| names.contains(name.as_str()))
        });
        own
    }

    /// Returns the channel with this name, or `None` if the name is empty.
    fn get_or_add(&mut self, name: &'a str) -> Option<&mut Channel<'a>> {
        let place = match self.find(name) {
            Some(place) => place,
            None => {
                let channel = Channel {
                    name,
                    id: self.id_of(name)?,
                    own: Vec::new(),
                    reached: Vec::new(),
                    way: RecordedWay::default(),
                };
                self.all.push(channel);
                self.all.len() - 1
            }
        };
        self.all.get_mut(place)
    }

    /// Returns the unique ID of the channel with this name. If no record contains it, or if it
    /// belonged to another channel before a transfer, an ID is generated from the channel's name
    /// and start time.
    fn id_of(&self, name: &str) -> Option<UniqueId> {
        if name.is_empty() {
            return None;
        }
        let mut records = self.records.iter();
        let own = records.find(|record| record.channel == name);
        let known = own.and_then(|record| UniqueId::new(record.uniqueid.as_str()));
        if let Some(id) = known
            && !self.all.iter().any(|channel| channel.id == id)
        {
            return Some(id);
        }
        if let Some(own) = own {
            return own.made_id();
        }
        let mut records = self.records.iter();
        let reached = records.find(|record| record.dest == name)?;
        UniqueId::new(format!("{name}@{}", reached.start.floor_seconds()))
    }

    /// Returns how the channel started. If its own first record starts before another channel
    /// dialed it, it's an incoming caller's.
    fn way(&self, channel: &Channel<'_>, endpoints: &Endpoints) -> RecordedWay {
        let mut dialed = channel.dialed_by();
        let Some(first) = channel.own.first() else {
            return match dialed.next() {
                Some(_) => RecordedWay::Dialed,
                None => RecordedWay::Unknown,
            };
        };
        if dialed.any(|dialed| !began_before(first, dialed)) {
            RecordedWay::Dialed
        } else if first.was_called()
            || is_paged(first, endpoints)
            || self.is_invited(channel, first, endpoints)
        {
            RecordedWay::Originated
        } else {
            RecordedWay::CameIn
        }
    }

    /// Returns `true` if the channel with this `first` record was dialed from a conference room.
    ///
    /// No record shows that directly, but such a channel rings before it's answered and starts in
    /// an extension's context, whereas a caller's channel never does.
    fn is_invited(&self, channel: &Channel<'_>, first: &Record, endpoints: &Endpoints) -> bool {
        let rang = first
            .answer
            .is_some_and(|at| at.since(first.start) >= Duration::from_secs(1));
        let mut reached = channel.reached.iter();
        let mut of_extensions = self.records.iter().filter(|record| {
            trunk::party(&record.channel, endpoints)
                .extension()
                .is_some()
        });
        rang && first.is_of_conference()
            && reached.any(|record| record.is_of_conference())
            && !first.context.is_empty()
            && of_extensions.any(|record| record.context == first.context)
    }
}

impl<'a> Channel<'a> {
    /// Returns the records whose channel dialed this one.
    pub(super) fn dialed_by(&self) -> impl Iterator<Item = &'a Record> {
        let reached = self.reached.iter().copied();
        reached.filter(|record| !record.only_joins())
    }

    pub(super) fn came_in(&self) -> bool {
        self.way == RecordedWay::CameIn
    }

    /// Returns when an incoming call arrived on the channel, or `None` if it isn't a caller's
    /// channel.
    pub(super) fn arrival(&self) -> Option<EventTime> {
        self.came_in().then(|| self.beginning())
    }

    /// Returns the start of the channel's first record or, if that record is missing, the creation
    /// time in the unique ID of a caller's channel.
    pub(super) fn beginning(&self) -> EventTime {
        if self.came_in()
            && let Some(own) = self.own.first()
        {
            let born = birth(&own.uniqueid).filter(|born| {
                let late = own.start.since(*born);
                late > Duration::from_secs(1) && late <= BEGUN_BEFORE
            });
            return born.unwrap_or(own.start);
        }
        let own = self.own.first().copied();
        let starts = own.into_iter().chain(self.dialed_by());
        let start = starts.map(|record| record.start).min();
        let joined = self.reached.iter().map(|record| record.start).min();
        start.or(joined).unwrap_or_default()
    }

    /// Returns the latest end of any of the channel's records.
    pub(super) fn end(&self) -> EventTime {
        let records = self.own.iter().chain(&self.reached);
        records.map(|record| record.end).max().unwrap_or_default()
    }
}

/// Returns `true` if the channel with this first record looks like a phone dialed by `Page`, i.e.,
/// it started in a conference room as part of another channel's call and isn't a trunk channel with
/// a caller's number.
fn is_paged(first: &Record, endpoints: &Endpoints) -> bool {
    let is_of_another = !first.linkedid.is_empty() && first.linkedid != first.uniqueid;
    let is_trunk = endpoints.find(&first.channel).is_some();
    let is_caller = is_trunk && is_number(&first.source);
    first.is_of_conference() && is_of_another && !is_caller
}

/// Returns `true` if the channel of `first` started before that of `dialed`. If both started in the
/// same second, their unique IDs tell which one is older.
fn began_before(first: &Record, dialed: &Record) -> bool {
    let is_same_second = first.start.floor_seconds() == dialed.start.floor_seconds();
    let ages = channel_age(first).zip(channel_age(dialed));
    let is_older = ages.is_some_and(|(first, dialed)| first < dialed);
    first.start < dialed.start || is_same_second && is_older
}

/// Returns the epoch and counter from the unique ID of the record's channel.
fn channel_age(record: &Record) -> Option<(u64, u64)> {
    let id = UniqueId::new(record.uniqueid.as_str())?;
    UniqueId::epoch_in(id.as_str())?;
    let (epoch, counter, _) = id.age();
    Some((epoch, counter))
}

/// Returns the sort key for a record, which starts with its start time.
///
/// If two records start at the same time, the dialed side goes last. After that, the age of the IDs
/// decides, and Local channels follow the channels that dialed them. An ID chosen through an API
/// counts as the oldest, because an originated channel exists before the channels it dials. The end
/// time and names are included to make the order independent of arrival order.
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
