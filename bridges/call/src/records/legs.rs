//! Records that tell of one channel alone: what each tells, as events, put together as if the
//! channels had told it themselves. It stays an estimate: a record keeps the last of what changed.

use super::group::Group;
use crate::call::FinishedCall;
use crate::event::{Cdr, ChannelEvent};
use crate::facts::leg::Leg;
use crate::facts::open::OpenCall;
use crate::resolve::{EndReason, resolve};
use crate::settings::Settings;
use crate::units::{EventTime, UniqueId};

/// The channel of the record, and after it those that it names, as far as it describes them; none
/// of a record that tells of a path between two.
pub(super) fn of(cdr: &Cdr<'_>) -> Vec<Leg> {
    let mut legs: Vec<Leg> = Vec::new();
    for event in &cdr.events {
        let Some((at, id)) = event.at.zip(UniqueId::new(event.channel.uniqueid.as_ref())) else {
            continue;
        };
        let leg = met(&mut legs, &id, at);
        leg.hear(at, event, true);
        leg.linkedids.note(at, &event.channel.linkedid);
        describe_other(&mut legs, at, event);
    }
    legs
}

fn met<'l>(legs: &'l mut Vec<Leg>, id: &UniqueId, at: EventTime) -> &'l mut Leg {
    let known = legs.iter().position(|leg| leg.id == *id);
    let place = known.unwrap_or_else(|| {
        legs.push(Leg::new(id.clone(), at));
        legs.len() - 1
    });
    &mut legs[place]
}

fn describe_other(legs: &mut Vec<Leg>, at: EventTime, event: &ChannelEvent<'_>) {
    let described = event.kind.other().filter(|other| other.traits.is_some());
    let id = described.and_then(|other| UniqueId::new(other.uniqueid.as_ref()));
    if let Some((other, id)) = described.zip(id) {
        met(legs, &id, at).describe(at, other);
    }
}

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
