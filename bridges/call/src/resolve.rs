//! Turns the facts about an open call's channels into finished calls, sorted by time.
//!
//! The result depends only on the facts. It makes no difference whether events are duplicated,
//! late, or out of order, or whether the facts were reported by AMI's own events, by CEL, or by
//! both.
//!
//! | module | question |
//! |---|---|
//! | `view` | what is each channel, was it incoming or dialed, and which bridges was it in? |
//! | `linked` | which channels were linked, and when, if links are reported instead of bridges? |
//! | `masquerade` | which phone had which unique ID, and when (AMI 1.x)? |
//! | `unnamed` | which bridge was it, if the PBX doesn't report an ID? |
//! | `split` | which channels really belong together? |
//! | `connections` | who could the customer hear, and when? |
//! | `dialing` | who dialed each channel, and for which customer? |
//! | `attempts` | how many calls do the outside lines make up? |
//! | `plan` | who is each call's customer, and which channels belong to the call? |
//! | `doubt` | may events of the call be missing? |
//! | `number` | which number is the customer's? |
//! | `finish` | what are the finished call's values? |
//! | `lost` | do the events show that others were lost? |
//! | `evidence` | does anything suggest an answer that no bridge shows? |
//! | `unobservable` | might the PBX not have reported how the call went? |
//! | `timeline` | what should be stored and drawn? |

mod attempts;
mod connections;
mod dialing;
mod doubt;
mod evidence;
mod finish;
mod linked;
mod lost;
mod masquerade;
mod number;
mod plan;
mod sets;
mod split;
mod timeline;
mod unnamed;
mod unobservable;
mod view;

use crate::age::by_age;
use crate::facts::{Leg, OpenCall, Parts, Texts};
use crate::{Direction, FinishedCall, Settings, UniqueId};
use masquerade::JoinedPairs;
use plan::Plan;
use split::Part;
use std::collections::BTreeSet;
use std::time::Duration;
use view::View;

pub(crate) use attempts::command_patience;
pub(crate) use number::is_number;
pub(crate) use sets::Sets;

/// Why a call is incomplete if some of its events come from a file and have no timestamps. When
/// such events arrive doesn't show when they happened.
const UNTIMED: &str = "its events have no timestamps: set timestampevents = yes in manager.conf";
const UNREAD: &str = "a message about the call could not be read";

/// Why a call is being resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// All of its channels have hung up.
    HungUp,
    /// The recording is over, and the channels still up have no one left to talk to.
    Unheard,
    /// The call was open for longer than allowed.
    TooLong,
    /// Too many calls were open, and this one had gone the longest without an event.
    TooMany,
    /// The call, or all calls together, took up too much memory, and this call took up the most.
    TooLarge,
    /// The end of the call was missed. Either another source reports it, or none does.
    Missed,
}

/// Why a call is incomplete that ended before its command had stopped redialing.
pub(crate) const MAY_BE_REDIALED: &str =
    "its number might have been redialed, but more than --max-open-calls calls were open";

impl EndReason {
    fn incomplete(self, call: &OpenCall, settings: &Settings) -> Option<String> {
        let message = match self {
            Self::HungUp => match call.excess(settings) {
                None if call.times.untimed > 0 => UNTIMED,
                excess => return excess,
            },
            Self::Unheard => "a hang-up was not received",
            Self::TooLong => "no hang-up was received within --max-call",
            Self::TooLarge => "it was closed before its end: it had more events than memory allows",
            Self::TooMany if call.is_over() => MAY_BE_REDIALED,
            Self::TooMany => {
                "no hang-up was received before more than --max-open-calls calls were open"
            }
            Self::Missed => match doubt::doubt(call, settings.caught_up) {
                Some(doubt) => return Some(format!("its end was not received: {doubt}")),
                None => "its end was not received",
            },
        };
        Some(message.to_owned())
    }
}

/// Returns the finished calls made up of the open call's channels. There are none if no real party
/// took part, and several if there were several customers or if channels only met in a conference.
pub(crate) fn resolve(call: &OpenCall, settings: &Settings, ended: EndReason) -> Vec<FinishedCall> {
    let channels = Channels::from_call(call, settings);
    let views = channels.views(call, settings);
    let old = channels.by_occupant.is_some();
    let parts = planned_parts(call, &channels, &views);
    let is_one = parts.len() == 1 && call.parts.reported.is_empty();
    let mut finished = Vec::new();
    for PlannedPart { part, plans } in &parts {
        let given = call.parts.reported.iter().chain(&call.parts.given);
        let known: Vec<&UniqueId> = plans
            .iter()
            .map(|plan| &plan.linkedid)
            .chain(given)
            .collect();
        for plan in plans {
            let own = plan_ids(part, plan, &call.parts);
            if !call.parts.only.is_empty() && call.parts.only.is_disjoint(&own) {
                continue;
            }
            let is_whole = is_one && plans.len() == 1;
            let narrowed = (!is_whole).then(|| call.copy_with_channels(&own));
            let within = narrowed.as_ref().unwrap_or(call);
            let incomplete = ended
                .incomplete(within, settings)
                .or_else(|| doubt::doubt(within, settings.caught_up))
                .or_else(|| (!within.unread.is_empty()).then(|| UNREAD.to_owned()))
                .or_else(|| unobservable::unobservable(within, &part.legs, plan, old));
            let mut made = finish::finish(within, part, plan, &known, incomplete);
            made.incomplete = made
                .incomplete
                .or_else(|| lost::lost(&views, &part.legs, plan, &call.rooms, old))
                .or_else(|| evidence::evidence(channels.joined(call), &part.legs, plan));
            finished.push(made);
        }
    }
    finished
}

/// Channels that belong together, and those of their calls that haven't been emitted yet.
struct PlannedPart<'v, 'a> {
    part: Part<'v, 'a>,
    plans: Vec<Plan>,
}

/// Returns the calls within an open call that haven't been emitted yet.
fn planned_parts<'v, 'a>(
    call: &OpenCall,
    channels: &Channels,
    views: &'v [View<'a>],
) -> Vec<PlannedPart<'v, 'a>> {
    let mut planned = Vec::new();
    for part in split::parts(views, channels.joined(call), channels.rooms(call)) {
        if part.own().iter().all(|leg| is_reported(leg, &call.parts)) {
            continue;
        }
        let oldest = plan::oldest(&part);
        // A channel that stayed in a room may start another call under an earlier linkedid.
        let is_id_given = call.parts.given.contains(&oldest);
        let mut given = call.parts.given.clone();
        // The part's linkedid may refer to an outside channel that's still up or hasn't been seen
        // yet, in which case the ID will belong to that channel's call.
        if call.parts.past && !plan::is_rooted(&part) {
            given.insert(oldest);
        }
        let mut plans = plan::plans(&part, &given, &call.parts.reported, &call.rooms);
        // A colleague who stays on after a customer's call belongs to that call, and doesn't start
        // an internal one.
        plans.retain(|plan| {
            let is_of_given = is_id_given && plan.direction == Direction::Internal;
            !is_of_given && !is_reported(part.legs[plan.customers[0]], &call.parts)
        });
        planned.push(PlannedPart { part, plans });
    }
    planned
}

/// One of the calls within an open call.
#[derive(Clone, Debug)]
pub(crate) struct CallWithin {
    pub(crate) channels: BTreeSet<UniqueId>,
    /// Whether outside lines took part and all of them have hung up.
    pub(crate) is_left: bool,
    /// How long after the last line hung up another one can still be dialed for this call.
    pub(crate) patience: Duration,
}

/// Returns the calls within an open call that haven't been emitted yet, split up the way
/// [`resolve`] does it.
pub(crate) fn calls_within(call: &OpenCall, settings: &Settings) -> Vec<CallWithin> {
    let channels = Channels::from_call(call, settings);
    let views = channels.views(call, settings);
    let mut calls = Vec::new();
    for PlannedPart { part, plans } in planned_parts(call, &channels, &views) {
        for plan in plans {
            let own = plan.own.iter().map(|&i| part.legs[i]);
            let mut lines = own
                .clone()
                .filter(|leg| leg.party.trunk().is_some())
                .peekable();
            let is_left = lines.peek().is_some() && lines.clone().all(|leg| leg.leg.is_over());
            let is_unanswered = plan.direction == Direction::Outbound
                && !plan.talk.is_answer()
                && !lines.any(View::has_answered);
            let mut dialers = own.chain(plan.placed_by.map(|by| part.legs[by]));
            let is_dialer_up = dialers.any(|leg| !leg.leg.is_over());
            let customers = plan.customers.iter().map(|&i| part.legs[i]);
            let pauses = customers.map(|line| dialing::pause(&part.legs, line));
            let pause = pauses.max().unwrap_or_default();
            let mut lines = plan.customers.iter().map(|&i| part.legs[i].leg);
            let dials_again = is_dialer_up || lines.any(Leg::is_dialed_repeatedly);
            let patience = if is_unanswered && dials_again {
                attempts::patience(pause)
            } else {
                Duration::ZERO
            };
            calls.push(CallWithin {
                channels: plan_ids(&part, &plan, &call.parts),
                is_left,
                patience,
            });
        }
    }
    calls
}

/// Returns the channels of every group in which at least one is still up or hasn't been emitted.
pub(crate) fn channels_of_live_calls(call: &OpenCall, settings: &Settings) -> BTreeSet<UniqueId> {
    let channels = Channels::from_call(call, settings);
    let views = channels.views(call, settings);
    let mut live = BTreeSet::new();
    for part in split::parts(&views, channels.joined(call), channels.rooms(call)) {
        let mut own = part.own().iter();
        if own.any(|leg| leg.leg.is_up() || !is_reported(leg, &call.parts)) {
            live.extend(part.own().iter().map(|leg| leg.leg.id.clone()));
        }
    }
    live
}

/// Returns the IDs of the call's own channels, except for those of calls that have already been
/// emitted.
fn plan_ids(part: &Part<'_, '_>, plan: &Plan, parts: &Parts) -> BTreeSet<UniqueId> {
    let own = plan.own.iter().map(|&i| part.legs[i]);
    own.filter(|leg| !is_reported(leg, parts))
        .map(|leg| leg.leg.id.clone())
        .collect()
}

/// Returns `true` if the channel's call has already been emitted.
fn is_reported(leg: &View<'_>, parts: &Parts) -> bool {
    parts.reported.contains(&leg.leg.id)
}

/// The channels of an open call, in the form used by the resolver.
struct Channels {
    /// If AMI 1.x moved phones between unique IDs, each phone with its own facts, along with the
    /// resulting joined pairs.
    by_occupant: Option<(Vec<Leg>, JoinedPairs)>,
    /// The channels, with bridges in place of links or unnamed bridges.
    named: Option<Vec<Leg>>,
    /// Whether the source reports links.
    links: bool,
}

impl Channels {
    fn from_call(call: &OpenCall, settings: &Settings) -> Self {
        let links = call.has_traits();
        let by_occupant = (!links).then(|| masquerade::by_occupant(call)).flatten();
        let mut channels = Self {
            by_occupant,
            named: None,
            links,
        };
        let legs = channels.legs(call);
        let named = if links {
            linked::replace_links(&legs, &settings.endpoints)
        } else {
            unnamed::name_bridges(&legs)
        };
        channels.named = named;
        channels
    }

    fn legs<'l>(&'l self, call: &'l OpenCall) -> Vec<&'l Leg> {
        match (&self.named, &self.by_occupant) {
            (Some(named), _) => named.iter().collect(),
            (None, Some((legs, _))) => legs.iter().collect(),
            (None, None) => call.legs.values().collect(),
        }
    }

    fn joined<'l>(&'l self, call: &'l OpenCall) -> &'l JoinedPairs {
        match &self.by_occupant {
            Some((_, joined)) => joined,
            None => &call.joined,
        }
    }

    fn rooms<'l>(&self, call: &'l OpenCall) -> Option<&'l Texts> {
        if self.links { None } else { Some(&call.rooms) }
    }

    /// Returns the channels, oldest first.
    fn views<'l>(&'l self, call: &'l OpenCall, settings: &'l Settings) -> Vec<View<'l>> {
        let legs = self.legs(call);
        let timed = call.times.untimed == 0;
        let numbers = legs
            .iter()
            .any(|leg| leg.extens.first().or(leg.callers.first()).is_some());
        let views: Vec<View<'_>> = legs
            .iter()
            .map(|leg| View::from_leg(leg, &settings.endpoints, timed, numbers))
            .collect();
        let ages: Vec<_> = views.iter().map(|view| view.leg.age()).collect();
        by_age(&ages)
            .into_iter()
            .map(|i| views[i].clone())
            .collect()
    }
}
