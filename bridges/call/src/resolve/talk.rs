//! When the customer was connected with another real party, and with whom.
//!
//! Two channels are connected while they share a bridge, directly or through the halves of Local
//! channels. Music, menus, queues, parking and voicemail put nobody else into a bridge.

use super::split::Sets;
use super::view::View;
use crate::talk::{Talk, local_pairs};
use crate::units::EventTime;
use std::collections::BTreeMap;

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
    let reach = own.fold(None, |reach: Option<(EventTime, EventTime)>, stay| {
        let (from, to) = reach.unwrap_or((stay.from, stay.to));
        Some((from.min(stay.from), to.max(stay.to)))
    });
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
    let bridge_of = |leg: usize| {
        there
            .iter()
            .find(|&&(_, _, _, i)| i == leg)
            .map(|&(_, _, bridge, _)| bridge)
    };
    let mut sets = Sets::new(bridges);
    for &[a, b] in pairs {
        if let (Some(a), Some(b)) = (bridge_of(a), bridge_of(b)) {
            sets.join(a, b);
        }
    }
    let set_of: Vec<usize> = (0..bridges).map(|bridge| sets.of(bridge)).collect();
    let customers_in: Vec<usize> = customers
        .iter()
        .filter_map(|&leg| bridge_of(leg))
        .map(|bridge| set_of[bridge])
        .collect();
    let others = there.iter().filter(|&&(_, _, bridge, leg)| {
        legs[leg].party.is_real()
            && !customers.contains(&leg)
            && customers_in.contains(&set_of[bridge])
    });
    others.map(|&(_, _, _, leg)| leg).collect()
}
