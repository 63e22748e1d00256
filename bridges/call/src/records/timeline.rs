//! The timeline of a folded call. Records show no bridges and no ringing.

use super::plan::Channel as Known;
use super::record::Record;
use crate::resolve::Plan;
use crate::timeline::{
    Channel, ENTRIES_MAX, Moment, MomentKind, Role, TEXT_BYTES_MAX, Timeline, fit_channels,
};
use crate::{EventTime, UniqueId, Way, clip};
use std::collections::BTreeMap;

/// Returns the timeline of one plan.
pub(super) fn timeline(channels: &[Known<'_>], plan: &Plan<&Record>) -> Timeline {
    let (numbers, left_out) = fit_channels(shown_channels(channels, plan), |i| {
        (plan.customers.contains(&i), channels[i].party.is_real())
    });
    let mut by_name = BTreeMap::new();
    for (&i, &number) in &numbers {
        by_name.insert(channels[i].name, number);
    }
    let mut talk = plan.talk.timeline_spans(&numbers);
    talk.truncate(ENTRIES_MAX / 2);
    let room = ENTRIES_MAX / 2 / numbers.len().max(1);
    let drawn = numbers.keys().filter_map(|&i| {
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

/// Returns the indices of the channels to draw: the customer's, those that talked with the
/// customer, and those that the call's own records name.
fn shown_channels(channels: &[Known<'_>], plan: &Plan<&Record>) -> Vec<usize> {
    let mut shown = Vec::new();
    for (i, channel) in channels.iter().enumerate() {
        let talks = plan.talk.spans.iter().any(|span| span.2 == i);
        let is_in_own_records = plan
            .own
            .iter()
            .any(|record| record.channel == channel.name || record.dest == channel.name);
        if (plan.customers.contains(&i) || talks || is_in_own_records)
            && channel.records().next().is_some()
        {
            shown.push(i);
        }
    }
    shown
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
    // A record has no unique id of its destination channel, so the channel's name is used.
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
    let mut moments = Vec::new();
    for record in &known.reached {
        let what = MomentKind::Dialed {
            by: by_name.get(record.channel.as_str()).copied(),
            string: String::new(),
        };
        moments.push(Moment {
            at: record.start,
            what,
        });
    }
    let answered = known.records().filter(|record| record.answered);
    if let Some(at) = answered.filter_map(|record| record.answer).min() {
        let what = MomentKind::Up;
        moments.push(Moment { at, what });
    }
    moments.sort_by(|a, b| (a.at, &a.what).cmp(&(b.at, &b.what)));
    moments.dedup();
    moments.truncate(room.saturating_sub(1));
    // The end of the channel's last record is the hangup, or the best estimate of the hangup.
    moments.push(Moment {
        at: to,
        what: MomentKind::HungUp { cause: None },
    });
    moments
}
