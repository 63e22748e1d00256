//! Records of Asterisk before 12 after a transfer by feature code, told as what happened.
//!
//! ```text
//! blind     17.1 SIP/city-01 → SIP/101-02   Dial              …:36 to …:42
//!           17.2 SIP/101-02  → SIP/102-03   Dial              …:36 to …:46, the caller's number
//! attended  17.1 SIP/city-01 → SIP/101-02   Dial              …:01 to …:10
//!           17.1 SIP/city-01 → SIP/101-02   Transferred Call  …:01 to …:12, Local/102@…;1
//!           17.4 Local/102@…;2 → SIP/102-03 Dial              …:06 to …:12
//! ```
//! In the first the customer goes on under the unique id of whoever was dialed. In the second the
//! customer's record goes on with the Local channel named in its data, which whoever transfers had
//! talked with before.

use super::record::Record;
use crate::trunk::local_pair;
use std::time::Duration;

/// Error of times that are whole seconds.
const SLACK: Duration = Duration::from_secs(1);

/// Gives each record to the channel whose it is.
pub(super) fn give_back(records: &mut [Record]) {
    let owners: Vec<Option<String>> = (0..records.len()).map(|i| owner(records, i)).collect();
    for (record, owner) in records.iter_mut().zip(owners) {
        if let Some(owner) = owner {
            record.channel = owner;
        }
    }
    for i in 0..records.len() {
        if records[i].is_transferred() {
            goes_on(records, i);
        }
    }
}

/// The channel that goes on in the place of the one that the record names: that which dialed it,
/// and whose number is told.
fn owner(records: &[Record], i: usize) -> Option<String> {
    let record = &records[i];
    let dialed_by = |other: &&Record| {
        let later = record.answer.is_none_or(|at| at.plus(SLACK) >= other.end);
        other.dest == record.channel
            && other.answered
            && other.uniqueid != record.uniqueid
            && !other.source.is_empty()
            && other.source == record.source
            && record.start <= other.billed_from
            && record.end > other.end
            && later
    };
    // A later release tells a record of its own from the transfer on, not from the birth.
    if record.was_called() || record.channel.is_empty() || !record.is_birth() {
        return None;
    }
    let mut others = records.iter();
    others.find(dialed_by).map(|other| other.channel.clone())
}

/// The record of a transferred call begins where the one before it ended, and that one ended for
/// both when whoever transferred began to talk with the new party.
fn goes_on(records: &mut [Record], i: usize) {
    let record = &records[i];
    let earlier = |other: &Record| {
        other.channel == record.channel && !other.is_transferred() && other.end <= record.end
    };
    let before = (0..records.len()).filter(|&other| other != i && earlier(&records[other]));
    let Some(before) = before.max_by_key(|&other| records[other].end) else {
        return;
    };
    let asked = records.iter().filter(|other| {
        let pair = local_pair(&other.channel);
        pair.is_some() && pair == local_pair(&record.dest) && other.talk().is_some()
    });
    let asked = asked.map(|other| other.billed_from).min();
    let end = records[before].end;
    records[i].billed_from = records[i].billed_from.max(end);
    if let Some(asked) = asked.filter(|asked| *asked > records[before].billed_from) {
        records[before].end = end.min(asked);
    }
}
