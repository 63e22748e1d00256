//! Whether something of a call may have been missed, though its end was heard.
//!
//! A call that was open while nobody listened is complete if what is told of each of its channels
//! goes on after it where it had come to before: in the same bridge, which a conversation of two
//! does not outlive. Where no bridge tells, only if that lasted no longer than anybody needs to
//! enter a bridge and leave it. Any other is incomplete.
//!
//! A consultation that was begun and broken off meanwhile does not show. So where another account
//! tells what was missed, everything that lasted longer is incomplete until that was heard.

use super::view::passage;
use crate::assembler::gaps::Blind;
use crate::assembler::leg::{Fact, Leg, What};
use crate::assembler::open::OpenCall;
use crate::event::{ChannelState, Origin};

/// Why something of the call may be missing; `None` if nothing is.
pub(super) fn doubt(call: &OpenCall, caught_up: bool) -> Option<String> {
    let long = call.blinds.iter().find(|blind| !blind.is_short());
    if let Some(blind) = long.filter(|_| caught_up) {
        return Some(words(blind));
    }
    let mut legs = call.legs.values();
    // Who joins a conference may have come by a call of his own.
    if let Some(blind) = long.or(call.blinds.first())
        && (call.conference || !legs.all(|leg| is_well_told(leg, long.is_none())))
    {
        return Some(words(blind));
    }
    let late = call.late?;
    let begun = |leg: &Leg| leg.is_born() || leg.born_after(late);
    (!call.legs.values().all(begun))
        .then(|| "it began before anybody listened, or while nobody did".to_owned())
}

fn words(blind: &Blind) -> String {
    let from = blind.from.floor_seconds();
    match blind.until {
        Some(until) => format!(
            "events of it may be missing from {from} to {} (epoch seconds)",
            until.floor_seconds()
        ),
        None => format!("nobody listens since {from} (epoch seconds)"),
    }
}

/// At each gap the channel was over; or in a bridge that it left after the gap; or, where all gaps
/// were short, it was plain how it came to be, and it entered its first bridge after the gap.
fn is_well_told(leg: &Leg, short: bool) -> bool {
    leg.blinds.iter().all(|&heard| {
        let (before, after) = leg.facts.split_at(heard.min(leg.facts.len()));
        if before.iter().any(|fact| fact.what.is_end()) {
            return true;
        }
        let ended = after.iter().any(|fact| fact.what == What::Hangup);
        let mut told = [Origin::Channel, Origin::Cel].into_iter().filter(|origin| {
            leg.facts
                .iter()
                .any(|fact| fact.origin == *origin && passage(&fact.what).is_some())
        });
        let mut goes_on = told.by_ref().map(|origin| {
            let (last, next) = (
                passages(before, origin).last(),
                passages(after, origin).next(),
            );
            match (last, next) {
                (Some(last), Some(next)) if last.enters => {
                    !next.enters && last.bridge == next.bridge
                }
                (Some(_), Some(_)) => false,
                (None, Some(next)) => short && next.enters && is_begun(before),
                (Some(_) | None, None) => false,
            }
        });
        // A channel that is told of no bridge may have been in one.
        goes_on.next().unwrap_or(false) && goes_on.all(|it| it) && ended
    })
}

/// It called in, or was seen to be dialled.
fn is_begun(facts: &[Fact]) -> bool {
    use ChannelState::{PreRing, Ring};
    let begun = |what: &What| matches!(what, What::Born(Ring | PreRing) | What::Dialled { .. });
    facts.iter().any(|fact| begun(&fact.what))
}

fn passages(facts: &[Fact], origin: Origin) -> impl Iterator<Item = super::view::Passage<'_>> {
    let told = facts.iter().filter(move |fact| fact.origin == origin);
    told.filter_map(|fact| passage(&fact.what))
}
