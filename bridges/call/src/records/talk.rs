//! When the customer was connected with another real party, and with whom, as far as records tell.
//!
//! An answered record of two channels connects them for its billed seconds; the halves of a Local
//! channel are always connected. A record of the other side of a dialling (`AppDial`) is a
//! consultation: its two channels hear each other, and nobody else meanwhile.

use super::parties::Channel;
use super::record::Record;
use crate::resolve::Sets;
use crate::talk::{Talk, local_pairs};
use crate::trunk::is_one_of;
use crate::units::EventTime;

/// Two channels that heard each other.
#[derive(Clone, Copy)]
struct ConnectedPair {
    ends: [usize; 2],
    from: EventTime,
    to: EventTime,
    consultation: bool,
}

/// The connections of the customer's channels, given as indices.
pub(super) fn talk(records: &[&Record], channels: &[Channel<'_>], customers: &[usize]) -> Talk {
    let lines: Vec<ConnectedPair> = records.iter().filter_map(|it| line(it, channels)).collect();
    let times = lines.iter().flat_map(|line| [line.from, line.to]).collect();
    let pairs = local_pairs(channels.iter().map(|channel| channel.name));
    Talk::between(times, |from, to| {
        let there = |line: &&ConnectedPair| line.from <= from && line.to >= to;
        let there: Vec<ConnectedPair> = lines.iter().filter(there).copied().collect();
        connected(channels, customers, &there, &pairs)
    })
}

/// Returns the channels that a record connects: not before its destination was answered itself.
fn line(record: &Record, channels: &[Channel<'_>]) -> Option<ConnectedPair> {
    let (from, to) = record.talk()?;
    let at = |name: &str| channels.iter().position(|channel| channel.name == name);
    let (a, b) = (at(&record.channel)?, at(&record.dest)?);
    let from = channels[b].answered_at().map_or(from, |at| from.max(at));
    let from = entered(&channels[b], record).map_or(from, |at| from.max(at));
    (from < to).then_some(ConnectedPair {
        ends: [a, b],
        from,
        to,
        consultation: record.is_dialled_side(),
    })
}

/// Returns the time at which the destination entered the conference that the record is of, by its
/// own record.
fn entered(dest: &Channel<'_>, record: &Record) -> Option<EventTime> {
    if !is_one_of(&["ConfBridge", "MeetMe", "Conference"], &record.app) {
        return None;
    }
    let own = dest.own.iter().filter(|own| own.app == record.app);
    own.map(|own| own.start).min()
}

/// The real parties, other than the customer's own channels, that one of these is connected with.
fn connected(
    channels: &[Channel<'_>],
    customers: &[usize],
    there: &[ConnectedPair],
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
        channels[*i].party.is_real()
            && !customers.contains(i)
            && customers
                .iter()
                .any(|customer| set_of[*customer] == set_of[*i])
    });
    with.collect()
}
