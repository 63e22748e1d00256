//! Determines which channels could hear each other and when, in the form of bridge stays.
//!
//! If a record of two channels was answered, they're in a bridge for its billed seconds. A record
//! of a dialing operation's other side (`AppDial`) is a consultation, during which its two channels
//! can only hear each other. Records of the same conference room put all their channels into the
//! room's bridge, so they may belong to several calls.

use super::channels::{Channel, Channels};
use super::record::Record;
use crate::EventTime;
use crate::resolve::Sets;
use std::collections::{BTreeMap, BTreeSet};

/// A channel's stay in a bridge.
#[derive(Clone, Debug)]
pub(super) struct Stay<'a> {
    pub(super) channel: &'a str,
    pub(super) bridge: String,
    pub(super) is_room: bool,
    pub(super) from: EventTime,
    pub(super) to: EventTime,
}

/// Two channels (as indices) connected by a record.
#[derive(Clone, Copy)]
struct Line {
    ends: [usize; 2],
    from: EventTime,
    to: EventTime,
    consultation: bool,
}

/// Returns these channels' bridge stays.
pub(super) fn stays<'a>(channels: &Channels<'a>) -> Vec<Stay<'a>> {
    let mut stays = in_rooms(channels);
    let lines = lines(channels);
    let mut times: Vec<EventTime> = lines.iter().flat_map(|line| [line.from, line.to]).collect();
    times.sort_unstable();
    times.dedup();
    // Each channel's last stay, to be extended for as long as the bridge stays the same.
    let mut latest: BTreeMap<usize, usize> = BTreeMap::new();
    for span in times.windows(2) {
        for (channel, line) in bridges_between(&lines, channels.all.len(), span[0], span[1]) {
            let [a, b] = lines[line].ends.map(|end| &channels.all[end].id);
            let bridge = format!("{a} + {b}");
            let last = latest.get(&channel).map(|&place| &mut stays[place]);
            match last.filter(|last| last.to == span[0] && last.bridge == bridge) {
                Some(last) => last.to = span[1],
                None => {
                    latest.insert(channel, stays.len());
                    stays.push(Stay {
                        channel: channels.all[channel].name,
                        bridge,
                        is_room: false,
                        from: span[0],
                        to: span[1],
                    });
                }
            }
        }
    }
    stays
}

/// Returns the line that each connected channel's bridge is named after, which is the earliest of
/// those connecting it from `from` to `to`.
fn bridges_between(
    lines: &[Line],
    channels: usize,
    from: EventTime,
    to: EventTime,
) -> BTreeMap<usize, usize> {
    let there = |line: &Line| line.from <= from && line.to >= to;
    let consults = lines.iter().filter(|line| line.consultation && there(line));
    let consulting: BTreeSet<usize> = consults.flat_map(|line| line.ends).collect();
    let mut active: Vec<usize> = (0..lines.len())
        .filter(|&i| {
            let line = &lines[i];
            let is_away = line.ends.iter().any(|end| consulting.contains(end));
            there(line) && (line.consultation || !is_away)
        })
        .collect();
    active.sort_by_key(|&i| (lines[i].from, i));
    let mut sets = Sets::new(channels);
    for &i in &active {
        let [a, b] = lines[i].ends;
        sets.join(a, b);
    }
    let mut named: BTreeMap<usize, usize> = BTreeMap::new();
    let mut bridges = BTreeMap::new();
    for &i in &active {
        let first = *named.entry(sets.find(lines[i].ends[0])).or_insert(i);
        bridges.extend(lines[i].ends.map(|end| (end, first)));
    }
    bridges
}

/// Returns the lines of all records outside conference rooms. A connection of less than a second is
/// ignored if either channel also has a longer one, since transfers leave such records too.
fn lines(channels: &Channels<'_>) -> Vec<Line> {
    let records = channels
        .records
        .iter()
        .filter(|record| record.room().is_none());
    let mut lines = Vec::new();
    for record in records.clone() {
        lines.extend(record.talk().and_then(|span| line(record, span, channels)));
    }
    let longer: BTreeSet<usize> = lines.iter().flat_map(|line: &Line| line.ends).collect();
    for record in records {
        let brief = record.brief_talk();
        let line = brief.and_then(|span| line(record, span, channels));
        lines.extend(line.filter(|line| !line.ends.iter().any(|end| longer.contains(end))));
    }
    lines
}

/// Returns the connection between a record's two channels within this span, if there is one. It
/// can't start before the destination came in or answered (according to the destination's own first
/// record).
fn line(
    record: &Record,
    (billed_from, to): (EventTime, EventTime),
    channels: &Channels<'_>,
) -> Option<Line> {
    let channel = channels.find(&record.channel)?;
    let dest = channels.find(&record.dest)?;
    let own = channels.all[dest].own.iter();
    let births = own.filter(|own| own.is_birth() && own.start < record.end);
    let answered = births.filter_map(|own| own.answer).min();
    let from = billed_from
        .max(answered.unwrap_or(billed_from))
        .max(channels.all[dest].arrival().unwrap_or(billed_from));
    if from >= to {
        return None;
    }
    Some(Line {
        ends: [channel, dest],
        from,
        to,
        consultation: record.is_dialed_side(),
    })
}

/// Returns the stays in conference rooms.
///
/// If a record has a destination, both channels are known to be in the room from the time the
/// destination entered it. The record's own channel may also have entered after the record starts,
/// but no later than that.
fn in_rooms<'a>(channels: &Channels<'a>) -> Vec<Stay<'a>> {
    let mut stays: Vec<Stay<'a>> = Vec::new();
    for record in &channels.records {
        let Some(room) = record.room().filter(|_| record.answered) else {
            continue;
        };
        let dest = channels.get(&record.dest);
        let own = dest.into_iter().flat_map(|dest| &dest.own);
        let entries = own.filter(|own| own.room() == Some(room));
        let entered = entries.map(|own| own.billed_from).min();
        let came = dest.and_then(Channel::arrival);
        let from = [entered, came].into_iter().flatten();
        let from = from.fold(record.billed_from, EventTime::max);
        let names = [Some(record.channel.as_str()), dest.map(|dest| dest.name)];
        for channel in names.into_iter().flatten() {
            stays.push(Stay {
                channel,
                bridge: room.to_owned(),
                is_room: true,
                from,
                to: record.end,
            });
        }
    }
    stays.retain(|stay| stay.from < stay.to);
    merged(stays)
}

/// Merges overlapping or adjacent stays of the same channel in the same room.
fn merged(mut stays: Vec<Stay<'_>>) -> Vec<Stay<'_>> {
    stays.sort_by(|a, b| (a.channel, &a.bridge, a.from).cmp(&(b.channel, &b.bridge, b.from)));
    let mut all: Vec<Stay<'_>> = Vec::new();
    for stay in stays {
        match all.last_mut() {
            Some(last)
                if last.channel == stay.channel
                    && last.bridge == stay.bridge
                    && last.to >= stay.from =>
            {
                last.to = last.to.max(stay.to);
            }
            Some(_) | None => all.push(stay),
        }
    }
    all
}
