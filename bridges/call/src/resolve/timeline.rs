//! Creates a finished call's timeline from the same views as its values.

use super::plan::Plan;
use super::view::View;
use crate::facts::FactKind;
use crate::timeline::{
    Channel, ENTRIES_MAX, Moment, MomentKind, Stay, TEXT_BYTES_MAX, Timeline, fit_channels,
};
use crate::{ChannelState, Direction, EventTime, clip};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Events that follow the customer's hangup within this time, such as the agent's hangup, still
/// count as part of the call. Unless `--settle` is shorter, the timeline is the same whether the
/// call is emitted before or after the agent's channel ends.
const AFTERMATH: Duration = Duration::from_millis(300);

/// Returns the timeline for a plan.
pub(super) fn timeline(legs: &[&View<'_>], plan: &Plan) -> Timeline {
    let end = end(legs, plan);
    let mut shown = shown_legs(legs, plan);
    shown.retain(|&i| end.is_none_or(|end| legs[i].leg.first <= end));
    let (numbers, left_out) = fit_channels(shown, |i| {
        (plan.customers.contains(&i), legs[i].party.is_real())
    });
    let by_id: BTreeMap<&str, u16> = numbers
        .iter()
        .map(|(&i, &number)| (legs[i].leg.id.as_str(), number))
        .collect();
    let mut drawing = Drawing {
        bridges: bridges(legs, &numbers, end),
        room: ENTRIES_MAX,
        left_out,
        end,
    };
    let talk = drawing.keep_fitting(plan.talk.timeline_spans(&numbers));
    let mut channels = Vec::new();
    for &i in numbers.keys() {
        channels.push(drawing.channel(legs[i], plan.customers.contains(&i), &by_id));
    }
    Timeline {
        channels,
        bridges: drawing.bridges.into_iter().map(text).collect(),
        talk,
        left_out: drawing.left_out,
    }
}

/// Returns when the timeline ends, or `None` if it ends with the last channel because a customer's
/// channel is still up or there's no customer.
fn end(legs: &[&View<'_>], plan: &Plan) -> Option<EventTime> {
    let customers = plan.customers.iter().map(|&i| legs[i]);
    let is_internal = plan.direction == Direction::Internal;
    if is_internal || !customers.clone().all(|leg| leg.leg.is_over()) {
        return None;
    }
    let last = customers.map(|leg| leg.end).max()?;
    Some(last.plus(AFTERMATH))
}

/// Returns the call's own channels, along with those that shared a bridge with one of them.
fn shown_legs(legs: &[&View<'_>], plan: &Plan) -> Vec<usize> {
    let own: BTreeSet<usize> = plan.own.iter().chain(&plan.customers).copied().collect();
    (0..legs.len())
        .filter(|i| {
            own.contains(i)
                || own
                    .iter()
                    .any(|&other| were_together(legs[*i], legs[other]))
        })
        .collect()
}

/// Returns `true` if the two channels were in the same bridge at the same time.
fn were_together(a: &View<'_>, b: &View<'_>) -> bool {
    a.stays.iter().any(|stay| {
        b.stays.iter().any(|other| {
            other.bridge == stay.bridge && other.from < stay.to && stay.from < other.to
        })
    })
}

/// Returns these channels' bridges, in the order they were entered.
fn bridges<'a>(
    legs: &[&View<'a>],
    numbers: &BTreeMap<usize, u16>,
    end: Option<EventTime>,
) -> Vec<&'a str> {
    let mut entered: Vec<(EventTime, &str)> = numbers
        .keys()
        .flat_map(|&i| legs[i].stays.iter().chain(&legs[i].waits))
        .filter(|stay| end.is_none_or(|end| stay.from <= end))
        .map(|stay| (stay.from, stay.bridge))
        .collect();
    entered.sort_unstable();
    let mut known = BTreeSet::new();
    entered.retain(|&(_, bridge)| known.insert(bridge));
    entered.into_iter().map(|(_, bridge)| bridge).collect()
}

struct Drawing<'a> {
    bridges: Vec<&'a str>,
    room: usize,
    left_out: u32,
    /// Nothing after this time is shown.
    end: Option<EventTime>,
}

impl Drawing<'_> {
    /// Returns `true` if something that happened at this time is shown.
    fn shows(&self, at: EventTime) -> bool {
        self.end.is_none_or(|end| at <= end)
    }

    /// Returns when something about the channel ends in the timeline if it really ends at `at`. A
    /// channel that's still up continues beyond its last event.
    fn last_shown(&self, view: &View<'_>, at: EventTime) -> EventTime {
        match self.end {
            Some(end) if at >= view.end && !view.leg.is_over() => end,
            Some(end) => at.min(end),
            None => at,
        }
    }

    fn channel(
        &mut self,
        view: &View<'_>,
        is_customer: bool,
        by_id: &BTreeMap<&str, u16>,
    ) -> Channel {
        let mut all_moments = moments(view, by_id);
        all_moments.retain(|moment| self.shows(moment.at));
        // Keep the hangup even if other moments are dropped.
        let hangup = all_moments.pop_if(|moment| matches!(moment.what, MomentKind::HungUp { .. }));
        let mut moments = self.keep_fitting(all_moments);
        moments.extend(hangup);
        let mut stays = Vec::new();
        for stay in view.stays.iter().chain(&view.waits) {
            let bridge = self.bridges.iter().position(|&id| id == stay.bridge);
            if let Some(Ok(bridge)) = bridge.map(u16::try_from)
                && self.shows(stay.from)
            {
                stays.push(Stay {
                    from: stay.from,
                    to: self.last_shown(view, stay.to),
                    bridge,
                    holding: stay.holding,
                });
            }
        }
        stays.sort_unstable();
        Channel {
            id: view.leg.id.clone(),
            name: text(view.name),
            party: view.party.role(is_customer),
            way: view.way,
            how: view.way_by.1.to_owned(),
            from: view.leg.first,
            to: self.last_shown(view, view.end).max(view.leg.first),
            moments,
            stays: self.keep_fitting(stays),
        }
    }

    /// Keeps as many entries as there is room for, and counts the rest.
    fn keep_fitting<T>(&mut self, mut entries: Vec<T>) -> Vec<T> {
        let most = entries.len().min(self.room);
        self.room -= most;
        let over = u32::try_from(entries.len() - most).unwrap_or(u32::MAX);
        self.left_out = self.left_out.saturating_add(over);
        entries.truncate(most);
        entries
    }
}

/// Returns a channel's moments in chronological order, without duplicates from the two event
/// systems.
fn moments(view: &View<'_>, by_id: &BTreeMap<&str, u16>) -> Vec<Moment> {
    let moments = view.leg.facts.iter().filter_map(|fact| {
        let what = match &fact.what {
            FactKind::Dialed { by, string } => MomentKind::Dialed {
                by: by.as_ref().and_then(|id| by_id.get(id.as_str()).copied()),
                string: text(string),
            },
            FactKind::DialEnded { status } => MomentKind::DialEnded(text(status)),
            FactKind::State(ChannelState::Ringing) => MomentKind::Rings,
            FactKind::State(ChannelState::Up) => MomentKind::Up,
            _ => return None,
        };
        Some(Moment { at: fact.at, what })
    });
    let mut all: Vec<Moment> = moments.collect();
    all.sort_by(|a, b| (a.at, &a.what).cmp(&(b.at, &b.what)));
    all.dedup();
    // If the channel is reported as ringing or up several times, keep only the first report.
    let mut rang = false;
    let mut up = false;
    all.retain(|moment| match moment.what {
        MomentKind::Rings => !std::mem::replace(&mut rang, true),
        MomentKind::Up => !std::mem::replace(&mut up, true),
        MomentKind::Dialed { .. } | MomentKind::DialEnded(_) | MomentKind::HungUp { .. } => true,
    });
    // If a hangup was received, it's the end of the view.
    if view.leg.is_over() {
        let mut ends = view.leg.facts.iter().filter(|fact| fact.what.is_end());
        let cause = ends.find_map(|fact| fact.cause);
        all.push(Moment {
            at: view.end,
            what: MomentKind::HungUp { cause },
        });
    }
    all
}

fn text(text: &str) -> String {
    clip(text, TEXT_BYTES_MAX)
}
