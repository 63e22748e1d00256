//! Channel variables and user fields of a call.

use super::customers::Plan;
use super::view::View;
use crate::call::{Direction, Variable};
use crate::facts::leg::VariableHeard;
use std::collections::{BTreeMap, BTreeSet};

/// A value, and the channel and event it was told by.
pub(super) struct VariableSource<'a> {
    pub(super) variable: Variable,
    pub(super) leg: &'a View<'a>,
    pub(super) heard: &'a VariableHeard,
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
        for heard in last_values(legs[i]) {
            let Some(known) = made.get_mut(heard.name.as_str()) else {
                let variable = Variable {
                    name: heard.name.to_string(),
                    values: vec![heard.value.to_string()],
                };
                made.insert(
                    &heard.name,
                    VariableSource {
                        variable,
                        leg: legs[i],
                        heard,
                    },
                );
                continue;
            };
            let of_root = root.is_some_and(|root| known.leg.leg.id == legs[root].leg.id);
            if rank == 1 && !of_root && !known.variable.values.iter().any(|it| heard.value == *it) {
                known.variable.values.push(heard.value.to_string());
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
fn last_values<'a>(leg: &'a View<'a>) -> Vec<&'a VariableHeard> {
    let mut last: BTreeMap<&str, &VariableHeard> = BTreeMap::new();
    for heard in &leg.leg.variables {
        let known = last.entry(&heard.name).or_insert(heard);
        if (heard.last, heard.first) > (known.last, known.first) {
            *known = heard;
        }
    }
    last.into_values().collect()
}

/// The user fields of the call's channels, in the order told, without repeats.
pub(super) fn userfields(legs: &[&View<'_>], plan: &Plan, of_cdrs: &[String]) -> Vec<String> {
    let mut told: Vec<_> = plan
        .own
        .iter()
        .flat_map(|&i| legs[i].leg.userfields.iter())
        .collect();
    told.sort_by_key(|stamped| stamped.at);
    let mut seen = BTreeSet::new();
    let told = told.into_iter().map(|stamped| stamped.text.as_str());
    let all = told.chain(of_cdrs.iter().map(String::as_str));
    all.filter(|text| seen.insert(*text))
        .map(str::to_owned)
        .collect()
}
