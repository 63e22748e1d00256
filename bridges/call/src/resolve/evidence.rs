//! Looks for signs that a call was answered although no bridge shows it. A call only counts as
//! missed if there are none, because bridge events can be filtered, lost, or turned off.
//!
//! The evidence concerns a pair consisting of the customer and a phone or line that was dialed for
//! the customer or dialed them. No bridge with both of them was reported, but both were up for at
//! least half a second without being in another bridge. Some events explain why two parties that
//! were up never met:
//!
//! | event | why they never met |
//! |---|---|
//! | the phone's dialing ended without `ANSWER` | it declined, or didn't confirm |
//! | the phone's channel ran an application | it heard a prompt and had to confirm |
//! | the customer gave up in the queue | the phone was still hearing the announcement |
//! | a pickup or a transfer | someone else took the phone's place |
//! | another bridge | it was talking to someone else |
//!
//! An exit from a bridge without an entry, or the other way around, also shows that something is
//! missing, no matter who was in the bridge.

use super::masquerade::JoinedPairs;
use super::plan::Plan;
use super::sets::Sets;
use super::view::{AT_ONCE, Answer, BridgeStay, View};
use crate::facts::{Fact, FactKind, any};
use crate::{ChannelState, Direction, EventTime, Origin, Party, UniqueId, Way, local_pair, trunk};
use std::collections::BTreeMap;
use std::time::Duration;

/// What to do if CEL doesn't report bridges. A single event name unknown to Asterisk 12 or later
/// disables CEL entirely.
const CEL_FIX: &str = "set events = ALL in cel.conf, or add BRIDGE_ENTER,BRIDGE_EXIT (Asterisk 12 \
                       and later) or BRIDGE_START,BRIDGE_END,BRIDGE_UPDATE (1.8 to 11), then \
                       `module reload cel`";
const AMI_FIX: &str = "let the AMI account read the class call, without an eventfilter that drops \
                       Bridge events";

/// Returns why the customer may have talked to someone even though no bridge was reported, or
/// `None` if there's no sign of that.
///
/// `legs` contains the channels of the plan, and `joined` the pairs connected by a pickup or a
/// transfer.
pub(super) fn evidence(joined: &JoinedPairs, legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    if plan.direction == Direction::Internal {
        return None;
    }
    if let Some(reason) = unknown_party(legs, plan) {
        return Some(reason);
    }
    let mut ties = ties(legs, joined);
    for &customer in &plan.customers {
        // Whoever dialed the customer may belong to another customer's call.
        let mut placed_by = plan.placed_by.as_ref();
        if let Some(dialer) = legs[customer].dialer() {
            placed_by = placed_by.filter(|&&by| *dialer == legs[by].leg.id);
        }
        for &other in plan.own.iter().chain(placed_by) {
            let is_tied = ties.find(customer) == ties.find(other)
                || legs[customer].shares_linkedid(legs[other]);
            let pair = Pair {
                legs,
                joined,
                customer,
                other,
            };
            let is_other = is_party(legs, plan, other) || pair.is_answered_local();
            if is_tied && is_other && pair.speaks_of_talk(plan) {
                let name = legs[other].name;
                let fix = fix(legs);
                return Some(format!(
                    "{name} and the customer were both up, but no bridge of the two was reported, \
                     so it is not known whether they talked{fix}"
                ));
            }
        }
    }
    None
}

/// Groups channels that are connected by dialing, Local channels, pickups, or transfers, or that
/// started in the same call. CEL doesn't report who dialed a channel, only whose call it started
/// in.
fn ties(legs: &[&View<'_>], joined: &JoinedPairs) -> Sets {
    let mut ties = Sets::new(legs.len());
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, leg) in legs.iter().enumerate() {
        let dialer = leg.dialer().map(UniqueId::as_str);
        let half = local_pair(leg.name);
        let own = [leg.leg.id.as_str(), leg.first_linkedid()];
        for name in own.into_iter().chain(dialer).chain(half) {
            let first = *known.entry(name).or_insert(i);
            ties.join(first, i);
        }
    }
    for (a, b) in joined {
        if let (Some(&a), Some(&b)) = (known.get(a.as_str()), known.get(b.as_str())) {
            ties.join(a, b);
        }
    }
    ties
}

/// Returns `true` if the channel is a party other than the customer.
fn is_party(legs: &[&View<'_>], plan: &Plan, i: usize) -> bool {
    legs[i].party.is_real() && !plan.customers.contains(&i)
}

/// Returns what to do, depending on the source.
fn fix(legs: &[&View<'_>]) -> String {
    if legs.iter().any(|leg| leg.leg.traits.is_some()) {
        return String::new();
    }
    let mut facts = legs.iter().flat_map(|leg| &leg.leg.facts);
    let is_cel = facts.all(|fact| fact.origin == Origin::Cel || fact.what == FactKind::Gone);
    format!(": {}", if is_cel { CEL_FIX } else { AMI_FIX })
}

/// Returns a reason if a channel of an unknown technology was in a bridge with the customer while
/// no known party was, since it may have been the phone that the customer talked to.
fn unknown_party(legs: &[&View<'_>], plan: &Plan) -> Option<String> {
    for unknown in legs
        .iter()
        .filter(|leg| matches!(leg.party, Party::Unknown(_)))
    {
        for &customer in &plan.customers {
            let mut bridges = unknown.common_bridges(legs[customer]);
            for i in (0..legs.len()).filter(|&i| is_party(legs, plan, i)) {
                let known = legs[i].common_bridges(legs[customer]);
                bridges.retain(|bridge| !known.contains(bridge));
            }
            if !bridges.is_empty() {
                let technology = trunk::technology(unknown.name);
                return Some(format!(
                    "the customer was connected with {}, and callbridge doesn't know whether \
                     {technology} channels are phones",
                    unknown.name
                ));
            }
        }
    }
    None
}

/// The customer's channel and another party's.
#[derive(Clone, Copy)]
struct Pair<'l, 'v, 'a> {
    legs: &'l [&'v View<'a>],
    joined: &'l JoinedPairs,
    customer: usize,
    other: usize,
}

impl<'v, 'a> Pair<'_, 'v, 'a> {
    /// Returns `true` if the two may have talked without a bridge being reported, because both were
    /// up long enough for that and no event explains why they never met.
    fn speaks_of_talk(self, plan: &Plan) -> bool {
        let was_reported = plan.talk.spans.iter().any(|span| span.2 == self.other);
        if was_reported {
            return false;
        }
        let (dialing, dialed) = self.dialing_and_dialed();
        let Some(answered) = self.answered_at(dialing, dialed, plan) else {
            return false;
        };
        let from = answered.max(dialing.leg.first).max(dialed.leg.first);
        let to = dialing.left.min(dialed.left);
        let together = self.unbridged((from, to));
        plan.talk.would_answer(together)
            && !self.is_picked_up(plan)
            && !is_explained(self.legs, dialing, dialed)
    }

    /// Returns how much of this span neither channel spent in a bridge. A bridge that only the
    /// customer is known to have been in doesn't count, since the other one's entry may be missing.
    fn unbridged(self, (from, to): (EventTime, EventTime)) -> Duration {
        let (customer, other) = (self.legs[self.customer], self.legs[self.other]);
        let shared = customer.stays.iter().filter(|stay| {
            let mut legs = self.legs.iter();
            legs.any(|leg| leg.leg.id != customer.leg.id && leg.was_in_during(stay))
        });
        let waits = customer.waits.iter().chain(&other.waits);
        let mut stays: Vec<&BridgeStay<'_>> = shared.chain(&other.stays).chain(waits).collect();
        stays.sort_by_key(|stay| stay.from);
        let mut total = Duration::ZERO;
        let mut at = from;
        for stay in stays {
            total += stay.from.min(to).since(at);
            at = at.max(stay.to);
        }
        total + to.since(at)
    }

    /// Returns `true` if the customer's channel dialed a Local channel that was answered, such as
    /// that of a queue's agent who was logged in before, but no bridge of either half was reported.
    fn is_answered_local(self) -> bool {
        let local = self.legs[self.other];
        let Some(pair) = local_pair(local.name) else {
            return false;
        };
        let is_dialed = match local.dialer() {
            Some(by) => *by == self.legs[self.customer].leg.id,
            None => local.leg.applications.outgoing.is_some(),
        };
        let mut halves = self
            .legs
            .iter()
            .filter(|leg| local_pair(leg.name) == Some(pair));
        is_dialed
            && local.answer.time().is_some()
            && halves.all(|half| half.stays.is_empty() && half.waits.is_empty())
    }

    /// Returns `true` if someone else replaced the other party through a pickup or transfer and
    /// talked to the customer.
    fn is_picked_up(self, plan: &Plan) -> bool {
        let own = &self.legs[self.other].leg.id;
        plan.talk.spans.iter().any(|span| {
            let who = &self.legs[span.2].leg.id;
            let pairs = [(own.clone(), who.clone()), (who.clone(), own.clone())];
            pairs.iter().any(|pair| self.joined.contains(pair))
        })
    }

    /// Returns the earliest time at which the two may have talked, or `None` if they can't have, as
    /// far as is known.
    fn answered_at(self, dialing: &View<'_>, dialed: &View<'_>, plan: &Plan) -> Option<EventTime> {
        match (dialing.answer, dialed.answer) {
            (Answer::Refused, _) | (_, Answer::Refused) => None,
            (Answer::At(a) | Answer::Reported(a), Answer::At(b) | Answer::Reported(b)) => {
                Some(a.max(b))
            }
            // `Dial` doesn't answer the channel that runs it.
            (Answer::Unknown, Answer::Reported(at)) if dialed.dialer().is_some() => Some(at),
            // `Dial` answers its own channel when a phone answers or someone picks up the call.
            (Answer::At(at), Answer::Unknown)
                if plan.talk.spans.is_empty() && self.is_answer_of_dial(dialing, dialed, at) =>
            {
                Some(at)
            }
            // An answer was lost, but the result of the `Dial` still points to one. If the customer
            // talked to anyone, that's who answered.
            (answer, other) => {
                let (_, answered) = ran_dial(dialing, dialed)?;
                let at = answer.time().or(other.time()).unwrap_or(dialed.leg.first);
                (answered && plan.talk.spans.is_empty()).then_some(at)
            }
        }
    }

    /// Returns `true` if the dialing channel was answered by the `Dial` that it ran, either because
    /// CEL says so or because the other channel replaced a phone that had been ringing until then.
    fn is_answer_of_dial(self, dialing: &View<'_>, dialed: &View<'_>, at: EventTime) -> bool {
        let answer = FactKind::State(ChannelState::Up);
        let answer = Fact::new(at, Origin::Cel, answer);
        let mut dials = dialing.leg.applications.dials.iter();
        let was_dialing = dials.any(|dial| dial.first < at && at <= dial.last);
        if was_dialing && dialing.leg.facts.contains(&answer) {
            return true;
        }
        let id = &dialed.leg.id;
        self.legs.iter().any(|rung| {
            let pairs = [(&rung.leg.id, id), (id, &rung.leg.id)];
            let was_ringing = rung.leg.first < at && at.since(rung.end) < AT_ONCE;
            rung.dialer() == Some(&dialing.leg.id)
                && was_ringing
                && pairs
                    .iter()
                    .any(|&(a, b)| self.joined.contains(&(a.clone(), b.clone())))
        })
    }

    /// Returns the side that dialed and the side that was dialed.
    fn dialing_and_dialed(self) -> (&'v View<'a>, &'v View<'a>) {
        let (customer, other) = (self.legs[self.customer], self.legs[self.other]);
        let is_by_other = customer.dialer() == Some(&other.leg.id);
        if is_by_other || customer.way == Way::Dialed && other.way == Way::CameIn {
            (other, customer)
        } else {
            (customer, other)
        }
    }
}

/// Returns the result of the `Dial` that reached the dialed channel, along with the event system
/// that reported it, if any.
fn ran_dial(dialing: &View<'_>, dialed: &View<'_>) -> Option<(Origin, bool)> {
    let mut results: Vec<_> = dialing
        .leg
        .facts
        .iter()
        .filter(|fact| fact.at >= dialed.leg.first)
        .filter_map(|fact| Some((fact.at, fact.origin, fact.what.ran_dial_result()?)))
        .collect();
    results.sort_unstable();
    results.first().map(|&(_, origin, result)| (origin, result))
}

/// Returns `true` if an event explains why the two never met even though both were up.
fn is_explained(legs: &[&View<'_>], dialing: &View<'_>, dialed: &View<'_>) -> bool {
    let gave_up = any(&dialing.leg.facts, |what| *what == FactKind::GaveUp);
    let refused = ran_dial(dialing, dialed) == Some((Origin::Channel, false));
    let unlinked = dialed
        .leg
        .traits
        .as_ref()
        .is_some_and(|traits| traits.unlinked);
    gave_up || refused || unlinked || was_asked(legs, dialing, dialed)
}

/// Returns `true` if the dialed phone was asked to confirm or heard an announcement, and the
/// channel that dialed it didn't answer after that.
fn was_asked(legs: &[&View<'_>], dialing: &View<'_>, dialed: &View<'_>) -> bool {
    let is_accepted = match (dialing.answer.time(), dialed.answer.time()) {
        (Some(dialing), Some(dialed)) => dialing >= dialed,
        _ => false,
    };
    let prompted = dialed.leg.applications.prompt.is_some();
    !is_accepted
        && (prompted
            || legs
                .iter()
                .any(|leg| leg.leg.applications.asks_the_dialed()))
}
