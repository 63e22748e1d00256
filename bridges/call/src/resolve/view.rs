//! A channel as seen by the resolver, with its party, how it became part of the call, and its
//! bridges.

use crate::facts::{Fact, FactKind, Leg, Passage, any, spans};
use crate::trunk;
use crate::{ChannelState, Endpoints, EventTime, Origin, Party, UniqueId, Way};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Reports of the same moment, such as those of AMI and CEL, or the end of one link and the start
/// of the next, are at most this far apart.
pub(super) const AT_ONCE: Duration = Duration::from_millis(100);

/// Separates the two channels in the name of a bridge that represents a link.
pub(super) const LINKED: &str = " + ";

/// Whether and when a channel answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Dialing the channel ended without an answer or without the requested confirmation.
    Refused,
    /// Dialing the channel ended with `ANSWER` at this time.
    Reported(EventTime),
    /// The channel was up from this time on.
    At(EventTime),
    Unknown,
}

impl Answer {
    /// Returns when the channel answered, if that's known.
    pub(super) fn time(self) -> Option<EventTime> {
        match self {
            Self::Reported(at) | Self::At(at) => Some(at),
            Self::Refused | Self::Unknown => None,
        }
    }

    fn of(leg: &Leg, facts: &[&Fact]) -> Self {
        let results = facts
            .iter()
            .filter_map(|fact| Some((fact.at, fact.what.dial_result()?)));
        let (answers, refusals): (Vec<_>, Vec<_>) = results.partition(|&(_, result)| result);
        if let Some(&(at, _)) = answers.first() {
            return Self::Reported(at);
        }
        if !refusals.is_empty() {
            return Self::Refused;
        }
        let up = first_of(facts, |what| *what == FactKind::State(ChannelState::Up));
        let traits = leg.traits.as_ref();
        let reported = traits.and_then(|traits| traits.answered);
        up.map(|fact| fact.at)
            .or(reported)
            .map_or(Self::Unknown, Self::At)
    }
}

/// Time spent in one bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BridgeStay<'a> {
    pub(super) bridge: &'a str,
    pub(super) from: EventTime,
    pub(super) to: EventTime,
    /// Whether this is a holding bridge, whose channels can't hear each other.
    pub(super) holding: bool,
}

#[derive(Clone, Debug)]
pub(super) struct View<'a> {
    pub(super) leg: &'a Leg,
    pub(super) name: &'a str,
    pub(super) party: Party<'a>,
    pub(super) way: Way,
    /// The time and description of the event that determined `way`.
    pub(super) way_by: (EventTime, &'static str),
    pub(super) answer: Answer,
    /// Whether the channel's start was received, i.e., its creation or how it became part of the
    /// call.
    pub(super) begun: bool,
    /// When the channel hung up or last showed a sign of life.
    pub(super) end: EventTime,
    /// When the party hung up, if that was requested before the channel ended, or else the same as
    /// `end`.
    pub(super) left: EventTime,
    pub(super) stays: Vec<BridgeStay<'a>>,
    /// Bridges other than holding bridges that the channel must have entered or left without that
    /// being reported, judging by other events.
    pub(super) broken: Vec<&'a str>,
    /// Stays in holding bridges, whose channels can't hear each other.
    pub(super) waits: Vec<BridgeStay<'a>>,
    /// Whether the events have timestamps, so that durations are known.
    pub(super) timed: bool,
}

impl<'a> View<'a> {
    /// Creates a channel's view. `timed` means that the source's events have timestamps, and
    /// `numbers` that the source reports extensions or callers' numbers.
    pub(super) fn from_leg(
        leg: &'a Leg,
        endpoints: &'a Endpoints,
        timed: bool,
        numbers: bool,
    ) -> Self {
        let mut facts: Vec<&Fact> = leg.facts.iter().collect();
        facts.sort_by_key(|fact| fact.at);
        let name = leg.name();
        let (way, at, message, begun) = way(leg, &facts, numbers);
        let end = end(leg, &facts);
        let mut broken = Vec::new();
        let (waits, stays) = stays(&facts, end, &mut broken)
            .into_iter()
            .partition(|stay| stay.holding);
        broken.extend(unentered_rooms(&facts));
        Self {
            leg,
            name,
            party: party(leg, &facts, endpoints),
            way,
            way_by: (at, message),
            answer: Answer::of(leg, &facts),
            begun,
            end,
            left: leg.requested_end().map_or(end, |at| at.min(end)),
            stays,
            broken,
            waits,
            timed,
        }
    }

    /// Returns the linkedid that the channel was created with, or its unique ID if the source
    /// doesn't report any.
    pub(super) fn first_linkedid(&self) -> &str {
        self.leg.first_linkedid().unwrap_or(self.leg.id.as_str())
    }

    /// Returns `true` if the channel wasn't created in another channel's call.
    pub(super) fn is_root(&self) -> bool {
        self.leg.is_root()
    }

    /// Returns `true` if an event shows that another channel dialed this one.
    pub(super) fn was_dialed(&self) -> bool {
        any(&self.leg.facts, FactKind::is_dialed)
    }

    /// Returns the bridges that this channel and the other one were in at the same time.
    pub(super) fn common_bridges(&self, other: &Self) -> Vec<&'a str> {
        let stays = self.stays.iter().filter(|stay| other.was_in_during(stay));
        stays.map(|stay| stay.bridge).collect()
    }

    /// Returns `true` if the channel was in the bridge of another channel's stay at the same time.
    pub(super) fn was_in_during(&self, stay: &BridgeStay<'_>) -> bool {
        let mut own = self.stays.iter().filter(|own| own.bridge == stay.bridge);
        own.any(|own| own.from < stay.to && stay.from < own.to)
    }

    /// Returns `true` if the two channels share a linkedid and were therefore in the same call.
    pub(super) fn shares_linkedid(&self, other: &Self) -> bool {
        let mut own = self.leg.linkedids.iter();
        own.any(|linkedid| other.leg.linkedids.has(&linkedid.text))
    }

    /// Returns `true` if the channel was reported as answered.
    pub(super) fn has_answered(&self) -> bool {
        let traits = self.leg.traits.as_ref();
        traits.is_some_and(|traits| traits.answered.is_some())
            || any(&self.leg.facts, |what| {
                *what == FactKind::State(ChannelState::Up)
            })
    }

    /// Returns the channel that dialed this one, if an event identifies it.
    pub(super) fn dialer(&self) -> Option<&'a UniqueId> {
        self.leg.facts.iter().find_map(|fact| fact.what.dialer())
    }

    /// Returns the channel's ID and all its linkedids.
    pub(super) fn ids(&self) -> impl Iterator<Item = UniqueId> {
        let linkedids = self
            .leg
            .linkedids
            .iter()
            .filter_map(|linkedid| UniqueId::new(linkedid.text.as_str()));
        std::iter::once(self.leg.id.clone()).chain(linkedids)
    }
}

/// Returns the party at the channel. A channel with an unknown technology is a phone if it dials or
/// was dialed.
fn party<'a>(leg: &Leg, facts: &[&Fact], endpoints: &'a Endpoints) -> Party<'a> {
    let ran = &leg.applications;
    match leg.party(endpoints) {
        Party::Unknown(extension)
            if ran.outgoing.is_some()
                || !ran.dials.is_empty()
                || first_of(facts, is_of_phone).is_some() =>
        {
            Party::Extension(extension)
        }
        party => party,
    }
}

/// Returns `true` if the fact shows that the channel dials or was dialed.
fn is_of_phone(what: &FactKind) -> bool {
    use ChannelState::{PreRing, Ring, Ringing};
    match what {
        FactKind::Born(state) => matches!(state, Ring | PreRing),
        FactKind::State(state) => matches!(state, Ring | PreRing | Ringing),
        what => what.is_dialed() || what.is_dial_end(),
    }
}

/// Returns whether the channel came in or was dialed, the time and description of the event that
/// shows it, and whether the channel's start was received.
fn way(leg: &Leg, facts: &[&Fact], numbers: bool) -> (Way, EventTime, &'static str, bool) {
    use ChannelState::{Down, PreRing, Ring, Ringing};
    if let Some(traits) = &leg.traits {
        let (way, message) = if traits.line.inbound {
            (Way::CameIn, "the PBX reports that it came in")
        } else {
            (Way::Dialed, "the PBX reports that it was dialed")
        };
        return (way, leg.first, message, traits.fresh);
    }
    if let Some(fact) = first_of(facts, |what| matches!(what, FactKind::Born(Ring | PreRing))) {
        return (Way::CameIn, fact.at, "created in state Ring", true);
    }
    if let Some(fact) = first_of(facts, FactKind::is_dialed) {
        return (Way::Dialed, fact.at, "reported as dialed", true);
    }
    let born_down = first_of(facts, |what| matches!(what, FactKind::Born(Down)));
    if let Some(fact) = born_down
        && trunk::technology(leg.name()) == "PJSIP"
    {
        return (Way::Dialed, fact.at, "created in state Down", true);
    }
    let first_state = first_of(facts, |what| {
        matches!(what, FactKind::State(Ring | PreRing | Ringing))
    });
    if let Some(fact) = first_state {
        if fact.what == FactKind::State(Ringing) {
            return (Way::Dialed, fact.at, "first state Ringing", true);
        }
        return (Way::CameIn, fact.at, "first state Ring", true);
    }
    if let Some(fact) = first_of(facts, FactKind::is_dial_end) {
        return (Way::Dialed, fact.at, "reported as the dialed channel", true);
    }
    let born = first_of(facts, |what| matches!(what, FactKind::Born(_)));
    way_without_state(leg, born.map(|fact| fact.at), numbers)
}

/// Returns the first fact of a kind.
fn first_of<'a>(facts: &[&'a Fact], is_wanted: impl Fn(&FactKind) -> bool) -> Option<&'a Fact> {
    facts.iter().copied().find(|fact| is_wanted(&fact.what))
}

/// Determines how a channel became part of the call if neither a state nor any dialing was
/// reported, as in CEL and in a list of live channels.
///
/// In a list, only `AppDial`, `AppDial2`, and `AppQueue` show that a channel was dialed. Otherwise,
/// a channel that starts in another channel's call was dialed. So was a channel on the `s`
/// extension, unless it has a caller's number or the source doesn't report numbers.
fn way_without_state(
    leg: &Leg,
    born: Option<EventTime>,
    numbers: bool,
) -> (Way, EventTime, &'static str, bool) {
    let at = born.unwrap_or(leg.first);
    let begun = born.is_some();
    if let Some(at) = leg.applications.outgoing {
        return (Way::Dialed, at, "ran AppDial, AppDial2, or AppQueue", begun);
    }
    let is_running =
        |what: &FactKind| matches!(what, FactKind::Listed { running } if !running.is_empty());
    if let Some(fact) = leg.facts.iter().find(|fact| is_running(&fact.what)) {
        let message = "listed with an application that no dialed channel runs";
        return (Way::CameIn, fact.at, message, begun);
    }
    let other = leg.linkedids.first();
    if let Some(other) = other.filter(|linkedid| linkedid.text != leg.id.as_str()) {
        let message = "created in another channel's call";
        return (Way::Dialed, other.at, message, begun);
    }
    let exten = leg.extens.first().map_or("", |exten| exten.text.as_str());
    let caller = leg.callers.first().filter(|caller| caller.at <= at);
    if numbers && matches!(exten, "" | "s") && caller.is_none() {
        let message = "created on extension s, without a number";
        return (Way::Dialed, at, message, begun);
    }
    // AMI reports the first state of every channel that comes in, and of most dialed ones.
    let down = FactKind::Born(ChannelState::Down);
    let mut facts = leg.facts.iter();
    let was_down = facts.any(|fact| fact.origin == Origin::Channel && fact.what == down);
    let is_sure = leg.linkedids.first().is_some() || !was_down;
    (Way::CameIn, at, "began a call", begun && is_sure)
}

/// Returns when the channel hung up according to AMI or, failing that, CEL, or else when it ended
/// or last showed a sign of life.
fn end(leg: &Leg, facts: &[&Fact]) -> EventTime {
    let ends = facts.iter().filter(|fact| fact.what.is_end());
    let end = ends.min_by_key(|fact| {
        let rank = match (&fact.what, fact.origin) {
            (FactKind::Hangup, Origin::Channel) => 0,
            (FactKind::Hangup, Origin::Cel) => 1,
            _ => 2,
        };
        (rank, fact.at)
    });
    end.map_or(leg.last, |fact| fact.at)
}

/// Returns the stays in bridges, including holding bridges, and adds those with a missing entry or
/// exit to `broken`.
///
/// If both AMI and CEL report a bridge, only the more complete report is used, since combining two
/// clocks that are 1 ms apart would create a third stay.
fn stays<'a>(facts: &[&'a Fact], end: EventTime, broken: &mut Vec<&'a str>) -> Vec<BridgeStay<'a>> {
    let passages = facts.iter().filter_map(|fact| fact.what.passage());
    let mut bridges: Vec<(&str, bool)> = passages.map(|p| (p.bridge, p.holding)).collect();
    // Holding comes first, since a bridge is a holding bridge if any event says so, no matter what
    // other events leave out.
    bridges.sort_by_key(|&(name, holding)| (name, !holding));
    bridges.dedup_by_key(|&mut (name, _)| name);
    let mut whole = whole_bridges(facts, Origin::Channel);
    whole.extend(whole_bridges(facts, Origin::Cel));
    let mut all = Vec::new();
    for (bridge, holding) in bridges {
        let by_ami = reported_spans(facts, bridge, Origin::Channel);
        let by_cel = reported_spans(facts, bridge, Origin::Cel);
        let (more, origin) = if edges(&by_cel) > edges(&by_ami) {
            (by_cel, Origin::Cel)
        } else {
            (by_ami, Origin::Channel)
        };
        let is_whole = whole.contains(&(origin, bridge)) || whole.contains(&(Origin::Cel, bridge));
        if !holding && !is_whole {
            broken.push(bridge);
        }
        all.extend(more.into_iter().map(|(from, to)| BridgeStay {
            bridge,
            from,
            to: to.unwrap_or(end.max(from)),
            holding,
        }));
    }
    all.sort_by_key(|stay| (stay.from, stay.to));
    // A channel is only in one bridge at a time, so the next stay ends one whose end wasn't
    // received.
    for i in 1..all.len() {
        all[i - 1].to = all[i - 1].to.min(all[i].from);
    }
    all
}

/// The start of a stay in a bridge, and its end if that was received.
type ReportedSpan = (EventTime, Option<EventTime>);

/// Returns the conference bridges that the channel is reported to have been in at a time when it
/// wasn't, according to its entries and exits.
fn unentered_rooms<'a>(facts: &[&'a Fact]) -> Vec<&'a str> {
    let mut rooms = Vec::new();
    for fact in facts {
        let FactKind::Sits { bridge } = &fact.what else {
            continue;
        };
        // Asterisk may report that the channel has joined the conference just before its entry.
        let until = fact.at.plus(AT_ONCE);
        let (mut entered, mut left) = (None, None);
        for other in facts {
            match other
                .what
                .passage()
                .filter(|passage| passage.bridge == bridge)
            {
                Some(passage) if passage.enters && other.at <= until => {
                    entered = entered.max(Some(other.at));
                }
                Some(passage) if !passage.enters && other.at <= fact.at => {
                    left = left.max(Some(other.at));
                }
                Some(_) | None => {}
            }
        }
        if entered.is_none() || left > entered {
            rooms.push(bridge.as_str());
        }
    }
    rooms
}

/// Returns the stays in this bridge as reported by one event system.
fn reported_spans(facts: &[&Fact], bridge: &str, origin: Origin) -> Vec<ReportedSpan> {
    let own = facts.iter().filter(|fact| fact.origin == origin);
    spans(own.filter_map(|fact| {
        let passage = fact
            .what
            .passage()
            .filter(|passage| passage.bridge == bridge)?;
        Some((fact.at, passage.enters))
    }))
}

/// Returns `true` for a bridge that stands for a link between two channels. Unlike with real
/// bridges, a channel may consult a third one before its link to the second one ends.
fn is_link(bridge: &str) -> bool {
    bridge.contains(LINKED)
}

/// Returns the bridges that one event system reports in full, with an entry before each exit and an
/// exit before the next entry into the same or another bridge. The order of simultaneous events is
/// ignored.
fn whole_bridges<'a>(facts: &[&'a Fact], origin: Origin) -> BTreeSet<(Origin, &'a str)> {
    let own = facts.iter().filter(|fact| fact.origin == origin);
    let passages: Vec<(EventTime, Passage<'a>)> = own
        .filter_map(|fact| Some((fact.at, fact.what.passage()?)))
        .collect();
    // How many more times the channel has entered each bridge than left it.
    let mut inside: BTreeMap<&str, i32> = BTreeMap::new();
    let mut broken: BTreeSet<&str> = BTreeSet::new();
    for moment in passages.chunk_by(|a, b| a.0 == b.0) {
        let occupied: Vec<&str> = inside.keys().copied().collect();
        for (_, passage) in moment {
            let step = if passage.enters { 1 } else { -1 };
            *inside.entry(passage.bridge).or_default() += step;
        }
        let enters = moment.iter().any(|(_, passage)| passage.enters);
        let was_left = |bridge: &str| inside.get(bridge).is_none_or(|count| *count <= 0);
        let returns = |bridge: &str| {
            let mut here = moment
                .iter()
                .filter(|(_, passage)| passage.bridge == bridge);
            here.clone().any(|(_, passage)| passage.enters)
                && here.any(|(_, passage)| !passage.enters)
        };
        for bridge in occupied {
            if enters && !is_link(bridge) && !was_left(bridge) && !returns(bridge) {
                broken.insert(bridge);
            }
        }
        for (_, passage) in moment {
            if inside.get(passage.bridge).is_some_and(|count| *count < 0) {
                broken.insert(passage.bridge);
            }
        }
        inside.retain(|bridge, count| *count > 0 && !broken.contains(bridge));
    }
    let named = passages.iter().map(|(_, passage)| passage.bridge);
    named
        .filter(|bridge| !broken.contains(bridge))
        .map(|bridge| (origin, bridge))
        .collect()
}

/// Returns the number of entries and exits in these stays.
fn edges(spans: &[ReportedSpan]) -> usize {
    let open = spans.iter().filter(|(_, end)| end.is_none()).count();
    2 * spans.len() - open
}
