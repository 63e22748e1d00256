//! One channel as the resolver sees it: its part in the call, its way into it, its bridges.

use crate::facts::{Fact, FactKind, Leg, any, spans};
use crate::trunk;
use crate::{ChannelState, Endpoints, EventTime, Origin, Party, UniqueId, Way};

/// Time spent in one bridge, in which channels hear each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BridgeStay<'a> {
    pub(super) bridge: &'a str,
    pub(super) from: EventTime,
    pub(super) to: EventTime,
}

/// Facts that the source has in its events at all.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceDetail {
    /// Set when the events say when they happened.
    pub(super) times: bool,
    /// Set when there are extensions, or callers' numbers.
    pub(super) numbers: bool,
}

#[derive(Clone, Debug)]
pub(super) struct View<'a> {
    pub(super) leg: &'a Leg,
    pub(super) name: &'a str,
    pub(super) party: Party<'a>,
    pub(super) way: Way,
    /// The event that says so: its time, and words for it.
    pub(super) way_by: (EventTime, &'static str),
    /// Set when the beginning was received: the channel's birth, or how it came to be.
    pub(super) begun: bool,
    /// Time of the hang-up, or of the last sign of life.
    pub(super) end: EventTime,
    pub(super) stays: Vec<BridgeStay<'a>>,
    /// Time spent in holding bridges, where nobody hears anybody.
    pub(super) waits: Vec<BridgeStay<'a>>,
    /// Set when the events came with times, so that it can be said how long things lasted.
    pub(super) timed: bool,
}

impl<'a> View<'a> {
    pub(super) fn of(leg: &'a Leg, endpoints: &'a Endpoints, detail: SourceDetail) -> Self {
        let mut facts: Vec<&Fact> = leg.facts.iter().collect();
        facts.sort_by_key(|fact| fact.at);
        let name = leg.name();
        let (way, at, words, begun) = way(leg, &facts, detail.numbers);
        let end = end(leg, &facts);
        let (stays, waits) = stays(&facts, end);
        Self {
            leg,
            name,
            party: leg.party(endpoints),
            way,
            way_by: (at, words),
            begun,
            end,
            stays,
            waits,
            timed: detail.times,
        }
    }

    /// Channels in the order they were made.
    pub(super) fn order(&self) -> (u64, u64, EventTime, bool, &str) {
        let (epoch, counter, _) = self.leg.id.age();
        let id = self.leg.id.as_str();
        // Of two of one moment, the one that was born in nobody's call is the elder.
        (epoch, counter, self.leg.first, !self.is_root(), id)
    }

    /// The linkedid it was born with; its own unique id where the source tells none.
    pub(super) fn first_linkedid(&self) -> &str {
        let first = self.leg.linkedids.first();
        first.map_or(self.leg.id.as_str(), |linkedid| &linkedid.text)
    }

    /// Returns `true` for a channel that was born in nobody's call.
    pub(super) fn is_root(&self) -> bool {
        self.first_linkedid() == self.leg.id.as_str()
    }

    /// Somebody was told to dial it.
    pub(super) fn was_dialled(&self) -> bool {
        any(&self.leg.facts, |what| {
            matches!(what, FactKind::Dialled { .. })
        })
    }

    /// All its linkedids, and its own id.
    pub(super) fn ids(&self) -> impl Iterator<Item = UniqueId> {
        let linkedids = self.leg.linkedids.iter();
        let linkedids = linkedids.filter_map(|linkedid| UniqueId::new(linkedid.text.as_str()));
        std::iter::once(self.leg.id.clone()).chain(linkedids)
    }
}

/// Returns whether the channel came in or was dialled, with the event that shows it, and `true`
/// where that is known for sure.
fn way(leg: &Leg, facts: &[&Fact], numbers: bool) -> (Way, EventTime, &'static str, bool) {
    use ChannelState::{Down, PreRing, Ring, Ringing};
    if let Some(traits) = &leg.traits {
        let (way, words) = if traits.line.inbound {
            (Way::CameIn, "the PBX says that it came in")
        } else {
            (Way::Dialled, "the PBX says that it was dialled")
        };
        return (way, leg.first, words, traits.fresh);
    }
    let of = |wanted: fn(&FactKind) -> bool| facts.iter().find(|fact| wanted(&fact.what));
    if let Some(fact) = of(|what| matches!(what, FactKind::Born(Ring | PreRing))) {
        return (Way::CameIn, fact.at, "created in state Ring", true);
    }
    if let Some(fact) = of(|what| matches!(what, FactKind::Dialled { .. })) {
        return (Way::Dialled, fact.at, "named as dialled", true);
    }
    let born_down = of(|what| matches!(what, FactKind::Born(Down)));
    if let Some(fact) = born_down.filter(|_| trunk::technology(leg.name()) == "PJSIP") {
        return (Way::Dialled, fact.at, "created in state Down", true);
    }
    let first_state = of(|what| matches!(what, FactKind::State(Ring | PreRing | Ringing)));
    if let Some(fact) = first_state {
        return if fact.what == FactKind::State(Ringing) {
            (Way::Dialled, fact.at, "first state Ringing", true)
        } else {
            (Way::CameIn, fact.at, "first state Ring", true)
        };
    }
    if let Some(fact) = of(|what| matches!(what, FactKind::DialEnded)) {
        return (Way::Dialled, fact.at, "named as what was dialled", true);
    }
    let born = of(|what| matches!(what, FactKind::Born(_))).map(|fact| fact.at);
    way_without_state(leg, born, numbers)
}

/// CEL has no state and no dialling. A channel born into another's call was dialled; one on the
/// extension `s` was, too, unless somebody's number came with it, or a source tells neither.
fn way_without_state(
    leg: &Leg,
    born: Option<EventTime>,
    numbers: bool,
) -> (Way, EventTime, &'static str, bool) {
    let (at, begun) = (born.unwrap_or(leg.first), born.is_some());
    if let Some(at) = leg.applications.outgoing {
        return (Way::Dialled, at, "ran the other side of a dialling", begun);
    }
    let other = leg.linkedids.first();
    if let Some(other) = other.filter(|linkedid| linkedid.text != leg.id.as_str()) {
        let words = "created in another channel's call";
        return (Way::Dialled, other.at, words, begun);
    }
    let exten = leg.extens.first().map_or("", |exten| exten.text.as_str());
    let caller = leg.callers.first().filter(|caller| caller.at <= at);
    if numbers && matches!(exten, "" | "s") && caller.is_none() {
        let words = "created on extension s, without a number";
        return (Way::Dialled, at, words, begun);
    }
    (Way::CameIn, at, "began a call", begun)
}

/// The hang-up: AMI's own, else CEL's, else the channel's end; the last sign of life if none.
fn end(leg: &Leg, facts: &[&Fact]) -> EventTime {
    let rank = |fact: &Fact| match (&fact.what, fact.origin) {
        (FactKind::Hangup, Origin::Channel) => 0,
        (FactKind::Hangup, Origin::Cel) => 1,
        _ => 2,
    };
    let ends = facts.iter().filter(|fact| fact.what.is_end());
    ends.min_by_key(|fact| (rank(fact), fact.at))
        .map_or(leg.last, |fact| fact.at)
}

/// The stays in bridges, and those in holding bridges. Where AMI and CEL both tell of a bridge, the
/// one that tells more of it is believed, so that two clocks 1 ms apart make no third stay.
fn stays<'a>(facts: &[&'a Fact], end: EventTime) -> (Vec<BridgeStay<'a>>, Vec<BridgeStay<'a>>) {
    let passages = facts.iter().filter_map(|fact| fact.what.passage());
    let mut bridges: Vec<(&str, bool)> = passages.map(|p| (p.bridge, p.holding)).collect();
    // Holding first: a bridge that one event calls so is so, whatever the others leave out.
    bridges.sort_by_key(|&(name, holding)| (name, !holding));
    bridges.dedup_by_key(|&mut (name, _)| name);
    let mut all = Vec::new();
    for (name, holding) in bridges {
        let (by_ami, ami_told) = stays_in(name, facts, Origin::Channel, end);
        let (by_cel, cel_told) = stays_in(name, facts, Origin::Cel, end);
        let more = if cel_told > ami_told { by_cel } else { by_ami };
        all.extend(more.into_iter().map(|stay| (stay, holding)));
    }
    all.sort_by_key(|(stay, _)| (stay.from, stay.to));
    // A channel is in one bridge at a time: what comes next ends a stay whose end was not heard.
    for i in 1..all.len() {
        let next = all[i].0.from;
        all[i - 1].0.to = all[i - 1].0.to.min(next);
    }
    let (waits, stays): (Vec<_>, Vec<_>) = all.into_iter().partition(|&(_, holding)| holding);
    let only =
        |these: Vec<(BridgeStay<'a>, bool)>| these.into_iter().map(|(stay, _)| stay).collect();
    (only(stays), only(waits))
}

/// The stays in one bridge as one vocabulary tells them, and how many comings and goings that are.
fn stays_in<'a>(
    name: &'a str,
    facts: &[&'a Fact],
    origin: Origin,
    end: EventTime,
) -> (Vec<BridgeStay<'a>>, usize) {
    let own = facts.iter().filter(|fact| fact.origin == origin);
    let spans = spans(own.filter_map(|fact| {
        let passage = fact.what.passage().filter(|p| p.bridge == name)?;
        Some((fact.at, passage.enters))
    }));
    let events = 2 * spans.len() - spans.iter().filter(|span| span.1.is_none()).count();
    let stays = spans.into_iter().map(|(from, to)| BridgeStay {
        bridge: name,
        from,
        to: to.unwrap_or(end.max(from)),
    });
    (stays.collect(), events)
}
