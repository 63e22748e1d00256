//! What happened in a call: from the facts of its channels, sorted by time, to finished calls.
//!
//! All of it is a pure function of the facts, so that doubled, late and shuffled events, and facts
//! told by AMI's events, by CEL or by both, come to the same result.
//!
//! | module | question |
//! |---|---|
//! | `view` | what is each channel, did it come in or was it dialled, in which bridges was it? |
//! | `linked` | when was who linked with whom, where links are told and no bridges? |
//! | `masquerade` | which telephone was behind a unique id when (AMI 1.x)? |
//! | `unnamed` | which bridge was it that nobody named? |
//! | `split` | which channels really belong together? |
//! | `plan` | who is the customer, how many calls are these, and who heard whom when? |
//! | `doubt` | may something of it have been missed? |
//! | `number` | which number is the customer's? |
//! | `finish` | the values of the finished call |
//! | `unobservable` | may the PBX leave out how it went? |
//! | `timeline` | what happened, to be kept and drawn |

mod doubt;
mod finish;
mod linked;
mod masquerade;
mod number;
mod plan;
mod split;
mod timeline;
mod unnamed;
mod unobservable;
mod view;

use crate::facts::{Leg, OpenCall};
use crate::{FinishedCall, Settings, UniqueId};
use view::View;

pub(crate) use number::{in_dial_data, is_number};
pub(crate) use plan::{Plan, apart, by_customer};
pub(crate) use split::Sets;

/// Times of arrival say nothing of when events happened that lay in a file.
const UNTIMED: &str = "its events carry no time: set timestampevents=yes in manager.conf";

/// The reason for which a call is resolved now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// All its channels have hung up.
    HungUp,
    /// The recording is over, and the channels still up have nobody left to talk with.
    Unheard,
    /// The call was open longer than one may be.
    TooLong,
    /// Too many calls were open, and nothing was heard of this one for the longest time.
    TooMany,
    /// The call, or all calls together, took too much memory, and none took more than this one.
    TooLarge,
    /// The end of the call was missed: another account reports it, or nothing does.
    Missed,
}

impl EndReason {
    fn incomplete(self, call: &OpenCall, settings: &Settings) -> Option<String> {
        let words = match self {
            Self::HungUp => match call.excess(settings) {
                None if call.times.untimed > 0 => UNTIMED,
                excess => return excess,
            },
            Self::Unheard => "a hang-up was not received",
            Self::TooLong => "no hang-up was received within --max-call",
            Self::TooLarge => "it was closed before its end: it had more events than memory allows",
            Self::TooMany => "no hang-up was received, and --max-open-calls were open",
            Self::Missed => match doubt::doubt(call, settings.caught_up) {
                Some(doubt) => return Some(format!("its end was not received: {doubt}")),
                None => "its end was not received",
            },
        };
        Some(words.to_owned())
    }
}

/// The finished calls that these channels were: none when nobody took part, several when several
/// customers did, or when channels had met only by the way. `cel_bridges`: CEL has told of a bridge
/// so far, in whatever call.
pub(crate) fn resolve(
    call: &OpenCall,
    settings: &Settings,
    ended: EndReason,
    cel_bridges: bool,
) -> Vec<FinishedCall> {
    // Who tells what each channel is beside its name tells of links.
    let links = call.legs.values().any(|leg| leg.traits.is_some());
    let by_occupant = (!links).then(|| masquerade::by_occupant(call)).flatten();
    let (legs, joined): (Vec<&Leg>, _) = match &by_occupant {
        Some((legs, joined)) => (legs.iter().collect(), joined),
        None => (call.legs.values().collect(), &call.joined),
    };
    let named = match links {
        true => linked::linked(&legs, &settings.endpoints),
        false => unnamed::named(&legs),
    };
    let legs = match &named {
        Some(named) => named.iter().collect(),
        None => legs,
    };
    let timed = call.times.untimed == 0;
    let has_number = |leg: &&Leg| leg.extens.first().or(leg.callers.first()).is_some();
    let (endpoints, numbers) = (&settings.endpoints, legs.iter().any(has_number));
    let views = legs
        .iter()
        .map(|leg| View::of(leg, endpoints, timed, numbers));
    let mut views: Vec<View<'_>> = views.collect();
    views.sort_by(|a, b| a.order().cmp(&b.order()));
    let incomplete = ended.incomplete(call, settings);
    let incomplete = incomplete.or_else(|| doubt::doubt(call, settings.caught_up));
    let old = by_occupant.is_some();
    let mut finished = Vec::new();
    for part in split::parts(&views, joined) {
        let legs: Vec<&View<'_>> = part.into_iter().map(|i| &views[i]).collect();
        // The channel of its linkedid may be outside and still there, or come yet: the id will be
        // that one's own.
        let borrowed = call.parts.past && !plan::is_rooted(&legs);
        let given = (call.parts.relieved || borrowed).then_some(&call.parts.given);
        let plans = plan::plans(&legs, given);
        let known: Vec<&UniqueId> = plans.iter().map(|plan| &plan.linkedid).collect();
        for plan in &plans {
            let unobservable = || unobservable::unobservable(call, &legs, plan, cel_bridges, old);
            let incomplete = incomplete.clone().or_else(unobservable);
            finished.push(finish::finish(call, &legs, plan, &known, incomplete));
        }
    }
    finished
}
