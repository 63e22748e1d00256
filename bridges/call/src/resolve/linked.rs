//! Determines who could hear whom if a PBX reports when two channels start and stop hearing each
//! other, and its rooms have no names.
//!
//! ```text
//! Linked customer, 101                  the customer hears 101
//!   101 consults (102 rings)            …and music
//!     Linked 101, 102                   101 hears 102; the link with the customer hasn't ended
//!   101 hangs up                        both links are over
//! Linked 102, customer                  the customer hears 102
//! ```
//! A channel can only hear one other at a time, which is the one whose link started last. When that
//! link is over, an earlier one continues. No one is talking until both sides have answered,
//! because a link also carries a carrier's announcement.
//!
//! A channel that monitors another one has no link. As long as both sides of the other's link can
//! hear it, it's a third party to that link:
//!
//! ```text
//! Linked customer, 101                  the customer hears 101
//!   104 monitors 101 (Both)             …and 104
//! ```

use super::view::{AT_ONCE, LINKED};
use crate::facts::{Fact, FactKind, Leg, any, spans};
use crate::{Endpoints, EventTime, MonitorMode, Origin, UniqueId};
use std::collections::BTreeMap;

/// A span of time, from start to end.
type Span = (EventTime, EventTime);

/// Two channels, as indices, and when they were linked.
#[derive(Clone, Copy, Debug)]
struct Link {
    sides: [usize; 2],
    from: EventTime,
    to: EventTime,
}

/// A channel that someone can hear while it's monitoring another one. Channels are indices.
#[derive(Clone, Copy, Debug)]
struct Monitor {
    by: usize,
    target: usize,
    mode: MonitorMode,
    from: EventTime,
    to: EventTime,
}

impl Monitor {
    /// Returns the part of the span during which the channel is monitoring.
    fn part_of(&self, (from, to): Span) -> Option<Span> {
        let from = from.max(self.from);
        let to = to.min(self.to);
        if from < to { Some((from, to)) } else { None }
    }
}

/// Returns the channels with their links as two-party bridges, or `None` if there were no links.
pub(super) fn replace_links(legs: &[&Leg], endpoints: &Endpoints) -> Option<Vec<Leg>> {
    let links = links(legs);
    if links.is_empty() && !legs.iter().any(|leg| any(&leg.facts, is_of_links)) {
        return None;
    }
    let monitors = monitors(legs, &links);
    let consults = find_consultations(legs, &monitors);
    let mut own: Vec<Leg> = legs.iter().map(|&leg| leg.clone()).collect();
    for (leg, at) in interrupted(legs) {
        let what = FactKind::enter_or_leave(format!("link of {}", legs[leg].id), false, false);
        own[leg].facts.push(Fact::new(at, Origin::Channel, what));
    }
    for leg in &mut own {
        leg.facts.retain(|fact| !is_of_links(&fact.what));
    }
    let mut heard: Vec<(Link, Span)> = Vec::new();
    for (i, link) in links.iter().enumerate() {
        let away = spans_away(&links[i..], &consults, &monitors);
        for span in cut_spans(answered_span(legs, link), away) {
            put_into_bridge(&mut own, link.sides, link.sides, span);
            heard.push((*link, span));
        }
    }
    for monitor in &monitors {
        add_monitor(&mut own, legs, endpoints, monitor, &heard);
    }
    Some(own)
}

/// Returns the spans during which either side of the first of these links was away from it because
/// of a later link, a consultation, or monitoring.
fn spans_away(links: &[Link], consults: &[Vec<Span>], monitors: &[Monitor]) -> Vec<Span> {
    let Some((link, later)) = links.split_first() else {
        return Vec::new();
    };
    let mut away = Vec::new();
    for other in later {
        if link.sides.iter().any(|side| other.sides.contains(side)) {
            away.push((other.from, other.to));
        }
    }
    for side in link.sides {
        away.extend(consults[side].iter().filter(|span| span.0 >= link.from));
    }
    for monitor in monitors {
        if link.sides.contains(&monitor.by) && monitor.from >= link.from {
            away.push((monitor.from, monitor.to));
        }
    }
    away
}

/// Puts these channels into the two channels' bridge for this span.
fn put_into_bridge<const N: usize>(
    legs: &mut [Leg],
    bridge_of: [usize; 2],
    members: [usize; N],
    (from, to): Span,
) {
    let [a, b] = bridge_of;
    let bridge = format!("{}{LINKED}{}", legs[a].id, legs[b].id);
    for leg in members {
        for (at, enters) in [(from, true), (to, false)] {
            let what = FactKind::enter_or_leave(bridge.clone(), enters, false);
            legs[leg].facts.push(Fact::new(at, Origin::Channel, what));
        }
    }
}

/// Puts a monitoring channel into each link in which the customer can hear it. If the target isn't
/// linked, only the two of them can hear each other.
fn add_monitor(
    own: &mut [Leg],
    legs: &[&Leg],
    endpoints: &Endpoints,
    monitor: &Monitor,
    heard: &[(Link, Span)],
) {
    let mut with_partner = Vec::new();
    for (link, span) in heard {
        if !link.sides.contains(&monitor.target) {
            continue;
        }
        let Some(part) = monitor.part_of(*span) else {
            continue;
        };
        with_partner.push(part);
        let mut partners = link
            .sides
            .into_iter()
            .filter(|side| *side != monitor.target);
        let is_heard = match monitor.mode {
            MonitorMode::Both => true,
            MonitorMode::Target => legs[monitor.target].endpoint(endpoints).is_some(),
            MonitorMode::Partner => partners.any(|side| legs[side].endpoint(endpoints).is_some()),
            MonitorMode::Listen | MonitorMode::Ended => false,
        };
        if is_heard {
            put_into_bridge(own, link.sides, [monitor.by], part);
        }
    }
    if monitor.mode != MonitorMode::Partner {
        let sides = [monitor.by, monitor.target];
        let link = Link {
            sides,
            from: monitor.from,
            to: monitor.to,
        };
        for span in cut_spans(answered_span(legs, &link), with_partner) {
            put_into_bridge(own, sides, sides, span);
        }
    }
}

fn is_of_links(what: &FactKind) -> bool {
    let others = matches!(what, FactKind::Consults { .. } | FactKind::Monitors { .. });
    what.link().is_some() || others
}

/// Returns when the channel was over, as far as is known.
fn end(leg: &Leg) -> EventTime {
    leg.ended().unwrap_or(leg.last)
}

/// Returns all links in the order they started. A link ends when either side hangs up.
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
        let [a, b] = sides;
        let over = end(legs[a]).min(end(legs[b]));
        let mut spans: Vec<Span> = spans(reports)
            .into_iter()
            .map(|(from, to)| (from, to.unwrap_or(over).min(over)))
            .filter(|(from, to)| from < to)
            .collect();
        for i in 1..spans.len() {
            let next = spans[i].0;
            // After a consultation, the switch puts the two channels into a new bridge.
            if next.since(spans[i - 1].1) < AT_ONCE {
                spans[i - 1].1 = next;
            }
        }
        links.extend(spans.into_iter().map(|(from, to)| Link { sides, from, to }));
    }
    links.sort_by_key(|link| (link.from, link.sides));
    links
}

/// Returns the channels that ended a link or consultation, and when, if its start was neither
/// received nor reported later.
fn interrupted(legs: &[&Leg]) -> Vec<(usize, EventTime)> {
    let mut found = Vec::new();
    for (i, leg) in legs.iter().enumerate() {
        for fact in &leg.facts {
            let is_missing = match &fact.what {
                FactKind::Consults { begins: false } => !leg.facts.iter().any(|begin| {
                    begin.what == FactKind::Consults { begins: true } && begin.at <= fact.at
                }),
                FactKind::Unlinked { with } => {
                    let other = legs.iter().find(|other| other.id == *with);
                    let sides = [Some((*leg, with)), other.map(|&other| (other, &leg.id))];
                    let mut sides = sides.into_iter().flatten();
                    !sides.any(|(by, with)| has_begun_link(by, with, fact.at))
                }
                _ => false,
            };
            if is_missing {
                found.push((i, fact.at));
            }
        }
    }
    found
}

/// Returns `true` if the channel reported, then or later, that its link to the other one had
/// started before `until`.
fn has_begun_link(by: &Leg, other: &UniqueId, until: EventTime) -> bool {
    let mut facts = by.facts.iter();
    let mut later = by.traits.iter().flat_map(|traits| &traits.linked);
    facts.any(|fact| fact.what.link() == Some((other, true)) && fact.at <= until)
        || later.any(|(_, with)| with == other)
}

/// Returns those of the channel's links whose start wasn't received, but which it reported later,
/// given by the other channel and when the link started.
fn reported_later(legs: &[&Leg], leg: &Leg) -> Vec<(usize, EventTime)> {
    let mut later = Vec::new();
    for (at, id) in leg.traits.iter().flat_map(|traits| &traits.linked) {
        if *id == leg.id || legs.iter().any(|by| reports_beginning(by, leg, *at)) {
            continue;
        }
        if let Some(other) = legs.iter().position(|other| other.id == *id) {
            later.push((other, *at));
        }
    }
    later
}

/// Returns `true` if an event of `by` shows that one of the links of channel `leg` started at
/// around this time.
fn reports_beginning(by: &Leg, leg: &Leg, at: EventTime) -> bool {
    by.facts.iter().any(|fact| {
        let Some((with, true)) = fact.what.link() else {
            return false;
        };
        fact.at.apart(at) < AT_ONCE && (by.id == leg.id || *with == leg.id)
    })
}

/// Returns the part of a link during which both sides had answered.
fn answered_span(legs: &[&Leg], link: &Link) -> Option<Span> {
    let mut from = link.from;
    for side in link.sides {
        if let Some(traits) = &legs[side].traits {
            from = from.max(traits.answered?);
        }
    }
    if from < link.to {
        Some((from, link.to))
    } else {
        None
    }
}

/// Returns the spans during which each channel was away from its link to consult a third party. A
/// consultation ends when all channels dialed for it have hung up, or when one of them joins the
/// call as a third party.
fn find_consultations(legs: &[&Leg], monitors: &[Monitor]) -> Vec<Vec<Span>> {
    let mut consults = Vec::new();
    for (i, leg) in legs.iter().enumerate() {
        let mut reports: Vec<(EventTime, bool)> = Vec::new();
        for fact in &leg.facts {
            if let FactKind::Consults { begins } = fact.what {
                reports.push((fact.at, begins));
            }
        }
        reports.sort_unstable();
        let mut spans = Vec::new();
        for (place, &(from, begins)) in reports.iter().enumerate() {
            if !begins {
                continue;
            }
            let back = reports.get(place + 1).map(|&(at, _)| at);
            let last = back.unwrap_or(end(leg));
            let gone = consulted_until(legs, leg, (from, last));
            let joined = monitors
                .iter()
                .filter(|monitor| monitor.target == i && monitor.from >= from)
                .map(|monitor| monitor.from)
                .min();
            let to = back.into_iter().chain(gone).chain(joined).min();
            spans.push((from, to.unwrap_or(last).max(from)));
        }
        consults.push(spans);
    }
    consults
}

/// Returns the spans during which someone could hear a channel that was monitoring another one,
/// ordered by start. A later link of the channel ends its monitoring.
fn monitors(legs: &[&Leg], links: &[Link]) -> Vec<Monitor> {
    let mut monitors = Vec::new();
    for (by, leg) in legs.iter().enumerate() {
        let mut changes: Vec<(EventTime, &UniqueId, MonitorMode)> = Vec::new();
        for fact in &leg.facts {
            if let FactKind::Monitors { target, mode, .. } = &fact.what {
                changes.push((fact.at, target, *mode));
            }
        }
        changes.sort_unstable();
        for (place, &(from, id, mode)) in changes.iter().enumerate() {
            let target = legs.iter().position(|other| other.id == *id);
            let Some(target) = target.filter(|&target| target != by && mode.is_heard()) else {
                continue;
            };
            let next = changes.get(place + 1).map(|change| change.0);
            let later = links
                .iter()
                .filter(|link| link.sides.contains(&by) && link.from > from)
                .map(|link| link.from)
                .min();
            let ends = [end(leg), end(legs[target])];
            let over = ends.into_iter().chain(next).chain(later).min();
            let to = over.unwrap_or(from);
            if from < to {
                monitors.push(Monitor {
                    by,
                    target,
                    mode,
                    from,
                    to,
                });
            }
        }
    }
    monitors.sort_by_key(|monitor| (monitor.from, monitor.by));
    monitors
}

/// Returns when the last of the channels that this one dialed during the span hung up, or `None` if
/// one of them is still up or it didn't dial anyone.
fn consulted_until(legs: &[&Leg], by: &Leg, (from, to): Span) -> Option<EventTime> {
    // A channel's creation time comes from the switch's clock, which advances in steps, so it may
    // be earlier than the application that dialed the channel.
    let dialed_in = from.minus(AT_ONCE)..=to;
    let mut last = None;
    for leg in legs.iter().filter(|leg| dialed_in.contains(&leg.first)) {
        if any(&leg.facts, |what| what.dialer() == Some(&by.id)) {
            last = last.max(Some(leg.ended()?));
        }
    }
    last
}

/// Cuts other spans out of this one, and returns what's left of it.
fn cut_spans(span: Option<Span>, mut away: Vec<Span>) -> Vec<Span> {
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
    fn span_minus_overlapping_spans_leaves_the_rest() {
        for (away, expected) in [
            (vec![], vec![(10, 20)]),
            (vec![(12, 14), (13, 15)], vec![(10, 12), (15, 20)]),
            (vec![(8, 12), (18, 30)], vec![(12, 18)]),
            (vec![(21, 30)], vec![(10, 20)]),
            (vec![(5, 25)], vec![]),
        ] {
            let spans = away.iter().copied().map(span).collect();
            let left = cut_spans(Some(span((10, 20))), spans);
            let expected: Vec<Span> = expected.into_iter().map(span).collect();
            assert_eq!(left, expected, "{away:?}");
        }
    }

    fn span((from, to): (i64, i64)) -> Span {
        (EventTime::from_seconds(from), EventTime::from_seconds(to))
    }
}
