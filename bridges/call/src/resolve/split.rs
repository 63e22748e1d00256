//! Determines which channels really belong together. An open call may contain more than that,
//! because it ties channels together by every bridge they've ever been in, even if they didn't meet
//! there.
//!
//! A room doesn't tie channels together, whether it's a conference or the holding bridge in which a
//! logged-in agent waits. It only shows who was talking to whom:
//!
//! ```text
//! 101, logged in         |-------------- room 600 ---------------|   one internal call
//! Local/600, half 2          |- room 600 -|                          \
//! Local/600, half 1          |- dials ----|                           one call, 101 is its guest
//! customer 1                    |---------|                          /
//! customer 2                                   |- room 600 -|        another, 101 is its guest
//! ```

use super::attempts::command_patience;
use super::number;
use super::sets::Sets;
use super::view::{AT_ONCE, BridgeStay, View};
use crate::facts::{FactKind, Texts};
use crate::{EventTime, UniqueId, Way, trunk};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an agent waiting in a holding bridge may take to enter the customer's bridge.
const MOVE: Duration = Duration::from_secs(2);

/// The channels of one call.
#[derive(Debug)]
pub(super) struct Part<'v, 'a> {
    /// The call's own channels in the order given, followed by its guests, which are other calls'
    /// channels that were up at the same time and may have talked to the customer in a room.
    pub(super) legs: Vec<&'v View<'a>>,
    /// Number of the call's own channels.
    pub(super) own: usize,
    /// Linkedids that its channels took on in a room, and which belong to another call.
    pub(super) foreign: BTreeSet<UniqueId>,
}

impl<'v, 'a> Part<'v, 'a> {
    /// Returns the call's own channels.
    pub(super) fn own(&self) -> &[&'v View<'a>] {
        &self.legs[..self.own]
    }
}

/// Returns the channels by call, oldest call first. `rooms` contains the bridges that are
/// conferences, or is `None` if the source reports links, in which case every bridge ties its
/// channels together.
pub(super) fn parts<'v, 'a>(
    views: &'v [View<'a>],
    joined: &BTreeSet<(UniqueId, UniqueId)>,
    rooms: Option<&Texts>,
) -> Vec<Part<'v, 'a>> {
    let mut sets = Sets::new(views.len());
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    // An ID may be that of a channel or a linkedid whose channel was never seen. Both tie channels
    // together.
    for (i, view) in views.iter().enumerate() {
        let own = [view.leg.id.as_str(), view.first_linkedid()];
        let local = trunk::local_pair(view.name);
        let dialed_by = view.leg.facts.iter().filter_map(|fact| match &fact.what {
            FactKind::Dialed { by: Some(by), .. } => Some(by.as_str()),
            _ => None,
        });
        for name in own.into_iter().chain(local).chain(dialed_by) {
            let first = *by_name.entry(name).or_insert(i);
            sets.join(first, i);
        }
    }
    for (a, b) in joined {
        if let (Some(&a), Some(&b)) = (by_name.get(a.as_str()), by_name.get(b.as_str())) {
            sets.join(a, b);
        }
    }
    join_by_commanded_number(views, &mut sets);
    let stays = Stays::new(views, rooms, &mut sets);
    join_by_bridges(&stays.ordinary, &mut sets);
    let entered = stays.first_entries(&mut sets);
    let foreign = join_by_later_linkedids(views, &entered, &mut by_name, &mut sets);
    let groups = groups(views, &mut sets);
    for (a, b) in stays.pairs_in_rooms() {
        let a_set = sets.find(a);
        let b_set = sets.find(b);
        if let (Some(a_group), Some(b_group)) = (groups.get(&a_set), groups.get(&b_set))
            && a_set != b_set
            && is_one_call(views, a_group, b_group, &stays)
        {
            sets.join(a_set, b_set);
        }
    }
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for i in 0..views.len() {
        members.entry(sets.find(i)).or_default().push(i);
    }
    let mut parts = Vec::new();
    for own in members.values() {
        let guests = if stays.has_rooms() {
            guests(views, own)
        } else {
            Vec::new()
        };
        parts.push(Part {
            legs: own.iter().chain(&guests).map(|&i| &views[i]).collect(),
            own: own.len(),
            foreign: own
                .iter()
                .filter_map(|i| foreign.get(i))
                .flatten()
                .filter(|id| !is_own_id(views, own, id))
                .cloned()
                .collect(),
        });
    }
    parts
}

/// Returns `true` if the ID is that of one of the call's own channels or of the call in which one
/// of them was created.
fn is_own_id(views: &[View<'_>], own: &[usize], id: &UniqueId) -> bool {
    let mut own = own.iter().map(|&i| &views[i]);
    own.any(|view| view.leg.id == *id || view.first_linkedid() == id.as_str())
}

/// Returns the other channels that were up at some point during the call.
fn guests(views: &[View<'_>], own: &[usize]) -> Vec<usize> {
    let first = own.iter().map(|&i| views[i].leg.first).min();
    let last = own.iter().map(|&i| views[i].end).max();
    let mut guests = Vec::new();
    for (i, view) in views.iter().enumerate() {
        let up = Some(view.leg.first) <= last && Some(view.end) >= first;
        if up && !own.contains(&i) {
            guests.push(i);
        }
    }
    guests
}

/// A stay in a bridge, along with the channel.
type Stay<'v, 'a> = (&'v BridgeStay<'a>, usize);

/// The stays in bridges whose channels can hear each other.
struct Stays<'v, 'a> {
    /// Stays that tie their channels together.
    ordinary: Vec<Stay<'v, 'a>>,
    /// Stays in rooms, and those of an agent who came from a holding bridge.
    seated: Vec<Stay<'v, 'a>>,
}

impl<'v, 'a> Stays<'v, 'a> {
    fn new(views: &'v [View<'a>], rooms: Option<&Texts>, sets: &mut Sets) -> Self {
        let trunks = (0..views.len()).filter(|&i| views[i].party.trunk().is_some());
        let outside: BTreeSet<usize> = trunks.map(|i| sets.find(i)).collect();
        let mut stays = Self {
            ordinary: Vec::new(),
            seated: Vec::new(),
        };
        for (i, view) in views.iter().enumerate() {
            let is_inside = view.party.extension().is_some() && !outside.contains(&sets.find(i));
            for stay in &view.stays {
                let is_seated = rooms.is_some_and(|rooms| {
                    rooms.contains(stay.bridge) || (is_inside && was_on_call(view, stay))
                });
                if is_seated {
                    stays.seated.push((stay, i));
                } else {
                    stays.ordinary.push((stay, i));
                }
            }
        }
        stays
    }

    fn has_rooms(&self) -> bool {
        !self.seated.is_empty()
    }

    /// Returns when a channel of each set first met others in a room, or met an agent.
    fn first_entries(&self, sets: &mut Sets) -> BTreeMap<usize, EventTime> {
        let mut entered: BTreeMap<usize, EventTime> = BTreeMap::new();
        for &(stay, i) in &self.seated {
            note_entry(&mut entered, sets.find(i), stay.from);
            for &(other, j) in &self.ordinary {
                if other.bridge == stay.bridge && other.from <= stay.to && stay.from <= other.to {
                    note_entry(&mut entered, sets.find(j), stay.from.max(other.from));
                }
            }
        }
        entered
    }

    /// Returns each pair of channels that were in the same room at the same time.
    fn pairs_in_rooms(&self) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for (at, &(a, i)) in self.seated.iter().enumerate() {
            for &(b, j) in &self.seated[at + 1..] {
                if a.bridge == b.bridge && a.from <= b.to && b.from <= a.to {
                    pairs.push((i, j));
                }
            }
        }
        pairs
    }
}

/// Records the moment for the set, unless it already has an earlier one.
fn note_entry(entered: &mut BTreeMap<usize, EventTime>, set: usize, at: EventTime) {
    let known = entered.entry(set).or_insert(at);
    *known = at.min(*known);
}

/// Returns `true` if the channel was waiting for calls before it entered this bridge, either as a
/// logged-in agent or in a holding bridge that it was moved here from.
fn was_on_call(view: &View<'_>, stay: &BridgeStay<'_>) -> bool {
    let mut waits = view.waits.iter();
    let logged_in = view.leg.applications.agent;
    logged_in.is_some_and(|at| at <= stay.from)
        || waits.any(|wait| wait.to <= stay.from && stay.from.since(wait.to) <= MOVE)
}

/// Joins a line that FreeSWITCH dialed for an API to the previous one it dialed to the same number,
/// provided that nobody answered that one. Nothing else shows that they come from the same command.
fn join_by_commanded_number(views: &[View<'_>], sets: &mut Sets) {
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, view) in views.iter().enumerate() {
        let Some(number) = view.leg.commanded_number() else {
            continue;
        };
        if let Some(other) = last.insert(number, i) {
            let began = view.leg.first;
            let ended = views[other].end;
            let patience = command_patience(views[other].leg);
            let follows = began.plus(AT_ONCE) >= ended && began.since(ended) <= patience;
            if follows && !views[other].has_answered() {
                sets.join(other, i);
            }
        }
    }
}

/// Joins channels that were in the same bridge at the same time.
fn join_by_bridges(stays: &[Stay<'_, '_>], sets: &mut Sets) {
    let mut stays = stays.to_vec();
    stays.sort_by_key(|(stay, _)| (stay.bridge, stay.from));
    // The bridge, until when a channel is known to be in it, and that channel.
    let mut last: Option<(&str, EventTime, usize)> = None;
    for (stay, i) in stays {
        let met = last.filter(|known| known.0 == stay.bridge && stay.from <= known.1);
        let until = met.map_or(stay.to, |(_, until, _)| until.max(stay.to));
        if let Some((.., other)) = met {
            sets.join(other, i);
        }
        last = Some((stay.bridge, until, i));
    }
}

/// Joins channels by the linkedids that they took on after their creation, as in a transfer, and
/// returns the linkedids that weren't used, by channel.
///
/// Those are the ones taken on after the call had entered a room, because they belong to another
/// party in the room.
fn join_by_later_linkedids<'v>(
    views: &'v [View<'_>],
    entered: &BTreeMap<usize, EventTime>,
    by_name: &mut BTreeMap<&'v str, usize>,
    sets: &mut Sets,
) -> BTreeMap<usize, Vec<UniqueId>> {
    let mut later = Vec::new();
    let mut foreign: BTreeMap<usize, Vec<UniqueId>> = BTreeMap::new();
    for (i, view) in views.iter().enumerate() {
        let set = sets.find(i);
        for linkedid in view.leg.linkedids.iter() {
            if linkedid.text == view.first_linkedid() {
                continue;
            }
            let own = by_name.get(linkedid.text.as_str());
            let is_own = own.is_some_and(|&owner| sets.find(owner) == set);
            let since = entered.get(&set);
            if !is_own && since.is_some_and(|&at| linkedid.at.plus(AT_ONCE) >= at) {
                let id = UniqueId::new(linkedid.text.as_str());
                foreign.entry(i).or_default().extend(id);
            } else {
                later.push((i, linkedid.text.as_str()));
            }
        }
    }
    for (i, linkedid) in later {
        let first = *by_name.entry(linkedid).or_insert(i);
        sets.join(first, i);
    }
    foreign
}

/// One call, as it's known before parties that met in a room are compared.
struct Group<'v, 'a> {
    legs: Vec<&'v View<'a>>,
    /// Indices of the trunk channels in `legs`.
    trunks: Vec<usize>,
}

impl Group<'_, '_> {
    fn came_in(&self) -> bool {
        let mut trunks = self.trunks.iter();
        trunks.any(|&i| self.legs[i].way == Way::CameIn)
    }

    /// Returns `true` if the call consists only of dialed outside lines.
    fn is_dialed_line(&self) -> bool {
        let has_extension = self.legs.iter().any(|leg| leg.party.extension().is_some());
        !self.trunks.is_empty() && !has_extension && !self.came_in()
    }

    /// Returns when one of its channels first entered the bridge.
    fn first_entry(&self, bridge: &str) -> Option<EventTime> {
        let stays = self.legs.iter().flat_map(|leg| &leg.stays);
        let here = stays.filter(|stay| stay.bridge == bridge);
        here.map(|stay| stay.from).min()
    }

    fn contains(&self, view: &View<'_>) -> bool {
        self.legs.iter().any(|leg| leg.leg.id == view.leg.id)
    }
}

fn groups<'v, 'a>(views: &'v [View<'a>], sets: &mut Sets) -> BTreeMap<usize, Group<'v, 'a>> {
    let mut groups: BTreeMap<usize, Group<'v, 'a>> = BTreeMap::new();
    for (i, view) in views.iter().enumerate() {
        let group = groups.entry(sets.find(i)).or_insert_with(|| Group {
            legs: Vec::new(),
            trunks: Vec::new(),
        });
        if view.party.trunk().is_some() {
            group.trunks.push(group.legs.len());
        }
        group.legs.push(view);
    }
    groups
}

/// Returns `true` if two groups that met in a room are the same call after all, because both were
/// dialed to the same number at the same time or one was dialed into a caller's conference.
fn is_one_call(
    views: &[View<'_>],
    a: &Group<'_, '_>,
    b: &Group<'_, '_>,
    stays: &Stays<'_, '_>,
) -> bool {
    if a.came_in() && b.is_dialed_line() {
        is_dialed_into(views, a, b, stays)
    } else if b.came_in() && a.is_dialed_line() {
        is_dialed_into(views, b, a, stays)
    } else {
        !a.came_in() && !b.came_in() && is_to_one_number(a, b)
    }
}

/// Returns `true` if a line was dialed into a conference created by a caller's call, which means
/// that the caller was there first and no party of another call was in it.
fn is_dialed_into(
    views: &[View<'_>],
    caller: &Group<'_, '_>,
    line: &Group<'_, '_>,
    stays: &Stays<'_, '_>,
) -> bool {
    stays.seated.iter().any(|(room, i)| {
        if !line.contains(&views[*i]) {
            return false;
        }
        let was_there = caller.first_entry(room.bridge) <= Some(room.from);
        let mut others = stays.seated.iter().filter(|(stay, other)| {
            let here = stay.bridge == room.bridge && stay.from <= room.from && stay.to > room.from;
            here && views[*other].party.is_real()
        });
        was_there
            && caller.first_entry(room.bridge).is_some()
            && others
                .all(|(_, other)| caller.contains(&views[*other]) || line.contains(&views[*other]))
    })
}

/// Returns `true` if lines of both groups were dialed to the same number and were up at the same
/// time.
fn is_to_one_number(a: &Group<'_, '_>, b: &Group<'_, '_>) -> bool {
    a.trunks.iter().any(|&i| {
        let number = number::dialed_digits(&a.legs, i);
        number.is_some()
            && b.trunks.iter().any(|&j| {
                let line = a.legs[i];
                let other = b.legs[j];
                number == number::dialed_digits(&b.legs, j)
                    && line.leg.first <= other.end
                    && other.leg.first <= line.end
            })
    })
}
