//! Translates facts from AMI 1.x into those of later releases by working out which phone had which
//! unique ID, and who it was talking to.
//!
//! Before Asterisk 12, a masquerade (an attended transfer, a pickup, a parked or redirected
//! channel, or a Local channel that optimizes itself away) leaves unique IDs where they are.
//! Instead, it moves names, and the phones along with them, from one unique ID to another. A unique
//! ID is therefore merely a place:
//!
//! ```text
//! place 17.1  SIP/city-01 (the customer)       Link  place 17.2  SIP/101-02
//! place 17.3  SIP/101-03 (101 asks 102 first)  Link  place 17.4  SIP/102-04
//! Masquerade Clone: SIP/city-01, Original: SIP/101-03
//! place 17.3  SIP/city-01                      Link  place 17.4  SIP/102-04
//! place 17.1  SIP/101-03<ZOMBIE>, which hangs up
//! ```
//!
//! This module gives each phone its own facts back and turns each link into a two-party bridge.

use super::view::LINKED;
use crate::facts::{Fact, FactKind, Leg, OpenCall, spans};
use crate::trunk;
use crate::{EventTime, Origin, UNNAMED, UniqueId, WHO_ANSWERED};
use std::collections::{BTreeMap, BTreeSet};

/// A unique ID, along with the phones that had it and since when.
struct ChannelOccupancy<'a> {
    leg: &'a Leg,
    sits: Vec<(EventTime, usize)>,
    zombie: Option<EventTime>,
    ended: Option<EventTime>,
}

/// Pairs of channels, as in [`OpenCall::joined`].
pub(super) type JoinedPairs = BTreeSet<(UniqueId, UniqueId)>;

/// Returns the call's channels by phone, along with the joined pairs, including those that swapped
/// places, or `None` if the channels already are phones.
pub(super) fn by_occupant(call: &OpenCall) -> Option<(Vec<Leg>, JoinedPairs)> {
    let of_both = format!("{UNNAMED}{WHO_ANSWERED}");
    let mut facts = call.legs.values().flat_map(|leg| &leg.facts);
    let is_by_place = facts.any(|fact| {
        let passage = fact.what.passage();
        is_of_occupants(&fact.what) || passage.is_some_and(|passage| passage.bridge == of_both)
    });
    if !is_by_place {
        return None;
    }
    let mut occupancies: Vec<ChannelOccupancy<'_>> = call
        .legs
        .values()
        .enumerate()
        .map(|(index, leg)| ChannelOccupancy {
            leg,
            sits: vec![(leg.first, index)],
            zombie: None,
            ended: leg.ended(),
        })
        .collect();
    let mut joined = call.joined.clone();
    let mut uncertain: BTreeSet<usize> = BTreeSet::new();
    for (at, occupancy, name) in renamings(&occupancies) {
        match change(&mut occupancies, at, occupancy, name) {
            NameChange::Swap(a, b) => {
                joined.insert((occupancies[a].leg.id.clone(), occupancies[b].leg.id.clone()));
            }
            NameChange::Unknown(who) => {
                uncertain.insert(who);
            }
            NameChange::Nothing => {}
        }
    }
    for occupancy in &occupancies {
        if occupancy.lacks_renaming() {
            uncertain.insert(occupancy.sits[0].1);
        }
    }
    let mut legs: Vec<Leg> = occupancies
        .iter()
        .map(ChannelOccupancy::leg_at_birth)
        .collect();
    for occupancy in &occupancies {
        occupancy.hand_out(&occupancies, &mut legs);
    }
    let left = departures(&occupancies);
    let links = links(&occupancies);
    for (a, b) in interrupted(&links) {
        for (place, other) in [(a, b), (b, a)] {
            let who = occupancies[place].sits[0].1;
            mark_incomplete(&mut legs[who], occupancies[other].leg.id.as_str());
        }
    }
    for who in uncertain {
        let name = legs[who].name().to_owned();
        mark_incomplete(&mut legs[who], &name);
    }
    for ((a, b), mut reports) in links {
        for origin in [Origin::Channel, Origin::Cel] {
            for &(at, place) in &left {
                if place == a || place == b {
                    reports.push((at, origin, false));
                }
            }
            bridge(&occupancies, (a, b), &reports, origin, &mut legs);
        }
    }
    Some((legs, joined))
}

/// Returns `true` for a fact that shows which phone is in which place, or who it's talking to.
/// Later releases have no such facts.
fn is_of_occupants(what: &FactKind) -> bool {
    let moves = matches!(what, FactKind::Renamed { .. } | FactKind::Transfers { .. });
    moves || what.link().is_some()
}

impl ChannelOccupancy<'_> {
    /// Returns the phone that had this unique ID when it was created, without any facts.
    fn leg_at_birth(&self) -> Leg {
        let mut leg = Leg::new(self.leg.id.clone(), self.leg.first, self.leg.place);
        leg.names.note(self.leg.first, self.leg.name());
        leg
    }

    /// Returns the phone that had this unique ID at that moment.
    fn occupant_at(&self, at: EventTime) -> usize {
        let sits = self.sits.iter().rev().find(|(from, _)| *from <= at);
        sits.unwrap_or(&self.sits[0]).1
    }

    /// Returns each phone that had the unique ID, along with when it started and stopped having it.
    fn spans(&self) -> impl Iterator<Item = (usize, EventTime, Option<EventTime>)> {
        self.sits.iter().enumerate().map(|(i, &(from, who))| {
            let next = self.sits.get(i + 1).map(|&(next, _)| next);
            (who, from, next)
        })
    }

    /// Returns `true` if AMI reported the place under another name without having reported that it
    /// took on that name. CEL doesn't report such events.
    fn lacks_renaming(&self) -> bool {
        let mut facts = self.leg.facts.iter();
        if facts.any(|fact| fact.origin == Origin::Cel) {
            return false;
        }
        let first = self.leg.name();
        let mut names = self.leg.names.iter().map(|name| name.text.as_str());
        names.any(|name| {
            let mut renamings = self.leg.renamings();
            name != first
                && !trunk::is_same_line(first, name)
                && !renamings.any(|(_, to)| trunk::unmarked(to) == trunk::unmarked(name))
        })
    }

    /// Moves the unique ID's facts to the phones that they're about.
    fn hand_out(&self, occupancies: &[ChannelOccupancy<'_>], legs: &mut [Leg]) {
        let own = self.leg.facts.iter();
        for fact in own.filter(|fact| !is_of_occupants(&fact.what)) {
            let mut fact = fact.clone();
            if let FactKind::Dialed { by: Some(by), .. } = &mut fact.what
                && let Some(dialler) = occupancy_of(occupancies, by)
            {
                let dialler = occupancies[dialler].occupant_at(fact.at);
                by.clone_from(&occupancies[dialler].leg.id);
            }
            // Each phone was created in its first place, no matter what the clocks of AMI and CEL
            // show.
            let who = match fact.what {
                FactKind::Born(_) => self.sits[0].1,
                _ => self.occupant_at(fact.at),
            };
            legs[who].facts.push(fact);
        }
        // The names themselves swap places.
        for (kind, texts) in self.leg.texts().into_iter().enumerate().skip(1) {
            for stamped in texts.iter() {
                let leg = &mut legs[self.occupant_at(stamped.at)];
                leg.texts_mut()[kind].note(stamped.at, &stamped.text);
            }
        }
        legs[self.sits[0].1].did.clone_from(&self.leg.did);
        for seen in &self.leg.variables {
            legs[self.occupant_at(seen.first)]
                .variables
                .push(seen.clone());
        }
        let ran = &self.leg.applications;
        for dial in &ran.dials {
            let dials = &mut legs[self.occupant_at(dial.first)].applications.dials;
            dials.push(dial.clone());
        }
        if let Some(at) = ran.outgoing {
            legs[self.occupant_at(at)].applications.outgoing = Some(at);
        }
        if let Some(at) = ran.conference {
            legs[self.occupant_at(at)].applications.conference = Some(at);
        }
        if let Some(at) = ran.prompt {
            legs[self.occupant_at(at)].applications.prompt = Some(at);
        }
        if let Some(at) = ran.agent {
            legs[self.occupant_at(at)].applications.agent = Some(at);
        }
        for (who, _, until) in self.spans() {
            let last = until.unwrap_or(self.leg.last);
            legs[who].last = legs[who].last.max(last);
        }
    }
}

/// Returns the index of the place with this unique ID or, failing that, of the one whose channel
/// name was used in place of an ID.
fn occupancy_of(all: &[ChannelOccupancy<'_>], id: &UniqueId) -> Option<usize> {
    all.iter()
        .position(|place| place.leg.id == *id)
        .or_else(|| all.iter().position(|place| place.leg.name() == id.as_str()))
}

/// Returns every name that each place has had and when it took effect, in chronological order.
fn renamings<'a>(occupancies: &[ChannelOccupancy<'a>]) -> Vec<(EventTime, usize, &'a str)> {
    let mut all = Vec::new();
    for (i, occupancy) in occupancies.iter().enumerate() {
        all.extend(occupancy.leg.renamings().map(|(at, to)| (at, i, to)));
        let names = occupancy.leg.names.iter();
        all.extend(names.map(|name| (name.at, i, name.text.as_str())));
    }
    all.sort_by_key(|&(at, ..)| at);
    all
}

/// What a place's new name means.
enum NameChange {
    Nothing,
    /// These two phones swapped places.
    Swap(usize, usize),
    /// This phone went to a place that we haven't received any events about.
    Unknown(usize),
}

/// Processes a place's new name, which means that its phone and the one with that name swap places.
/// The two subchannels of a DAHDI line are the same phone.
fn change(
    occupancies: &mut [ChannelOccupancy<'_>],
    at: EventTime,
    occupancy: usize,
    name: &str,
) -> NameChange {
    if name.ends_with("<ZOMBIE>") {
        occupancies[occupancy].zombie = Some(at);
    } else if name.ends_with("<MASQ>") {
        // This is an intermediate name, not a place.
        return NameChange::Nothing;
    }
    let name = trunk::unmarked(name);
    let here = last_occupant(occupancies, occupancy);
    let now = occupancies[here].leg.name();
    if now == name || trunk::is_same_line(now, name) {
        return NameChange::Nothing;
    }
    let found = (0..occupancies.len())
        .filter(|&other| {
            let place = &occupancies[other];
            other != occupancy
                && occupancies[last_occupant(occupancies, other)].leg.name() == name
                && place.leg.first <= at
                && place.ended.is_none_or(|ended| ended >= at)
        })
        .max_by_key(|&other| occupancies[other].leg.first);
    let Some(other) = found else {
        return NameChange::Unknown(here);
    };
    let there = last_occupant(occupancies, other);
    occupancies[occupancy].sits.push((at, there));
    occupancies[other].sits.push((at, here));
    NameChange::Swap(here, there)
}

/// Returns the phone that's currently in this place.
fn last_occupant(occupancies: &[ChannelOccupancy<'_>], place: usize) -> usize {
    occupancies[place]
        .sits
        .last()
        .map_or(place, |&(_, who)| who)
}

/// A report that a link between two places started (`true`) or ended, with the time and the event
/// system that reported it.
type LinkReport = (EventTime, Origin, bool);

fn links(occupancies: &[ChannelOccupancy<'_>]) -> Links {
    let mut links = Links::new();
    for (i, occupancy) in occupancies.iter().enumerate() {
        for fact in &occupancy.leg.facts {
            let Some((with, begins)) = fact.what.link() else {
                continue;
            };
            if let Some(other) = occupancy_of(occupancies, with).filter(|&other| other != i) {
                let pair = (i.min(other), i.max(other));
                let report = (fact.at, fact.origin, begins);
                links.entry(pair).or_default().push(report);
            }
        }
    }
    links
}

/// Links by pair of places.
type Links = BTreeMap<(usize, usize), Vec<LinkReport>>;

/// Returns the pairs of places whose link has a missing start or end.
///
/// AMI reports every start and every end, so they alternate. CEL is only considered if AMI doesn't
/// report anything about the link, because it doesn't show who left to consult someone else and
/// doesn't always report the end.
fn interrupted(links: &Links) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (&pair, reports) in links {
        let of_ami = edges(reports, Origin::Channel);
        let whole = if of_ami.is_empty() {
            let of_cel = edges(reports, Origin::Cel);
            of_cel.first().is_some_and(|&(_, begins)| begins)
        } else {
            alternates(&of_ami)
        };
        if !whole {
            found.push(pair);
        }
    }
    found
}

/// Returns a link's starts (`true`) and ends as reported by one event system, in chronological
/// order.
fn edges(reports: &[LinkReport], origin: Origin) -> Vec<(EventTime, bool)> {
    let own = reports.iter().filter(|report| report.1 == origin);
    let mut edges: Vec<_> = own.map(|&(at, _, begins)| (at, begins)).collect();
    edges.sort_unstable();
    edges
}

/// Returns `true` if each start is followed by an end before the next start. The order of
/// simultaneous events is ignored.
fn alternates(edges: &[(EventTime, bool)]) -> bool {
    let mut open = 0;
    let is_possible = edges.chunk_by(|a, b| a.0 == b.0).all(|moment| {
        for &(_, begins) in moment {
            open += if begins { 1 } else { -1 };
        }
        (0..=1).contains(&open)
    });
    is_possible && open == 0
}

/// Marks a phone as missing an event about `other` by adding an exit without an entry.
fn mark_incomplete(leg: &mut Leg, other: &str) {
    let what = FactKind::enter_or_leave(format!("without {other}"), false, false);
    leg.facts.push(Fact::new(leg.last, Origin::Channel, what));
}

/// Returns when a phone transferred a call on another of its channels, along with the phone's
/// places in that call. From then on, it can't hear anyone there, although the masquerade may
/// happen much later.
fn departures(occupancies: &[ChannelOccupancy<'_>]) -> Vec<(EventTime, usize)> {
    let mut left = Vec::new();
    for occupancy in occupancies {
        let own = trunk::prefix(occupancy.leg.name());
        for fact in &occupancy.leg.facts {
            let FactKind::Transfers { call } = &fact.what else {
                continue;
            };
            if own.is_none() {
                continue;
            }
            for (place, other) in occupancies.iter().enumerate() {
                let mut linkedids = other.leg.linkedids.iter();
                if trunk::prefix(other.leg.name()) == own
                    && linkedids.any(|linkedid| linkedid.text == *call)
                {
                    left.push((fact.at, place));
                }
            }
        }
    }
    left
}

/// Puts the phones in two linked places into a bridge. A link ends when either side hangs up.
fn bridge(
    occupancies: &[ChannelOccupancy<'_>],
    (a, b): (usize, usize),
    reports: &[LinkReport],
    origin: Origin,
    legs: &mut [Leg],
) {
    let ends = [occupancies[a].ended, occupancies[b].ended];
    let hung_up = ends.into_iter().flatten().min();
    let name = format!("{}{LINKED}{}", occupancies[a].leg.id, occupancies[b].leg.id);
    for (from, unlinked) in spans(edges(reports, origin)) {
        let to = unlinked.or(hung_up);
        for occupancy in [&occupancies[a], &occupancies[b]] {
            for (who, sat, until) in occupancy.spans() {
                let enter = from.max(sat);
                let leave = [to, until, occupancy.zombie].into_iter().flatten().min();
                if leave.is_some_and(|leave| leave <= enter) {
                    continue;
                }
                for (at, enters) in [(Some(enter), true), (leave, false)] {
                    let what = FactKind::enter_or_leave(name.clone(), enters, false);
                    legs[who]
                        .facts
                        .extend(at.map(|at| Fact::new(at, origin, what)));
                }
            }
        }
    }
}
