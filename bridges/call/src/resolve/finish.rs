//! Determines a finished call's values, each along with the event that decided it.

use super::connections;
use super::plan::Plan;
use super::split::Part;
use super::view::View;
use super::{number, timeline};
use crate::call::{aliases, direction_message, distinct};
use crate::facts::{FactKind, Leg, OpenCall, SeenVariable, Stamped};
use crate::talk::longest;
use crate::unmatched::{Carried, Unmatched};
use crate::{
    CLOCK_TOLERANCE, DecidingEvents, Direction, EventTime, Extension, FinishedCall, Party,
    UniqueId, Variable, Way, trunk,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Returns the finished call for a plan.
pub(super) fn finish(
    call: &OpenCall,
    part: &Part<'_, '_>,
    plan: &Plan,
    known: &[&UniqueId],
    incomplete: Option<String>,
) -> FinishedCall {
    let legs = part.legs.as_slice();
    let mut why = DecidingEvents::default();
    let main = longest(&plan.customers, |those| connections::talk(legs, those));
    let customer = legs[main];
    let (at, how) = customer.way_by;
    let direction = if is_direction_unknown(legs, plan) {
        Direction::Unknown
    } else {
        plan.direction
    };
    let message = direction_message(direction, customer.party.trunk(), how);
    why.note("direction", at, customer.name, message);
    let first = plan
        .begins_with
        .iter()
        .chain(&plan.customers)
        .map(|&i| legs[i])
        .min_by_key(|leg| leg.leg.first)
        .unwrap_or(customer);
    let started = first.leg.first;
    why.note(
        "startedAt",
        started,
        first.name,
        "the first event of the call",
    );
    let customers = plan.customers.iter().map(|&i| legs[i]);
    let last = customers.max_by_key(|leg| leg.left).unwrap_or(customer);
    let ended = last.left.max(started);
    let message = if last.left < last.end {
        "the customer hung up, and the channel ended later"
    } else {
        "the last hang-up of the customer"
    };
    why.note("durationSec", last.left, last.name, message);
    let talk = plan.talk.total.min(ended.since(started));
    let answered = plan.talk.would_answer(talk);
    let messages = if plan.talk.is_answer() {
        [
            "in a bridge with the customer",
            "the last bridge with another party ended",
        ]
    } else {
        [
            "in a bridge with the customer for less than half a second",
            "no answer, so no talk",
        ]
    };
    let never = (customer.end, "never in a bridge with another party");
    plan.talk
        .note(&mut why, |i| legs[i].name, customer.name, messages, never);
    let variables = variables(legs, plan, &mut why);
    let mut numbers = match plan.direction {
        Direction::Inbound => number::callers(customer, first_dialed(part.own(), plan)),
        Direction::Outbound => number::all_dialed(part.own(), main),
        Direction::Internal | Direction::Unknown => Vec::new(),
    }
    .into_iter();
    let number = numbers.next();
    let shown = if plan.direction == Direction::Outbound && number.is_none() {
        number::originated_number(customer)
    } else {
        None
    };
    let (at, message) = match number.as_ref().or(shown.as_ref()) {
        Some(number) => (number.at, number.message),
        None => (customer.leg.first, "no number was reported"),
    };
    why.note("clientPhone", at, customer.name, message);
    let did = if plan.direction == Direction::Inbound {
        customer.leg.did.as_ref()
    } else {
        None
    };
    let employee = employee(legs, plan, customer, &mut why);
    let trunk = customer.party.trunk();
    if let Some(trunk) = trunk {
        let message = format!("the channel belongs to {trunk}");
        why.note("trunk", customer.leg.first, customer.name, message);
    }
    let ids = plan
        .own
        .iter()
        .chain(&plan.customers)
        .flat_map(|&i| legs[i].ids())
        .filter(|id| !part.foreign.contains(id));
    FinishedCall {
        linkedid: plan.linkedid.clone(),
        also_known_as: aliases(ids, known),
        direction,
        answered,
        trunk: trunk.map(str::to_owned),
        number: number.map(|number| number.raw),
        more_numbers: numbers.map(|number| number.raw).collect(),
        shown_number: shown.map(|number| number.raw),
        did: did.map(ToString::to_string),
        employee,
        employees_in_order: plan.talk.in_order(|i| &legs[i].party),
        started,
        ended,
        talk: if answered { talk } else { Duration::ZERO },
        variables,
        userfields: userfields(call, legs, plan),
        incomplete: incomplete
            .or_else(|| call.of.is_set_back().then(set_back))
            .or_else(|| time_unknown(call, plan))
            .or_else(|| beginning_missed(legs, plan))
            .or_else(|| dialler_unobservable(legs, plan))
            .or_else(|| outsider(legs, plan))
            .or_else(|| clock_set_back(legs, plan)),
        estimate: false,
        by_arrival: call.times.by_arrival,
        live: call.times.live,
        remarks: remarks(call, plan),
        decided_by: why.0,
        timeline: Some(timeline::timeline(legs, plan)),
        unmatched: unmatched(part.own(), plan),
        unknown_channels: unknown_channels(part.own(), plan),
        given: None,
    }
}

/// Returns when the call's first other leg was dialed. From then on, the customer's channel may
/// show numbers other than the customer's.
fn first_dialed(legs: &[&View<'_>], plan: &Plan) -> Option<EventTime> {
    plan.own
        .iter()
        .filter(|i| !plan.customers.contains(i))
        .map(|&i| legs[i])
        .filter(|leg| leg.way == Way::Dialed)
        .map(|leg| leg.leg.first)
        .min()
}

/// Returns the user fields of the call's channels in chronological order, followed by those of
/// other channels.
fn userfields(call: &OpenCall, legs: &[&View<'_>], plan: &Plan) -> Vec<String> {
    let mut of_legs: Vec<&Stamped> = plan
        .own
        .iter()
        .flat_map(|&i| legs[i].leg.userfields.iter())
        .collect();
    of_legs.sort_by_key(|stamped| stamped.at);
    let texts = of_legs.iter().map(|stamped| stamped.text.as_str());
    distinct(texts.chain(call.userfields.iter().map(String::as_str)))
}

/// Returns the name prefixes of the channels that may or may not be phones, as far as callbridge
/// can tell.
fn unknown_channels(legs: &[&View<'_>], plan: &Plan) -> Vec<String> {
    let own = plan.own.iter().map(|&i| legs[i]);
    let unknown = own.filter(|leg| matches!(leg.party, Party::Unknown(_)));
    let prefixes: BTreeSet<String> = unknown.filter_map(|leg| trunk::prefix(leg.name)).collect();
    prefixes.into_iter().collect()
}

/// Collects the prefixes of channels that carried an outside number but don't match any trunk.
/// Since a phone may show one of the company's outside numbers, an inbound phone only counts if no
/// trunk was involved at all.
fn unmatched(legs: &[&View<'_>], plan: &Plan) -> Vec<String> {
    let mut found = Unmatched::default();
    for &i in &plan.own {
        let leg = legs[i];
        if leg.party.trunk().is_some() || !leg.party.is_real() {
            continue;
        }
        let telephone = leg.party.extension().is_some();
        let (number, way) = match leg.way {
            Way::CameIn if telephone && plan.direction != Direction::Internal => continue,
            Way::CameIn if !leg.is_root() => continue,
            Way::CameIn => (number::caller(leg), Carried::In),
            Way::Dialed => (number::dialed_number(legs, i), Carried::Out),
        };
        let Some(number) = number else { continue };
        // A dialed channel's other numbers may be the caller's.
        if way == Carried::Out && !number.raw.from_dial_string {
            continue;
        }
        match &leg.leg.traits {
            Some(traits) => found.note_line(&traits.line, &number.raw.text),
            None => found.note(leg.name, &number.raw.text, way),
        }
    }
    found.0
}

/// Returns the last extension to start talking to the customer. If there was none, it's the only
/// extension that was dialed for an inbound call (none if there were several), or the one that
/// placed an outbound call.
fn employee(
    legs: &[&View<'_>],
    plan: &Plan,
    customer: &View<'_>,
    why: &mut DecidingEvents,
) -> Option<Extension> {
    let own: Vec<&View<'_>> = plan.own.iter().map(|&i| legs[i]).collect();
    let last_talk = plan
        .talk
        .began
        .iter()
        .rfind(|&&(_, i)| legs[i].party.extension().is_some());
    let answered = plan.talk.is_answer();
    let inbound = plan.direction == Direction::Inbound;
    let found = if let Some(&(at, i)) = last_talk {
        Some((legs[i], at, "the last to begin to talk"))
    } else if answered {
        None
    } else if inbound {
        only_dialed_extension(&own).map(|leg| (leg, leg.leg.first, "the one extension dialed"))
    } else {
        let placed_by = plan.placed_by.map(|by| legs[by]);
        let first = placed_by.or_else(|| own.iter().copied().find(|leg| leg.party.is_real()));
        first.map(|leg| (leg, leg.leg.first, "placed the call"))
    };
    if let Some((leg, at, message)) = found
        && let Some(extension) = leg.party.extension()
    {
        why.note("employee", at, leg.name, message);
        return Some(extension.clone());
    }
    let message = if answered {
        "the customer did not talk with an extension"
    } else if inbound && own.iter().any(|leg| leg.party.extension().is_some()) {
        "several extensions were dialed, and none answered"
    } else {
        "no extension took part"
    };
    why.note("employee", customer.end, customer.name, message);
    None
}

/// Returns the first channel of a dialed phone, or `None` if several phones were dialed.
fn only_dialed_extension<'v, 'a>(own: &[&'v View<'a>]) -> Option<&'v View<'a>> {
    let mut first: Option<&View<'_>> = None;
    for &leg in own {
        if leg.party.extension().is_none() || leg.way != Way::Dialed {
            continue;
        }
        match first {
            None => first = Some(leg),
            Some(other) if other.party.extension() != leg.party.extension() => return None,
            Some(_) => {}
        }
    }
    first
}

/// Returns why a call's start isn't known, or `None` if it is.
fn beginning_missed(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let mut traits = plan
        .customers
        .iter()
        .filter_map(|&i| legs[i].leg.traits.as_ref());
    let begun = if traits.any(|traits| traits.listed) {
        // In a call that was already in progress, each party may have been elsewhere before.
        plan.own.iter().all(|&i| legs[i].begun)
    } else {
        plan.customers.iter().any(|&i| legs[i].begun)
    };
    let rooted = legs.iter().any(|leg| leg.leg.id == plan.linkedid);
    if begun && rooted {
        return None;
    }
    if is_direction_unknown(legs, plan) {
        let reason = "the beginning of the call was not received, so its direction is unknown";
        return Some(reason.to_owned());
    }
    Some("the beginning of the call was not received".to_owned())
}

/// Returns `true` if a FreeSWITCH trunk was dialed by a channel without events. The trunk may lead
/// to a customer or to the mobile phone of a colleague whom a customer called.
fn is_direction_unknown(legs: &[&View<'_>], plan: &Plan) -> bool {
    let is_rooted = legs.iter().any(|leg| leg.leg.id == plan.linkedid);
    let has_traits = plan.customers.iter().any(|&i| legs[i].leg.traits.is_some());
    plan.direction == Direction::Outbound && has_traits && !is_rooted
}

/// Returns why it can't be determined who dialed, or `None` if it can.
///
/// AMI 1.x reports neither a queue's dialing nor an originated call that no one answered. A trunk
/// that rang without being answered may therefore have led to a customer or to an agent's mobile
/// phone.
fn dialler_unobservable(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let old = legs.iter().all(|leg| leg.leg.linkedids.first().is_none());
    let dialed = plan.customers.iter().any(|&i| legs[i].was_dialed());
    let outbound = plan.direction == Direction::Outbound;
    let unknown = outbound && old && !dialed && !plan.talk.is_answer();
    unknown.then(|| "the PBX did not report who dialed, or which number".to_owned())
}

/// Returns a reason for doubt if an outbound call's first party came in from outside over a channel
/// that doesn't match any trunk, since it may be a customer's call that was forwarded to the
/// outside.
fn outsider(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let mut own = plan.own.iter().map(|&i| legs[i]);
    let first = own.find(|leg| leg.party.is_real())?;
    let came = plan.direction == Direction::Outbound && first.way == Way::CameIn;
    (came && first.party == Party::Outsider).then(|| {
        format!(
            "it began with a call from outside on {}, which no --trunk matches: name its gateway, \
             address or profile as a trunk's endpoint",
            first.name
        )
    })
}

/// Returns why the call's duration is unknown if one of the customer's channels had an event before
/// it was created or after it hung up, which means that the PBX's clock was set back in between.
fn clock_set_back(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let contradicted = plan
        .customers
        .iter()
        .any(|&i| legs[i].timed && has_events_outside_life(legs[i].leg));
    contradicted.then(set_back)
}

/// Returns `true` if the channel had an event before it was created or after it hung up.
fn has_events_outside_life(leg: &Leg) -> bool {
    let times = leg.facts.iter().map(|fact| fact.at);
    let births = leg
        .facts
        .iter()
        .filter(|fact| matches!(fact.what, FactKind::Born(_)));
    if let Some(born) = births.map(|fact| fact.at).max()
        && let Some(first) = times.clone().min()
        && born.since(first) > CLOCK_TOLERANCE
    {
        return true;
    }
    let (Some(ended), Some(last)) = (leg.ended(), times.max()) else {
        return false;
    };
    last.since(ended) > CLOCK_TOLERANCE
}

/// If the events at the start and end of a conversation arrive within this time, they were read all
/// at once.
const ONE_READ: Duration = Duration::from_millis(100);

/// Returns why the call's times are unknown, or `None` if they're right.
fn time_unknown(call: &OpenCall, plan: &Plan) -> Option<String> {
    if call.times.clock_set {
        return Some("the PBX's clock was set during the call".to_owned());
    }
    if call.times.stalled {
        return Some(
            "its events have no timestamps, and the connection to the PBX stalled during the call"
                .to_owned(),
        );
    }
    let spans = &plan.talk.spans;
    let in_one_read = !spans.is_empty() && plan.talk.total <= ONE_READ;
    if call.times.by_arrival && in_one_read {
        return Some(
            "its events have no timestamps, and the answer and the hangup arrived together, so the \
             talk time is unknown: set timestampevents = yes in manager.conf"
                .to_owned(),
        );
    }
    None
}

fn set_back() -> String {
    "the PBX's clock was set back during the call".to_owned()
}

fn remarks(call: &OpenCall, plan: &Plan) -> Vec<String> {
    let mut remarks = Vec::new();
    if call.size.dropped > 0 {
        let dropped = call.size.dropped;
        remarks.push(format!(
            "events that were dropped because there was no room: {dropped}"
        ));
    }
    if !plan.talk.is_answer() && plan.talk.total > Duration::ZERO {
        let talk = plan.talk.total.as_millis();
        remarks.push(format!("{talk} ms of talk are too short for an answer"));
    }
    remarks
}

/// Returns each variable with its value.
///
/// The root leg's value takes precedence over those of other legs. If the root leg has none and the
/// others disagree, all of their values are returned. The root leg is the channel of the customer
/// who called in or, in an outbound call, the channel that the call started with.
fn variables(legs: &[&View<'_>], plan: &Plan, why: &mut DecidingEvents) -> Vec<Variable> {
    let root = match plan.direction {
        Direction::Inbound => plan.customers.first().copied(),
        Direction::Outbound | Direction::Internal | Direction::Unknown => {
            let mut own = plan.own.iter();
            let named = own.find(|&&i| legs[i].leg.id == plan.linkedid);
            named.or(plan.own.first()).copied()
        }
    };
    let mut made: BTreeMap<&str, (Variable, usize, EventTime)> = BTreeMap::new();
    let others = plan.own.iter().copied().filter(|&i| Some(i) != root);
    for i in root.into_iter().chain(others) {
        for seen in last_values(legs[i]) {
            let value = seen.value.to_string();
            let Some((known, of, _)) = made.get_mut(seen.name.as_str()) else {
                let variable = Variable {
                    name: seen.name.to_string(),
                    values: vec![value],
                };
                made.insert(&seen.name, (variable, i, seen.first));
                continue;
            };
            if Some(*of) != root && !known.values.contains(&value) {
                known.values.push(value);
            }
        }
    }
    for (name, (_, i, first)) in &made {
        why.note(
            name,
            *first,
            legs[*i].name,
            format!("{name} of this channel"),
        );
    }
    made.into_values().map(|(variable, ..)| variable).collect()
}

/// Returns the last value of each of a channel's variables.
fn last_values<'a>(leg: &'a View<'a>) -> Vec<&'a SeenVariable> {
    let mut last: BTreeMap<&str, &SeenVariable> = BTreeMap::new();
    for seen in &leg.leg.variables {
        let known = last.entry(&seen.name).or_insert(seen);
        if (seen.last, seen.first) > (known.last, known.first) {
            *known = seen;
        }
    }
    last.into_values().collect()
}
