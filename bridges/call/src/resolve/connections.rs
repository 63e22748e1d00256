//! Determines which other real parties the customer was connected to, and when.
//!
//! Two channels are connected while they share a bridge, either directly or via Local channels.
//! Music, IVRs, queues, parking, and voicemail don't count, since they don't put another party into
//! the bridge.

use super::sets::Sets;
use super::view::View;
use crate::EventTime;
use crate::talk::{Talk, local_pairs};
use std::collections::BTreeMap;

/// A stay in a bridge. Bridges and channels are indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Presence {
    from: EventTime,
    to: EventTime,
    bridge: usize,
    leg: usize,
}

/// Returns the talk time of the customer's channels, which are given as indices.
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
                // A customer who has hung up isn't talking, even if the channel continues. A bridge
                // entered at the very moment of the hangup still shows who was reached.
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
    // Only stays from the time when the customer was bridged matter, and a busy room has many
    // others.
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

/// Returns the real parties that any of the customer's channels is connected to, in the order they
/// entered the bridge.
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
