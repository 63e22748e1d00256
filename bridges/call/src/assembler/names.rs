//! Which channel has which name now: for events that tell a channel's name alone, and for AMI 1.x,
//! where a masquerade moves names from one unique id to another.

use super::calls::Calls;
use super::leg::{Leg, is_stand_in, unmarked};
use crate::event::Origin;
use crate::event::{ChannelEvent, ChannelRef, Kind, Text};
use crate::trunk;
use crate::units::UniqueId;
use smol_str::SmolStr;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// AMI 1.x: the event calls a channel by a name that it was never told to have.
pub(super) fn is_renamed(leg: &Leg, event: &ChannelEvent<'_>) -> bool {
    let name = unmarked(&event.channel.name);
    let old = event.channel.linkedid.is_empty() || event.origin == Origin::Cel;
    old && !name.is_empty() && !leg.names.has(name)
}

impl Calls {
    /// The unique id of the channel that an event is about. A source may tell the name alone (a
    /// JSON frame that was cut): then a stand-in serves until the id is told.
    pub(super) fn identify(&self, channel: &ChannelRef<'_>) -> Option<UniqueId> {
        let name = unmarked(&channel.name);
        let told = UniqueId::new(channel.uniqueid.as_ref());
        if told
            .as_ref()
            .is_some_and(|id| !is_stand_in(id.as_str(), name))
        {
            return told;
        }
        self.names
            .get(name)
            .cloned()
            .or(told)
            .or_else(|| UniqueId::new(name))
    }

    /// The same event with what it leaves out and is known here: the unique id of a channel that
    /// it names by its name alone; `None` if it leaves out nothing.
    pub(super) fn completed<'a>(
        &self,
        id: &UniqueId,
        event: &ChannelEvent<'a>,
    ) -> Option<ChannelEvent<'a>> {
        let nameless = |it: &ChannelRef<'_>| !it.name.is_empty() && it.uniqueid.is_empty();
        let filled = |channel: &ChannelRef<'a>| {
            let mut channel = channel.clone();
            let id = self.identify(&channel);
            channel.uniqueid = id.map_or_else(String::new, |id| id.to_string()).into();
            Box::new(channel)
        };
        let kind = match &event.kind {
            Kind::Linked { with } if nameless(with) => Kind::Linked { with: filled(with) },
            Kind::Unlinked { with } if nameless(with) => Kind::Unlinked { with: filled(with) },
            Kind::DialBegin {
                by: Some(by),
                dial_string,
            } if nameless(by) => Kind::DialBegin {
                by: Some(filled(by)),
                dial_string: dial_string.clone(),
            },
            Kind::Joined { with } if with.iter().any(|other| other.contains('/')) => {
                let with = with.iter().filter_map(|other| self.id_of(other)).collect();
                Kind::Joined { with }
            }
            Kind::Renamed { to, .. } => {
                let holder = self.parts_with(to, &event.channel.name);
                let holder = holder.filter(|holder| holder != id)?.to_string().into();
                Kind::Renamed {
                    to: to.clone(),
                    holder,
                }
            }
            Kind::Born { .. }
            | Kind::State { .. }
            | Kind::DialBegin { .. }
            | Kind::DialEnd { .. }
            | Kind::App { .. }
            | Kind::BridgeEnter { .. }
            | Kind::BridgeLeave { .. }
            | Kind::Joined { .. }
            | Kind::Linked { .. }
            | Kind::Unlinked { .. }
            | Kind::Hangup { .. }
            | Kind::Gone
            | Kind::LinkedidEnd
            | Kind::Listed { .. }
            | Kind::Seen => return None,
        };
        let (at, origin, channel) = (event.at, event.origin, event.channel.clone());
        Some(ChannelEvent {
            at,
            origin,
            channel,
            kind,
        })
    }

    /// The unique id, where a name stands for it.
    fn id_of<'a>(&self, other: &Text<'a>) -> Option<Text<'a>> {
        if !other.contains('/') {
            return Some(other.clone());
        }
        let id = self.names.get(unmarked(other))?;
        Some(Cow::Owned(id.to_string()))
    }

    /// Who gives up the name `to` to a channel that was called `from`. The two subchannels of one
    /// DAHDI line are one telephone.
    fn parts_with(&self, to: &str, from: &str) -> Option<UniqueId> {
        let name = unmarked(to);
        let line = trunk::is_line(name) && trunk::is_line(from);
        let same = line && trunk::extension(name) == trunk::extension(from);
        let holder = (!same && !to.ends_with("<MASQ>")).then(|| self.holder(name));
        holder.flatten()
    }

    /// The channel that is up and has this name now.
    fn holder(&self, name: &str) -> Option<UniqueId> {
        let id = self.names.get(name)?;
        let call = self.get(self.knows(id.as_str())?)?;
        let leg = call.legs.get(id)?;
        (!leg.is_over()).then(|| id.clone())
    }

    /// A channel goes on under another name; `<MASQ>` and `<ZOMBIE>` are steps on the way.
    pub(super) fn renamed(&mut self, key: u64, id: &UniqueId, to: &str) {
        let name = unmarked(to);
        if let Some(call) = self.calls.get_mut(&key)
            && !name.is_empty()
            && !to.ends_with('>')
        {
            self.names.insert(name, id.clone());
            call.renamed_to.insert(name.into());
            call.named.insert(name.into(), id.clone());
        }
    }

    /// A channel goes on under the name that `holder` had up to now, which shows in an event of it:
    /// a masquerade changed the two, so that `holder` has its name from here on.
    pub(super) fn change_names(
        &mut self,
        key: u64,
        (id, holder): (&UniqueId, &UniqueId),
        name: &str,
    ) {
        let leg = self.get(key).and_then(|call| call.legs.get(id));
        let had = leg.and_then(|leg| leg.names.by_time().last().map(|name| name.text.clone()));
        if let Some(had) = had
            && self.names.get(&had) == Some(id)
        {
            self.renamed(key, holder, &had);
        }
        self.renamed(key, id, unmarked(name));
    }

    /// The stand-in under which a channel of this name was heard of.
    pub(super) fn stand_in(&self, name: &str) -> Option<UniqueId> {
        let known = self.names.get(name);
        known.filter(|id| is_stand_in(id.as_str(), name)).cloned()
    }

    /// A channel of an open call was met for the first time.
    pub(super) fn met(&mut self, key: u64, id: &UniqueId) {
        let Some(call) = self.calls.get_mut(&key) else {
            return;
        };
        let leg = call.legs.get(id);
        if let Some(name) = leg.map(Leg::name).filter(|name| !name.is_empty()) {
            let before = self.names.insert(name, id.clone());
            if before.is_some_and(|before| before != *id) {
                call.named.insert(name.into(), id.clone());
            }
        }
    }

    /// The other channel whose name this one goes on under, where that shows only in the name that
    /// its events give it from here on.
    pub(super) fn holder_of_name(
        &self,
        key: u64,
        id: &UniqueId,
        event: &ChannelEvent<'_>,
    ) -> Option<UniqueId> {
        let leg = self.get(key)?.legs.get(id)?;
        if !is_renamed(leg, event) {
            return None;
        }
        let holder = self.holder(unmarked(&event.channel.name));
        holder.filter(|holder| holder != id)
    }

    /// Learns who has which name in a call that was put back: an earlier release kept the renamings
    /// alone, and not the names that changed places with them.
    pub(super) fn know_names(&mut self, key: u64, named: BTreeMap<SmolStr, UniqueId>) {
        let Some(call) = self.calls.get(&key) else {
            return;
        };
        let mut renamed = call.renamings();
        renamed.sort_by_key(|&(at, ..)| at);
        let renamed: Vec<(UniqueId, String)> = renamed
            .into_iter()
            .map(|(_, id, to)| (id.clone(), to.to_owned()))
            .collect();
        for (id, to) in renamed {
            self.renamed(key, &id, &to);
        }
        for (name, id) in named {
            self.renamed(key, &id, &name);
        }
    }
}
