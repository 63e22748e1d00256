//! Who the customer is, and how many calls the records were: as for calls told by events.

use super::parties::Channel;
use super::record::Record;
use super::talk;
use crate::call::Direction;
use crate::resolve::{apart, by_customer};
use crate::talk::Talk;
use crate::units::UniqueId;
use std::collections::BTreeSet;

/// One call among the records.
#[derive(Clone, Debug)]
pub(super) struct CallPlan<'a> {
    pub(super) linkedid: UniqueId,
    pub(super) direction: Direction,
    pub(super) customers: Vec<usize>,
    /// The records of this call rather than of another customer's.
    pub(super) own: Vec<&'a Record>,
    pub(super) talk: Talk,
}

/// The calls that these records were; none when nobody took part.
pub(super) fn plans<'a>(records: &[&'a Record], channels: &[Channel<'a>]) -> Vec<CallPlan<'a>> {
    let Some(first) = channels.iter().position(|channel| channel.party.is_real()) else {
        return Vec::new();
    };
    // Only the other side of a dialling was told of: part of a call that is told of elsewhere.
    if records.iter().all(|record| record.is_dialled_side()) {
        return Vec::new();
    }
    let trunks = (0..channels.len()).filter(|&i| channels[i].party.trunk().is_some());
    let mut plans = by_customer(
        trunks,
        |i| channels[i].came_in(),
        |i| channels[i].dialled().map(|(number, _)| number.text),
        |customers| talk::talk(records, channels, customers),
    );
    if plans.is_empty() {
        plans.push((Direction::Internal, vec![first]));
    }
    let owns = apart(records.len(), &plans, |those| {
        of_customers(records, channels, those)
    });
    let mut made = Vec::new();
    for (i, ((direction, customers), own)) in plans.into_iter().zip(owns).enumerate() {
        let id = if i == 0 {
            oldest(records)
        } else {
            own_id(&channels[customers[0]])
        };
        let Some(linkedid) = id else {
            continue;
        };
        made.push(CallPlan {
            linkedid,
            direction,
            talk: talk::talk(records, channels, &customers),
            customers,
            own: own.into_iter().map(|at| records[at]).collect(),
        });
    }
    made
}

/// The oldest id of all; of records without any, that of the first.
fn oldest(records: &[&Record]) -> Option<UniqueId> {
    let ids = records.iter().filter_map(|record| record.id());
    let oldest = ids.min_by(|a, b| a.age().cmp(&b.age()));
    oldest.or_else(|| records.first()?.made_id())
}

/// Returns the id of a second customer's call: the unique id of the customer's channel, which
/// stands only in the record of a channel that is not its destination; else one made of name and
/// start.
fn own_id(channel: &Channel<'_>) -> Option<UniqueId> {
    let own = channel.own.iter();
    let mut ids = own.filter_map(|record| UniqueId::new(record.uniqueid.as_str()));
    ids.next().or_else(|| {
        let start = channel.records().map(|record| record.start).min()?;
        UniqueId::new(format!("{}@{}", channel.name, start.floor_seconds()))
    })
}

/// The records that name the customer's channels, and those with the id that the customer's own
/// first record has, where that is not the id of the whole.
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
