//! Channel variables and user fields of a call.

use super::customers::Plan;
use super::view::View;
use crate::call::{Direction, Variable};
use crate::facts::leg::SeenVariable;
use std::collections::{BTreeMap, BTreeSet};

/// A value, and the channel and event it was told by.
pub(super) struct VariableSource<'a> {
    pub(super) variable: Variable,
    pub(super) leg: &'a View<'a>,
    pub(super) seen: &'a SeenVariable,
}

/// Each variable with its value. The root leg's value wins over another leg's; where it has none
/// and other legs disagree, all their values.
pub(super) fn variables<'a>(legs: &[&'a View<'a>], plan: &Plan) -> Vec<VariableSource<'a>> {
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
pub(super) fn userfields(legs: &[&View<'_>], plan: &Plan, of_cdrs: &[String]) -> Vec<String> {
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
