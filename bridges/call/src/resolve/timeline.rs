//! Creates the timeline of a finished call, from the same views as its values.

use super::plan::Plan;
use super::view::View;
use crate::facts::{FactKind, Note};
use crate::timeline::{
    Channel, ENTRIES_MAX, Moment, MomentKind, Stay, TEXT_BYTES_MAX, Timeline, kept,
};
use crate::{ChannelState, clip};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the timeline of one plan.
pub(super) fn timeline(legs: &[&View<'_>], plan: &Plan) -> Timeline {
    let is = |i: usize| (plan.customers.contains(&i), legs[i].party.is_real());
    let (number, left_out) = kept(shown(legs, plan), is);
    let by_id = number.iter().map(|(&i, &it)| (legs[i].leg.id.as_str(), it));
    let by_id: BTreeMap<&str, u16> = by_id.collect();
    let mut drawing = Drawing {
        bridges: bridges(legs, &number),
        room: ENTRIES_MAX,
        left_out,
    };
    let talk = drawing.fitting(plan.talk.drawn(&number));
    let drawn = |&leg: &usize| drawing.channel(legs[leg], plan.customers.contains(&leg), &by_id);
    let channels = number.keys().map(drawn).collect();
    let bridges = std::mem::take(&mut drawing.bridges);
    Timeline {
        channels,
        bridges: bridges.into_iter().map(text).collect(),
        talk,
        left_out: drawing.left_out,
    }
}

/// Returns the call's own channels, and those that shared a bridge with one of them.
fn shown(legs: &[&View<'_>], plan: &Plan) -> Vec<usize> {
    let own: BTreeSet<usize> = plan.own.iter().chain(&plan.customers).copied().collect();
    let all_stays = |i: usize| legs[i].stays.iter();
    let met = |i: usize| {
        all_stays(i).any(|stay| {
            let others = own.iter().flat_map(|&i| all_stays(i));
            let mut here = others.filter(|other| other.bridge == stay.bridge);
            here.any(|other| other.from < stay.to && stay.from < other.to)
        })
    };
    (0..legs.len())
        .filter(|&i| own.contains(&i) || met(i))
        .collect()
}

/// Returns the bridges of these channels, in the order in which they were entered.
fn bridges<'a>(legs: &[&View<'a>], number: &BTreeMap<usize, u16>) -> Vec<&'a str> {
    let all = |&i: &usize| legs[i].stays.iter().chain(&legs[i].waits);
    let stays = number.keys().flat_map(all);
    let mut entered: Vec<_> = stays.map(|stay| (stay.from, stay.bridge)).collect();
    entered.sort_unstable();
    let mut known = BTreeSet::new();
    entered.retain(|&(_, bridge)| known.insert(bridge));
    entered.into_iter().map(|(_, bridge)| bridge).collect()
}

struct Drawing<'a> {
    bridges: Vec<&'a str>,
    room: usize,
    left_out: u32,
}

impl Drawing<'_> {
    fn channel(
        &mut self,
        view: &View<'_>,
        is_customer: bool,
        by_id: &BTreeMap<&str, u16>,
    ) -> Channel {
        let mut moments = moments(view, by_id);
        // Keep the hangup even if other moments are dropped.
        let ends = moments.pop_if(|moment| matches!(moment.what, MomentKind::HungUp { .. }));
        let mut moments = self.fitting(moments);
        moments.extend(ends);
        let stays = view.stays.iter().chain(&view.waits).filter_map(|stay| {
            let bridge = self.bridges.iter().position(|&id| id == stay.bridge)?;
            Some(Stay {
                from: stay.from,
                to: stay.to,
                bridge: u16::try_from(bridge).ok()?,
                holding: stay.holding,
            })
        });
        let mut stays: Vec<Stay> = stays.collect();
        stays.sort_unstable();
        Channel {
            id: view.leg.id.clone(),
            name: text(view.name),
            party: view.party.role(is_customer),
            way: view.way,
            how: view.way_by.1.to_owned(),
            from: view.leg.first,
            to: view.end.max(view.leg.first),
            moments,
            stays: self.fitting(stays),
        }
    }

    /// Keeps as many entries as there is room for, and counts the rest.
    fn fitting<T>(&mut self, mut entries: Vec<T>) -> Vec<T> {
        let most = entries.len().min(self.room);
        self.room -= most;
        let over = u32::try_from(entries.len() - most).unwrap_or(u32::MAX);
        self.left_out = self.left_out.saturating_add(over);
        entries.truncate(most);
        entries
    }
}

/// Returns the moments of a channel by time, each once, even if both event systems report it.
fn moments(view: &View<'_>, by_id: &BTreeMap<&str, u16>) -> Vec<Moment> {
    let moments = view.leg.facts.iter().filter_map(|fact| {
        let what = match &fact.what {
            FactKind::Dialed { by, string } => MomentKind::Dialed {
                by: by.as_ref().and_then(|id| by_id.get(id.as_str()).copied()),
                string: text(string),
            },
            FactKind::DialEnded => match &fact.note {
                Some(Note::Status(status)) => MomentKind::DialEnded(text(status)),
                Some(Note::Cause(_)) | None => MomentKind::DialEnded(String::new()),
            },
            FactKind::State(ChannelState::Ringing) => MomentKind::Rings,
            FactKind::State(ChannelState::Up) => MomentKind::Up,
            _ => return None,
        };
        Some(Moment { at: fact.at, what })
    });
    let mut all: Vec<Moment> = moments.collect();
    all.sort_by(|a, b| (a.at, &a.what).cmp(&(b.at, &b.what)));
    all.dedup();
    // Keep only the first of several reports that the channel rings, or is up.
    let (mut rang, mut up) = (false, false);
    all.retain(|moment| match moment.what {
        MomentKind::Rings => !std::mem::replace(&mut rang, true),
        MomentKind::Up => !std::mem::replace(&mut up, true),
        MomentKind::Dialed { .. } | MomentKind::DialEnded(_) | MomentKind::HungUp { .. } => true,
    });
    // The end of the view is the hangup, if one was received.
    let ends = view.leg.facts.iter().filter(|fact| fact.what.is_end());
    let cause = ends.clone().find_map(|fact| match fact.note {
        Some(Note::Cause(cause)) => Some(cause),
        Some(Note::Status(_)) | None => None,
    });
    let (at, what) = (view.end, MomentKind::HungUp { cause });
    all.extend(ends.clone().next().map(|_| Moment { at, what }));
    all
}

fn text(text: &str) -> String {
    clip(text, TEXT_BYTES_MAX)
}
