//! Works out which channels are the customer's, how many calls there are, and which channels belong
//! to each of them.

use super::attempts::{DialedLine, divide_by_customer};
use super::connections::talk;
use super::dialing::{Dialing, pause};
use super::number;
use super::split::Part;
use super::view::View;
use crate::age::by_age;
use crate::facts::Texts;
use crate::talk::Talk;
use crate::{Direction, EventTime, UniqueId, Way};
use std::collections::{BTreeMap, BTreeSet};

/// One call among the channels, which are given as indices.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The call's ID.
    pub(super) linkedid: UniqueId,
    pub(super) direction: Direction,
    pub(super) customers: Vec<usize>,
    /// The channels that belong to this call, as opposed to another customer's.
    pub(super) own: Vec<usize>,
    /// The call starts with the first of these channels.
    pub(super) begins_with: Vec<usize>,
    /// The party that dialed the customer of an outbound call, even if its channel belongs to an
    /// earlier call.
    pub(super) placed_by: Option<usize>,
    pub(super) talk: Talk,
}

/// Returns the calls of a part's own channels, which are sorted by age. There are none if no real
/// party took part.
///
/// The oldest call gets the part's linkedid unless that's in `given`, the IDs of calls that have
/// already been emitted. Any other call gets the ID of its customer's own channel. `reported`
/// contains the channels of the emitted calls, and `rooms` the bridges that are conferences.
pub(super) fn plans(
    part: &Part<'_, '_>,
    given: &BTreeSet<UniqueId>,
    reported: &BTreeSet<UniqueId>,
    rooms: &Texts,
) -> Vec<Plan> {
    let legs = part.legs.as_slice();
    let own_legs = part.own();
    let first = (0..part.own).find(|&i| legs[i].party.is_real());
    let Some(first) = first else {
        return Vec::new();
    };
    let dialing = Dialing::new(part, rooms);
    let trunks = (0..part.own).filter(|&i| legs[i].party.trunk().is_some());
    let mut calls = divide_by_customer(
        trunks.clone(),
        |i| legs[i].way == Way::CameIn,
        |i| dialed_line(part, &dialing, reported, i),
        |customers| talk(legs, customers),
    );
    if calls.is_empty() {
        // Lines dialed for a call that has already been emitted don't make up another call.
        if trunks.clone().next().is_some() {
            return Vec::new();
        }
        calls.push((Direction::Internal, vec![first]));
    }
    let owners = Owners::new(part, &dialing, &calls);
    let mut made = Vec::new();
    for (i, own) in owners.channels().into_iter().enumerate() {
        let (direction, customers) = &calls[i];
        let main = customers[0];
        // Colleagues who were in a room before the customer got there don't start the call.
        let joined_later = *direction == Direction::Inbound && first != main;
        let origin = origin(own_legs, main);
        let placed_by = match direction {
            Direction::Outbound => dialing.placed_by(main),
            Direction::Inbound | Direction::Internal | Direction::Unknown => None,
        };
        let root = match &origin {
            Some(Origin::Leg(origin)) => legs[*origin].leg.id.clone(),
            Some(Origin::Unheard(id)) => id.clone(),
            None => oldest(part),
        };
        // The ID of a line that isn't the customer's belongs to another call.
        let mut others = trunks.clone().filter(|line| !customers.contains(line));
        let is_of_other = given.contains(&root) || others.any(|line| legs[line].leg.id == root);
        let apart = joined_later || i == 0 && is_of_other;
        let begins_with = match (&origin, placed_by) {
            (_, Some(by)) if !dialing.begins_call(by, main, &owners.others(i)) => {
                let lines = customers.iter().copied();
                lines
                    .clone()
                    .chain(lines.flat_map(|line| dialing.between(line)))
                    .collect()
            }
            (Some(Origin::Leg(origin)), _) => vec![*origin],
            (None, _) if apart => with_linkedid(part, customers).into_iter().collect(),
            (Some(Origin::Unheard(_)) | None, _) => own.clone(),
        };
        made.push(Plan {
            linkedid: if i > 0 || is_of_other {
                legs[main].leg.id.clone()
            } else {
                root
            },
            direction: *direction,
            talk: talk(legs, customers),
            customers: customers.clone(),
            own,
            begins_with,
            placed_by,
        });
    }
    made
}

/// Assigns a part's channels to its calls. Both are given as indices.
struct Owners<'o, 'p, 'v, 'a> {
    legs: &'o [&'v View<'a>],
    dialing: &'o Dialing<'p, 'v, 'a>,
    calls: &'o [(Direction, Vec<usize>)],
    /// The ID of the call that each channel was created in.
    origins: Vec<String>,
    /// The call that each outside line belongs to, or `None` if that call has already been
    /// returned.
    of_line: BTreeMap<usize, Option<usize>>,
}

impl<'o, 'p, 'v, 'a> Owners<'o, 'p, 'v, 'a> {
    fn new(
        part: &'o Part<'v, 'a>,
        dialing: &'o Dialing<'p, 'v, 'a>,
        calls: &'o [(Direction, Vec<usize>)],
    ) -> Self {
        let legs = part.own();
        let mut of_line = BTreeMap::new();
        for line in (0..legs.len()).filter(|&i| legs[i].party.trunk().is_some()) {
            let of = |customer| {
                calls
                    .iter()
                    .position(|(_, those)| those.contains(&customer))
            };
            of_line.insert(line, of(line).or_else(|| of(dialing.customer_of(line)?)));
        }
        Self {
            legs,
            dialing,
            calls,
            origins: (0..legs.len()).map(|i| call_of(legs, i)).collect(),
            of_line,
        }
    }

    /// Returns the channels of each call, assigning every channel to at most one of them.
    fn channels(&self) -> Vec<Vec<usize>> {
        let mut channels = vec![Vec::new(); self.calls.len()];
        for leg in 0..self.legs.len() {
            if let Some(call) = self.call_of_channel(leg) {
                channels[call].push(leg);
            }
        }
        channels
    }

    /// Returns the outside lines that belong to other calls.
    fn others(&self, call: usize) -> Vec<usize> {
        let others = self.of_line.iter().filter(|(_, of)| **of != Some(call));
        others.map(|(&line, _)| line).collect()
    }

    fn call_of_channel(&self, leg: usize) -> Option<usize> {
        if let Some(of) = self.of_line.get(&leg) {
            return *of;
        }
        let mut ancestors = self.dialing.ancestors(leg);
        let dialed_in = ancestors.find_map(|by| self.of_line.get(&by).copied().flatten());
        let origin = self.origins[leg].as_str();
        let born_in = || {
            self.calls.iter().position(|(_, customers)| {
                !origin.is_empty() && self.origins[customers[0]] == origin
            })
        };
        self.first_call_of(leg)
            .or(dialed_in)
            .or_else(born_in)
            .or(Some(0))
    }

    /// Returns the first call in which the channel dialed an outside line or talked to one.
    fn first_call_of(&self, leg: usize) -> Option<usize> {
        let mut first: Option<(EventTime, usize)> = None;
        for (&line, &of) in &self.of_line {
            let Some(call) = of else { continue };
            let between = self.dialing.between(line);
            let mut dialers = between.chain(self.dialing.placed_by(line));
            let dialed = dialers
                .any(|by| by == leg)
                .then(|| self.legs[line].leg.first);
            let met = self.dialing.first_talk(line, leg);
            if let Some(at) = dialed.into_iter().chain(met).min() {
                first = first.into_iter().chain([(at, call)]).min();
            }
        }
        first.map(|(_, call)| call)
    }
}

/// Returns the line dialed on this trunk channel.
fn dialed_line(
    part: &Part<'_, '_>,
    dialing: &Dialing<'_, '_, '_>,
    reported: &BTreeSet<UniqueId>,
    i: usize,
) -> DialedLine {
    let legs = part.own();
    let origin = match dialing.placed_by(i) {
        Some(by) => part.legs[by].leg.id.to_string(),
        None => match legs[i].leg.commanded_number() {
            Some(number) => number.to_owned(),
            None => call_of(legs, i),
        },
    };
    DialedLine {
        origin,
        number: number::dialed_digits(legs, i).unwrap_or_default(),
        customer: dialing.customer_of(i),
        is_emitted: reported.contains(&legs[i].leg.id),
        answered: legs[i].has_answered() || dialing.talk(i).is_answer(),
        pause: pause(&part.legs, legs[i]),
        from: legs[i].leg.first,
        to: legs[i].end,
    }
}

/// The channel that a call started with.
enum Origin {
    Leg(usize),
    /// No event of the channel was received.
    Unheard(UniqueId),
}

/// Returns the channel that the customer's call started with, if each channel indicates on creation
/// whose call it belongs to. A channel that joined later, in a room or a queue, started a separate
/// call.
fn origin(legs: &[&View<'_>], customer: usize) -> Option<Origin> {
    legs[customer].leg.traits.as_ref()?;
    let mut at = customer;
    // Each step leads to another channel, unless the channels refer to each other.
    for _ in 0..legs.len() {
        let call = legs[at].first_linkedid();
        let Some(next) = legs.iter().position(|leg| leg.leg.id.as_str() == call) else {
            return UniqueId::new(call).map(Origin::Unheard);
        };
        if next == at {
            return Some(Origin::Leg(at));
        }
        at = next;
    }
    None
}

/// Returns `true` if the oldest linkedid belongs to one of the channels.
pub(super) fn is_rooted(part: &Part<'_, '_>) -> bool {
    let root = oldest(part);
    part.legs.iter().any(|leg| leg.leg.id == root)
}

/// Returns the oldest linkedid of the part's channels.
pub(super) fn oldest(part: &Part<'_, '_>) -> UniqueId {
    let legs = part.own();
    let mut ids = Vec::new();
    let mut ages = Vec::new();
    for linkedid in legs.iter().flat_map(|leg| leg.leg.linkedids.iter()) {
        let Some(id) = UniqueId::new(linkedid.text.as_str()) else {
            continue;
        };
        if part.foreign.contains(&id) {
            continue;
        }
        // A linkedid is as old as its channel or, if that was never seen, as old as the first event
        // that mentions it.
        let channel = legs.iter().find(|leg| leg.leg.id == id);
        let age = channel.map_or(
            (id.epoch_and_counter(), (linkedid.at, true, u64::MAX)),
            |leg| leg.leg.age(),
        );
        ids.push(id);
        ages.push(age);
    }
    let oldest = by_age(&ages).first().map(|&i| ids[i].clone());
    oldest.unwrap_or_else(|| legs[0].leg.id.clone())
}

/// Returns the customer's channels along with those created in the same call, or only the
/// customer's channels if that's the oldest call.
fn with_linkedid(part: &Part<'_, '_>, customers: &[usize]) -> BTreeSet<usize> {
    let legs = part.own();
    let call = call_of(legs, customers[0]);
    let root = oldest(part);
    let mut own: BTreeSet<usize> = customers.iter().copied().collect();
    if !call.is_empty() && call != root.as_str() {
        own.extend((0..legs.len()).filter(|&i| call_of(legs, i) == call));
    }
    own
}

/// Returns the ID of the call that the channel was created in, or an empty text if the PBX doesn't
/// report any.
fn call_of(legs: &[&View<'_>], i: usize) -> String {
    match origin(legs, i) {
        Some(Origin::Leg(origin)) => legs[origin].leg.id.to_string(),
        Some(Origin::Unheard(id)) => id.to_string(),
        // AMI 1.x has no linkedids, so all channels tied together by dialing have the same origin.
        None if legs[i].leg.linkedids.first().is_none() => String::new(),
        None => legs[i].first_linkedid().to_owned(),
    }
}
