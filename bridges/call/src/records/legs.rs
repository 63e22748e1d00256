//! Records that tell of one channel alone: what each tells, as events, put together as if the
//! channels had told it themselves. It stays an estimate: a record keeps the last of what changed.

use super::group::Group;
use crate::call::FinishedCall;
use crate::facts::open::OpenCall;
use crate::resolve::{EndReason, resolve};
use crate::settings::Settings;
use crate::units::UniqueId;

/// The finished calls that these records were; `None` where they tell of paths.
pub(super) fn calls(group: &Group, settings: &Settings) -> Option<Vec<FinishedCall>> {
    let own = |id: &UniqueId| {
        let mut firsts = group.records.iter().filter_map(|it| it.legs.first());
        firsts.any(|leg| leg.id == *id)
    };
    let first = group.records.iter().filter_map(|it| it.legs.first());
    let began = first.map(|leg| leg.first).min()?;
    let mut call = OpenCall::new(began, group.arrived, group.is_live());
    for record in &group.records {
        for (at, leg) in record.legs.iter().enumerate() {
            // Of a channel with a record of its own, that says all.
            if at == 0 || !own(&leg.id) {
                *call.legs.met(leg.id.clone(), leg.first) = leg.clone();
            }
        }
    }
    let mut calls = resolve(&call, settings, EndReason::HungUp, false);
    for call in &mut calls {
        call.estimate = true;
    }
    Some(calls)
}
