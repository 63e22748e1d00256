//! Corrects the records that Asterisk before 12 writes after a feature-code transfer, which list a
//! channel that had already left the call.
//!
//! ```text
//! blind     17.1 SIP/city-01 → SIP/101-02   Dial              …:36 to …:42
//!           17.2 SIP/101-02  → SIP/102-03   Dial              …:36 to …:46, the caller's number
//! attended  17.1 SIP/city-01 → SIP/101-02   Dial              …:01 to …:10
//!           17.1 SIP/city-01 → SIP/101-02   Transferred Call  …:01 to …:12, Local/102@…;1
//!           17.4 Local/102@…;2 → SIP/102-03 Dial              …:06 to …:12
//! ```
//! After a blind transfer, the customer continues under the unique ID of the channel that was
//! dialed first. After an attended transfer, the customer's record continues with the Local channel
//! in its data, which the transferring extension talked to before.

use super::record::Record;
use crate::trunk::local_pair;
use std::time::Duration;

/// Maximum error of a time in whole seconds.
const SLACK: Duration = Duration::from_secs(1);

/// Sets each record's channel to the one that really talked, and corrects the times of transferred
/// calls.
pub(super) fn give_back(records: &mut [Record]) {
    let owners: Vec<Option<String>> = (0..records.len()).map(|i| owner(records, i)).collect();
    for (record, owner) in records.iter_mut().zip(owners) {
        if let Some(owner) = owner {
            record.channel = owner;
        }
    }
    for i in 0..records.len() {
        if records[i].is_transferred() {
            move_transferred_start(records, i);
        }
    }
}

/// Returns the channel that really continued in record `i`, which is the one that dialed the listed
/// channel and whose number the record has, or `None` if the record has the right channel.
fn owner(records: &[Record], i: usize) -> Option<String> {
    let record = &records[i];
    // Later releases write a separate record for the time after the transfer.
    if record.was_called() || record.channel.is_empty() || !record.is_birth() {
        return None;
    }
    for other in records {
        let answered_later = record.answer.is_none_or(|at| at.plus(SLACK) >= other.end);
        if other.dest == record.channel
            && other.answered
            && other.uniqueid != record.uniqueid
            && !other.source.is_empty()
            && other.source == record.source
            && record.start <= other.billed_from
            && record.end > other.end
            && answered_later
        {
            return Some(other.channel.clone());
        }
    }
    None
}

/// Corrects the times of record `i`, which continues after an attended transfer. It starts when the
/// channel's previous record ends, and that one ends when the transferring party started to consult
/// the third party.
fn move_transferred_start(records: &mut [Record], i: usize) {
    let record = &records[i];
    let earlier = (0..records.len()).filter(|&place| {
        let other = &records[place];
        place != i
            && other.channel == record.channel
            && !other.is_transferred()
            && other.end <= record.end
    });
    let Some(before) = earlier.max_by_key(|&place| records[place].end) else {
        return;
    };
    let consultations = records.iter().filter(|other| {
        let pair = local_pair(&other.channel);
        pair.is_some() && pair == local_pair(&record.dest) && other.talk().is_some()
    });
    let consulted_from = consultations.map(|other| other.billed_from).min();
    let end = records[before].end;
    records[i].billed_from = records[i].billed_from.max(end);
    if let Some(consulted_from) = consulted_from
        && consulted_from > records[before].billed_from
    {
        records[before].end = end.min(consulted_from);
    }
}
