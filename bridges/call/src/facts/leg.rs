//! One channel of an open call, including the facts that matter for a finished call, the traits
//! that a PBX reports in addition to the name, and the applications that show how the channel
//! started.

use super::applications::Applications;
use super::fact::{Fact, FactKind, Passage, TEXT_BYTES_MAX, any, fact_of, remaining};
use super::history::TextHistory;
use super::traits::LegTraits;
use crate::trunk::{self, LineTraits, is_outside, unmarked};
use crate::{
    ChannelEvent, ChannelRef, Endpoints, EventTime, Kind, MonitorMode, Origin, Party,
    TrunkEndpoint, UniqueId, clip, is_did,
};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::time::Duration;

/// Maximum number of distinct variables and values stored per channel.
const VARIABLES_MAX: usize = 64;

/// A variable's value, along with when it was first and last reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenVariable {
    pub(crate) name: SmolStr,
    pub(crate) value: SmolStr,
    pub(crate) first: EventTime,
    pub(crate) last: EventTime,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leg {
    pub(crate) id: UniqueId,
    /// Earliest time at which the channel is known to have existed.
    pub(crate) first: EventTime,
    /// Latest time at which the channel is known to have existed.
    pub(crate) last: EventTime,
    /// The position of the channel's first event among all events, which breaks ties between
    /// channels that were first seen at the same time.
    pub(crate) place: u64,
    pub(crate) names: TextHistory,
    pub(crate) linkedids: TextHistory,
    pub(crate) callers: TextHistory,
    pub(crate) extens: TextHistory,
    /// The extension on which the channel was created, if it's a number that can be dialed. Any
    /// later extension is set by the dialplan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) did: Option<SmolStr>,
    pub(crate) userfields: TextHistory,
    pub(crate) variables: Vec<SeenVariable>,
    #[serde(flatten)]
    pub(crate) applications: Applications,
    pub(crate) facts: Vec<Fact>,
    /// How many of the channel's facts were known at the start of each gap.
    pub(crate) blinds: Vec<usize>,
    /// Whether the channel may have ended unnoticed, either because of a gap or because a list of
    /// live channels omitted it. The channel's next event clears this. It isn't stored, since a
    /// restart causes a gap anyway.
    #[serde(skip)]
    pub(crate) doubted: bool,
    /// Whether the channel is considered ended because the PBX no longer listed it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unlisted: bool,
    /// Number of the source that last reported the channel, provided that the channel would appear
    /// in its lists.
    #[serde(skip)]
    pub(crate) source: Option<u16>,
    /// Bridge stays that ended by this time were removed, because they belonged to calls that have
    /// been emitted. Events of such stays are ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) forgotten_until: Option<EventTime>,
    /// When the channel's hangup arrived, by our clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) over_arrived: Option<EventTime>,
    /// Traits that the PBX reports in addition to the channel's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traits: Option<Box<LegTraits>>,
}

/// What effect an event had on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The event didn't add anything to the channel.
    Nothing,
    /// The same fact was already known.
    Doubled,
    /// The event added a fact or a text.
    Learned,
    /// The channel hung up, which wasn't known before.
    HungUp,
}

impl Leg {
    pub(crate) fn new(id: UniqueId, at: EventTime, place: u64) -> Self {
        Self {
            id,
            first: at,
            last: at,
            place,
            names: TextHistory::default(),
            linkedids: TextHistory::default(),
            callers: TextHistory::default(),
            extens: TextHistory::default(),
            did: None,
            userfields: TextHistory::default(),
            variables: Vec::new(),
            applications: Applications::default(),
            facts: Vec::new(),
            blinds: Vec::new(),
            doubted: false,
            unlisted: false,
            source: None,
            forgotten_until: None,
            over_arrived: None,
            traits: None,
        }
    }

    /// Returns all of the channel's text histories, starting with the names.
    pub(crate) fn texts(&self) -> [&TextHistory; 5] {
        [
            &self.names,
            &self.linkedids,
            &self.callers,
            &self.extens,
            &self.userfields,
        ]
    }

    /// Returns the same histories as [`Leg::texts`], in the same order, but mutably.
    pub(crate) fn texts_mut(&mut self) -> [&mut TextHistory; 5] {
        [
            &mut self.names,
            &mut self.linkedids,
            &mut self.callers,
            &mut self.extens,
            &mut self.userfields,
        ]
    }

    /// Merges in the leg that was stored under the channel's name before its unique ID was known.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.place = self.place.min(other.place);
        for (own, others) in self.texts_mut().into_iter().zip(other.texts()) {
            for stamped in others.iter() {
                own.note(stamped.at, &stamped.text);
            }
        }
        self.facts.extend(other.facts);
        self.did = self.did.take().or(other.did);
        self.traits = self.traits.take().or(other.traits);
        self.applications.absorb(other.applications);
        for seen in other.variables {
            self.variable(seen.first, &seen.name, &seen.value);
            self.variable(seen.last, &seen.name, &seen.value);
        }
    }

    /// Returns the name the channel was created with.
    pub(crate) fn name(&self) -> &str {
        self.names.first().map_or("", |name| &name.text)
    }

    /// Removes facts, adjusting the number of facts at each gap accordingly.
    pub(crate) fn retain_facts(&mut self, mut keep: impl FnMut(&Fact) -> bool) {
        let mut kept = 0;
        let mut kept_before = vec![0];
        self.facts.retain(|fact| {
            let keeps = keep(fact);
            kept += usize::from(keeps);
            kept_before.push(kept);
            keeps
        });
        for seen in &mut self.blinds {
            *seen = kept_before[(*seen).min(kept_before.len() - 1)];
        }
    }

    /// Records that events of the channel may be missed from now on.
    pub(crate) fn touch(&mut self) {
        self.doubted = true;
        let known = self.facts.len();
        if self.blinds.last() != Some(&known) {
            self.blinds.push(known);
        }
    }

    /// Returns the channel's last entry into or exit from a bridge, going by the times of the
    /// events, since they can arrive in a different order.
    pub(crate) fn last_passage(&self) -> Option<Passage<'_>> {
        let facts = self.facts.iter();
        let passages = facts.filter_map(|fact| Some((fact.at, fact.what.passage()?)));
        passages.max_by_key(|(at, _)| *at).map(|(_, last)| last)
    }

    /// Records that the PBX lists the channel as being in this bridge.
    pub(crate) fn is_in(&mut self, at: EventTime, bridge: &str) {
        if self
            .last_passage()
            .is_none_or(|last| !last.enters || last.bridge != bridge)
        {
            let what = FactKind::enter_or_leave(clip(bridge, TEXT_BYTES_MAX), true, false);
            self.facts.push(Fact::new(at, Origin::Channel, what));
        }
    }

    /// Processes an already known channel's entry in a list of live channels created at `at`. Only
    /// FreeSWITCH's list contains details that the channel's events don't.
    pub(crate) fn on_listing(&mut self, at: EventTime, event: &ChannelEvent<'_>) -> Effect {
        self.last = self.last.max(at);
        self.doubted = false;
        if event.channel.traits.is_some() && self.describe(at, &event.channel) {
            Effect::Learned
        } else {
            Effect::Nothing
        }
    }

    /// Returns `true` if the channel is known only from a list of live channels, which means that
    /// it existed before its events were received.
    pub(crate) fn is_known_from_list(&self) -> bool {
        !self.is_born() && any(&self.facts, |what| matches!(what, FactKind::Listed { .. }))
    }

    /// Records that the channel ended at `at`, although no event reported it.
    pub(crate) fn note_gone(&mut self, at: EventTime) {
        let gone = Fact::new(at, Origin::Channel, FactKind::Gone);
        self.facts.push(gone);
    }

    /// Returns `true` if the event reveals a new name for the channel, which can only happen with
    /// AMI 1.x and CEL.
    pub(crate) fn is_renamed(&self, event: &ChannelEvent<'_>) -> bool {
        let name = unmarked(&event.channel.name);
        let old = event.channel.linkedid.is_empty() || event.origin == Origin::Cel;
        old && !name.is_empty() && !self.names.has(name)
    }

    /// Returns `true` if the channel's creation was received.
    pub(crate) fn is_born(&self) -> bool {
        any(&self.facts, |what| matches!(what, FactKind::Born(_)))
            || self.traits.as_ref().is_some_and(|traits| traits.fresh)
    }

    /// Returns the channel that this one monitors at `at`, if a key press can change how.
    pub(crate) fn monitored_by_keys(&self, at: EventTime) -> Option<&UniqueId> {
        let mut last: Option<&Fact> = None;
        for fact in &self.facts {
            let is_later = last.is_none_or(|last| fact.at >= last.at);
            if matches!(fact.what, FactKind::Monitors { .. }) && fact.at <= at && is_later {
                last = Some(fact);
            }
        }
        match &last?.what {
            FactKind::Monitors {
                target,
                mode,
                by_keys: true,
            } if *mode != MonitorMode::Ended => Some(target),
            _ => None,
        }
    }

    /// Returns the linkedid that the channel was created with, or `None` if the source doesn't
    /// report any.
    ///
    /// A channel dialed by FreeSWITCH may not report the caller's ID until later, in which case
    /// that ID is returned.
    pub(crate) fn first_linkedid(&self) -> Option<&str> {
        let own = self.id.as_str();
        let is_dialed = self
            .traits
            .as_ref()
            .is_some_and(|traits| !traits.line.inbound);
        let others = self.linkedids.iter().filter(|other| other.text != own);
        let caller = others.min_by_key(|other| other.at);
        let first = match caller {
            Some(caller) if is_dialed => caller,
            _ => self.linkedids.first()?,
        };
        Some(first.text.as_str())
    }

    /// Returns `true` if the channel wasn't created in another channel's call.
    pub(crate) fn is_root(&self) -> bool {
        self.first_linkedid()
            .is_none_or(|id| id == self.id.as_str())
    }

    /// Returns the sort key for the channel's age, to be used with [`by_age`](crate::age::by_age).
    /// If two channels were first seen at the same time, the one that wasn't created in another's
    /// call is considered older.
    pub(crate) fn age(&self) -> (Option<(u64, u64)>, (EventTime, bool, u64)) {
        (
            self.id.epoch_and_counter(),
            (self.first, !self.is_root(), self.place),
        )
    }

    /// Returns `true` if the channel hasn't been in a bridge or has left the last one.
    pub(crate) fn is_away(&self) -> bool {
        let reported = self.facts.iter().filter_map(|fact| {
            let hears = match &fact.what {
                FactKind::Enter { .. } | FactKind::Linked { .. } => true,
                FactKind::Leave { .. } | FactKind::Unlinked { .. } => false,
                FactKind::Monitors { mode, .. } => *mode != MonitorMode::Ended,
                _ => return None,
            };
            Some((fact.at, hears))
        });
        let last = reported.max_by_key(|&(at, _)| at);
        last.is_none_or(|(_, hears)| !hears)
    }

    /// Returns `true` if the channel has been in this bridge.
    pub(crate) fn was_in(&self, name: &str) -> bool {
        any(&self.facts, |what| what.bridge() == Some(name))
    }

    /// Returns `true` if the channel was created after this moment, judging by its ID or its
    /// reported creation time. In that case, a gap before this moment can't have hidden its
    /// creation.
    pub(crate) fn born_after(&self, moment: EventTime) -> bool {
        if let Some(created) = self.traits.as_ref().and_then(|traits| traits.created) {
            return created.since(moment) > Duration::from_secs(1);
        }
        let moment = moment.floor_seconds().get().saturating_add(1);
        UniqueId::epoch_in(self.id.as_str()).is_some_and(|epoch| epoch > moment)
    }

    /// Returns the new names reported for the channel, each with its time.
    pub(crate) fn renamings(&self) -> impl Iterator<Item = (EventTime, &str)> {
        self.facts.iter().filter_map(|fact| match &fact.what {
            FactKind::Renamed { to } => Some((fact.at, to.as_str())),
            _ => None,
        })
    }

    /// Returns `true` once the channel has hung up.
    pub(crate) fn is_over(&self) -> bool {
        any(&self.facts, FactKind::is_end)
    }

    /// Returns the time of the first hangup, if any.
    pub(crate) fn ended(&self) -> Option<EventTime> {
        let ends = self.facts.iter().filter(|fact| fact.what.is_end());
        ends.map(|fact| fact.at).min()
    }

    /// Returns `true` if an event shows that the channel took part in a call.
    ///
    /// Events that can arrive after a channel's end don't count. If the channel's name is used as
    /// its ID, leaving a bridge doesn't count either, because that event can also be reported under
    /// the channel's unique ID.
    pub(crate) fn is_real(&self) -> bool {
        let stand_in = is_stand_in(self.id.as_str(), self.name());
        any(&self.facts, |what| match what {
            FactKind::HangupRequested | FactKind::Hangup | FactKind::Gone => false,
            FactKind::Renamed { .. } => false,
            FactKind::DialRan { .. } => false,
            FactKind::Leave { .. } | FactKind::DialEnded { .. } | FactKind::Unlinked { .. } => {
                !stand_in
            }
            _ => true,
        })
    }

    /// Returns `true` if the channel is probably still up, which means that it hasn't hung up and
    /// either took part in a call or is a phone.
    pub(crate) fn is_up(&self) -> bool {
        !self.is_over() && (self.is_real() || self.is_telephone())
    }

    /// Returns `true` if this is a phone or an outside line.
    pub(crate) fn is_telephone(&self) -> bool {
        match &self.traits {
            Some(_) => !trunk::is_plumbing(self.name()),
            None => trunk::extension(self.name()).is_some(),
        }
    }

    /// Returns the trunk that the channel belongs to, if any.
    pub(crate) fn endpoint<'e>(&self, endpoints: &'e Endpoints) -> Option<&'e TrunkEndpoint> {
        endpoints.find_for_line(self.name(), self.line())
    }

    /// Returns the line traits that the PBX reports in addition to the channel's name.
    fn line(&self) -> Option<&LineTraits> {
        self.traits.as_ref().map(|traits| &traits.line)
    }

    /// Returns the party at the channel, such as a trunk or an extension.
    pub(crate) fn party<'e>(&self, endpoints: &'e Endpoints) -> Party<'e> {
        trunk::party_of_line(self.name(), self.line(), endpoints)
    }

    /// Stores what a message at `at` reports about the channel, except for its linkedid, returning
    /// `true` if that changed anything.
    pub(crate) fn describe(&mut self, at: EventTime, channel: &ChannelRef<'_>) -> bool {
        self.first = self.first.min(at);
        self.last = self.last.max(at);
        self.doubted = false;
        let mut changed = self.names.note(at, unmarked(&channel.name));
        changed |= self.callers.note(at, &channel.caller_number);
        changed |= self.extens.note(at, &channel.exten);
        changed |= self.userfields.note(at, &channel.userfield);
        for (name, value) in &channel.variables {
            changed |= self.variable(at, name, value);
        }
        if let Some(reported) = &channel.traits {
            let known = self
                .traits
                .get_or_insert_with(|| Box::new(LegTraits::new(at)));
            changed |= known.note(at, reported, &channel.context);
            self.first = self.first.min(known.created.unwrap_or(self.first));
        }
        changed
            | self
                .applications
                .run(at, &channel.application, &channel.app_data)
    }

    fn variable(&mut self, at: EventTime, name: &str, value: &str) -> bool {
        if value.is_empty() || name.is_empty() || value.len() > TEXT_BYTES_MAX {
            return false;
        }
        let mut variables = self.variables.iter_mut();
        if let Some(known) = variables.find(|known| known.name == name && known.value == value) {
            known.first = known.first.min(at);
            // The value was reported again after a different one, which makes it the latest value
            // again.
            let later = at > known.last;
            known.last = known.last.max(at);
            let same = self.variables.iter().filter(|known| known.name == name);
            return later && same.count() > 1;
        }
        let room = self.variables.len() < VARIABLES_MAX;
        if room {
            self.variables.push(SeenVariable {
                name: name.into(),
                value: value.into(),
                first: at,
                last: at,
            });
        }
        room
    }

    /// Returns how long FreeSWITCH waits before redialing this channel's number for the same
    /// command, or zero if it doesn't redial or the PBX isn't FreeSWITCH.
    pub(crate) fn pause(&self) -> Duration {
        let traits = self.traits.as_ref();
        traits.map_or(Duration::ZERO, |traits| traits.pause)
    }

    /// Returns `true` if an API command dialed the channel and keeps redialing its number.
    pub(crate) fn is_dialed_repeatedly(&self) -> bool {
        !self.pause().is_zero() && self.commanded_number().is_some()
    }

    /// Returns the outside number that FreeSWITCH dialed on this channel for an API command, rather
    /// than for another channel.
    pub(crate) fn commanded_number(&self) -> Option<&str> {
        let traits = self.traits.as_ref()?;
        let has_dialer = self.facts.iter().any(|fact| fact.what.dialer().is_some());
        let is_own_call = self.first_linkedid() == Some(self.id.as_str());
        (!traits.line.inbound && !has_dialer && is_own_call && is_outside(&traits.dialed))
            .then_some(traits.dialed.as_str())
    }

    /// Returns `true` if the channel was created both before and after this time, because its ID
    /// was reused.
    ///
    /// FreeSWITCH gives the ID in `origination_uuid` to the leg over each gateway that it tries.
    /// All of these legs count as one, whose end is that of the last one.
    fn was_created_around(&self, at: EventTime) -> bool {
        let creations = self.facts.iter().filter(|fact| fact.what.is_creation());
        let is_early = creations.clone().any(|creation| creation.at <= at);
        is_early
            && creations
                .map(|creation| creation.at)
                .any(|later| later > at)
    }

    /// Removes the ends of legs that had this ID before the last leg was created.
    fn forget_earlier_ends(&mut self) {
        let ends = self.facts.iter().filter(|fact| fact.what.is_end());
        let mut earlier: Vec<EventTime> = ends.map(|end| end.at).collect();
        earlier.retain(|&at| self.was_created_around(at));
        self.retain_facts(|fact| !fact.what.is_end() || !earlier.contains(&fact.at));
    }

    /// Processes an event of the channel. `room` is `true` if the call may store more facts.
    pub(crate) fn on_event(
        &mut self,
        at: EventTime,
        event: &ChannelEvent<'_>,
        room: bool,
    ) -> Effect {
        let mut described = self.describe(at, &event.channel);
        if let Kind::App { name, data } = &event.kind {
            described |= self.applications.run(at, name, data);
        }
        if matches!(event.kind, Kind::Born { .. }) && is_did(&event.channel.exten) {
            self.did
                .get_or_insert_with(|| event.channel.exten.as_ref().into());
        }
        if !event.channel.dial_status.is_empty() && room {
            let ran = FactKind::dial_ran(&event.channel.dial_status);
            let fact = Fact::new(at, event.origin, ran);
            if !self.facts.contains(&fact) {
                self.facts.push(fact);
                described = true;
            }
        }
        let Some(what) = fact_of(event) else {
            return if described {
                Effect::Learned
            } else {
                Effect::Nothing
            };
        };
        let mut fact = Fact::new(at, event.origin, what);
        if let Kind::Hangup { cause } = event.kind {
            fact.cause = cause;
        }
        let is_forgotten = fact.what.bridge().is_some() && Some(at) <= self.forgotten_until;
        if is_forgotten || self.facts.contains(&fact) {
            return Effect::Doubled;
        }
        if self.repeats_seat(&fact) {
            return if described {
                Effect::Learned
            } else {
                Effect::Nothing
            };
        }
        let is_end = fact.what.is_end();
        if self.traits.is_some() && is_end && self.was_created_around(at) {
            return Effect::Doubled;
        }
        let ends = is_end && !self.is_over();
        let is_creation = fact.what.is_creation();
        if room {
            self.facts.extend(remaining(&fact, &event.channel.peers));
        }
        if room || ends {
            self.facts.push(fact);
        }
        if self.traits.is_some() && is_creation {
            self.forget_earlier_ends();
        }
        if ends {
            Effect::HungUp
        } else {
            Effect::Learned
        }
    }

    /// Returns `true` if the fact only repeats that the channel is still in a conference, which
    /// FreeSWITCH reports each time the member starts talking.
    fn repeats_seat(&self, fact: &Fact) -> bool {
        let FactKind::Sits { bridge } = &fact.what else {
            return false;
        };
        let mut last: Option<&Fact> = None;
        for earlier in self.facts.iter().filter(|earlier| earlier.at <= fact.at) {
            if earlier.what.bridge() == Some(bridge)
                && last.is_none_or(|last| last.at <= earlier.at)
            {
                last = Some(earlier);
            }
        }
        last.is_some_and(|last| last.what == fact.what)
    }
}

/// Returns `true` for an ID that was generated from the channel's name, such as
/// `PJSIP/city-00000073@1795164017`, because a truncated frame had no unique ID.
pub(crate) fn is_stand_in(id: &str, name: &str) -> bool {
    if name.is_empty() {
        return false;
    }
    let rest = id.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
}
