//! When the customer was connected with another real party, and with whom.
//!
//! Two channels are connected while they share a bridge, directly or through the halves of Local
//! channels. Music, menus, queues, parking and voicemail put nobody else into a bridge.

use super::split::Sets;
use super::view::View;
use crate::trunk;
use crate::units::EventTime;
use std::collections::BTreeMap;
use std::time::Duration;

/// Talk shorter than this is a hand that slipped: not answered.
pub(crate) const ANSWERED_FROM: Duration = Duration::from_millis(500);

/// The customer's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Talk {
    /// How long the customer was connected with somebody.
    pub(super) total: Duration,
    /// When that began first, and ended last, and the channel connected first.
    pub(super) first: Option<(EventTime, usize)>,
    pub(super) last: Option<EventTime>,
    /// Each time somebody became connected with the customer: when, and which channel.
    pub(super) began: Vec<(EventTime, usize)>,
    /// From when until when which channel was connected with the customer.
    pub(super) spans: Vec<(EventTime, EventTime, usize)>,
    /// It cannot be said how long.
    untimed: bool,
}

impl Talk {
    /// There was talk of half a second or more; where no times were told, any.
    pub(super) fn is_answer(&self) -> bool {
        self.would_answer(self.total)
    }

    /// Whether talk of this length is enough to be an answer.
    pub(super) fn would_answer(&self, talk: Duration) -> bool {
        talk >= ANSWERED_FROM || self.untimed && talk > Duration::ZERO
    }

    /// These channels are connected with the customer in this span; `last` is each one's latest.
    fn connect(
        &mut self,
        (from, to): (EventTime, EventTime),
        with: &[usize],
        last: &mut BTreeMap<usize, usize>,
    ) {
        for &leg in with {
            let before = last.get(&leg).and_then(|&i| self.spans.get_mut(i));
            if let Some(span) = before.filter(|span| span.1 == from) {
                span.1 = to;
            } else {
                last.insert(leg, self.spans.len());
                self.spans.push((from, to, leg));
            }
        }
    }
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
    let reach = own.fold(None, |reach: Option<(EventTime, EventTime)>, stay| {
        let (from, to) = reach.unwrap_or((stay.from, stay.to));
        Some((from.min(stay.from), to.max(stay.to)))
    });
    // Without the customer nobody talks: of a room that is never empty, little is left.
    presences.retain(|p| reach.is_some_and(|(from, to)| p.0 <= to && p.1 >= from));
    presences.sort_unstable();
    let times = presences.iter().flat_map(|p| [p.0, p.1]);
    let within = |at: &EventTime| reach.is_some_and(|(from, to)| (from..=to).contains(at));
    let mut times: Vec<EventTime> = times.filter(within).collect();
    times.sort_unstable();
    times.dedup();
    let pairs = local_pairs(legs);
    let mut talk = Talk {
        untimed: legs.iter().any(|leg| !leg.timed),
        ..Talk::default()
    };
    let mut before: Vec<usize> = Vec::new();
    let mut last: BTreeMap<usize, usize> = BTreeMap::new();
    for span in times.windows(2) {
        let (from, to) = (span[0], span[1]);
        let there: Vec<Presence> = presences
            .iter()
            .copied()
            .filter(|p| p.0 <= from && p.1 >= to)
            .collect();
        let with = connected(legs, customers, &there, &pairs, bridges.len());
        if let Some(&first) = with.first() {
            talk.total += to.since(from);
            talk.first = talk.first.or(Some((from, first)));
            talk.last = Some(to);
        }
        talk.connect((from, to), &with, &mut last);
        let new = with.iter().filter(|leg| !before.contains(leg));
        talk.began.extend(new.map(|&leg| (from, leg)));
        before = with;
    }
    talk
}

/// The other half of each Local half.
fn local_pairs(legs: &[&View<'_>]) -> Vec<(usize, usize)> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut pairs = Vec::new();
    for (i, leg) in legs.iter().enumerate() {
        let Some(name) = trunk::local_pair(leg.name) else {
            continue;
        };
        if let Some(&other) = first.get(name) {
            pairs.push((other, i));
        } else {
            first.insert(name, i);
        }
    }
    pairs
}

/// The real parties, other than the customer's own channels, that one of these is connected with;
/// whoever came first into a bridge first.
fn connected(
    legs: &[&View<'_>],
    customers: &[usize],
    there: &[Presence],
    pairs: &[(usize, usize)],
    bridges: usize,
) -> Vec<usize> {
    let bridge_of = |leg: usize| {
        there
            .iter()
            .find(|&&(_, _, _, i)| i == leg)
            .map(|&(_, _, bridge, _)| bridge)
    };
    let mut sets = Sets::new(bridges);
    for &(a, b) in pairs {
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
        legs[leg].is_real() && !customers.contains(&leg) && customers_in.contains(&set_of[bridge])
    });
    others.map(|&(_, _, _, leg)| leg).collect()
}
