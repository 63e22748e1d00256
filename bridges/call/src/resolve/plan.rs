//! Finds which channels are the customer's, how many calls the channels make, and when the customer
//! was connected with which other real parties.
//!
//! Two channels are connected while they share a bridge, directly or through the halves of Local
//! channels. Music, menus, queues, parking, and voicemail put no other party into a bridge.

use super::number;
use super::split::{Part, Sets};
use super::view::View;
use crate::age::by_age;
use crate::talk::{Talk, local_pairs};
use crate::{Direction, EventTime, UniqueId, Way};
use std::collections::{BTreeMap, BTreeSet};

/// One call among the channels, which are given as indices.
#[derive(Clone, Debug)]
pub(crate) struct Plan<T = usize> {
    /// The id of the call.
    pub(crate) linkedid: UniqueId,
    pub(crate) direction: Direction,
    pub(crate) customers: Vec<usize>,
    /// The channels, or the records, that belong to this call rather than to another customer's.
    pub(crate) own: Vec<T>,
    /// The call begins with the first of these channels. Empty if the call is from records.
    pub(crate) begins_with: Vec<usize>,
    pub(crate) talk: Talk,
}

/// Returns the calls of a part's own channels, which are sorted by age. There are none if no real
/// party took part. If parts of an open call were given out before, each call gets the id of its
/// customer's own channel, and no channel whose id belongs to such a part begins another call.
pub(super) fn plans(part: &Part<'_, '_>, given: Option<&BTreeSet<UniqueId>>) -> Vec<Plan> {
    let legs = part.legs.as_slice();
    let own_legs = part.own();
    let first = own_legs.iter().position(|leg| {
        let is_known = given.is_some_and(|given| given.contains(&leg.leg.id));
        leg.party.is_real() && !is_known
    });
    let Some(first) = first else {
        return Vec::new();
    };
    let trunks = (0..part.own).filter(|&i| legs[i].party.trunk().is_some());
    let mut plans = divide_by_customer(
        trunks,
        |i| legs[i].way == Way::CameIn,
        |i| dialed_line(own_legs, i),
        |customers| talk(legs, customers),
    );
    if plans.is_empty() {
        plans.push((Direction::Internal, vec![first]));
    }
    let owns = divide_indices(part.own, &plans, |those| with_linkedid(part, those));
    let mut made = Vec::new();
    for (i, ((direction, customers), own)) in plans.into_iter().zip(owns).enumerate() {
        // Colleagues who were in a room before the customer came do not begin the call.
        let joined_later = direction == Direction::Inbound && first != customers[0];
        let origin = origin(own_legs, customers[0]);
        let apart = i == 0 && (joined_later || given.is_some());
        let begins_with = match &origin {
            Some(Origin::Leg(origin)) => vec![*origin],
            None if apart => with_linkedid(part, &customers).into_iter().collect(),
            Some(Origin::Unheard(_)) | None => own.clone(),
        };
        made.push(Plan {
            linkedid: match origin {
                _ if i > 0 || given.is_some() => legs[customers[0]].leg.id.clone(),
                Some(Origin::Leg(origin)) => legs[origin].leg.id.clone(),
                Some(Origin::Unheard(id)) => id,
                None => oldest(part),
            },
            direction,
            talk: talk(legs, &customers),
            customers,
            own,
            begins_with,
        });
    }
    made
}

/// Returns the line that was dialed on this trunk channel.
fn dialed_line(legs: &[&View<'_>], i: usize) -> DialedLine {
    DialedLine {
        origin: call_of(legs, i),
        number: number::dialed_digits(legs, i).unwrap_or_default(),
        from: legs[i].leg.first,
        to: legs[i].end,
    }
}

/// The channel with which a call began.
enum Origin {
    Leg(usize),
    /// No event of the channel was received.
    Unheard(UniqueId),
}

/// Returns the channel with which the customer's call began, if each channel names at its creation
/// whose call it belongs to. A channel that joined later, in a room or a queue, began a separate
/// call.
fn origin(legs: &[&View<'_>], customer: usize) -> Option<Origin> {
    legs[customer].leg.traits.as_ref()?;
    let mut at = customer;
    // Each step leads to another channel, or the channels name each other.
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
        // A linkedid is as old as its channel. If that was never seen, it is as old as the first
        // event that names it.
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

/// Returns the customer's channels and those that were created in the same call. If that is the
/// oldest call, only the customer's channels.
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

/// Returns the id of the call that the channel was created in. It is empty if the PBX reports none.
fn call_of(legs: &[&View<'_>], i: usize) -> String {
    match origin(legs, i) {
        Some(Origin::Leg(origin)) => legs[origin].leg.id.to_string(),
        Some(Origin::Unheard(id)) => id.to_string(),
        // AMI 1.x has no linkedid, so all channels that dialing ties together have one origin.
        None if legs[i].leg.linkedids.first().is_none() => String::new(),
        None => legs[i].first_linkedid().to_owned(),
    }
}

/// A trunk channel that was dialed.
#[derive(Clone, Debug, Default)]
pub(crate) struct DialedLine {
    /// The call in which the channel was born.
    pub(crate) origin: String,
    /// The number dialed, as digits; empty if it is unknown.
    pub(crate) number: String,
    /// Time of its birth.
    pub(crate) from: EventTime,
    /// Time of its hangup.
    pub(crate) to: EventTime,
}

impl DialedLine {
    /// Returns `true` if both lines were dialed in one call, or to one number at the same time.
    fn is_of_call_of(&self, other: &Self) -> bool {
        let overlaps = self.from <= other.to && other.from <= self.to;
        let same_number = !self.number.is_empty() && self.number == other.number;
        self.origin == other.origin || (same_number && overlaps)
    }
}

/// Divides these trunk channels into calls, and returns the customer's channels of each. Every
/// customer who called in has a call. If none of them was first, the dialed lines have calls too.
/// Lines that were dialed in one call are one call, because the first carrier can refuse and the
/// second can answer. They are several calls only if people on several numbers talked.
pub(crate) fn divide_by_customer(
    trunks: impl Iterator<Item = usize>,
    came_in: impl Fn(usize) -> bool,
    line: impl Fn(usize) -> DialedLine,
    talk: impl Fn(&[usize]) -> Talk,
) -> Vec<(Direction, Vec<usize>)> {
    let (came, mut dialed): (Vec<usize>, Vec<usize>) = trunks.partition(|&i| came_in(i));
    if came.first() < dialed.first() && !came.is_empty() {
        dialed.clear();
    }
    let lines: Vec<(usize, DialedLine)> = dialed.into_iter().map(|i| (i, line(i))).collect();
    let mut calls = Vec::new();
    for lines in divide_by_call(&lines) {
        let mut numbers = divide_by_number(&lines);
        numbers.retain(|customers| talk(customers).is_answer());
        if numbers.len() < 2 {
            numbers = vec![lines.iter().map(|(i, _)| *i).collect()];
        }
        calls.extend(
            numbers
                .into_iter()
                .map(|lines| (Direction::Outbound, lines)),
        );
    }
    calls.extend(came.into_iter().map(|i| (Direction::Inbound, vec![i])));
    calls
}

/// Divides dialed lines by the call that they were dialed in.
fn divide_by_call(lines: &[(usize, DialedLine)]) -> Vec<Vec<&(usize, DialedLine)>> {
    let mut of_one_call = Sets::new(lines.len());
    for (later, (_, line)) in lines.iter().enumerate() {
        for (earlier, (_, other)) in lines[..later].iter().enumerate() {
            if line.is_of_call_of(other) {
                of_one_call.join(earlier, later);
            }
        }
    }
    let mut calls: BTreeMap<usize, Vec<&(usize, DialedLine)>> = BTreeMap::new();
    for (i, line) in lines.iter().enumerate() {
        calls.entry(of_one_call.find(i)).or_default().push(line);
    }
    calls.into_values().collect()
}

/// Divides dialed lines by number, in the order of the first line of each.
fn divide_by_number(lines: &[&(usize, DialedLine)]) -> Vec<Vec<usize>> {
    let mut numbers: Vec<(&str, Vec<usize>)> = Vec::new();
    for (i, line) in lines {
        match numbers
            .iter_mut()
            .find(|(number, _)| *number == line.number)
        {
            Some((_, those)) => those.push(*i),
            None => numbers.push((&line.number, vec![*i])),
        }
    }
    numbers.into_iter().map(|(_, lines)| lines).collect()
}

/// Divides `all` indices among these calls. The first call gets those that no other call has.
pub(crate) fn divide_indices(
    all: usize,
    plans: &[(Direction, Vec<usize>)],
    own_of: impl Fn(&[usize]) -> BTreeSet<usize>,
) -> Vec<Vec<usize>> {
    let later: Vec<BTreeSet<usize>> = plans.iter().skip(1).map(|plan| own_of(&plan.1)).collect();
    let first: Vec<usize> = (0..all)
        .filter(|i| !later.iter().any(|own| own.contains(i)))
        .collect();
    let mut owns = vec![first];
    owns.extend(later.into_iter().map(|own| own.into_iter().collect()));
    owns
}

/// A stay in a bridge. Bridges and channels are indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Presence {
    from: EventTime,
    to: EventTime,
    bridge: usize,
    leg: usize,
}

/// Returns the talk of the customer's channels, which are given as indices.
pub(super) fn talk(legs: &[&View<'_>], customers: &[usize]) -> Talk {
    let mut bridges: BTreeMap<&str, usize> = BTreeMap::new();
    let mut presences: Vec<Presence> = Vec::new();
    let mut reach: Option<(EventTime, EventTime)> = None;
    for (i, leg) in legs.iter().enumerate() {
        let is_customer = customers.contains(&i);
        for stay in &leg.stays {
            let count = bridges.len();
            let bridge = *bridges.entry(stay.bridge).or_insert(count);
            let mut to = stay.to;
            if is_customer {
                // A customer who has hung up does not talk, even if the channel goes on. A bridge
                // that was entered at the very moment of the hangup still shows who was reached.
                if leg.left < leg.end && stay.from < leg.left {
                    to = to.min(leg.left);
                }
                let (first, last) = reach.unwrap_or((stay.from, to));
                reach = Some((first.min(stay.from), last.max(to)));
            }
            presences.push(Presence {
                from: stay.from,
                to,
                bridge,
                leg: i,
            });
        }
    }
    // Stays without the customer do not count. A room that is never empty has many of them.
    presences.retain(|presence| {
        reach.is_some_and(|(from, to)| presence.from <= to && presence.to >= from)
    });
    presences.sort_unstable();
    let times = presences
        .iter()
        .flat_map(|presence| [presence.from, presence.to])
        .filter(|at| reach.is_some_and(|(from, to)| (from..=to).contains(at)))
        .collect();
    let pairs = local_pairs(legs.iter().map(|leg| leg.name));
    let talk = Talk::between(times, |from, to| {
        let there: Vec<Presence> = presences
            .iter()
            .copied()
            .filter(|presence| presence.from <= from && presence.to >= to)
            .collect();
        connected_parties(legs, customers, &there, &pairs, bridges.len())
    });
    Talk {
        untimed: legs.iter().any(|leg| !leg.timed),
        ..talk
    }
}

/// Returns the real parties, other than the customer's own channels, that one of these is connected
/// with, in the order in which they entered the bridge.
fn connected_parties(
    legs: &[&View<'_>],
    customers: &[usize],
    there: &[Presence],
    pairs: &[[usize; 2]],
    bridges: usize,
) -> Vec<usize> {
    let mut sets = Sets::new(bridges);
    for &[a, b] in pairs {
        if let (Some(a), Some(b)) = (bridge_of(there, a), bridge_of(there, b)) {
            sets.join(a, b);
        }
    }
    let own: Vec<usize> = customers
        .iter()
        .filter_map(|&leg| bridge_of(there, leg))
        .map(|bridge| sets.find(bridge))
        .collect();
    let mut heard = Vec::new();
    for presence in there {
        if !customers.contains(&presence.leg)
            && legs[presence.leg].party.is_real()
            && own.contains(&sets.find(presence.bridge))
        {
            heard.push(presence.leg);
        }
    }
    heard
}

/// Returns the bridge that the channel is in.
fn bridge_of(there: &[Presence], leg: usize) -> Option<usize> {
    let presence = there.iter().find(|presence| presence.leg == leg);
    presence.map(|presence| presence.bridge)
}
