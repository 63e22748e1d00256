//! Gives names to bridges that the source doesn't identify. CEL without `Extra` reports that a
//! channel entered or left a bridge, but not which one.
//!
//! If the source writes `Peer`, the bridge is identified by the channels that are already in it.
//! Otherwise, there are only the times to go by: two channels that enter within a second of each
//! other meet, and one that enters later takes the place that another one left next to a waiting
//! channel. Before Asterisk 12, only the dialing channel reports its bridge, so without `Peer`, the
//! other side is the channel that answered last.

use crate::age::by_age;
use crate::facts::{Fact, FactKind, Leg, Passage};
use crate::trunk;
use crate::{ChannelState, EventTime, Origin, UNNAMED, WHO_ANSWERED};
use std::collections::BTreeSet;
use std::time::Duration;

/// Both sides of a new bridge enter it within this time of each other.
const TOGETHER: Duration = Duration::from_secs(1);

/// A channel's entry into or exit from an unnamed bridge.
struct BridgeMove<'a> {
    at: EventTime,
    leg: usize,
    fact: usize,
    enters: bool,
    /// Names of the other channels in the bridge, or just [`WHO_ANSWERED`].
    peers: Vec<&'a str>,
}

impl BridgeMove<'_> {
    /// Returns `true` if both sides of a bridge take this step and the event identifies neither of
    /// them.
    fn is_of_both(&self) -> bool {
        self.peers == [WHO_ANSWERED]
    }
}

/// A bridge, along with the channels in it.
#[derive(Default)]
struct Group<'a> {
    members: BTreeSet<usize>,
    /// Channels listed in `Peer` whose entry hasn't been reported yet.
    expected: BTreeSet<&'a str>,
    /// Time of the last entry or exit.
    changed: Option<EventTime>,
}

/// Returns the channels with names for all their bridges, or `None` if they all have names already.
pub(super) fn name_bridges(legs: &[&Leg]) -> Option<Vec<Leg>> {
    let steps = steps(legs);
    if steps.is_empty() {
        return None;
    }
    let mut own: Vec<Leg> = legs.iter().map(|&leg| leg.clone()).collect();
    // AMI's events identify their bridges, and CEL reports the same ones.
    let mut facts = legs.iter().flat_map(|leg| &leg.facts);
    let is_named_elsewhere = facts
        .any(|fact| fact.origin == Origin::Channel && matches!(fact.what, FactKind::Enter { .. }));
    let (groups, partners) = if is_named_elsewhere {
        (vec![None; steps.len()], Vec::new())
    } else {
        Meeting::new(legs, &steps).walk(&steps)
    };
    for (leg, fact) in partners {
        own[leg].facts.push(fact);
    }
    for (step, group) in steps.iter().zip(groups) {
        let what = &mut own[step.leg].facts[step.fact].what;
        match (what, group) {
            (FactKind::Enter { bridge, .. } | FactKind::Leave { bridge, .. }, Some(group)) => {
                *bridge = format!("{UNNAMED}{group}");
            }
            // An exit without its entry shows that the entry was lost.
            (FactKind::Leave { .. }, None) if !is_named_elsewhere => {}
            // Without its bridge, the fact carries no information.
            (what, _) => *what = FactKind::App,
        }
    }
    Some(own)
}

/// Returns all entries and exits that don't identify the bridge, in chronological order.
fn steps<'a>(legs: &[&'a Leg]) -> Vec<BridgeMove<'a>> {
    let mut steps = Vec::new();
    for (i, leg) in legs.iter().enumerate() {
        for (place, fact) in leg.facts.iter().enumerate() {
            let Some(Passage { bridge, enters, .. }) = fact.what.passage() else {
                continue;
            };
            let peers = if bridge.is_empty() {
                ""
            } else if let Some(peers) = bridge.strip_prefix(UNNAMED) {
                peers
            } else {
                continue;
            };
            steps.push(BridgeMove {
                at: fact.at,
                leg: i,
                fact: place,
                enters,
                peers: peers.split(',').filter(|peer| !peer.is_empty()).collect(),
            });
        }
    }
    // The sort is stable, so that a channel leaves a bridge before entering the next one.
    steps.sort_by_key(|step| step.at);
    steps
}

struct Meeting<'l, 'a> {
    legs: &'l [&'a Leg],
    /// Rank of each channel by age, with 0 for the oldest.
    ranks: Vec<usize>,
    /// Whether the source writes `Peer`.
    has_peers: bool,
    groups: Vec<Group<'a>>,
    /// The bridge that each channel is in.
    sits: Vec<Option<usize>>,
    /// The bridge that each channel left last.
    left: Vec<Option<usize>>,
    /// Entries and exits that only the other side reported.
    partners: Vec<(usize, Fact)>,
}

impl<'l, 'a> Meeting<'l, 'a> {
    fn new(legs: &'l [&'a Leg], steps: &[BridgeMove<'a>]) -> Self {
        let ages: Vec<_> = legs.iter().map(|leg| leg.age()).collect();
        let mut ranks = vec![0; legs.len()];
        for (rank, leg) in by_age(&ages).into_iter().enumerate() {
            ranks[leg] = rank;
        }
        Self {
            legs,
            ranks,
            has_peers: steps
                .iter()
                .any(|step| !step.peers.is_empty() && !step.is_of_both()),
            groups: Vec::new(),
            sits: vec![None; legs.len()],
            left: vec![None; legs.len()],
            partners: Vec::new(),
        }
    }

    /// Returns each step's bridge, along with the other sides' steps. The bridge is `None` if a
    /// channel leaves one that it hasn't entered.
    fn walk(mut self, steps: &[BridgeMove<'a>]) -> (Vec<Option<usize>>, Vec<(usize, Fact)>) {
        let mut bridges = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let group = if step.is_of_both() {
                self.apply_to_both(step)
            } else if step.enters {
                self.leave(step);
                let found = if self.has_peers {
                    self.find_by_peers(step)
                } else {
                    self.find_by_time(step, &steps[at + 1..])
                };
                Some(self.enter(step, found))
            } else {
                self.leave(step)
            };
            bridges.push(group);
        }
        (bridges, self.partners)
    }

    /// Applies a step to both sides of a bridge, and returns the bridge.
    fn apply_to_both(&mut self, step: &BridgeMove<'a>) -> Option<usize> {
        if !step.enters {
            let group = self.leave(step)?;
            for leg in self.groups[group].members.clone() {
                self.follow(step, leg, None);
            }
            return Some(group);
        }
        let partner = self.answered_last(step)?;
        self.leave(step);
        let group = self.enter(step, None);
        self.follow(step, partner, Some(group));
        Some(group)
    }

    /// Takes the same step for the other side, `leg`, and adds a fact for it. The channel enters
    /// the bridge `into`, or leaves its current bridge if `into` is `None`.
    fn follow(&mut self, step: &BridgeMove<'a>, leg: usize, into: Option<usize>) {
        let its = BridgeMove {
            leg,
            peers: Vec::new(),
            ..*step
        };
        let left = self.leave(&its);
        let group = into.map(|group| self.enter(&its, Some(group))).or(left);
        let Some(group) = group else { return };
        let what = FactKind::enter_or_leave(format!("{UNNAMED}{group}"), step.enters, false);
        self.partners
            .push((leg, Fact::new(step.at, Origin::Cel, what)));
    }

    /// Returns the channel that was the last to answer before the step, out of those that are up
    /// but not in a bridge.
    ///
    /// A channel created after the step's own is preferred, because in files without fractional
    /// seconds, several channels answer at the same time. The other half of the same Local channel
    /// is never returned.
    fn answered_last(&self, step: &BridgeMove<'a>) -> Option<usize> {
        let mut last = None;
        for (i, leg) in self.legs.iter().enumerate() {
            if i == step.leg || self.sits[i].is_some() || self.are_halves(i, step.leg) {
                continue;
            }
            let answered = leg
                .facts
                .iter()
                .filter(|fact| fact.what == FactKind::State(ChannelState::Up))
                .map(|fact| fact.at)
                .filter(|at| *at <= step.at)
                .max();
            let Some(at) = answered else { continue };
            if leg.ended().is_some_and(|ended| ended < step.at) {
                continue;
            }
            let is_younger = self.ranks[i] > self.ranks[step.leg];
            last = last.max(Some((is_younger, at, self.ranks[i], i)));
        }
        last.map(|(.., leg)| leg)
    }

    /// Returns `true` if the two channels are halves of the same Local channel.
    fn are_halves(&self, a: usize, b: usize) -> bool {
        let pair = trunk::local_pair(self.legs[a].name());
        pair.is_some() && pair == trunk::local_pair(self.legs[b].name())
    }

    fn leave(&mut self, step: &BridgeMove<'a>) -> Option<usize> {
        let group = self.sits[step.leg].take()?;
        self.left[step.leg] = Some(group);
        let there = &mut self.groups[group];
        there.members.remove(&step.leg);
        there.changed = Some(step.at);
        Some(group)
    }

    fn enter(&mut self, step: &BridgeMove<'a>, found: Option<usize>) -> usize {
        let group = found.unwrap_or(self.groups.len());
        if found.is_none() {
            self.groups.push(Group::default());
        }
        let there = &mut self.groups[group];
        there.members.insert(step.leg);
        there.changed = Some(step.at);
        there.expected.extend(&step.peers);
        for &member in &there.members {
            there.expected.remove(self.legs[member].name());
        }
        self.sits[step.leg] = Some(group);
        group
    }

    /// Returns the bridge that contains one of the listed channels or, failing that, the one in
    /// which this channel is expected.
    fn find_by_peers(&self, step: &BridgeMove<'a>) -> Option<usize> {
        for (leg, group) in self.legs.iter().zip(&self.sits) {
            let mut names = leg.names.iter();
            if group.is_some() && names.any(|name| step.peers.contains(&name.text.as_str())) {
                return *group;
            }
        }
        let name = self.legs[step.leg].name();
        self.groups
            .iter()
            .position(|group| group.expected.contains(name) && !group.members.is_empty())
    }

    /// Returns the bridge in which a single channel is waiting, or the one that changed last if
    /// there are several. A bridge that hasn't changed within `TOGETHER` is only considered if no
    /// other channel enters within that time.
    fn find_by_time(&self, step: &BridgeMove<'a>, later: &[BridgeMove<'a>]) -> Option<usize> {
        let alone: Vec<usize> = (0..self.groups.len())
            .filter(|&group| self.one_waits(group, step.leg))
            .collect();
        let recent = alone.iter().copied().filter(|&group| {
            let changed = self.groups[group].changed;
            changed.is_some_and(|changed| step.at.since(changed) <= TOGETHER)
        });
        if let Some(group) = self.last_changed(recent) {
            return Some(group);
        }
        let mut later = later.iter();
        let next = later.find(|next| next.enters && next.leg != step.leg);
        if next.is_some_and(|next| next.at.since(step.at) <= TOGETHER) {
            return None;
        }
        self.last_changed(alone.into_iter())
    }

    /// Returns `true` if a single channel is waiting in the bridge, possibly for this other
    /// channel.
    fn one_waits(&self, group: usize, leg: usize) -> bool {
        let members = &self.groups[group].members;
        members.len() == 1
            && self.left[leg] != Some(group)
            && !members.iter().any(|&member| self.are_halves(leg, member))
    }

    fn last_changed(&self, groups: impl Iterator<Item = usize>) -> Option<usize> {
        groups.max_by_key(|&group| self.groups[group].changed)
    }
}
