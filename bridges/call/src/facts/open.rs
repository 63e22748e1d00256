//! An open call: the channels that are known so far to belong together.

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

/// Shortest time in which a PBX restarts and creates as many Local channels as before. Events that
/// only arrive out of order are closer together.
const RESTART: Duration = Duration::from_secs(2);

/// Channels that belong together. Serialized to survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenCall {
    pub(crate) legs: Legs,
    /// Channels that a transfer, a pickup or a Local channel tied together.
    pub(crate) joined: BTreeSet<(UniqueId, UniqueId)>,
    #[serde(flatten)]
    pub(crate) names: Renamings,
    /// User fields of CDRs whose channel is not among the legs.
    pub(crate) userfields: Vec<String>,
    /// The keys that lead to this call: unique ids and linkedids, bridges, Local channels.
    pub(crate) ties: LinkKeys,
    #[serde(flatten)]
    pub(crate) times: Times,
    #[serde(flatten)]
    pub(crate) size: Size,
    #[serde(flatten)]
    pub(crate) parts: Parts,
    #[serde(flatten)]
    pub(crate) gaps: Gaps,
    /// Set if the call was in a conference, which anyone can join.
    pub(crate) conference: bool,
    /// The conferences that the call's channels were in.
    #[serde(default, skip_serializing_if = "Texts::is_empty")]
    pub(crate) rooms: Texts,
    /// The process of the PBX that the call belongs to.
    #[serde(flatten)]
    pub(crate) of: CallProcess,
    /// The call's ids that an unreadable message contained.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) unread: BTreeSet<UniqueId>,
}

/// Amounts of facts and bytes that a call holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    /// Number of facts that were dropped.
    pub(crate) dropped: u32,
    /// Number of facts, channels, and joined pairs.
    pub(crate) facts: usize,
    /// Size when the call was last serialized, in bytes.
    #[serde(skip)]
    pub(crate) bytes: usize,
}

/// State of a call of which parts are emitted while the rest of it goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parts {
    /// Set once parts of the call were emitted.
    pub(crate) relieved: bool,
    /// Set on a copy that has only a part of the call, which is emitted.
    #[serde(skip)]
    pub(crate) past: bool,
    /// Channels that are still in the call, and whose unique ids are the linkedids of calls that
    /// were emitted.
    pub(crate) given: BTreeSet<UniqueId>,
    /// Channels of calls that were emitted. They are kept while a customer who is up can have met
    /// them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) reported: BTreeSet<UniqueId>,
    /// Set on a copy that is resolved for the call of these channels only.
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
    /// Stores the linkedid that a message at `at` reports for a channel. Ignores a linkedid that
    /// was made from the channel's name, and that of a finished call, which is no key of this call.
    /// Returns `true` if that changed the leg.
    fn note_linkedid(&self, leg: &mut Leg, at: EventTime, channel: &ChannelRef<'_>) -> bool {
        let linkedid = channel.linkedid.as_ref();
        self.ids.contains(linkedid)
            && !is_stand_in(linkedid, unmarked(&channel.name))
            && leg.linkedids.note(at, linkedid)
    }
}

/// Effect of an event on a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallEffect {
    pub(crate) effect: Effect,
    /// Set if a channel was seen for the first time.
    pub(crate) new_leg: bool,
    /// Set if the event changed the call.
    pub(crate) changed: bool,
}

impl OpenCall {
    pub(crate) fn new(at: EventTime, arrived: EventTime, live: bool) -> Self {
        Self {
            times: Times::new(at, arrived, live),
            ..Self::default()
        }
    }

    /// Processes an event of the channel `id`, which belongs to this call. `place` is the event's
    /// place among all events.
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
            // Between two gaps, the events show where a channel is, and a list can be older.
            if room && !self.gaps.blinds.is_empty() && self.ties.bridges.contains(bridge.as_ref()) {
                leg.is_in(at, bridge);
            }
        } else {
            outcome.effect = leg.on_event(at, event, room);
            outcome.changed |= self.ties.note_linkedid(leg, at, &event.channel);
            // A list does not show whether the channels in a bridge hear each other. They probably
            // do if the channel was not known before. Its call is then incomplete anyway.
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

    /// Returns the reason why the call is incomplete if it had more facts than one call may hold.
    pub(crate) fn excess(&self, settings: &Settings) -> Option<String> {
        let most = settings.max_facts;
        (self.size.dropped > 0).then(|| format!("the call had more than {most} events that matter"))
    }

    /// Stores what an event of another channel reports about a channel.
    fn describe(
        &mut self,
        at: EventTime,
        channel: &ChannelRef<'_>,
        place: u64,
        settings: &Settings,
        outcome: &mut CallEffect,
    ) {
        // An id that is not tied to this call belongs to a finished call.
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

    /// Merges the leg that was stored under the id `stand_in`, made from the channel's name, into
    /// the channel `id`.
    pub(crate) fn merge_stand_in(&mut self, stand_in: &UniqueId, id: &UniqueId) {
        if self.legs.contains_key(id)
            && let Some(other) = self.legs.remove(stand_in)
            && let Some(leg) = self.legs.get_mut(id)
        {
            leg.absorb(other);
        }
    }

    /// Returns `true` if no channel of the call was seen to do anything. The call then has only
    /// leftover events, such as a hangup that arrived after the end of a call.
    pub(crate) fn is_ghost(&self) -> bool {
        !self.legs.values().any(|leg| {
            // If everything before a hangup may have been missed, the hangup is sufficient for a
            // call.
            let is_late = self.gaps.late.is_some_and(|late| !leg.born_after(late));
            leg.is_real() || (is_late && leg.is_over() && leg.is_telephone())
        })
    }

    /// Returns `true` if the hangup of an outside channel was received, which proves that a ghost
    /// was a real call. This is known only if the PBX reports traits at the hangup. The channels
    /// that linkedids name must be known, because otherwise the events can belong to another call.
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

    /// Returns `true` if each channel that is still up was dialed by, or talked with, only channels
    /// that have hung up. The call is then over, and a hangup event is missing. Always `false` if
    /// the source reports linkedids, as all but AMI 1.x do.
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

    /// Returns `true` if the channel had partners in `pairs`, and all these partners have hung up.
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
    /// channels that are still up have left all bridges. This is reliable only at the end of a
    /// recording.
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

    /// Returns `true` if all outside channels have hung up, and all channels that are still up have
    /// left all bridges. A hangup was then probably missed.
    pub(crate) fn is_stranded(&self, endpoints: &Endpoints) -> bool {
        let mut legs = self.legs.values();
        legs.all(|leg| leg.is_over() || (leg.is_away() && leg.endpoint(endpoints).is_none()))
            && self.legs.values().any(Leg::is_up)
            && self
                .legs
                .values()
                .any(|leg| leg.endpoint(endpoints).is_some())
    }

    /// Returns `true` if all channels have hung up. If the channel that a linkedid names has had no
    /// event, the channel may still be up, such as a caller who waited in a queue before we
    /// listened.
    pub(crate) fn is_over(&self) -> bool {
        self.has_hung_up()
            && (self.is_ghost() || self.gaps.rootless || self.unheard_root().is_none())
    }

    /// Returns `true` if the call's events arrive in reverse order and its beginning is still to
    /// arrive. The beginning of a call that the PBX listed as live does not arrive.
    pub(crate) fn awaits_beginning(&self) -> bool {
        let mut traits = self.legs.values().filter_map(|leg| leg.traits.as_ref());
        self.times.backwards
            && !self.is_ghost()
            && !self.is_begun()
            && !traits.any(|traits| traits.listed)
    }

    /// Returns `true` if the birth of each channel that a linkedid names was received.
    fn is_begun(&self) -> bool {
        self.linkedids().all(|id| {
            let mut legs = self.legs.values();
            legs.any(|leg| leg.id.as_str() == id && leg.is_born())
        })
    }

    /// Returns the linkedids of the channels, without those of calls that were emitted.
    fn linkedids(&self) -> impl Iterator<Item = &str> {
        self.legs
            .values()
            .filter(|leg| !self.parts.reported.contains(&leg.id))
            .flat_map(|leg| leg.linkedids.iter())
            .map(|linkedid| linkedid.text.as_str())
    }

    /// Returns a linkedid whose own channel has had no event.
    pub(crate) fn unheard_root(&self) -> Option<&str> {
        self.linkedids()
            .find(|linkedid| !self.legs.keys().any(|id| id.as_str() == *linkedid))
    }

    /// Returns `true` if a user field of the channels that `is_own` selects has a digit, so it can
    /// hold a lead. The CDR of a consultation can arrive first, with `lead=` and no number.
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

    /// Stores the user field `text` of the CDR of the channel `id`. Returns `true` if that changed
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

    /// Returns the time at which the Local channel with the name `pair` was first seen, if it was.
    pub(crate) fn began_local(&self, pair: &str) -> Option<EventTime> {
        self.halves(pair).map(|leg| leg.first).min()
    }

    /// Returns `true` if both halves of this Local channel were in the call and hung up long before
    /// `at`. The name is then free again.
    pub(crate) fn has_ended_local(&self, pair: &str, at: EventTime) -> bool {
        let mut halves = self.halves(pair);
        let (Some(first), Some(second)) = (halves.next(), halves.next()) else {
            return false;
        };
        [first, second]
            .into_iter()
            .all(|half| half.ended().is_some_and(|ended| at.since(ended) >= RESTART))
    }

    /// Returns `true` if the PBX reports traits of each channel in addition to its name. Such a
    /// PBX, which is FreeSWITCH, also reports links in place of bridges between two channels.
    pub(crate) fn has_traits(&self) -> bool {
        self.legs.values().any(|leg| leg.traits.is_some())
    }

    /// Returns a copy with only these channels. The copy has no gaps if no channel in it was known
    /// when a gap began.
    pub(crate) fn copy_with_channels(&self, own: &BTreeSet<UniqueId>) -> Self {
        let mut part = self.clone();
        part.legs.retain(|id, _| own.contains(id));
        // An id that no channel of the call has can belong to any part.
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

    /// Each new kind of fact gets a number here, and a fact in the newest golden file.
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

/// Maximum number of stored moves of one name from one channel to another.
const CHANGES_MAX: usize = 64;

/// The channels that had each name, by time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Renamings {
    /// Names that the call's channels took on later.
    pub(crate) renamed_to: BTreeSet<SmolStr>,
    /// The channels that took on each name, and since when, in the order of time. The first channel
    /// that had a name is not listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) named: BTreeMap<SmolStr, Vec<(EventTime, UniqueId)>>,
}

impl Renamings {
    /// Notes that a channel has this name since `at`. Returns the channel that has it now.
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
