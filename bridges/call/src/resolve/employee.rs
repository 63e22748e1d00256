//! Which extension a call is put down to.

use super::customers::Plan;
use super::view::View;
use crate::call::Direction;
use crate::timeline::Way;
use crate::units::{EventTime, Extension};

/// The extension, and the channel and moment that decided it.
pub(super) struct Employee<'a> {
    pub(super) extension: Extension,
    pub(super) at: EventTime,
    pub(super) leg: &'a View<'a>,
    pub(super) words: &'static str,
}

/// The last extension that began to talk with the customer. If nobody did: inbound, the one
/// extension that was dialled, none when several were; outbound, the one that placed the call.
pub(super) fn employee<'a>(legs: &[&'a View<'a>], plan: &Plan) -> Option<Employee<'a>> {
    let began = plan.talk.began.iter().rev();
    let mut talked =
        began.filter_map(|&(at, leg)| Some((at, legs[leg], legs[leg].party.extension()?)));
    if let Some((at, leg, extension)) = talked.next() {
        let extension = extension.clone();
        return Some(Employee {
            extension,
            at,
            leg,
            words: "the last to begin to talk",
        });
    }
    if plan.talk.is_answer() {
        return None;
    }
    match plan.direction {
        Direction::Inbound => only_one_dialled(legs, plan),
        Direction::Outbound | Direction::Internal => {
            let first = plan
                .own
                .iter()
                .map(|&i| legs[i])
                .find(|leg| leg.party.is_real())?;
            let (extension, at) = (first.party.extension()?.clone(), first.leg.first);
            Some(Employee {
                extension,
                at,
                leg: first,
                words: "placed the call",
            })
        }
    }
}

/// Returns the reason why a call is put down to nobody.
pub(super) fn none_words(legs: &[&View<'_>], plan: &Plan) -> &'static str {
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

fn only_one_dialled<'a>(legs: &[&'a View<'a>], plan: &Plan) -> Option<Employee<'a>> {
    let own = plan.own.iter().map(|&i| legs[i]);
    let mut dialled = own.filter(|leg| leg.party.extension().is_some() && leg.way == Way::Dialled);
    let leg = dialled.next()?;
    let extension = leg.party.extension()?.clone();
    if dialled.any(|other| other.party.extension() != Some(&extension)) {
        return None;
    }
    Some(Employee {
        extension,
        at: leg.leg.first,
        leg,
        words: "the one extension dialled",
    })
}
