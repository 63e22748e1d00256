//! Puts the values of a finished call together, each with the event that decided it.

use super::plan::{self, Plan};
use super::view::View;
use super::{number, timeline};
use crate::facts::{FactKind, OpenCall, SeenVariable};
use crate::unmatched::{Carried, Unmatched};
use crate::{
    CLOCK_TOLERANCE, DecidingEvents, Direction, EventTime, Extension, FinishedCall, Party,
    RawNumber, UniqueId, Variable, Way,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The finished call of one plan.
pub(super) fn finish(
    call: &OpenCall,
    legs: &[&View<'_>],
    plan: &Plan,
    known: &[&UniqueId],
    incomplete: Option<String>,
) -> FinishedCall {
    let mut why = DecidingEvents::default();
    let main = main_customer(legs, plan);
    let customer = legs[main];
    let words = direction_words(plan, customer);
    why.note("direction", customer.way_by.0, customer.name, words);
    let started = started(legs, plan, &mut why);
    let ended = ended(legs, plan, &mut why).max(started);
    let talk = plan.talk.total.min(ended.since(started));
    let answered = plan.talk.would_answer(talk);
    talked(legs, plan, customer, &mut why);
    let variables = variables(legs, plan);
    for source in &variables {
        let name = &source.variable.name;
        let words = format!("{name} of this channel");
        why.note(name, source.seen.first, source.leg.name, words);
    }
    let number = number_of(legs, plan, main, &mut why);
    let shown_number = match plan.direction {
        Direction::Outbound if number.is_none() => shown_number(customer, &mut why),
        Direction::Outbound | Direction::Inbound | Direction::Internal => None,
    };
    let did = customer.leg.did.as_ref();
    let did = did.filter(|_| plan.direction == Direction::Inbound);
    let employee = employee_of(legs, plan, customer, &mut why);
    let trunk = trunk_of(customer, &mut why);
    let variables = variables.into_iter().map(|source| source.variable);
    FinishedCall {
        linkedid: plan.linkedid.clone(),
        also_known_as: aliases(legs, plan, known),
        direction: plan.direction,
        answered,
        trunk,
        number,
        shown_number,
        did: did.map(ToString::to_string),
        employee,
        employees_in_order: plan.talk.in_order(|i| &legs[i].party),
        started,
        ended,
        talk: if answered { talk } else { Duration::ZERO },
        variables: variables.collect(),
        userfields: userfields(legs, plan, &call.userfields),
        incomplete: incomplete
            .or_else(|| call.of.is_set_back().then(set_back))
            .or_else(|| beginning_missed(legs, plan))
            .or_else(|| dialler_unobservable(legs, plan))
            .or_else(|| outsider(legs, plan))
            .or_else(|| clock_set_back(legs, plan)),
        estimate: false,
        live: call.times.live,
        remarks: remarks(call, plan),
        why: why.0,
        timeline: Some(timeline::timeline(legs, plan)),
        unmatched: unmatched(legs, plan),
        given: None,
    }
}

/// Collects the prefixes of channels that carried an outside number and belong to no trunk. A
/// telephone may show an outside number of the company's; so who called in counts only where no
/// trunk took part at all.
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
            Way::CameIn => (number::caller(leg).filter(|_| leg.is_root()), Carried::In),
            Way::Dialled => (number::dialled(legs, i), Carried::Out),
        };
        // Other numbers of a dialled channel may be those of whoever is calling.
        let number = number.filter(|it| way == Carried::In || it.raw.from_dial_string);
        let line = leg.leg.traits.as_ref().map(|it| &it.line);
        match (number, line) {
            (Some(number), Some(line)) => found.note_line(line, &number.raw.text),
            (Some(number), None) => found.note(leg.name, &number.raw.text, way),
            (None, _) => {}
        }
    }
    found.prefixes()
}

fn number_of(
    legs: &[&View<'_>],
    plan: &Plan,
    main: usize,
    why: &mut DecidingEvents,
) -> Option<RawNumber> {
    let customer = legs[main];
    let number = match plan.direction {
        Direction::Inbound => number::caller(customer),
        Direction::Outbound => number::dialled(legs, main),
        Direction::Internal => None,
    };
    let Some(number) = number else {
        why.note(
            "clientPhone",
            customer.leg.first,
            customer.name,
            "no number was reported",
        );
        return None;
    };
    why.note("clientPhone", number.at, customer.name, number.words);
    Some(number.raw)
}

/// Returns the number that the channel shows, where nothing says which was dialled.
fn shown_number(customer: &View<'_>, why: &mut DecidingEvents) -> Option<RawNumber> {
    let number = number::shown(customer)?;
    why.0.retain(|because| because.value != "clientPhone");
    why.note("clientPhone", number.at, customer.name, number.words);
    Some(number.raw)
}

fn employee_of(
    legs: &[&View<'_>],
    plan: &Plan,
    customer: &View<'_>,
    why: &mut DecidingEvents,
) -> Option<Extension> {
    let employee = employee(legs, plan);
    let known = employee.and_then(|it| Some((it.leg.party.extension()?.clone(), it)));
    let Some((extension, employee)) = known else {
        let words = none_words(legs, plan);
        why.note("employee", customer.end, customer.name, words);
        return None;
    };
    why.note("employee", employee.at, employee.leg.name, employee.words);
    Some(extension)
}

/// The channel whose extension a call is put down to, and the moment that decided it.
struct Employee<'a> {
    leg: &'a View<'a>,
    at: EventTime,
    words: &'static str,
}

/// The last extension that began to talk with the customer. If nobody did: inbound, the one
/// extension that was dialled, none when several were; outbound, the one that placed the call.
fn employee<'a>(legs: &[&'a View<'a>], plan: &Plan) -> Option<Employee<'a>> {
    let began = plan.talk.began.iter().rev();
    let mut began = began.map(|&(at, leg)| (at, legs[leg]));
    if let Some((at, leg)) = began.find(|(_, leg)| leg.party.extension().is_some()) {
        let words = "the last to begin to talk";
        return Some(Employee { leg, at, words });
    }
    if plan.talk.is_answer() {
        return None;
    }
    let (leg, words) = match plan.direction {
        Direction::Inbound => (only_one_dialled(legs, plan)?, "the one extension dialled"),
        Direction::Outbound | Direction::Internal => {
            let mut own = plan.own.iter().map(|&i| legs[i]);
            (own.find(|leg| leg.party.is_real())?, "placed the call")
        }
    };
    let at = leg.leg.first;
    Some(Employee { leg, at, words })
}

/// Returns the reason why a call is put down to nobody.
fn none_words(legs: &[&View<'_>], plan: &Plan) -> &'static str {
    let dialled = plan
        .own
        .iter()
        .any(|&i| legs[i].party.extension().is_some());
    if plan.talk.is_answer() {
        "the customer talked with no extension"
    } else if plan.direction == Direction::Inbound && dialled {
        "several extensions were dialled, and none talked"
    } else {
        "no extension took part"
    }
}

fn only_one_dialled<'a>(legs: &[&'a View<'a>], plan: &Plan) -> Option<&'a View<'a>> {
    let own = plan.own.iter().map(|&i| legs[i]);
    let mut dialled = own.filter(|leg| leg.party.extension().is_some() && leg.way == Way::Dialled);
    let leg = dialled.next()?;
    let extension = leg.party.extension()?;
    if dialled.any(|other| other.party.extension() != Some(extension)) {
        return None;
    }
    Some(leg)
}

fn trunk_of(customer: &View<'_>, why: &mut DecidingEvents) -> Option<String> {
    let trunk = customer.party.trunk()?.to_owned();
    let words = format!("the channel belongs to {trunk}");
    why.note("trunk", customer.leg.first, customer.name, words);
    Some(trunk)
}

/// Returns the reason why the beginning of a call is not known; `None` if it is.
fn beginning_missed(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let listed = |&i: &usize| legs[i].leg.traits.as_ref().is_some_and(|it| it.listed);
    // Of a call that went on already, whoever was in it may have been elsewhere before.
    let begun = match plan.customers.iter().any(listed) {
        true => plan.own.iter().all(|&i| legs[i].begun),
        false => plan.customers.iter().any(|&i| legs[i].begun),
    };
    let rooted = legs.iter().any(|leg| leg.leg.id == plan.linkedid);
    (!begun || !rooted).then(|| "the beginning of the call was not received".to_owned())
}

/// AMI 1.x tells neither of a queue's dialling nor of an originated call that nobody answered: a
/// trunk that rang for nobody may have been a customer, or an agent's mobile telephone.
fn dialler_unobservable(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let old = legs.iter().all(|leg| leg.leg.linkedids.first().is_none());
    let dialled = plan.customers.iter().any(|&i| legs[i].was_dialled());
    let unknown =
        plan.direction == Direction::Outbound && old && !dialled && !plan.talk.is_answer();
    unknown.then(|| "the PBX did not report who dialled, or which number".to_owned())
}

/// Whoever began an outbound call came in from outside over what no trunk takes: it may be that
/// customer's call, led on to somebody outside.
fn outsider(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let mut own = plan.own.iter().map(|&i| legs[i]);
    let first = own.find(|leg| leg.party.is_real())?;
    let came = plan.direction == Direction::Outbound && first.way == Way::CameIn;
    (came && first.party == Party::Outsider).then(|| {
        format!(
            "it began with a call from outside on {}, which no --trunk takes: name its gateway, \
             address or profile as a trunk's endpoint",
            first.name
        )
    })
}

/// Returns the reason why nobody can say how long the call lasted: a channel of the customer did
/// something before it was born, or after it had hung up, so the PBX's clock was set back in
/// between.
fn clock_set_back(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let contradicts = |&i: &usize| {
        let leg = legs[i];
        let times = |wanted: fn(&FactKind) -> bool| {
            let facts = leg.leg.facts.iter().filter(move |fact| wanted(&fact.what));
            facts.map(|fact| fact.at)
        };
        let (born, ended) = (
            times(|what| matches!(what, FactKind::Born(_))),
            times(FactKind::is_end),
        );
        let (first, last) = (times(|_| true).min(), times(|_| true).max());
        let far = |a: Option<EventTime>, b: Option<EventTime>| {
            a.zip(b).is_some_and(|(a, b)| b.since(a) > CLOCK_TOLERANCE)
        };
        leg.timed && (far(first, born.max()) || far(ended.min(), last))
    };
    let contradicted = plan.customers.iter().any(contradicts);
    contradicted.then(set_back)
}

fn set_back() -> String {
    "the PBX's clock was set back during the call".to_owned()
}

/// Returns the channel of the customer that was connected longest, else the one tried last.
fn main_customer(legs: &[&View<'_>], plan: &Plan) -> usize {
    if let [only] = plan.customers.as_slice() {
        return *only;
    }
    let talked = |i: usize| plan::talk(legs, &[i]).total;
    let longest = plan
        .customers
        .iter()
        .copied()
        .max_by_key(|&i| (talked(i), i));
    longest.unwrap_or(0)
}

fn direction_words(plan: &Plan, customer: &View<'_>) -> String {
    let trunk = customer.party.trunk().unwrap_or_default();
    match plan.direction {
        Direction::Inbound => format!("came in on trunk {trunk}: {}", customer.way_by.1),
        Direction::Outbound => format!("dialled out on trunk {trunk}: {}", customer.way_by.1),
        Direction::Internal => "no trunk took part".to_owned(),
    }
}

/// The first channel's first event.
fn started(legs: &[&View<'_>], plan: &Plan, why: &mut DecidingEvents) -> EventTime {
    let begin = plan
        .begins_with
        .iter()
        .chain(&plan.customers)
        .map(|&i| legs[i]);
    let Some(first) = begin.min_by_key(|leg| leg.leg.first) else {
        return legs[0].leg.first;
    };
    why.note(
        "startedAt",
        first.leg.first,
        first.name,
        "the first event of the call",
    );
    first.leg.first
}

/// The hang-up of the customer's last channel.
fn ended(legs: &[&View<'_>], plan: &Plan, why: &mut DecidingEvents) -> EventTime {
    let customers = plan.customers.iter().map(|&i| legs[i]);
    let last = customers.max_by_key(|leg| leg.end).unwrap_or(legs[0]);
    why.note(
        "durationSec",
        last.end,
        last.name,
        "the last hang-up of the customer",
    );
    last.end
}

fn talked(legs: &[&View<'_>], plan: &Plan, customer: &View<'_>, why: &mut DecidingEvents) {
    let (Some((from, with)), Some(until)) = (plan.talk.first, plan.talk.last) else {
        let words = "never in a bridge with another party";
        for value in ["answered", "talkTimeSec"] {
            why.note(value, customer.end, customer.name, words);
        }
        return;
    };
    let (answered, talked) = if plan.talk.is_answer() {
        (
            "in a bridge with the customer",
            "the last bridge with another party ended",
        )
    } else {
        (
            "in a bridge with the customer for less than half a second",
            "no answer, so no talk",
        )
    };
    why.note("answered", from, legs[with].name, answered);
    why.note("talkTimeSec", until, customer.name, talked);
}

/// All ids of the call, without those by which it or another of its calls is known.
fn aliases(legs: &[&View<'_>], plan: &Plan, known: &[&UniqueId]) -> Vec<UniqueId> {
    let own = plan.own.iter().chain(&plan.customers);
    let ids: BTreeSet<UniqueId> = own.flat_map(|&i| legs[i].ids()).collect();
    ids.into_iter().filter(|id| !known.contains(&id)).collect()
}

fn remarks(call: &OpenCall, plan: &Plan) -> Vec<String> {
    let mut remarks = Vec::new();
    if call.times.clamped > 0 {
        remarks.push(format!(
            "event times more than 5 s from their arrival, which was used in their place: {}",
            call.times.clamped
        ));
    }
    if call.size.dropped > 0 {
        remarks.push(format!(
            "events for which there was no room: {}",
            call.size.dropped
        ));
    }
    if !plan.talk.is_answer() && plan.talk.total > Duration::ZERO {
        remarks.push(format!(
            "{} ms of talk are no answer",
            plan.talk.total.as_millis()
        ));
    }
    remarks
}

/// A value, and the channel and event it was told by.
struct VariableSource<'a> {
    variable: Variable,
    leg: &'a View<'a>,
    seen: &'a SeenVariable,
}

/// Each variable with its value. The root leg's value wins over another leg's; where it has none
/// and other legs disagree, all their values.
fn variables<'a>(legs: &[&'a View<'a>], plan: &Plan) -> Vec<VariableSource<'a>> {
    let root = root(legs, plan);
    let mut made: BTreeMap<&str, VariableSource<'a>> = BTreeMap::new();
    let others = plan
        .own
        .iter()
        .filter(|&&i| Some(i) != root)
        .map(|&i| (1, i));
    for (rank, i) in root.map(|i| (0, i)).into_iter().chain(others) {
        for seen in last_values(legs[i]) {
            let Some(known) = made.get_mut(seen.name.as_str()) else {
                let variable = Variable {
                    name: seen.name.to_string(),
                    values: vec![seen.value.to_string()],
                };
                made.insert(
                    &seen.name,
                    VariableSource {
                        variable,
                        leg: legs[i],
                        seen,
                    },
                );
                continue;
            };
            let of_root = root.is_some_and(|root| known.leg.leg.id == legs[root].leg.id);
            if rank == 1 && !of_root && !known.variable.values.iter().any(|it| seen.value == *it) {
                known.variable.values.push(seen.value.to_string());
            }
        }
    }
    made.into_values().collect()
}

/// The channel whose variables are the call's: the customer's that came in; of a call out, the one
/// that the call began with.
fn root(legs: &[&View<'_>], plan: &Plan) -> Option<usize> {
    let named = plan
        .own
        .iter()
        .copied()
        .find(|&i| legs[i].leg.id == plan.linkedid);
    match plan.direction {
        Direction::Inbound => plan.customers.first().copied(),
        Direction::Outbound | Direction::Internal => named.or(plan.own.first().copied()),
    }
}

/// The last value that a channel had of each of its variables.
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

/// The user fields of the call's channels, in the order told, without repeats.
fn userfields(legs: &[&View<'_>], plan: &Plan, of_cdrs: &[String]) -> Vec<String> {
    let mut in_order: Vec<_> = plan
        .own
        .iter()
        .flat_map(|&i| legs[i].leg.userfields.iter())
        .collect();
    in_order.sort_by_key(|stamped| stamped.at);
    let mut seen = BTreeSet::new();
    let in_order = in_order.into_iter().map(|stamped| stamped.text.as_str());
    let all = in_order.chain(of_cdrs.iter().map(String::as_str));
    all.filter(|text| seen.insert(*text))
        .map(str::to_owned)
        .collect()
}
