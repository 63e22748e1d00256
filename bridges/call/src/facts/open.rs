//! An open call, made up of the channels known so far to belong together.

use super::fact::{TEXT_BYTES_MAX, is_room};
use super::legs::Legs;
use super::times::{CallProcess, Gaps, Times};
use super::{Effect, Leg, Texts, is_stand_in};
use crate::trunk::unmarked;
use crate::{
    ChannelEvent, ChannelRef, Endpoints, EventTime, Kind, Settings, UniqueId, clip, local_pair,
};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The shortest time in which a PBX can restart and create as many Local channels as before. Events
/// that merely arrive out of order are closer together than this.
const RESTART: Duration = Duration::from_secs(2);

/// Channels that belong together. Serialized to survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenCall {
    pub(crate) legs: Legs,
    /// Channels that were tied together by a transfer, a pickup, or a Local channel.
    pub(crate) joined: BTreeSet<(UniqueId, UniqueId)>,
    #[serde(flatten)]
    pub(crate) names: Renamings,
    /// User fields of CDRs whose channel isn't among the legs.
    pub(crate) userfields: Vec<String>,
    /// The keys that lead to this call, such as unique IDs, linkedids, bridges, and Local channels.
    pub(crate) ties: LinkKeys,
    #[serde(flatten)]
    pub(crate) times: Times,
    #[serde(flatten)]
    pub(crate) size: Size,
    #[serde(flatten)]
    pub(crate) parts: Parts,
    #[serde(flatten)]
    pub(crate) gaps: Gaps,
    /// Whether the call was in a conference, which anyone can join.
    pub(crate) conference: bool,
    /// The conferences that the call's channels have been in.
    #[serde(default, skip_serializing_if = "Texts::is_empty")]
    pub(crate) rooms: Texts,
    /// The PBX process that the call belongs to.
    #[serde(flatten)]
    pub(crate) of: CallProcess,
    /// Those of the call's IDs that were found in an unreadable message.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) unread: BTreeSet<UniqueId>,
}

/// How many facts and bytes a call contains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    /// Number of facts that were dropped.
    pub(crate) dropped: u32,
    /// Number of facts, channels, and joined pairs.
    pub(crate) facts: usize,
    /// Size in bytes when the call was last serialized.
    #[serde(skip)]
    pub(crate) bytes: usize,
}

/// The state of a call that is emitted in parts while the rest continues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parts {
    /// Whether any part of the call has been emitted.
    pub(crate) relieved: bool,
    /// Set on a copy that contains only the part of the call being emitted.
    #[serde(skip)]
    pub(crate) past: bool,
    /// Channels that are still in the call even though calls with their unique IDs as linkedids
    /// have already been emitted.
    pub(crate) given: BTreeSet<UniqueId>,
    /// Channels of calls that have been emitted, which are kept as long as there's a customer still
    /// up who may have been connected to them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) reported: BTreeSet<UniqueId>,
    /// Set on a copy that's only resolved for these channels' call.
    #[serde(skip)]
    pub(crate) only: BTreeSet<UniqueId>,
    /// Number of facts when the call was last searched for past parts.
    pub(crate) checked_facts: usize,
}

/// The keys that lead from an event to a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkKeys {
    pub(crate) ids: Texts,
    pub(crate) bridges: Texts,
    pub(crate) locals: Texts,
    #[serde(default, skip_serializing_if = "Texts::is_empty")]
    pub(crate) numbers: Texts,
}

impl LinkKeys {
    /// Stores the linkedid that a message at `at` reports for a channel, returning `true` if that
    /// changed the leg.
    ///
    /// A linkedid generated from the channel's name is ignored. So is a finished call's linkedid,
    /// since it isn't one of this call's keys.
    fn note_linkedid(&self, leg: &mut Leg, at: EventTime, channel: &ChannelRef<'_>) -> bool {
        let linkedid = channel.linkedid.as_ref();
        self.ids.contains(linkedid)
            && !is_stand_in(linkedid, unmarked(&channel.name))
            && leg.linkedids.note(at, linkedid)
    }
}

/// What effect an event had on a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallEffect {
    pub(crate) effect: Effect,
    /// Whether a channel was seen for the first time.
    pub(crate) new_leg: bool,
    /// Whether the event changed the call.
    pub(crate) changed: bool,
}

impl OpenCall {
    pub(crate) fn new(at: EventTime, arrived: EventTime, live: bool) -> Self {
        Self {
            times: Times::new(at, arrived, live),
            ..Self::default()
        }
    }

    /// Processes an event of channel `id`, which belongs to this call. `place` is the event's
    /// position among all events.
    pub(crate) fn on_event(
        &mut self,
        id: &UniqueId,
        at: EventTime,
        event: &ChannelEvent<'_>,
        place: u64,
        settings: &Settings,
    ) -> CallEffect {
        let room = self.size.facts < settings.max_facts;
        let joined = self.joined.len();
        if let Kind::BridgeEnter { bridge, technology } | Kind::BridgeLeave { bridge, technology } =
            &event.kind
            && is_room(bridge, technology)
        {
            self.conference = true;
            self.rooms.insert(clip(bridge, TEXT_BYTES_MAX).into());
        }
        if let Kind::Joined { with } = &event.kind
            && room
        {
            let others = with.iter().filter_map(UniqueId::new);
            self.joined.extend(others.map(|other| (id.clone(), other)));
            self.size.facts += self.joined.len() - joined;
        }
        let mut outcome = CallEffect {
            effect: Effect::Nothing,
            new_leg: false,
            changed: self.joined.len() > joined,
        };
        if let Some(other) = event.kind.other() {
            self.describe(at, other, place, settings, &mut outcome);
        }
        let known = self.legs.contains_key(id);
        if !known && !room {
            self.size.dropped += 1;
            return outcome;
        }
        if !known {
            self.legs.get_or_add(id.clone(), at, place);
        }
        let Some(leg) = self.legs.get_mut(id) else {
            return outcome;
        };
        let before = leg.facts.len();
        let listed_bridge = match &event.kind {
            Kind::Listed { bridge, .. } if leg.is_real() => Some(bridge),
            _ => None,
        };
        if let Some(bridge) = listed_bridge {
            outcome.effect = leg.on_listing(at, event);
            // Unless there was a gap, the events show where a channel is, and a list may be out of
            // date.
            if room && !self.gaps.blinds.is_empty() && self.ties.bridges.contains(bridge.as_ref()) {
                leg.is_in(at, bridge);
            }
        } else {
            outcome.effect = leg.on_event(at, event, room);
            outcome.changed |= self.ties.note_linkedid(leg, at, &event.channel);
            // A list doesn't show whether the channels in a bridge can hear each other. If the
            // channel wasn't known before, they probably can, and its call is incomplete anyway.
            if room {
                leg.begin_from_list(at, &event.kind);
            }
        }
        // A reused ID removes the end of the channel that had it before.
        let gained = leg.facts.len().saturating_sub(before);
        let lost = outcome.effect == Effect::Learned && gained == 0 && !room;
        self.size.dropped += u32::from(lost);
        self.size.facts += gained + usize::from(!known);
        outcome.new_leg |= !known;
        outcome.changed |= matches!(outcome.effect, Effect::Learned | Effect::HungUp);
        outcome
    }

    /// Returns why the call is incomplete if it had more facts than could be stored.
    pub(crate) fn excess(&self, settings: &Settings) -> Option<String> {
        let most = settings.max_facts;
        (self.size.dropped > 0).then(|| format!("the call had more than {most} events that matter"))
    }

    /// Stores what an event of another channel reports about this one.
    fn describe(
        &mut self,
        at: EventTime,
        channel: &ChannelRef<'_>,
        place: u64,
        settings: &Settings,
        outcome: &mut CallEffect,
    ) {
        // An ID that isn't tied to this call belongs to a finished call.
        if !self.ties.ids.contains(channel.uniqueid.as_ref()) {
            return;
        }
        let Some(id) = UniqueId::new(channel.uniqueid.as_ref()) else {
            return;
        };
        let known = self.legs.contains_key(&id);
        if !known && self.size.facts >= settings.max_facts {
            return;
        }
        self.size.facts += usize::from(!known);
        let leg = self.legs.get_or_add(id, at, place);
        outcome.changed |= leg.describe(at, channel);
        outcome.changed |= self.ties.note_linkedid(leg, at, channel);
        outcome.new_leg |= !known;
    }

    /// Merges the leg stored under `stand_in`, an ID generated from the channel's name, into
    /// channel `id`.
    pub(crate) fn merge_stand_in(&mut self, stand_in: &UniqueId, id: &UniqueId) {
        if self.legs.contains_key(id)
            && let Some(other) = self.legs.remove(stand_in)
            && let Some(leg) = self.legs.get_mut(id)
        {
            leg.absorb(other);
        }
    }

    /// Returns `true` if none of the call's channels was seen doing anything, in which case the
    /// call consists only of leftover events, such as a hangup that arrived after the end of a
    /// call.
    pub(crate) fn is_ghost(&self) -> bool {
        !self.legs.values().any(|leg| {
            // If everything before a hangup may have been missed, the hangup alone is enough to
            // make it a call.
            let is_late = self.gaps.late.is_some_and(|late| !leg.born_after(late));
            leg.is_real() || (is_late && leg.is_over() && leg.is_telephone())
        })
    }

    /// Returns `true` if an outside channel's hangup was received, which proves that a ghost was a
    /// real call.
    ///
    /// This can only be told if the PBX reports traits at hangup. In addition, all channels that
    /// the linkedids refer to must be known, because otherwise the events may belong to another
    /// call.
    pub(crate) fn is_headless(&self, endpoints: &Endpoints) -> bool {
        self.unheard_root().is_none()
            && self.legs.values().any(|leg| {
                leg.traits.is_some() && leg.is_over() && leg.endpoint(endpoints).is_some()
            })
    }

    /// Returns `true` if all known channels have hung up.
    pub(crate) fn has_hung_up(&self) -> bool {
        self.is_ghost() || !self.legs.values().any(Leg::is_up)
    }

    /// Returns `true` if every channel still up was dialed by, or has talked to, only channels that
    /// have hung up, which means that the call is over and a hangup event is missing.
    ///
    /// This is always `false` if the source reports linkedids, as everything but AMI 1.x does.
    pub(crate) fn is_deserted(&self) -> bool {
        if self.linkedids().next().is_some() || self.is_ghost() {
            return false;
        }
        let mut pairs: Vec<(&UniqueId, &UniqueId)> = Vec::new();
        for leg in self.legs.values() {
            let partners = leg.facts.iter().filter_map(|fact| fact.what.partner());
            pairs.extend(partners.map(|partner| (&leg.id, partner)));
        }
        let mut up = self.legs.values().filter(|leg| leg.is_up());
        up.all(|leg| self.has_lost_partners(&leg.id, &pairs))
    }

    /// Returns `true` if the channel had partners in `pairs` and all of them have hung up.
    fn has_lost_partners(&self, id: &UniqueId, pairs: &[(&UniqueId, &UniqueId)]) -> bool {
        let mut had_partners = false;
        for &(a, b) in pairs {
            let partner = if a == id {
                b
            } else if b == id {
                a
            } else {
                continue;
            };
            let Some(partner) = self.legs.get(partner) else {
                continue;
            };
            if partner.is_up() {
                return false;
            }
            had_partners = true;
        }
        had_partners
    }

    /// Returns `true` if `LINKEDID_END` was the last event, the first channel has hung up, and all
    /// channels still up have left their bridges. This is only reliable at the end of a recording.
    pub(crate) fn is_reported_over(&self) -> bool {
        let ended = self.times.linkedid_ended;
        let last = ended.is_some_and(|at| at >= self.times.latest);
        let first = self.legs.values().min_by_key(|leg| leg.first);
        let mut up = self.legs.values().filter(|leg| leg.is_up());
        last && !self.is_ghost() && first.is_some_and(Leg::is_over) && up.all(Leg::is_away)
    }

    /// Returns `true` if every channel still up has been hung up by its party and has left its
    /// bridge, so that only the hangup event is missing.
    ///
    /// This is only reliable at the end of a recording, because otherwise a hangup handler might
    /// still be running.
    pub(crate) fn is_hung_up_on(&self) -> bool {
        let mut up = self.legs.values().filter(|leg| leg.is_up());
        !self.is_ghost() && up.all(|leg| leg.is_away() && leg.requested_end().is_some())
    }

    /// Returns `true` if all outside channels have hung up and all channels still up have left
    /// their bridges, which means that a hangup was probably missed.
    pub(crate) fn is_stranded(&self, endpoints: &Endpoints) -> bool {
        let mut legs = self.legs.values();
        legs.all(|leg| leg.is_over() || (leg.is_away() && leg.endpoint(endpoints).is_none()))
            && self.legs.values().any(Leg::is_up)
            && self
                .legs
                .values()
                .any(|leg| leg.endpoint(endpoints).is_some())
    }

    /// Returns `true` if all channels have hung up.
    ///
    /// If a linkedid refers to a channel that hasn't had any events, that channel may still be up,
    /// e.g., because it's a caller who was already waiting in a queue when we started listening.
    pub(crate) fn is_over(&self) -> bool {
        self.has_hung_up()
            && (self.is_ghost() || self.gaps.rootless || self.unheard_root().is_none())
    }

    /// Returns `true` if the call's events arrive in reverse order and its start hasn't arrived
    /// yet. For a call that the PBX listed as live, the start will never arrive.
    pub(crate) fn awaits_beginning(&self) -> bool {
        let mut traits = self.legs.values().filter_map(|leg| leg.traits.as_ref());
        self.times.backwards
            && !self.is_ghost()
            && !self.is_begun()
            && !traits.any(|traits| traits.listed)
    }

    /// Returns `true` if the creation of every channel that a linkedid refers to was received.
    fn is_begun(&self) -> bool {
        self.linkedids().all(|id| {
            let mut legs = self.legs.values();
            legs.any(|leg| leg.id.as_str() == id && leg.is_born())
        })
    }

    /// Returns the channels' linkedids, except for those of calls that have been emitted.
    fn linkedids(&self) -> impl Iterator<Item = &str> {
        self.legs
            .values()
            .filter(|leg| !self.parts.reported.contains(&leg.id))
            .flat_map(|leg| leg.linkedids.iter())
            .map(|linkedid| linkedid.text.as_str())
    }

    /// Returns a linkedid whose own channel hasn't had any events.
    pub(crate) fn unheard_root(&self) -> Option<&str> {
        self.linkedids()
            .find(|linkedid| !self.legs.keys().any(|id| id.as_str() == *linkedid))
    }

    /// Returns `true` if any user field of the channels selected by `is_own` has a digit, which
    /// means that it may contain a lead. A consultation's CDR may arrive first, with `lead=` and no
    /// number.
    pub(crate) fn has_userfield_of(&self, is_own: impl Fn(&Leg) -> bool) -> bool {
        let of_legs = self
            .legs
            .values()
            .filter(|leg| is_own(leg))
            .flat_map(|leg| leg.userfields.iter())
            .map(|field| field.text.as_str());
        let mut texts = self.userfields.iter().map(String::as_str).chain(of_legs);
        texts.any(|text| text.bytes().any(|byte| byte.is_ascii_digit()))
    }

    /// Stores the user field `text` from the CDR of channel `id`, returning `true` if that changed
    /// the call.
    pub(crate) fn userfield(&mut self, at: EventTime, id: &str, text: &str) -> bool {
        if let Some(leg) = UniqueId::new(id).and_then(|id| self.legs.get_mut(&id)) {
            return leg.userfields.note(at, text);
        }
        let new = !self.userfields.iter().any(|known| known == text) && self.userfields.len() < 16;
        if new {
            self.userfields.push(text.to_owned());
        }
        new
    }

    fn halves(&self, pair: &str) -> impl Iterator<Item = &Leg> {
        let legs = self.legs.values();
        legs.filter(move |leg| local_pair(leg.name()) == Some(pair))
    }

    /// Returns when the Local channel called `pair` was first seen, if it was.
    pub(crate) fn began_local(&self, pair: &str) -> Option<EventTime> {
        self.halves(pair).map(|leg| leg.first).min()
    }

    /// Returns `true` if both halves of this Local channel were in the call and hung up long before
    /// `at`, which means that the name can be reused.
    pub(crate) fn has_ended_local(&self, pair: &str, at: EventTime) -> bool {
        let mut halves = self.halves(pair);
        let (Some(first), Some(second)) = (halves.next(), halves.next()) else {
            return false;
        };
        [first, second]
            .into_iter()
            .all(|half| half.ended().is_some_and(|ended| at.since(ended) >= RESTART))
    }

    /// Returns `true` if the PBX reports traits for each channel in addition to its name. Such a
    /// PBX (FreeSWITCH) also reports links instead of bridges between two channels.
    pub(crate) fn has_traits(&self) -> bool {
        self.legs.values().any(|leg| leg.traits.is_some())
    }

    /// Returns a copy with only these channels. It has no gaps if none of the channels was known
    /// when a gap started.
    pub(crate) fn copy_with_channels(&self, own: &BTreeSet<UniqueId>) -> Self {
        let mut part = self.clone();
        part.legs.retain(|id, _| own.contains(id));
        // An ID that doesn't belong to any of the call's channels may belong to any part.
        part.unread
            .retain(|id| own.contains(id) || self.legs.get(id).is_none());
        if part.legs.values().all(|leg| leg.blinds.is_empty()) {
            part.gaps.blinds.clear();
        }
        part
    }

    /// Merges another call into this one.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.legs.absorb(other.legs);
        self.joined.extend(other.joined);
        self.names.absorb(other.names);
        self.userfields.extend(other.userfields);
        self.ties.ids.extend(other.ties.ids);
        self.ties.bridges.extend(other.ties.bridges);
        self.ties.locals.extend(other.ties.locals);
        self.ties.numbers.extend(other.ties.numbers);
        self.times.absorb(&other.times);
        self.size.dropped += other.size.dropped;
        self.size.facts += other.size.facts;
        self.size.bytes += other.size.bytes;
        self.parts.relieved |= other.parts.relieved;
        self.parts.given.extend(other.parts.given);
        self.parts.reported.extend(other.parts.reported);
        self.gaps.absorb(other.gaps);
        self.of.absorb(&other.of);
        self.conference |= other.conference;
        self.rooms.extend(other.rooms);
        self.unread.extend(other.unread);
    }
}

#[cfg(test)]
mod stored {
    use super::*;
    use crate::facts::FactKind;

    #[test]
    fn stored_form_is_unchanged() {
        callbridge_testkit::golden::keeps::<OpenCall>("open-call");
    }

    const KINDS: usize = 21;

    /// Each new kind of fact needs a number here and a fact in the newest golden file.
    fn number_of_kind(kind: &FactKind) -> usize {
        match kind {
            FactKind::Born(_) => 0,
            FactKind::State(_) => 1,
            FactKind::Dialed { .. } => 2,
            FactKind::DialEnded { .. } => 3,
            FactKind::App => 4,
            FactKind::Enter { .. } => 5,
            FactKind::Leave { .. } => 6,
            FactKind::Linked { .. } => 7,
            FactKind::Unlinked { .. } => 8,
            FactKind::Renamed { .. } => 9,
            FactKind::Hangup => 10,
            FactKind::Gone => 11,
            FactKind::Consults { .. } => 12,
            FactKind::Transfers { .. } => 13,
            FactKind::Monitors { .. } => 14,
            FactKind::HangupRequested => 15,
            FactKind::DialRan { .. } => 16,
            FactKind::GaveUp => 17,
            FactKind::Listed { .. } => 18,
            FactKind::Sits { .. } => 19,
            FactKind::Remains { .. } => 20,
        }
    }

    #[test]
    fn golden_file_contains_every_kind_of_fact() {
        let golden = include_str!("../../tests/golden/open-call.json");
        let call: OpenCall = serde_json::from_str(golden).expect("an open call");
        let facts = call.legs.values().flat_map(|leg| &leg.facts);
        let mut seen = [false; KINDS];
        facts.for_each(|fact| seen[number_of_kind(&fact.what)] = true);
        assert_eq!(seen, [true; KINDS]);
    }
}

/// Maximum number of stored moves of a name from one channel to another.
const CHANGES_MAX: usize = 64;

/// Which channels had each name, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Renamings {
    /// Names that the call's channels took on after they were created.
    pub(crate) renamed_to: BTreeSet<SmolStr>,
    /// The channels that took on each name and when they did, in chronological order. The first
    /// channel with a given name isn't included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) named: BTreeMap<SmolStr, Vec<(EventTime, UniqueId)>>,
}

impl Renamings {
    /// Records that a channel has had this name since `at`, and returns the channel that has it
    /// now.
    pub(crate) fn take_on(&mut self, name: &str, at: EventTime, id: &UniqueId) -> UniqueId {
        let changes = self.named.entry(name.into()).or_default();
        let after = changes.partition_point(|(from, _)| *from <= at);
        let known = after.checked_sub(1).is_some_and(|i| changes[i].1 == *id);
        if !known && changes.len() < CHANGES_MAX {
            changes.insert(after, (at, id.clone()));
        }
        changes.last().map_or(id, |(_, id)| id).clone()
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.renamed_to.extend(other.renamed_to);
        for (name, changes) in other.named {
            let own = self.named.entry(name).or_default();
            own.extend(changes);
            own.sort();
        }
    }
}
