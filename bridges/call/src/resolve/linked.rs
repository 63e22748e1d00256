//! Who hears whom, where a PBX tells that two channels hear each other, or no more, and no room of
//! it has a name.
//!
//! ```text
//! Linked customer, 101                  the customer hears 101
//!   101 consults (102 rings)            …and music
//!     Linked 101, 102                   101 hears 102; the link with the customer was not ended
//!   101 hangs up                        both links are over
//! Linked 102, customer                  the customer hears 102
//! ```
//! A channel hears one other at a time: of its links, the one that began last. What was linked
//! before goes on when that is over. Nobody talks before both have answered: a carrier's
//! announcement is heard through a link, too.

use crate::facts::{Fact, FactKind, Leg, any, spans};
use crate::{EventTime, Origin, UniqueId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Two accounts of the beginning of one link are so near to each other.
pub(super) const AT_ONCE: Duration = Duration::from_millis(100);

/// A span of time, from its beginning to its end.
type Span = (EventTime, EventTime);

/// Two channels, as indices, and when they were linked.
#[derive(Clone, Copy, Debug)]
struct Link {
    sides: [usize; 2],
    from: EventTime,
    to: EventTime,
}

/// The channels with their links as bridges of two; `None` where none was linked.
pub(super) fn linked(legs: &[&Leg]) -> Option<Vec<Leg>> {
    let links = links(legs);
    let consults = consults(legs);
    if links.is_empty() && !legs.iter().any(|leg| any(&leg.facts, is_of_links)) {
        return None;
    }
    let mut own: Vec<Leg> = legs.iter().map(|&leg| leg.clone()).collect();
    for leg in &mut own {
        leg.facts.retain(|fact| !is_of_links(&fact.what));
    }
    for (i, link) in links.iter().enumerate() {
        let shares = |other: &&Link| link.sides.iter().any(|side| other.sides.contains(side));
        let later = links[i + 1..].iter().filter(shares);
        let mut away: Vec<Span> = later.map(|other| (other.from, other.to)).collect();
        let sides = link.sides.iter();
        let aside = sides.flat_map(|side| &consults[*side]);
        away.extend(aside.filter(|span| span.0 >= link.from).copied());
        let [a, b] = link.sides;
        let bridge = format!("{} + {}", own[a].id, own[b].id);
        for (from, to) in without(answered_span(legs, link), away) {
            for leg in link.sides {
                for (at, enters) in [(from, true), (to, false)] {
                    let what = FactKind::passes(bridge.clone(), enters, false);
                    own[leg].facts.push(Fact::new(at, Origin::Channel, what));
                }
            }
        }
    }
    Some(own)
}

fn is_of_links(what: &FactKind) -> bool {
    what.link().is_some() || matches!(what, FactKind::Consults { .. })
}

/// Returns the time at which the channel was over, as far as is known.
fn end(leg: &Leg) -> EventTime {
    leg.ended().unwrap_or(leg.last)
}

/// All links in the order in which they began. A link ends with either's hang-up.
fn links(legs: &[&Leg]) -> Vec<Link> {
    let mut reports: BTreeMap<[usize; 2], Vec<(EventTime, bool)>> = BTreeMap::new();
    for (i, leg) in legs.iter().enumerate() {
        for fact in &leg.facts {
            let Some((with, begins)) = fact.what.link() else {
                continue;
            };
            let other = legs.iter().position(|leg| leg.id == *with);
            if let Some(other) = other.filter(|&other| other != i) {
                let sides = [i.min(other), i.max(other)];
                reports.entry(sides).or_default().push((fact.at, begins));
            }
        }
        for (other, at) in reported_later(legs, leg) {
            let sides = [i.min(other), i.max(other)];
            reports.entry(sides).or_default().push((at, true));
        }
    }
    let mut links = Vec::new();
    for (sides, mut reports) in reports {
        reports.sort_unstable();
        let over = sides.map(|side| end(legs[side]));
        let over = over[0].min(over[1]);
        let spans = spans(reports).into_iter();
        let spans = spans.map(|(from, to)| (from, to.unwrap_or(over).min(over)));
        let lasting = spans.filter(|(from, to)| from < to);
        links.extend(lasting.map(|(from, to)| Link { sides, from, to }));
    }
    links.sort_by_key(|link| (link.from, link.sides));
    links
}

/// Links of the channel whose beginning was not heard, and which it told of after that: with whom,
/// and since when.
fn reported_later(legs: &[&Leg], leg: &Leg) -> Vec<(usize, EventTime)> {
    let begun = |by: &Leg, at: EventTime| {
        by.facts.iter().any(|fact| {
            let near = fact.at.apart(at) < AT_ONCE;
            let link = fact.what.link().filter(|(_, begins)| near && *begins);
            link.is_some_and(|(with, _)| by.id == leg.id || *with == leg.id)
        })
    };
    let later = leg.traits.iter().flat_map(|traits| &traits.linked);
    let unheard = later.filter(|(at, _)| !legs.iter().any(|by| begun(by, *at)));
    let with = |id: &UniqueId| legs.iter().position(|leg| leg.id == *id);
    let of_others = unheard.filter(|(_, id)| *id != leg.id);
    let later = of_others.filter_map(|(at, id)| Some((with(id)?, *at)));
    later.collect()
}

/// The part of a link in which both sides had answered.
fn answered_span(legs: &[&Leg], link: &Link) -> Option<Span> {
    let mut from = link.from;
    for side in link.sides {
        if let Some(traits) = &legs[side].traits {
            from = from.max(traits.answered?);
        }
    }
    (from < link.to).then_some((from, link.to))
}

/// Returns the spans in which each channel was away from what it was linked with before, because it
/// consulted a third: at most until whoever it dialled for that has hung up.
fn consults(legs: &[&Leg]) -> Vec<Vec<Span>> {
    let of = |leg: &&Leg| {
        let reports = leg.facts.iter().filter_map(|fact| match fact.what {
            FactKind::Consults { begins } => Some((fact.at, begins)),
            _ => None,
        });
        let mut reports: Vec<(EventTime, bool)> = reports.collect();
        reports.sort_unstable();
        let mut spans = Vec::new();
        for (i, &(from, begins)) in reports.iter().enumerate() {
            if begins {
                let back = reports[i + 1..].first().map(|&(at, _)| at);
                let gone = consulted_until(legs, leg, (from, back.unwrap_or(end(leg))));
                let to = back.into_iter().chain(gone).min();
                spans.push((from, to.unwrap_or(end(leg)).max(from)));
            }
        }
        spans
    };
    legs.iter().map(of).collect()
}

/// Returns the time at which the last of those hung up whom this channel dialled in the span;
/// `None` if one is still up.
fn consulted_until(legs: &[&Leg], by: &Leg, (from, to): Span) -> Option<EventTime> {
    let dialled = legs.iter().filter(|leg| {
        let by_it = |what: &FactKind| {
            matches!(what, FactKind::Dialled { by: Some(it), .. } if *it == by.id)
        };
        any(&leg.facts, by_it) && (from..=to).contains(&leg.first)
    });
    let ends: Option<Vec<EventTime>> = dialled.map(|leg| leg.ended()).collect();
    ends?.into_iter().max()
}

/// Cuts other spans out of one, and returns the rest of it.
fn without(span: Option<Span>, mut away: Vec<Span>) -> Vec<Span> {
    let Some((mut from, to)) = span else {
        return Vec::new();
    };
    away.sort_unstable();
    let mut left = Vec::new();
    for (begin, end) in away {
        if begin > from {
            left.push((from, begin.min(to)));
        }
        from = from.max(end);
        if from >= to {
            return left;
        }
    }
    left.push((from, to));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_span_is_told_once() {
        let at = EventTime::from_seconds;
        let left = |away: &[(i64, i64)]| {
            let away = away.iter().map(|&(from, to)| (at(from), at(to)));
            let left = without(Some((at(10), at(20))), away.collect());
            let seconds = |at: EventTime| at.floor_seconds().get();
            left.into_iter()
                .map(|(from, to)| (seconds(from), seconds(to)))
                .collect::<Vec<_>>()
        };
        assert_eq!(left(&[]), [(10, 20)]);
        assert_eq!(left(&[(12, 14), (13, 15)]), [(10, 12), (15, 20)]);
        assert_eq!(left(&[(8, 12), (18, 30)]), [(12, 18)]);
        assert_eq!(left(&[(21, 30)]), [(10, 20)]);
        assert_eq!(left(&[(5, 25)]), []);
    }
}
