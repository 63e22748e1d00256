//! Finds events that must have been lost, judging by those that were received.
//!
//! | reported | lost |
//! |---|---|
//! | an exit from a bridge, or a second entry | the entry, or the exit in between |
//! | `ConfbridgeJoin` | the entry into the conference's bridge |
//! | a channel that's younger than the call | its creation, if others' were reported |
//! | the first channel of the call | its creation, and with it the start of the call |
//! | the end of dialing a channel (AMI) | the start, and with it the number |
//! | a conference member ID (FreeSWITCH) | `conference::maintenance` |
//! | a conference member who's talking (FreeSWITCH) | their entry |
//! | who remains in a bridge after an exit (CEL) | the entry of one of them |

use super::plan::Plan;
use super::view::View;
use crate::facts::{FactKind, Texts, any};
use crate::{Direction, Origin, UniqueId};
use std::collections::BTreeSet;

/// Returns which event of the call was lost, or `None` if none is known to be.
///
/// `views` contains all channels of the open call, and `legs` those of the plan. `old` stands for
/// Asterisk 11 or older, and `rooms` are the bridges that are conferences.
pub(super) fn lost(
    views: &[View<'_>],
    legs: &[&View<'_>],
    plan: &Plan,
    rooms: &Texts,
    old: bool,
) -> Option<String> {
    if plan.direction == Direction::Internal {
        return None;
    }
    creation(legs, plan, old)
        .or_else(|| passage(views, legs, plan))
        .or_else(|| dialing(legs, plan))
        .or_else(|| conference(legs, plan, rooms))
        .or_else(|| companion(views, legs, plan))
}

/// Returns a reason if a channel's creation wasn't reported, although the source reports that of
/// others or always does. If channels change places (`old`), the channel may have taken a party
/// along. Otherwise, only the start of the call depends on it.
///
/// A channel that's older than the call, such as a logged-in agent's, may have been created before
/// events were received.
fn creation(legs: &[&View<'_>], plan: &Plan, old: bool) -> Option<String> {
    let own = plan.own.iter().map(|&i| legs[i]);
    if !own.clone().any(|leg| reports_creation(leg)) {
        return None;
    }
    let firsts = plan.begins_with.iter().chain(&plan.customers);
    let first = firsts.map(|&i| legs[i]).min_by_key(|leg| leg.leg.first)?;
    let since = first.leg.first.floor_seconds().get();
    let mut unborn = own.filter(|leg| !leg.leg.is_born() && leg.leg.traits.is_none());
    let leg = unborn.find(|leg| {
        let created = UniqueId::epoch_in(leg.leg.id.as_str());
        let is_first = leg.leg.id == first.leg.id && created != Some(since);
        is_first || old && created.is_some_and(|created| created >= since)
    })?;
    let name = leg.name;
    Some(format!(
        "the creation of {name} was not reported, so events of the call are missing"
    ))
}

/// Returns `true` if the source would have reported the channel's creation. AMI always does.
fn reports_creation(leg: &View<'_>) -> bool {
    let mut facts = leg.leg.facts.iter();
    leg.leg.is_born() || facts.any(|fact| fact.origin == Origin::Channel)
}

/// Returns a reason if an event of a channel entering or leaving a bridge is missing. Channels of
/// other calls matter only if the customer was in that bridge.
fn passage(views: &[View<'_>], legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let own: BTreeSet<&UniqueId> = plan
        .own
        .iter()
        .chain(&plan.customers)
        .map(|&i| &legs[i].leg.id)
        .collect();
    for leg in views.iter().filter(|leg| !leg.broken.is_empty()) {
        let is_own = own.contains(&leg.leg.id);
        let mut broken = leg.broken.iter();
        let is_missing = broken.any(|bridge| {
            let mut customers = plan.customers.iter().flat_map(|&i| &legs[i].stays);
            is_own || customers.any(|stay| stay.bridge == *bridge)
        });
        if is_missing {
            let name = leg.name;
            return Some(format!(
                "an event of a bridge that {name} was in is missing"
            ));
        }
    }
    None
}

/// Returns a reason if AMI reported how dialing the customer ended, but not how it began.
fn dialing(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let leg = plan.customers.iter().map(|&i| legs[i]).find(|leg| {
        let mut facts = leg.leg.facts.iter();
        let has_end = facts.any(|fact| fact.origin == Origin::Channel && fact.what.is_dial_end());
        has_end && leg.leg.traits.is_none() && !any(&leg.leg.facts, FactKind::is_dialed)
    })?;
    let name = leg.name;
    Some(format!(
        "it was not reported which number was dialed on {name}"
    ))
}

/// Returns a reason if FreeSWITCH shows that a party joined a conference before the customer left,
/// but no event reported that.
fn conference(legs: &[&View<'_>], plan: &Plan, rooms: &Texts) -> Option<String> {
    let customers = plan.customers.iter().map(|&i| legs[i].end);
    let left = customers.max()?;
    let mut own = plan.own.iter().chain(&plan.customers).map(|&i| legs[i]);
    let leg = own.find(|leg| {
        let joined = leg.leg.applications.conference;
        let joined = joined.filter(|at| *at <= left && Some(*at) > leg.leg.forgotten_until);
        let was_member = leg.leg.traits.is_some() && joined.is_some();
        was_member && !leg.stays.iter().any(|stay| rooms.contains(stay.bridge))
    })?;
    let name = leg.name;
    Some(format!(
        "{name} was in a conference that was not reported: subscribe to CUSTOM \
         conference::maintenance"
    ))
}

/// Returns a reason if CEL named a phone or line that remained in a bridge when the customer left
/// it, but its entry wasn't reported.
fn companion(views: &[View<'_>], legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    let facts = plan.customers.iter().flat_map(|&i| &legs[i].leg.facts);
    for fact in facts {
        if let FactKind::Remains { bridge, name } = &fact.what
            && !views.iter().any(|view| has_entered(view, bridge, name))
        {
            return Some(format!(
                "the entry of {name} into the customer's bridge was not reported"
            ));
        }
    }
    None
}

/// Returns `true` if the channel had this name and entered this bridge.
fn has_entered(view: &View<'_>, bridge: &str, name: &str) -> bool {
    let mut passages = view.leg.facts.iter().filter_map(|fact| fact.what.passage());
    view.leg.names.has(name) && passages.any(|passage| passage.enters && passage.bridge == bridge)
}
