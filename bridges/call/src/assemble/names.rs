//! Tracks which channel currently has which name. This is needed for events that contain only a
//! channel's name, and for AMI 1.x, where a masquerade moves names from one unique ID to another.

use super::calls::OpenCalls;
use crate::facts::{Renamings, is_stand_in};
use crate::trunk::{self, unmarked};
use crate::{ChannelEvent, ChannelRef, EventTime, Kind, UniqueId};
use smol_str::SmolStr;

impl OpenCalls {
    /// Returns the unique ID of the channel that an event is about. If the event only has the name
    /// (as in a truncated JSON frame), the name is used as the ID until the ID is known.
    pub(super) fn identify(&self, channel: &ChannelRef<'_>) -> Option<UniqueId> {
        let name = unmarked(&channel.name);
        let own = UniqueId::new(channel.uniqueid.as_ref());
        if let Some(id) = &own
            && !is_stand_in(id.as_str(), name)
        {
            return own;
        }
        let by_name = self.names.get(name).cloned();
        by_name.or(own).or_else(|| UniqueId::new(name))
    }

    /// Returns a copy of the event with missing values filled in, such as the unique ID of a
    /// channel that it identifies only by name, or `None` if nothing is missing or the value is
    /// unknown.
    pub(super) fn complete_event<'a>(
        &self,
        id: &UniqueId,
        event: &ChannelEvent<'a>,
    ) -> Option<ChannelEvent<'a>> {
        let lacks = match &event.kind {
            Kind::Joined { with } => with.iter().any(|other| other.contains('/')),
            Kind::Renamed { .. } => true,
            Kind::Monitors { target, .. } => target.is_empty(),
            Kind::DialEnd { .. } => false,
            kind => kind
                .other()
                .is_some_and(|other| !other.name.is_empty() && other.uniqueid.is_empty()),
        };
        if !lacks {
            return None;
        }
        let mut event = event.clone();
        if let Some(other) = event.kind.other_mut() {
            let id = self
                .holder_at(unmarked(&other.name), event.at)
                .cloned()
                .or_else(|| self.identify(other));
            other.uniqueid = id.map_or_else(String::new, |id| id.to_string()).into();
        }
        if let Kind::Joined { with } = &mut event.kind {
            let mut ids = Vec::new();
            for other in std::mem::take(with) {
                if !other.contains('/') {
                    ids.push(other);
                } else if let Some(id) = self.holder_at(unmarked(&other), event.at) {
                    ids.push(id.to_string().into());
                }
            }
            *with = ids;
        }
        if let Kind::Monitors { target, .. } = &mut event.kind {
            *target = self.monitored_by_keys(id, event.at?)?.to_string().into();
        }
        if let Kind::Renamed { to, holder } = &mut event.kind {
            let yielding = self.find_yielding_channel(to, &event.channel.name);
            *holder = yielding.filter(|holder| holder != id)?.to_string().into();
        }
        Some(event)
    }

    /// Returns the channel whose monitoring is changed by a key press on channel `id` at time `at`.
    fn monitored_by_keys(&self, id: &UniqueId, at: EventTime) -> Option<&UniqueId> {
        let call = self.get(self.find(id.as_str())?)?;
        call.legs.get(id)?.monitored_by_keys(at)
    }

    /// Returns the channel that had this name at time `at`, since names may be reused later, or the
    /// channel that has it now if `at` is `None`.
    fn holder_at(&self, name: &str, at: Option<EventTime>) -> Option<&UniqueId> {
        let now = self.names.get(name)?;
        let then = at.and_then(|at| self.holder_in_call(name, now, at));
        then.or(Some(now))
    }

    /// Looks in the call of the channel that has this name `now` for the one that had it at time
    /// `at`, returning `None` if the name hasn't moved.
    fn holder_in_call(&self, name: &str, now: &UniqueId, at: EventTime) -> Option<&UniqueId> {
        let call = self.get(self.find(now.as_str())?)?;
        let changes = call.names.named.get(name)?;
        if let Some((_, id)) = changes.iter().rev().find(|(from, _)| *from <= at) {
            return Some(id);
        }
        let first = call.legs.values().find(|leg| leg.name() == name)?;
        Some(&first.id)
    }

    /// Returns the channel that gives up the name `to` to a channel previously called `from`, or
    /// `None` for the two subchannels of a DAHDI line, which are the same phone.
    fn find_yielding_channel(&self, to: &str, from: &str) -> Option<UniqueId> {
        let name = unmarked(to);
        if to.ends_with("<MASQ>") || trunk::is_same_line(name, from) {
            return None;
        }
        self.holder(name)
    }

    /// Returns the channel that currently has this name, provided it's still up.
    fn holder(&self, name: &str) -> Option<UniqueId> {
        let id = self.names.get(name)?;
        let call = self.get(self.find(id.as_str())?)?;
        let leg = call.legs.get(id)?;
        (!leg.is_over()).then(|| id.clone())
    }

    /// Records that channel `id` is called `to` from time `at` onward. `<MASQ>` and `<ZOMBIE>`
    /// names are intermediate and are ignored.
    pub(super) fn rename_channel(&mut self, key: u64, id: &UniqueId, (at, to): (EventTime, &str)) {
        let name = unmarked(to);
        if let Some(call) = self.calls.get_mut(&key)
            && !name.is_empty()
            && !to.ends_with('>')
        {
            call.names.renamed_to.insert(name.into());
            self.names.insert(name, call.names.take_on(name, at, id));
        }
    }

    /// Swaps the names of channels `id` and `holder`. This is called when an event of `id` at time
    /// `at` has the `name` that belonged to `holder` until then, which means that a masquerade
    /// swapped the two.
    pub(super) fn change_names(
        &mut self,
        key: u64,
        (id, holder): (&UniqueId, &UniqueId),
        (at, name): (EventTime, &str),
    ) {
        let leg = self.get(key).and_then(|call| call.legs.get(id));
        let had = leg.and_then(|leg| leg.names.by_time().last().map(|name| name.text.clone()));
        if let Some(had) = had
            && self.names.get(&had) == Some(id)
        {
            self.rename_channel(key, holder, (at, &had));
        }
        self.rename_channel(key, id, (at, unmarked(name)));
    }

    /// Returns the name used in place of a channel's unique ID if the ID isn't known yet.
    pub(super) fn stand_in(&self, name: &str) -> Option<UniqueId> {
        let known = self.names.get(name);
        known.filter(|id| is_stand_in(id.as_str(), name)).cloned()
    }

    /// Registers the name of channel `id`, which is new in the open call `key`.
    pub(super) fn register_name(&mut self, key: u64, id: &UniqueId) {
        let Some(call) = self.calls.get_mut(&key) else {
            return;
        };
        let Some(leg) = call.legs.get(id).filter(|leg| !leg.name().is_empty()) else {
            return;
        };
        let name = SmolStr::from(leg.name());
        let at = leg.first;
        let before = self.names.insert(&name, id.clone());
        if before.is_some_and(|before| before != *id) {
            call.names.take_on(&name, at, id);
        }
    }

    /// Returns the channel whose name channel `id` has taken over, if the name in this event is the
    /// only sign of it.
    pub(super) fn holder_of_name(
        &self,
        key: u64,
        id: &UniqueId,
        event: &ChannelEvent<'_>,
    ) -> Option<UniqueId> {
        let leg = self.get(key)?.legs.get(id)?;
        let renamed = leg.is_renamed(event);
        let holder = renamed.then(|| self.holder(unmarked(&event.channel.name)))?;
        holder.filter(|holder| holder != id)
    }

    /// Registers the names of a restored call's channels.
    pub(super) fn know_names(&mut self, key: u64, names: Renamings) {
        for (name, known) in names.named {
            for (at, id) in known {
                self.rename_channel(key, &id, (at, &name));
            }
        }
    }
}
