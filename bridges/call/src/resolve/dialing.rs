//! Determines who dialed each channel, and whose call an outside line belongs to.
//!
//! A line belongs to the call that it was dialed for, which depends on who dialed it:
//!
//! | dialed by | part of |
//! |---|---|
//! | a customer's channel (dialplan, queue, ring group, or blind transfer) | that customer's call |
//! | a phone whose caller is still up (a consultation, a transfer) | the caller's call |
//! | any other phone, a room, an API | no other call |

use super::connections::talk;
use super::number;
use super::split::Part;
use super::view::View;
use crate::facts::Texts;
use crate::talk::Talk;
use crate::{EventTime, Way, trunk};
use std::cell::OnceCell;
use std::time::Duration;

/// CEL may report a channel's start this long before the `Dial` that created it.
const DIAL_SLACK: Duration = Duration::from_millis(100);

/// The channels of a part, along with who dialed them. Channels are given as indices.
pub(super) struct Dialing<'p, 'v, 'a> {
    legs: &'p [&'v View<'a>],
    own: usize,
    rooms: &'p Texts,
    /// The channel that dialed each channel. For the second half of a Local channel, that's the
    /// first half.
    by: Vec<Option<usize>>,
    talk: Vec<OnceCell<Talk>>,
}

impl<'p, 'v, 'a> Dialing<'p, 'v, 'a> {
    pub(super) fn new(part: &'p Part<'v, 'a>, rooms: &'p Texts) -> Self {
        let legs = part.legs.as_slice();
        Self {
            legs,
            own: part.own,
            rooms,
            by: (0..legs.len()).map(|i| dialer(legs, i)).collect(),
            talk: vec![OnceCell::new(); legs.len()],
        }
    }

    /// Returns the talk time of the customer on this channel.
    pub(super) fn talk(&self, line: usize) -> &Talk {
        self.talk[line].get_or_init(|| talk(self.legs, &[line]))
    }

    /// Returns when a channel first talked to the customer on the channel `line`.
    pub(super) fn first_talk(&self, line: usize, with: usize) -> Option<EventTime> {
        let spans = self.talk(line).spans.iter();
        spans.filter(|span| span.2 == with).map(|span| span.0).min()
    }

    /// Returns the channels that led to this one, nearest first.
    pub(super) fn ancestors(&self, leg: usize) -> impl Iterator<Item = usize> {
        let steps = std::iter::successors(self.by[leg], |&at| self.by[at]);
        // Channels that refer to each other don't lead anywhere.
        steps.take(self.legs.len())
    }

    /// Returns the party that dialed this channel directly or through Local channels, or `None` if
    /// it was an API or a conference room, or isn't known.
    pub(super) fn placed_by(&self, leg: usize) -> Option<usize> {
        let mut ancestors = self.ancestors(leg);
        ancestors.find(|&by| self.legs[by].party.is_real())
    }

    /// Returns the channels between this one and the party that dialed it.
    pub(super) fn between(&self, leg: usize) -> impl Iterator<Item = usize> {
        self.ancestors(leg)
            .take_while(|&by| !self.legs[by].party.is_real())
    }

    /// Returns the customer in whose call this line was dialed, or `None` if it started a call of
    /// its own.
    pub(super) fn customer_of(&self, line: usize) -> Option<usize> {
        let mut customer = None;
        let mut at = line;
        for _ in 0..self.legs.len() {
            match self.placed_by(at) {
                Some(by) if !self.is_line(by) => {
                    return self.waiting_caller(by, at).or(customer);
                }
                Some(by) if self.legs[by].way == Way::CameIn => return Some(by),
                Some(by) => (customer, at) = (Some(by), by),
                None => return self.bridged_caller(at).or(customer),
            }
        }
        // Lines that refer to each other don't belong to anyone else.
        None
    }

    /// Returns `true` if the party `by` started a call by dialing `line`, rather than having been
    /// in another call (with one of the lines in `others`), in a room, or waiting for calls before
    /// that.
    pub(super) fn begins_call(&self, by: usize, line: usize, others: &[usize]) -> bool {
        let dialer = self.legs[by];
        let at = self.legs[line].leg.first;
        let ran = &dialer.leg.applications;
        let waits = ran.agent.into_iter().chain(ran.conference);
        let waited = waits.chain(dialer.waits.iter().map(|stay| stay.from));
        let stays = dialer.stays.iter();
        let in_rooms = stays.filter(|stay| self.rooms.contains(stay.bridge));
        let mut busy = waited.chain(in_rooms.map(|stay| stay.from));
        // What the party did earlier may have been emitted and removed from the open call.
        dialer.leg.forgotten_until.is_none()
            && !busy.any(|from| from < at)
            && !others.iter().any(|&other| {
                self.legs[other].leg.first < at
                    && (self.placed_by(other) == Some(by)
                        || self.ancestors(by).any(|ancestor| ancestor == other)
                        || self.first_talk(other, by).is_some_and(|from| from < at))
            })
    }

    fn is_line(&self, leg: usize) -> bool {
        self.legs[leg].party.trunk().is_some()
    }

    /// Returns the callers who were on the line when this one was dialed.
    fn callers_at(&self, line: usize) -> impl Iterator<Item = usize> {
        let at = self.legs[line].leg.first;
        (0..self.own).filter(move |&i| {
            let leg = self.legs[i];
            let is_up = leg.leg.first <= at && at < leg.left;
            i != line && self.is_line(i) && leg.way == Way::CameIn && is_up
        })
    }

    /// Returns the caller on whose behalf the phone `by` dialed this line.
    ///
    /// That's a caller who talked to the line or, failing that, the most recent one who rang or
    /// talked to the phone, unless they were talking to someone else when the line was dialed.
    fn waiting_caller(&self, by: usize, line: usize) -> Option<usize> {
        let at = self.legs[line].leg.first;
        let phone = self.legs[by].party.extension();
        let mut found: Option<(EventTime, usize)> = None;
        for caller in self.callers_at(line) {
            let talk = self.talk(caller);
            let only_share_room = self.only_share_room(line, caller);
            if !only_share_room && talk.spans.iter().any(|&(.., with)| with == line) {
                return Some(caller);
            }
            let mut since = None;
            let (mut with_phone, mut with_others) = (false, false);
            for &(from, to, with) in talk.spans.iter().filter(|span| span.0 <= at) {
                let on_other_line = self.legs[with].party.extension() == phone;
                let is_phone = with == by || on_other_line && !only_share_room;
                if is_phone {
                    since = since.max(Some(from));
                }
                if at < to {
                    with_phone |= is_phone;
                    with_others |= !is_phone;
                }
            }
            let rang = self.ancestors(by).any(|ancestor| ancestor == caller);
            let since = since.or(rang.then_some(self.legs[caller].leg.first));
            if let Some(since) = since
                && (with_phone || !with_others)
            {
                found = found.max(Some((since, caller)));
            }
        }
        found.map(|(_, caller)| caller)
    }

    /// Returns the caller that an API connected to the line it had dialed for them. Since AMI 1.x
    /// doesn't report who dialed a line for a queue, it could be any of the callers.
    fn bridged_caller(&self, line: usize) -> Option<usize> {
        let leg = self.legs[line];
        let is_dialer_unreported = leg.leg.linkedids.first().is_none() && !leg.was_dialed();
        self.callers_at(line).find(|&caller| {
            let met = !leg.common_bridges(self.legs[caller]).is_empty();
            is_dialer_unreported || met && !self.only_share_room(line, caller)
        })
    }

    /// Returns `true` if the two only ever met in FreeSWITCH rooms, which doesn't make them one
    /// call. With other sources, only a line dialed into a caller's own conference shares a part
    /// with them.
    fn only_share_room(&self, line: usize, caller: usize) -> bool {
        let line = self.legs[line];
        let bridges = line.common_bridges(self.legs[caller]);
        let mut bridges = bridges.into_iter();
        line.leg.traits.is_some()
            && bridges.len() > 0
            && bridges.all(|bridge| self.rooms.contains(bridge))
    }
}

/// Returns how long the command that dialed this line waits before redialing, or zero if it
/// doesn't.
pub(super) fn pause(legs: &[&View<'_>], line: &View<'_>) -> Duration {
    let dials = legs.iter().flat_map(|leg| &leg.leg.applications.dials);
    let dials = dials.filter(|dial| is_destination(&dial.data, line.name));
    let longest = dials.map(|dial| dial.pause).max();
    longest.unwrap_or_default().max(line.leg.pause())
}

/// Returns the channel that dialed this one, if the source reveals it.
fn dialer(legs: &[&View<'_>], i: usize) -> Option<usize> {
    let leg = legs[i];
    let facts = leg.leg.facts.iter();
    let reported = facts.filter_map(|fact| Some((fact.at, fact.what.dialer()?)));
    if let Some((_, by)) = reported.min() {
        return position(legs, i, by.as_str());
    }
    if leg.name.ends_with(";2")
        && let Some(pair) = trunk::local_pair(leg.name)
    {
        let mut halves = (0..legs.len()).filter(|&other| other != i);
        return halves.find(|&other| trunk::local_pair(legs[other].name) == Some(pair));
    }
    let by_linkedid = position(legs, i, leg.first_linkedid());
    if leg.leg.traits.is_some() {
        return by_linkedid;
    }
    if leg.way == Way::CameIn {
        return None;
    }
    ran_dial(legs, leg).or_else(|| {
        let root = by_linkedid?;
        Some(successor(legs, leg, root).unwrap_or(root))
    })
}

/// Returns the index of another channel, given its ID.
fn position(legs: &[&View<'_>], i: usize, id: &str) -> Option<usize> {
    let found = legs.iter().position(|other| other.leg.id.as_str() == id);
    found.filter(|&found| found != i)
}

/// Returns the channel whose `Dial` created this one, as reported by CEL.
fn ran_dial(legs: &[&View<'_>], leg: &View<'_>) -> Option<usize> {
    let until = leg.leg.first.plus(DIAL_SLACK);
    let mut found: Option<(EventTime, usize)> = None;
    for (i, other) in legs.iter().enumerate() {
        for dial in &other.leg.applications.dials {
            if other.leg.id != leg.leg.id
                && dial.first <= until
                && is_destination(&dial.data, leg.name)
            {
                found = found.max(Some((dial.first, i)));
            }
        }
    }
    found.map(|(_, i)| i)
}

/// Returns `true` if the channel is listed in a `Dial`'s data, such as `Local/101@office/n`.
fn is_destination(data: &str, name: &str) -> bool {
    let destinations = data.split([',', '|']).next().unwrap_or_default();
    let is_named = name.rsplit_once('-').is_some_and(|(peer, _)| {
        destinations.split('&').any(|destination| {
            let rest = destination.strip_prefix(peer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    });
    is_named || number::in_dial_data(data, name).is_some()
}

/// Returns the phone that answered and was still in the call after the first channel, `root`, had
/// hung up. By then, nothing else could have dialed this channel.
fn successor(legs: &[&View<'_>], leg: &View<'_>, root: usize) -> Option<usize> {
    let at = leg.leg.first;
    if at < legs[root].end {
        return None;
    }
    let is_candidate = |other: &View<'_>| {
        let is_up = other.leg.first < at && at < other.end;
        other.party.extension().is_some() && is_up && other.has_answered()
    };
    let candidates = (0..legs.len()).filter(|&i| is_candidate(legs[i]));
    candidates.max_by_key(|&i| legs[i].leg.linkedids.has(leg.first_linkedid()))
}
