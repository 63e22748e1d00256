//! Who the customer is, how many calls the channels were, and when the customer was connected with
//! another real party, and with whom.
//!
//! Two channels are connected while they share a bridge, directly or through the halves of Local
//! channels. Music, menus, queues, parking and voicemail put nobody else into a bridge.

use super::number;
use super::split::Sets;
use super::view::View;
use crate::talk::{Talk, local_pairs};
use crate::{Direction, EventTime, UniqueId, Way};
use std::collections::{BTreeMap, BTreeSet};

/// One call among the channels, which are told as indices.
#[derive(Clone, Debug)]
pub(crate) struct Plan<T = usize> {
    /// The id it is known by.
    pub(crate) linkedid: UniqueId,
    pub(crate) direction: Direction,
    pub(crate) customers: Vec<usize>,
    /// The channels, or the records, that belong to this call rather than to another customer's.
    pub(crate) own: Vec<T>,
    /// The call begins with the first of these channels; empty where records tell of it.
    pub(crate) begins_with: Vec<usize>,
    pub(crate) talk: Talk,
}

/// The calls that these channels, sorted by age, were; none when nobody took part. Where parts of
/// an open call were given out before, each is known by its customer's own channel, and no channel
/// by which such a part is known begins another.
pub(super) fn plans(legs: &[&View<'_>], given: Option<&BTreeSet<UniqueId>>) -> Vec<Plan> {
    let known = |leg: &View<'_>| given.is_some_and(|given| given.contains(&leg.leg.id));
    let mut all = legs.iter();
    let Some(first) = all.position(|leg| leg.party.is_real() && !known(leg)) else {
        return Vec::new();
    };
    let trunks = (0..legs.len()).filter(|&i| legs[i].party.trunk().is_some());
    let mut plans = by_customer(
        trunks,
        |i| legs[i].way == Way::CameIn,
        |i| number::dialled(legs, i).map(|number| number.raw.text),
        |customers| talk(legs, customers),
    );
    if plans.is_empty() {
        plans.push((Direction::Internal, vec![first]));
    }
    let owns = apart(legs.len(), &plans, |those| with_linkedid(legs, those));
    let mut made = Vec::new();
    for (i, ((direction, customers), own)) in plans.into_iter().zip(owns).enumerate() {
        // Colleagues who were in a room before the customer came do not begin the call.
        let joined_later = direction == Direction::Inbound && first != customers[0];
        let origin = origin(legs, customers[0]);
        let apart = i == 0 && (joined_later || given.is_some());
        let begins_with = match &origin {
            Some(Origin::Leg(origin)) => vec![*origin],
            None if apart => with_linkedid(legs, &customers).into_iter().collect(),
            Some(Origin::Unheard(_)) | None => own.clone(),
        };
        made.push(Plan {
            linkedid: match origin {
                _ if i > 0 || given.is_some() => legs[customers[0]].leg.id.clone(),
                Some(Origin::Leg(origin)) => legs[origin].leg.id.clone(),
                Some(Origin::Unheard(id)) => id,
                None => oldest(legs),
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

/// The channel that a call began with.
enum Origin {
    Leg(usize),
    /// No event of the channel was received.
    Unheard(UniqueId),
}

/// Returns the channel that the customer's call began with, if each channel names at its creation
/// whose call it belongs to. A channel that joined later, in a room or a queue, began a call of its
/// own and not this one.
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

/// The oldest linkedid is that of one of the channels.
pub(super) fn is_rooted(legs: &[&View<'_>]) -> bool {
    let root = oldest(legs);
    legs.iter().any(|leg| leg.leg.id == root)
}

/// The oldest linkedid of all.
fn oldest(legs: &[&View<'_>]) -> UniqueId {
    let ids = legs.iter().flat_map(|leg| {
        let linkedids = leg.leg.linkedids.iter();
        linkedids.filter_map(|linkedid| UniqueId::new(linkedid.text.as_str()))
    });
    // Ids that tell no age have that of their channels, in whose order these stand.
    let place = |id: &UniqueId| legs.iter().position(|leg| leg.leg.id == *id);
    let age = |id: &UniqueId| {
        let (epoch, counter, _) = id.age();
        let place = (epoch == u64::MAX).then(|| place(id).unwrap_or(usize::MAX));
        (epoch, counter, place)
    };
    let oldest = ids.min_by(|a, b| (age(a), a.age()).cmp(&(age(b), b.age())));
    oldest.unwrap_or_else(|| legs[0].leg.id.clone())
}

/// The customer's channels, and those born with the same linkedid, where that is their own.
fn with_linkedid(legs: &[&View<'_>], customers: &[usize]) -> BTreeSet<usize> {
    let linkedid = legs[customers[0]].first_linkedid();
    let root = oldest(legs);
    let mut own: BTreeSet<usize> = customers.iter().copied().collect();
    if linkedid != root.as_str() {
        own.extend((0..legs.len()).filter(|&i| legs[i].first_linkedid() == linkedid));
    }
    own
}

/// The customers of each call among these trunk channels: who came in has one of their own, and it
/// began with those who were dialled where none came in before. All trunk channels of an outbound
/// call are the customer's, for the first carrier may refuse and the second answer. Only if people
/// of several numbers talked, they are several calls.
pub(crate) fn by_customer(
    trunks: impl Iterator<Item = usize>,
    came_in: impl Fn(usize) -> bool,
    number: impl Fn(usize) -> Option<String>,
    talk: impl Fn(&[usize]) -> Talk,
) -> Vec<(Direction, Vec<usize>)> {
    let (came, mut dialled): (Vec<usize>, Vec<usize>) = trunks.partition(|&i| came_in(i));
    if came.first() < dialled.first() && !came.is_empty() {
        dialled.clear();
    }
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for &i in &dialled {
        let number = number(i).map_or(String::new(), |number| subscriber(&number));
        match groups.iter_mut().find(|(known, _)| *known == number) {
            Some((_, those)) => those.push(i),
            None => groups.push((number, vec![i])),
        }
    }
    groups.retain(|(_, customers)| talk(customers).is_answer());
    if groups.len() < 2 && !dialled.is_empty() {
        groups = vec![(String::new(), dialled)];
    }
    let outbound = groups.into_iter().map(|it| (Direction::Outbound, it.1));
    let inbound = came.into_iter().map(|it| (Direction::Inbound, vec![it]));
    outbound.chain(inbound).collect()
}

/// Divides `all` among these calls: to the first goes what is none of the others'.
pub(crate) fn apart(
    all: usize,
    plans: &[(Direction, Vec<usize>)],
    of: impl Fn(&[usize]) -> BTreeSet<usize>,
) -> Vec<Vec<usize>> {
    let later: Vec<_> = plans.iter().skip(1).map(|plan| of(&plan.1)).collect();
    let elsewhere = |i: &usize| later.iter().any(|own| own.contains(i));
    let first: BTreeSet<usize> = (0..all).filter(|i| !elsewhere(i)).collect();
    let owns = std::iter::once(first).chain(later);
    owns.map(|own| own.into_iter().collect()).collect()
}

/// The last nine digits: what stays the same whatever prefix a carrier wants.
fn subscriber(number: &str) -> String {
    let digits: Vec<char> = number.chars().filter(char::is_ascii_digit).collect();
    digits[digits.len().saturating_sub(9)..].iter().collect()
}

/// A stay: from, to, bridge, channel.
type Presence = (EventTime, EventTime, usize, usize);

/// The connections of the customer's channels, given as indices.
pub(super) fn talk(legs: &[&View<'_>], customers: &[usize]) -> Talk {
    let mut bridges: BTreeMap<&str, usize> = BTreeMap::new();
    let mut presences: Vec<Presence> = Vec::new();
    for (i, leg) in legs.iter().enumerate() {
        for stay in &leg.stays {
            let count = bridges.len();
            let bridge = *bridges.entry(stay.bridge).or_insert(count);
            presences.push((stay.from, stay.to, bridge, i));
        }
    }
    let own = customers.iter().flat_map(|&i| &legs[i].stays);
    let from = own.clone().map(|stay| stay.from).min();
    let reach = from.zip(own.map(|stay| stay.to).max());
    // Without the customer nobody talks: of a room that is never empty, little is left.
    presences.retain(|p| reach.is_some_and(|(from, to)| p.0 <= to && p.1 >= from));
    presences.sort_unstable();
    let times = presences.iter().flat_map(|p| [p.0, p.1]);
    let within = |at: &EventTime| reach.is_some_and(|(from, to)| (from..=to).contains(at));
    let times = times.filter(within).collect();
    let pairs = local_pairs(legs.iter().map(|leg| leg.name));
    let talk = Talk::between(times, |from, to| {
        let there = presences.iter().copied();
        let there: Vec<Presence> = there.filter(|p| p.0 <= from && p.1 >= to).collect();
        connected(legs, customers, &there, &pairs, bridges.len())
    });
    Talk {
        untimed: legs.iter().any(|leg| !leg.timed),
        ..talk
    }
}

/// The real parties, other than the customer's own channels, that one of these is connected with;
/// whoever came first into a bridge first.
fn connected(
    legs: &[&View<'_>],
    customers: &[usize],
    there: &[Presence],
    pairs: &[[usize; 2]],
    bridges: usize,
) -> Vec<usize> {
    let bridge_of = |leg: usize| there.iter().find(|it| it.3 == leg).map(|it| it.2);
    let mut sets = Sets::new(bridges);
    for &[a, b] in pairs {
        if let (Some(a), Some(b)) = (bridge_of(a), bridge_of(b)) {
            sets.join(a, b);
        }
    }
    let own = customers.iter().filter_map(|&leg| bridge_of(leg));
    let own: Vec<usize> = own.map(|bridge| sets.of(bridge)).collect();
    let others = there.iter().filter(|it| !customers.contains(&it.3));
    let real = others.filter(|it| legs[it.3].party.is_real());
    let heard = real.filter(|it| own.contains(&sets.of(it.2)));
    heard.map(|it| it.3).collect()
}
