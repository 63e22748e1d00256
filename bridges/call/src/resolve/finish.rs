//! Puts the values of a finished call together, each with the event that decided it.

use super::customers::Plan;
use super::view::View;
use super::{employee, number, talk, variables};
use crate::assembler::open::OpenCall;
use crate::call::{Because, Direction, FinishedCall};
use crate::units::{EventTime, UniqueId};
use std::collections::BTreeSet;
use std::time::Duration;

/// The finished call of one plan.
pub(super) fn finish(
    call: &OpenCall,
    legs: &[&View<'_>],
    plan: &Plan,
    others: &[UniqueId],
    incomplete: Option<String>,
) -> FinishedCall {
    let mut why = Why::default();
    let customer = legs[main_customer(legs, plan)];
    why.note(
        "direction",
        customer.way_by.0,
        customer,
        direction_words(plan, customer),
    );
    let started = started(legs, plan, &mut why);
    let (ended, last) = ended(legs, plan);
    let ended = ended.max(started);
    why.note(
        "durationSec",
        ended,
        last,
        "the last hang-up of the customer".to_owned(),
    );
    let answered = plan.talk.is_answer();
    let talk = if answered {
        plan.talk.total.min(ended.since(started))
    } else {
        Duration::ZERO
    };
    talked(legs, plan, customer, &mut why);
    let number = match plan.direction {
        Direction::Inbound => number::caller(customer),
        Direction::Outbound => number::dialled(legs, main_customer(legs, plan)),
        Direction::Internal => None,
    };
    match &number {
        Some(number) => why.note("clientPhone", number.at, customer, number.words.to_owned()),
        None => why.note(
            "clientPhone",
            customer.leg.first,
            customer,
            "no number told".to_owned(),
        ),
    }
    let employee = employee::employee(legs, plan);
    if let Some(employee) = &employee {
        why.note(
            "employee",
            employee.at,
            employee.leg,
            employee.words.to_owned(),
        );
    } else {
        let words = employee::none_words(legs, plan);
        why.note("employee", ended, customer, words.to_owned());
    }
    let variables = variables::variables(legs, plan);
    for source in &variables {
        let name = &source.variable.name;
        why.note(
            name,
            source.heard.first,
            source.leg,
            format!("{name} of this channel"),
        );
    }
    let trunk = customer
        .endpoint()
        .map(|endpoint| endpoint.trunk().to_owned());
    if let Some(trunk) = &trunk {
        why.note(
            "trunk",
            customer.leg.first,
            customer,
            format!("the channel belongs to {trunk}"),
        );
    }
    FinishedCall {
        linkedid: plan.linkedid.clone(),
        also_known_as: aliases(legs, plan, others),
        direction: plan.direction,
        answered,
        trunk,
        number: number.map(|number| number.heard),
        employee: employee.map(|employee| employee.extension),
        employees_in_order: employee::in_order(legs, plan),
        started,
        ended,
        talk,
        variables: variables
            .into_iter()
            .map(|source| source.variable)
            .collect(),
        userfields: variables::userfields(legs, plan, &call.userfields),
        incomplete: incomplete.or_else(|| beginning_missed(legs, plan)),
        estimate: false,
        live: call.live,
        remarks: remarks(call, plan),
        why: why.0,
    }
}

/// Why the beginning of a call is not known; `None` if it is.
fn beginning_missed(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let begun = plan.customers.iter().any(|&i| legs[i].begun);
    let rooted = legs.iter().any(|leg| leg.leg.id == plan.linkedid);
    (!begun || !rooted).then(|| "the beginning of the call was not heard".to_owned())
}

/// Of several channels of the customer: the one that was connected, else the one tried last.
fn main_customer(legs: &[&View<'_>], plan: &Plan) -> usize {
    let talked = |i: usize| talk::talk(legs, &[i]).total;
    let longest = plan
        .customers
        .iter()
        .copied()
        .max_by_key(|&i| (talked(i), i));
    longest.unwrap_or(0)
}

fn direction_words(plan: &Plan, customer: &View<'_>) -> String {
    let trunk = customer.endpoint().map_or("", |endpoint| endpoint.trunk());
    match plan.direction {
        Direction::Inbound => format!("came in on trunk {trunk}: {}", customer.way_by.1),
        Direction::Outbound => format!("dialled out on trunk {trunk}: {}", customer.way_by.1),
        Direction::Internal => "no trunk took part".to_owned(),
    }
}

/// The first channel's first event.
fn started(legs: &[&View<'_>], plan: &Plan, why: &mut Why) -> EventTime {
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
        first,
        "the first event of the call".to_owned(),
    );
    first.leg.first
}

/// The hang-up of the customer's last channel.
fn ended<'a>(legs: &[&'a View<'a>], plan: &Plan) -> (EventTime, &'a View<'a>) {
    let customers = plan.customers.iter().map(|&i| legs[i]);
    let last = customers.max_by_key(|leg| leg.end).unwrap_or(legs[0]);
    (last.end, last)
}

fn talked(legs: &[&View<'_>], plan: &Plan, customer: &View<'_>, why: &mut Why) {
    let (Some((from, with)), Some(until)) = (plan.talk.first, plan.talk.last) else {
        let words = "never in a bridge with another party";
        for value in ["answered", "talkTimeSec"] {
            why.note(value, customer.end, customer, words.to_owned());
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
    why.note("answered", from, legs[with], answered.to_owned());
    why.note("talkTimeSec", until, customer, talked.to_owned());
}

/// All other ids of the call, without those by which another of its calls is known.
fn aliases(legs: &[&View<'_>], plan: &Plan, others: &[UniqueId]) -> Vec<UniqueId> {
    let own = plan.own.iter().chain(&plan.customers);
    let ids: BTreeSet<UniqueId> = own.flat_map(|&i| legs[i].ids()).collect();
    ids.into_iter()
        .filter(|id| *id != plan.linkedid && !others.contains(id))
        .collect()
}

fn remarks(call: &OpenCall, plan: &Plan) -> Vec<String> {
    let mut remarks = Vec::new();
    if call.clamped > 0 {
        remarks.push(format!(
            "{} event times were more than 5 s from their arrival: the arrival counted",
            call.clamped
        ));
    }
    if call.dropped > 0 {
        remarks.push(format!("{} events found no room", call.dropped));
    }
    if !plan.talk.is_answer() && plan.talk.total > Duration::ZERO {
        remarks.push(format!(
            "{} ms of talk are no answer",
            plan.talk.total.as_millis()
        ));
    }
    remarks
}

/// The deciding events.
#[derive(Debug, Default)]
struct Why(Vec<Because>);

impl Why {
    fn note(&mut self, value: &str, at: EventTime, leg: &View<'_>, words: String) {
        let channel = leg.name.to_owned();
        self.0.push(Because {
            value: value.to_owned(),
            at,
            channel,
            words,
        });
    }
}
