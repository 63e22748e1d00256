//! The timeline of a folded call: what its records tell, so no bridges and no ringing.

use super::parties::Channel as Known;
use super::plan::CallPlan;
use super::record::Record;
use crate::facts::fact::clip;
use crate::timeline::{
    CHANNELS_MAX, Channel, ENTRIES_MAX, Moment, MomentKind, Role, TEXT_BYTES_MAX, TalkSpan,
    Timeline, Way,
};
use crate::units::{EventTime, UniqueId};
use std::collections::BTreeMap;

/// The timeline of one plan.
pub(super) fn timeline(channels: &[Known<'_>], plan: &CallPlan<'_>) -> Timeline {
    let (kept, left_out) = kept(channels, plan);
    let number: BTreeMap<usize, u16> = kept.iter().copied().zip(0..).collect();
    let by_name: BTreeMap<&str, u16> = number
        .iter()
        .map(|(&i, &number)| (channels[i].name, number))
        .collect();
    let talk = plan.talk.spans.iter().filter_map(|&(from, to, i)| {
        let with = *number.get(&i)?;
        Some(TalkSpan { from, to, with })
    });
    let mut talk: Vec<TalkSpan> = talk.collect();
    talk.sort_unstable();
    talk.truncate(ENTRIES_MAX / 2);
    let room = ENTRIES_MAX / 2 / kept.len().max(1);
    let drawn = kept.iter().filter_map(|&i| {
        let role = role(&channels[i], plan.customers.contains(&i));
        channel(&channels[i], role, &by_name, room)
    });
    Timeline {
        channels: drawn.collect(),
        bridges: Vec::new(),
        talk,
        left_out,
    }
}

/// The customer's channels, whoever talked with the customer, and those of the call's own records,
/// as many as there is room for.
fn kept(channels: &[Known<'_>], plan: &CallPlan<'_>) -> (Vec<usize>, u32) {
    let own = |name: &str| {
        let mut own = plan.own.iter();
        own.any(|record| record.channel == name || record.dest == name)
    };
    let all = (0..channels.len()).filter(|i| {
        let known = &channels[*i];
        let talks = plan.talk.spans.iter().any(|span| span.2 == *i);
        let part = plan.customers.contains(i) || talks || own(known.name);
        part && known.records().next().is_some()
    });
    let mut kept: Vec<usize> = all.collect();
    let shown = kept.len();
    kept.sort_by_key(|i| {
        (
            !plan.customers.contains(i),
            !channels[*i].party.is_real(),
            *i,
        )
    });
    kept.truncate(CHANNELS_MAX);
    kept.sort_unstable();
    let left_out = u32::try_from(shown - kept.len()).unwrap_or(u32::MAX);
    (kept, left_out)
}

fn role(known: &Known<'_>, is_customer: bool) -> Role {
    let trunk = known
        .party
        .endpoint()
        .map(|endpoint| endpoint.trunk().to_owned());
    match (trunk, known.party.extension()) {
        (trunk, _) if is_customer => Role::Customer(trunk),
        (Some(trunk), _) => Role::Trunk(trunk),
        (None, Some(extension)) => Role::Extension(text(extension.as_str())),
        (None, None) => Role::Plumbing,
    }
}

fn channel(
    known: &Known<'_>,
    party: Role,
    by_name: &BTreeMap<&str, u16>,
    room: usize,
) -> Option<Channel> {
    let from = known.records().map(|record| record.start).min()?;
    let to = known.records().map(|record| record.end).max()?;
    let own = known.told.iter().map(|record| record.uniqueid.as_str());
    // A destination has no unique id in a record: its name has to serve.
    let id = own.chain([known.name]).find_map(UniqueId::new)?;
    let (way, how) = if known.came_in() {
        (Way::CameIn, "its channel is in a record")
    } else {
        (Way::Dialled, "a record's destination")
    };
    Some(Channel {
        id,
        name: text(known.name),
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
    let mut all: Vec<Moment> = Vec::new();
    for record in &known.reached {
        let by = by_name.get(record.channel.as_str()).copied();
        let string = String::new();
        all.push(moment(record.start, MomentKind::Dialled { by, string }));
    }
    let mut up = known.records().filter_map(answer);
    let first = up.next().map(|first| up.fold(first, EventTime::min));
    all.extend(first.map(|at| moment(at, MomentKind::Up)));
    all.sort_by(|a, b| (a.at, &a.what).cmp(&(b.at, &b.what)));
    all.dedup();
    all.truncate(room.saturating_sub(1));
    // The end of its last record is its hang-up, or as near to it as can be known.
    all.push(moment(to, MomentKind::HungUp { cause: None }));
    all
}

fn answer(record: &Record) -> Option<EventTime> {
    record.answer.filter(|_| record.answered)
}

fn text(text: &str) -> String {
    clip(text, TEXT_BYTES_MAX)
}
