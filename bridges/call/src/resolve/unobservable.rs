//! Finds calls where the PBX doesn't report everything that happened, and explains why each is
//! incomplete.
//!
//! | what isn't reported | by which source |
//! |---|---|
//! | a conference | AMI before Asterisk 11, and CEL before 12 (`ConfBridge`) |
//! | when the transferrer left | CEL before 12, if transferred by feature code while it's ringing |
//! | which channel moved into which bridge | CEL before 12 without a peer |

use super::plan::Plan;
use super::view::{BridgeStay, View};
use crate::facts::{FactKind, OpenCall};
use crate::talk::ANSWERED_FROM;
use crate::{ChannelState, Direction, EventTime, Origin, UNNAMED, WHO_ANSWERED, local_pair};
use std::time::Duration;

const CONFERENCE: &str = "they were transferred together, and this Asterisk does not report \
                          whether into a conference";
const ROOM: &str =
    "the customer was in a conference, and its CEL does not report who else was in it";
const TRANSFER: &str = "a transfer by feature code while the other telephone rang: CEL before \
                        Asterisk 12 does not report when it began";
const MOVED: &str = "channels changed places (a transfer, a pickup, parking), and its CEL does \
                     not report who was in a bridge with whom: write ${BRIDGEPEER} in \
                     cel_custom.conf, \
                     or the column peer, then `module reload cel_custom`";

/// Prefix of a channel that an old Asterisk creates to redirect a channel that isn't running a
/// dialplan (`Redirect`).
const LED_AWAY: &str = "AsyncGoto/";
/// If a transfer replaced a bridge, the next one starts within this time.
const REPLACED_WITHIN: Duration = Duration::from_secs(1);

/// Returns `true` if CEL before Asterisk 12 reports bridges without either of their sides, and a
/// channel changed its name. In that case, a masquerade put another channel into a bridge, but no
/// event shows which one.
fn is_moved(call: &OpenCall) -> bool {
    let of_both = format!("{UNNAMED}{WHO_ANSWERED}");
    let mut facts = call.legs.values().flat_map(|leg| &leg.facts);
    facts.any(|fact| {
        fact.what
            .passage()
            .is_some_and(|passage| passage.bridge == of_both)
    }) && call.legs.values().any(|leg| leg.names.iter().count() > 1)
}

/// Returns why the outcome of this call is uncertain, if it is. `old` stands for Asterisk 11 or
/// older, where phones change their unique IDs.
pub(super) fn unobservable(
    call: &OpenCall,
    legs: &[&View<'_>],
    plan: &Plan,
    old: bool,
) -> Option<String> {
    if plan.direction == Direction::Internal {
        return None;
    }
    let why = if room(legs, plan) {
        ROOM
    } else if old && conference(call, legs, plan) {
        CONFERENCE
    } else if old && transfer(legs, plan) {
        TRANSFER
    } else if old && is_moved(call) {
        MOVED
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// Returns `true` if these channels are reported only by CEL.
fn is_of_cel(legs: &[&View<'_>]) -> bool {
    let mut facts = legs.iter().flat_map(|leg| &leg.leg.facts);
    facts.all(|fact| fact.origin == Origin::Cel || fact.what == FactKind::Gone)
}

/// Returns when the channel is first known to be up, based on its answer or its first bridge.
fn first_up(leg: &View<'_>) -> Option<EventTime> {
    let facts = leg.leg.facts.iter();
    let answers = facts.filter(|fact| fact.what == FactKind::State(ChannelState::Up));
    let stays = leg.stays.iter().map(|stay| stay.from);
    answers.map(|fact| fact.at).chain(stays).min()
}

/// Returns `true` if the customer ran a conference and no bridge was reported after it started.
fn room(legs: &[&View<'_>], plan: &Plan) -> bool {
    is_of_cel(legs) && plan.customers.iter().any(|&i| ended_in_conference(legs[i]))
}

fn ended_in_conference(leg: &View<'_>) -> bool {
    let Some(since) = leg.leg.applications.conference else {
        return false;
    };
    let mut stays = leg.stays.iter().chain(&leg.waits);
    stays.all(|stay| stay.to <= since)
}

/// Returns `true` if, after channels were redirected, the customer and another party were up at the
/// same time for at least `ANSWERED_FROM` without being in any known bridge.
fn conference(call: &OpenCall, legs: &[&View<'_>], plan: &Plan) -> bool {
    // The other channel of the masquerade also shows the name, once it's left behind.
    let names = call.legs.values().flat_map(|leg| leg.names.iter());
    let led = names.filter(|name| name.text.starts_with(LED_AWAY));
    let Some(since) = led.map(|name| name.at).min() else {
        return false;
    };
    let others: Vec<usize> = (0..legs.len())
        .filter(|&i| !plan.customers.contains(&i) && legs[i].party.is_real())
        .collect();
    plan.customers.iter().any(|&customer| {
        let mut others = others.iter();
        others.any(|&other| side_by_side(legs[customer], legs[other], since) >= ANSWERED_FROM)
    })
}

/// Returns how long both channels were up at the same time, after `since` and after either one's
/// last bridge.
fn side_by_side(a: &View<'_>, b: &View<'_>, since: EventTime) -> Duration {
    let (Some(a_up), Some(b_up)) = (first_up(a), first_up(b)) else {
        return Duration::ZERO;
    };
    let stays = a.stays.iter().chain(&b.stays);
    let bridged_until = stays.map(|stay| stay.to).max().unwrap_or(since);
    let from = bridged_until.max(since).max(a_up).max(b_up);
    a.end.min(b.end).since(from)
}

/// Returns `true` if the customer went from one bridge to the next with a Local channel that was
/// created during the first, and none of the first bridge's other channels was ever in a bridge
/// with that Local channel.
fn transfer(legs: &[&View<'_>], plan: &Plan) -> bool {
    is_of_cel(legs)
        && plan.customers.iter().any(|&customer| {
            let mut pairs = legs[customer].stays.windows(2);
            pairs.any(|pair| is_transfer(legs, plan, &pair[0], &pair[1]))
        })
}

/// Returns `true` if the customer's stay `next` replaced `first`, as described for [`transfer`].
fn is_transfer(
    legs: &[&View<'_>],
    plan: &Plan,
    first: &BridgeStay<'_>,
    next: &BridgeStay<'_>,
) -> bool {
    if next.from.since(first.to) > REPLACED_WITHIN {
        return false;
    }
    let others: Vec<usize> = (0..legs.len())
        .filter(|&i| !plan.customers.contains(&i) && stayed_in(legs[i], first.bridge))
        .collect();
    legs.iter().any(|leg| {
        let born = leg.leg.first;
        stayed_in(leg, next.bridge)
            && local_pair(leg.name).is_some()
            && first.from < born
            && born < first.to
            && !others.iter().any(|&other| shared_bridge(legs[other], leg))
    })
}

fn stayed_in(leg: &View<'_>, bridge: &str) -> bool {
    leg.stays.iter().any(|stay| stay.bridge == bridge)
}

fn shared_bridge(a: &View<'_>, b: &View<'_>) -> bool {
    a.stays.iter().any(|stay| stayed_in(b, stay.bridge))
}
