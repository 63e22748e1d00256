//! When the customer was connected with another real party, and with whom, as far as records tell.
//!
//! An answered record of two channels connects them for its billed seconds; the halves of a Local
//! channel are always connected. A record of the other side of a dialling (`AppDial`) is a
//! consultation: its two channels hear each other, and nobody else meanwhile.

use super::parties::Channel;
use super::record::Record;
use crate::resolve::Sets;
use crate::trunk;
use crate::units::EventTime;
use std::time::Duration;

/// How many of the latest spans may be the one that goes on.
const SPANS_LOOKED_AT: usize = 256;

/// The customer's connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Talk {
    pub(super) total: Duration,
    /// When that began first and ended last, and the channel connected first.
    pub(super) first: Option<(EventTime, usize)>,
    pub(super) last: Option<EventTime>,
    /// Each time somebody became connected with the customer: when, and which channel.
    pub(super) began: Vec<(EventTime, usize)>,
    /// From when until when which channel was connected with the customer.
    pub(super) spans: Vec<(EventTime, EventTime, usize)>,
}

impl Talk {
    pub(super) fn is_answer(&self) -> bool {
        self.total >= crate::resolve::ANSWERED_FROM
    }

    /// These channels are connected with the customer in this span.
    fn connect(&mut self, from: EventTime, to: EventTime, with: &[usize]) {
        for &channel in with {
            let mut known = self.spans.iter_mut().rev().take(SPANS_LOOKED_AT);
            match known.find(|span| span.2 == channel && span.1 == from) {
                Some(span) => span.1 = to,
                None => self.spans.push((from, to, channel)),
            }
        }
    }
}

/// Two channels that heard each other.
#[derive(Clone, Copy)]
struct Line {
    ends: [usize; 2],
    from: EventTime,
    to: EventTime,
    consultation: bool,
}

/// The connections of the customer's channels, given as indices.
pub(super) fn talk(records: &[&Record], channels: &[Channel<'_>], customers: &[usize]) -> Talk {
    let lines: Vec<Line> = records.iter().filter_map(|it| line(it, channels)).collect();
    let mut times: Vec<EventTime> = lines.iter().flat_map(|line| [line.from, line.to]).collect();
    times.sort_unstable();
    times.dedup();
    let pairs = local_pairs(channels);
    let mut talk = Talk::default();
    let mut before: Vec<usize> = Vec::new();
    for span in times.windows(2) {
        let (from, to) = (span[0], span[1]);
        let there = |line: &&Line| line.from <= from && line.to >= to;
        let there: Vec<Line> = lines.iter().filter(there).copied().collect();
        let with = connected(channels, customers, &there, &pairs);
        if let Some(&first) = with.first() {
            talk.total += to.since(from);
            talk.first = talk.first.or(Some((from, first)));
            talk.last = Some(to);
        }
        talk.connect(from, to, &with);
        let new = with.iter().filter(|channel| !before.contains(channel));
        talk.began.extend(new.map(|&channel| (from, channel)));
        before = with;
    }
    talk
}

/// What a record connects: not before its destination was answered itself.
fn line(record: &Record, channels: &[Channel<'_>]) -> Option<Line> {
    let (from, to) = record.talk()?;
    let at = |name: &str| channels.iter().position(|channel| channel.name == name);
    let (a, b) = (at(&record.channel)?, at(&record.dest)?);
    let from = channels[b].answered_at().map_or(from, |at| from.max(at));
    let from = entered(&channels[b], record).map_or(from, |at| from.max(at));
    (from < to).then_some(Line {
        ends: [a, b],
        from,
        to,
        consultation: record.is_dialled_side(),
    })
}

/// When the destination entered the conference that the record is of, by its own record.
fn entered(dest: &Channel<'_>, record: &Record) -> Option<EventTime> {
    let conference = ["ConfBridge", "MeetMe", "Conference"];
    if !conference
        .iter()
        .any(|app| app.eq_ignore_ascii_case(&record.app))
    {
        return None;
    }
    let own = dest.told.iter().filter(|own| own.app == record.app);
    own.map(|own| own.start).min()
}

/// The two halves of each Local channel.
fn local_pairs(channels: &[Channel<'_>]) -> Vec<[usize; 2]> {
    let mut pairs = Vec::new();
    for (i, channel) in channels.iter().enumerate() {
        let Some(name) = trunk::local_pair(channel.name) else {
            continue;
        };
        let other = channels[..i].iter();
        let mut other = other.map(|other| trunk::local_pair(other.name));
        pairs.extend(other.position(|other| other == Some(name)).map(|o| [o, i]));
    }
    pairs
}

/// The real parties, other than the customer's own channels, that one of these is connected with.
fn connected(
    channels: &[Channel<'_>],
    customers: &[usize],
    there: &[Line],
    pairs: &[[usize; 2]],
) -> Vec<usize> {
    let consulting = |end: &usize| {
        let mut asides = there.iter().filter(|line| line.consultation);
        asides.any(|line| line.ends.contains(end))
    };
    let mut sets = Sets::new(channels.len());
    for line in there {
        if line.consultation || !line.ends.iter().any(consulting) {
            sets.join(line.ends[0], line.ends[1]);
        }
    }
    for pair in pairs {
        sets.join(pair[0], pair[1]);
    }
    let set_of: Vec<usize> = (0..channels.len()).map(|i| sets.of(i)).collect();
    let with = (0..channels.len()).filter(|i| {
        channels[*i].is_real()
            && !customers.contains(i)
            && customers
                .iter()
                .any(|customer| set_of[*customer] == set_of[*i])
    });
    with.collect()
}
