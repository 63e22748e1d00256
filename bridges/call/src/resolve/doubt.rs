//! Decides whether events of a call may be missing although its end was received.
//!
//! A call that was open in a gap is complete if the events of each channel continue after it in the
//! state from before: in the same bridge, which does not outlive a conversation of two, or in the
//! first bridge of two channels that were dialed before the gap. Otherwise the call is complete
//! only if the gap was too short to enter a bridge and leave it again.
//!
//! A consultation that began and ended in the gap leaves no trace. So if another account can fill
//! gaps, a call with a longer one is incomplete until that account has reported it.

use crate::facts::{Fact, FactKind, Leg, OpenCall, Passage, UnobservedTime, any};
use crate::resolve::linked::AT_ONCE;
use crate::{ChannelState, EventTime, Origin, UniqueId, local_pair};

/// Returns the reason why events of the call may be missing, or `None` if none are.
pub(super) fn doubt(call: &OpenCall, caught_up: bool) -> Option<String> {
    let long = call.gaps.blinds.iter().find(|blind| !blind.is_short());
    if let Some(blind) = long.filter(|_| caught_up) {
        return Some(gap_text(call.times.opened, blind));
    }
    let mut legs = call.legs.values();
    // A party that joins a conference can have come by a separate call.
    let sure = |bridge: &str| long.is_none() || is_first(call, bridge);
    let waited = call.legs.values().any(rang_on);
    let begun = |leg: &Leg, seen| is_begun(split(leg, seen).0);
    let unbridged = |leg: &Leg| waited && leg.blinds.iter().all(|&seen| begun(leg, seen));
    let well_told = |leg: &Leg| match leg.traits {
        Some(_) => went_on(call, leg),
        None => is_well_reported(leg, &sure, &unbridged),
    };
    if let Some(blind) = long.or(call.gaps.blinds.first())
        && (call.conference || !legs.all(well_told))
    {
        return Some(gap_text(call.times.opened, blind));
    }
    let late = call.gaps.late?;
    let begun = |leg: &Leg| leg.is_born() || leg.born_after(late);
    (!call.legs.values().all(begun))
        .then(|| "it began while callbridge was not connected to the PBX".to_owned())
}

/// Describes a gap in seconds since the call's beginning. The time zone of the PBX is not known
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
    // The events before and after the gap follow each other, for example after a reconnection.
    format!("events may be missing: the connection was interrupted at {began}")
}

/// Divides the facts of a channel into those before a gap and those after it.
fn split(leg: &Leg, seen: usize) -> (&[Fact], &[Fact]) {
    leg.facts.split_at(seen.min(leg.facts.len()))
}

/// Returns `true` if the channel was dialed before each gap, and the dialing ended after the gap.
/// During the gap, neither this channel nor the one that dialed it talked.
fn rang_on(leg: &Leg) -> bool {
    if local_pair(leg.name()).is_some() || leg.blinds.is_empty() {
        return false;
    }
    for &seen in &leg.blinds {
        let (before, after) = split(leg, seen);
        let ended_before = any(before, |what| *what == FactKind::DialEnded);
        let ended_after = any(after, |what| *what == FactKind::DialEnded);
        if !any(before, FactKind::is_dialed) || ended_before || !ended_after {
            return false;
        }
    }
    true
}

/// Returns `true` if two telephones that were up before a gap, and in no bridge, met in this one
/// after it. It is then the first bridge of both.
fn is_first(call: &OpenCall, bridge: &str) -> bool {
    let rang = |leg: &&Leg| {
        let (before, after) = split(leg, leg.blinds.last().copied().unwrap_or(0));
        let passages = |facts| [Origin::Channel, Origin::Cel].map(|it| passages(facts, it).next());
        let entered = passages(after).into_iter().flatten().next();
        local_pair(leg.name()).is_none()
            && is_begun(before)
            && passages(before).iter().all(Option::is_none)
            && entered.is_some_and(|it| it.enters && it.bridge == bridge)
    };
    call.legs.values().filter(rang).count() > 1
}

/// Returns `true` if, at each gap, one of these applies: the channel was over, it was in a bridge
/// that it left after the gap, or it had called in or been dialed before the gap, and after it
/// entered a bridge that is its first for `sure`.
fn is_well_reported(
    leg: &Leg,
    sure: &impl Fn(&str) -> bool,
    unbridged: &impl Fn(&Leg) -> bool,
) -> bool {
    let bridged = any(&leg.facts, |what| what.passage().is_some());
    if !bridged && unbridged(leg) && has_hangup(&leg.facts) {
        return true;
    }
    leg.blinds.iter().all(|&seen| {
        let (before, after) = split(leg, seen);
        if any(before, FactKind::is_end) {
            return true;
        }
        let origins = [Origin::Channel, Origin::Cel].into_iter();
        let origins = origins.filter(|&origin| passages(&leg.facts, origin).next().is_some());
        let mut goes_on = origins.map(|origin| {
            let last = passages(before, origin).last();
            match (last, passages(after, origin).next()) {
                (Some(last), Some(next)) => {
                    last.enters && !next.enters && last.bridge == next.bridge
                }
                (None, Some(next)) => next.enters && is_begun(before) && sure(next.bridge),
                (_, None) => false,
            }
        });
        // A channel without reported bridges may have been in one.
        goes_on.next().unwrap_or(false) && goes_on.all(|it| it) && has_hangup(after)
    })
}

/// Returns `true` if the PBX reports after each gap with whom the channel has been linked and since
/// when, and that link was reported before the gap. It is also `true` if no one had answered by the
/// channel's end, or there was no other link.
fn went_on(call: &OpenCall, leg: &Leg) -> bool {
    let over = |seen| any(split(leg, seen).0, FactKind::is_end);
    if leg.blinds.iter().all(|&seen| over(seen)) {
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
        // No one answered. The dialed channels may be what was missed.
        let anybody_else = call.legs.len() > 1;
        return traits.fresh && traits.answered.is_none() && anybody_else;
    };
    let reports = |by: &Leg, other: &UniqueId| {
        let first = by.blinds.first().copied();
        let (before, _) = split(by, first.unwrap_or(by.facts.len()));
        before.iter().any(|fact| {
            let near = fact.at.apart(*since) < AT_ONCE;
            near && fact.what.link() == Some((other, true))
        })
    };
    call.legs.values().any(|by| {
        let of_both =
            by.id == leg.id && reports(by, with) || by.id == *with && reports(by, &leg.id);
        of_both && by.blinds.len() == leg.blinds.len()
    })
}

/// Returns `true` if the channel called in, or was seen to be dialed.
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
        let text = |from: u64, length: Option<u64>| {
            let from = opened.plus(Duration::from_millis(from));
            let until = length.map(|length| from.plus(Duration::from_millis(length)));
            let text = gap_text(opened, &UnobservedTime { from, until });
            let text = text.strip_prefix("events may be missing: ");
            text.expect("the beginning").to_owned()
        };
        let ended = "the connection was interrupted at second 846 of the call";
        assert_eq!(text(846_300, Some(0)), ended);
        assert_eq!(text(846_300, Some(999)), ended);
        assert_eq!(
            text(300, Some(0)),
            "the connection was interrupted at the beginning of the call"
        );
        let long = "none arrived for 45 s from second 846 of the call on";
        assert_eq!(text(846_300, Some(45_200)), long);
        assert_eq!(
            text(300, Some(1_000)),
            "none arrived for 1 s from the beginning of the call on"
        );
        assert_eq!(
            text(300, None),
            "none has arrived since the beginning of the call"
        );
    }
}
