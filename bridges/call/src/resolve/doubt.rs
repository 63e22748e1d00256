//! Decides whether events of a call may be missing even though its end was received.
//!
//! A call that was open during a gap is complete if each channel's events continue afterward as
//! they left off. That means that the channel is either in the same bridge, which can't outlive a
//! two-party conversation, or in the first bridge of two channels that were dialed before the gap.
//! Otherwise, the call is only complete if the gap was too short for anyone to enter a bridge and
//! leave it again.
//!
//! A consultation that took place entirely within the gap leaves no trace. So if another source can
//! fill gaps, a call with a longer one is incomplete until that source has reported it.

use crate::facts::{Fact, FactKind, Leg, OpenCall, Passage, UnobservedTime, any};
use crate::resolve::view::AT_ONCE;
use crate::{ChannelState, EventTime, Origin, UniqueId, local_pair};

/// Why a call is incomplete if the switch recovered it.
const RECOVERED: &str = "the switch was restarted and recovered the call, so part of it was not \
                         reported";
const BEGAN_UNSEEN: &str = "it began while callbridge was not connected to the PBX";
/// Why a call is incomplete if one of its channels is only known to have ended because it's missing
/// from the lists of live channels.
const UNLISTED: &str = "a hangup was not received: the PBX no longer lists a channel of the call";

/// Returns why events of the call may be missing, or `None` if none are.
pub(super) fn doubt(call: &OpenCall, caught_up: bool) -> Option<String> {
    let long = call.gaps.blinds.iter().find(|blind| !blind.is_short());
    if caught_up && let Some(blind) = long {
        return Some(gap_text(call.times.opened, blind));
    }
    if let Some(blind) = long.or(call.gaps.blinds.first())
        && (call.conference || !is_each_well_reported(call, long.is_some()))
    {
        return Some(gap_text(call.times.opened, blind));
    }
    let mut traits = call.legs.values().filter_map(|leg| leg.traits.as_ref());
    if traits.any(|traits| traits.recovered) {
        return Some(RECOVERED.to_owned());
    }
    if call.legs.values().any(|leg| leg.unlisted) {
        return Some(UNLISTED.to_owned());
    }
    if call.legs.values().any(Leg::is_known_from_list) {
        return Some(BEGAN_UNSEEN.to_owned());
    }
    let late = call.gaps.late?;
    if call
        .legs
        .values()
        .all(|leg| leg.is_born() || leg.born_after(late))
    {
        return None;
    }
    Some(BEGAN_UNSEEN.to_owned())
}

/// Returns `true` if none of the channels can be missing any events. `is_long` indicates that one
/// of the call's gaps was long.
fn is_each_well_reported(call: &OpenCall, is_long: bool) -> bool {
    let waited = call.legs.values().any(rang_on);
    call.legs.values().all(|leg| {
        if leg.traits.is_some() {
            return went_on(call, leg);
        }
        let unbridged = waited && leg.blinds.iter().all(|&seen| is_begun(split(leg, seen).0));
        // A party that joins a conference may have called in separately.
        is_well_reported(leg, unbridged, |bridge| !is_long || is_first(call, bridge))
    })
}

/// Describes a gap in seconds since the start of the call, because the PBX's time zone isn't known
/// here.
fn gap_text(opened: EventTime, blind: &UnobservedTime) -> String {
    let from = blind.from.since(opened).as_secs();
    let began = if from == 0 {
        "the beginning of the call".to_owned()
    } else {
        format!("second {from} of the call")
    };
    let Some(until) = blind.until else {
        return format!("events may be missing: none has arrived since {began}");
    };
    let length = until.since(blind.from).as_secs();
    if length > 0 {
        return format!("events may be missing: none arrived for {length} s from {began} on");
    }
    // The events before and after the gap are contiguous, e.g., after a reconnect.
    format!("events may be missing: the connection was interrupted at {began}")
}

/// Divides a channel's facts into those before a gap and those after it.
fn split(leg: &Leg, seen: usize) -> (&[Fact], &[Fact]) {
    leg.facts.split_at(seen.min(leg.facts.len()))
}

/// Returns `true` if the channel was dialed before each gap and the dialing ended after it. During
/// the gap, neither this channel nor the one that dialed it was talking.
fn rang_on(leg: &Leg) -> bool {
    if local_pair(leg.name()).is_some() || leg.blinds.is_empty() {
        return false;
    }
    for &seen in &leg.blinds {
        let (before, after) = split(leg, seen);
        let ended_before = any(before, FactKind::is_dial_end);
        let ended_after = any(after, FactKind::is_dial_end);
        if !any(before, FactKind::is_dialed) || ended_before || !ended_after {
            return false;
        }
    }
    true
}

/// Returns `true` if two phones that were up, but not bridged, before a gap met in this bridge
/// after it, which makes it the first bridge for both.
fn is_first(call: &OpenCall, bridge: &str) -> bool {
    let mut count = 0;
    for leg in call.legs.values() {
        let (before, after) = split(leg, leg.blinds.last().copied().unwrap_or(0));
        if local_pair(leg.name()).is_none()
            && is_begun(before)
            && first_passage(before).is_none()
            && first_passage(after)
                .is_some_and(|passage| passage.enters && passage.bridge == bridge)
        {
            count += 1;
        }
    }
    count > 1
}

/// Returns the first entry or exit reported by the PBX's events or, failing that, by CEL.
fn first_passage(facts: &[Fact]) -> Option<Passage<'_>> {
    passages(facts, Origin::Channel)
        .next()
        .or_else(|| passages(facts, Origin::Cel).next())
}

/// Returns `true` if the channel's events are complete despite its gaps.
///
/// At each gap, the channel must have been over, have been in a bridge that it left after the gap,
/// or have called in or been dialed before the gap and then entered a bridge that's its first for
/// `sure`. It's also `true` for a channel that hung up without any bridge being reported, if it
/// can't have been in one (`unbridged`).
fn is_well_reported(leg: &Leg, unbridged: bool, sure: impl Fn(&str) -> bool) -> bool {
    let bridged = any(&leg.facts, |what| what.passage().is_some());
    if !bridged && unbridged && has_hangup(&leg.facts) {
        return true;
    }
    leg.blinds.iter().all(|&seen| {
        let (before, after) = split(leg, seen);
        if any(before, FactKind::is_end) {
            return true;
        }
        let mut has_bridges = false;
        for origin in [Origin::Channel, Origin::Cel] {
            if passages(&leg.facts, origin).next().is_none() {
                continue;
            }
            has_bridges = true;
            let last = passages(before, origin).last();
            let goes_on = match (last, passages(after, origin).next()) {
                (Some(last), Some(next)) => {
                    last.enters && !next.enters && last.bridge == next.bridge
                }
                (None, Some(next)) => next.enters && is_begun(before) && sure(next.bridge),
                (_, None) => false,
            };
            if !goes_on {
                return false;
            }
        }
        // A channel without any reported bridges may have been in one.
        has_bridges && has_hangup(after)
    })
}

/// Returns `true` if the PBX reports after each gap who the channel has been linked with and since
/// when, and that link was reported before the gap. This also holds if no one had answered by the
/// time the channel ended, or if there was no other link.
fn went_on(call: &OpenCall, leg: &Leg) -> bool {
    if leg
        .blinds
        .iter()
        .all(|&seen| any(split(leg, seen).0, FactKind::is_end))
    {
        return true;
    }
    let Some(traits) = &leg.traits else {
        return false;
    };
    if !has_hangup(&leg.facts) {
        return false;
    }
    if traits.sole {
        return true;
    }
    let Some((since, with)) = traits.linked.iter().max() else {
        // No one answered. What was missed may be the dialed channels.
        let anybody_else = call.legs.len() > 1;
        return traits.fresh && traits.answered.is_none() && anybody_else;
    };
    call.legs.values().any(|by| {
        let of_both = by.id == leg.id && reports_link(by, with, *since)
            || by.id == *with && reports_link(by, &leg.id, *since);
        of_both && by.blinds.len() == leg.blinds.len()
    })
}

/// Returns `true` if the channel reported before its first gap that it was linked with the other
/// one at around this time.
fn reports_link(leg: &Leg, other: &UniqueId, since: EventTime) -> bool {
    let first = leg.blinds.first().copied();
    let (before, _) = split(leg, first.unwrap_or(leg.facts.len()));
    before.iter().any(|fact| {
        let near = fact.at.apart(since) < AT_ONCE;
        near && fact.what.link() == Some((other, true))
    })
}

/// Returns `true` if the channel called in or was seen being dialed.
fn is_begun(facts: &[Fact]) -> bool {
    use ChannelState::{PreRing, Ring};
    any(facts, |what| {
        matches!(
            what,
            FactKind::Born(Ring | PreRing) | FactKind::Dialed { .. }
        )
    })
}

fn has_hangup(facts: &[Fact]) -> bool {
    any(facts, |what| *what == FactKind::Hangup)
}

fn passages(facts: &[Fact], origin: Origin) -> impl Iterator<Item = Passage<'_>> {
    let own = facts.iter().filter(move |fact| fact.origin == origin);
    own.filter_map(|fact| fact.what.passage())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn gap_under_a_second_is_shown_without_a_length() {
        let opened = EventTime::from_seconds(1_000);
        let ended = "the connection was interrupted at second 846 of the call";
        for (from, length, message) in [
            (846_300, Some(0), ended),
            (846_300, Some(999), ended),
            (
                300,
                Some(0),
                "the connection was interrupted at the beginning of the call",
            ),
            (
                846_300,
                Some(45_200),
                "none arrived for 45 s from second 846 of the call on",
            ),
            (
                300,
                Some(1_000),
                "none arrived for 1 s from the beginning of the call on",
            ),
            (
                300,
                None,
                "none has arrived since the beginning of the call",
            ),
        ] {
            let from = opened.plus(Duration::from_millis(from));
            let until = length.map(|length| from.plus(Duration::from_millis(length)));
            let text = gap_text(opened, &UnobservedTime { from, until });
            let text = text.strip_prefix("events may be missing: ");
            assert_eq!(text.expect("the beginning"), message);
        }
    }
}
