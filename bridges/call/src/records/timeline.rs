//! The timeline of a folded call. Records show no bridges and no ringing.

use super::plan::Channel as Known;
use super::record::Record;
use crate::resolve::Plan;
use crate::timeline::{
    Channel, ENTRIES_MAX, Moment, MomentKind, Role, TEXT_BYTES_MAX, Timeline, kept,
};
use crate::{EventTime, UniqueId, Way, clip};
use std::collections::BTreeMap;

/// Returns the timeline of one plan.
pub(super) fn timeline(channels: &[Known<'_>], plan: &Plan<&Record>) -> Timeline {
    let is = |i: usize| (plan.customers.contains(&i), channels[i].party.is_real());
    let (number, left_out) = kept(shown(channels, plan), is);
    let by_name = number.iter().map(|(&i, &it)| (channels[i].name, it));
    let by_name: BTreeMap<&str, u16> = by_name.collect();
    let mut talk = plan.talk.drawn(&number);
    talk.truncate(ENTRIES_MAX / 2);
    let room = ENTRIES_MAX / 2 / number.len().max(1);
    let drawn = number.keys().filter_map(|&i| {
        let role = channels[i].party.role(plan.customers.contains(&i));
        channel(&channels[i], role, &by_name, room)
    });
    Timeline {
        channels: drawn.collect(),
        bridges: Vec::new(),
        talk,
        left_out,
    }
}

/// Returns the customer's channels, those that talked with the customer, and those of the call's
/// own records.
fn shown(channels: &[Known<'_>], plan: &Plan<&Record>) -> Vec<usize> {
    let own = |name: &str| {
        let mut own = plan.own.iter();
        own.any(|record| record.channel == name || record.dest == name)
    };
    let shown = (0..channels.len()).filter(|i| {
        let known = &channels[*i];
        let talks = plan.talk.spans.iter().any(|span| span.2 == *i);
        let part = plan.customers.contains(i) || talks || own(known.name);
        part && known.records().next().is_some()
    });
    shown.collect()
}

fn channel(
    known: &Known<'_>,
    party: Role,
    by_name: &BTreeMap<&str, u16>,
    room: usize,
) -> Option<Channel> {
    let from = known.records().map(|record| record.start).min()?;
    let to = known.records().map(|record| record.end).max()?;
    let own = known.own.iter().map(|record| record.uniqueid.as_str());
    // A record has no unique id of its destination, so the name is used.
    let id = own.chain([known.name]).find_map(UniqueId::new)?;
    let (way, how) = if known.came_in() {
        (Way::CameIn, "its channel is in a record")
    } else {
        (Way::Dialed, "a record's destination")
    };
    Some(Channel {
        id,
        name: clip(known.name, TEXT_BYTES_MAX),
        party,
        way,
        how: how.to_owned(),
        from,
        to: to.max(from),
        moments: moments(known, to.max(from), by_name, room),
        stays: Vec::new(),
    })
}

fn moments(
    known: &Known<'_>,
    to: EventTime,
    by_name: &BTreeMap<&str, u16>,
    room: usize,
) -> Vec<Moment> {
    let moment = |at: EventTime, what: MomentKind| Moment { at, what };
    let dialed = known.reached.iter().map(|record| {
        let by = by_name.get(record.channel.as_str()).copied();
        let string = String::new();
        moment(record.start, MomentKind::Dialed { by, string })
    });
    let up = known.records().filter(|record| record.answered);
    let up = up.filter_map(|record| record.answer).min();
    let mut all: Vec<Moment> = dialed.collect();
    all.extend(up.map(|at| moment(at, MomentKind::Up)));
    all.sort_by(|a, b| (a.at, &a.what).cmp(&(b.at, &b.what)));
    all.dedup();
    all.truncate(room.saturating_sub(1));
    // The end of the channel's last record is its hangup, or the best estimate of it.
    all.push(moment(to, MomentKind::HungUp { cause: None }));
    all
}
