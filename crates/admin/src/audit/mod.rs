//! Compares a file of the PBX with what callbridge knows about its calls.
//!
//! The input is the calls of the file ([`FileCall`]), the fate and values of each in the state
//! ([`AuditedFate`]), the times without a connection ([`Listening`]), and the CRM's journal of the
//! journaled calls ([`JournalFindings`]). The output is a [`Report`] that counts each call once:
//! `file = journaled + forwarded + dead + waiting + discarded + underWay + internal + skipped +
//! unexplained`. Except for [`records`], the module is pure: no file, no clock.
//!
//! | module | what it contains |
//! |---|---|
//! | [`cause`] | the likeliest cause of an unexplained call |
//! | [`journal`] | the pages of the CRM's journal to read, and their findings |
//! | [`records`] | the file, or a folder with one file per record, as one stream |
//! | [`report`] | the report, as JSON and for people |
//! | [`values`] | whether the file and the stored call have the same values |

pub mod cause;
pub mod journal;
pub mod records;
pub mod report;
pub mod values;

pub use cause::Listening;
pub use journal::{JournalAnswer, JournalFindings, JournalSearch};
pub use report::{ChangedCall, DifferentCall, NamedCall, Report, Unexplained};

use callbridge_call::{EventTime, FinishedCall};
use callbridge_mapping::journal::figures;
use callbridge_model::{Judged, Outcome, Zone};
use callbridge_spool::{AuditedCall, AuditedFate, AuditedValues, CallFate, State};
use std::time::Duration;
use values::ValueDifference;

/// A call of the file, with the outcome that the current flags give it.
#[derive(Clone, Debug, PartialEq)]
pub struct FileCall {
    /// The ids and the PBX by which the call is looked up in the state.
    pub asked: AuditedCall,
    /// The linkedid in the file.
    pub linkedid: String,
    /// Start of the call's first channel.
    pub started: EventTime,
    /// The customer's number: E.164, or as the PBX wrote it.
    pub phone: Option<String>,
    /// The outcome according to the current flags.
    pub outcome: Outcome,
    /// Prefixes of channels that carried an outside number and belong to no trunk: `PJSIP/citty`.
    pub unmatched: Vec<String>,
    /// The file has no end of the call, so the call can still be active.
    pub is_open: bool,
    pub values: AuditedValues,
    /// The PBX can report an earlier end of the call over AMI than in its files.
    pub has_late_end: bool,
}

impl FileCall {
    /// Makes a `FileCall` from a call that was read from the file and judged by the rules.
    /// `is_known` returns `true` if a flag or a list names a channel prefix.
    pub fn new(call: &FinishedCall, judged: &Judged, is_known: impl Fn(&str) -> bool) -> Self {
        let record = &judged.record;
        let others = call.also_known_as.iter().filter(|id| **id != call.linkedid);
        let ids = std::iter::once(&call.linkedid).chain(others);
        let unmatched = call.unmatched.iter().filter(|prefix| !is_known(prefix));
        let raw = call.number.as_ref().map(|number| number.text.clone());
        let phone = record.client_phone.as_ref();
        Self {
            asked: AuditedCall {
                pbx: record.pbx.clone(),
                ids: ids.map(|id| id.as_str().to_owned()).collect(),
                uuid: figures::uuid(&record.pbx, &call.linkedid),
            },
            linkedid: call.linkedid.as_str().to_owned(),
            started: call.started,
            phone: phone.map(|phone| phone.as_str().to_owned()).or(raw),
            outcome: judged.outcome,
            unmatched: unmatched.cloned().collect(),
            is_open: false,
            values: AuditedValues::from_record(record),
            has_late_end: false,
        }
    }
}

impl FileCall {
    /// Returns `true` if `--take-in` can correct the call's `incomplete` dead letter because the
    /// file has the whole call. CDRs aren't detailed enough for that.
    pub fn corrects(&self, stored: &AuditedFate) -> bool {
        let is_whole = !self.is_open && !self.values.incomplete && !self.values.estimate;
        let is_letter = stored.fate == CallFate::Stands(State::Dead);
        let is_incomplete = stored.values.as_ref().is_some_and(|known| known.incomplete);
        is_whole && is_letter && is_incomplete
    }
}

/// Makes the report. Counts each call of the file that the state explains, and lists each other
/// call with the likeliest cause.
///
/// `fates` has the order of `calls`. A call without an entry in `fates` is unknown. `journal` has
/// the findings in the CRM's journal for the journaled calls. Times in texts are in `zone`.
pub fn account(
    calls: &[FileCall],
    fates: &[AuditedFate],
    listening: &Listening,
    journal: JournalFindings,
    zone: &Zone,
) -> Report {
    let mut report = Report {
        journal: journal.reading,
        ..Report::default()
    };
    for (at, file_call) in calls.iter().enumerate() {
        report.file += 1;
        let found = fates.get(at);
        let fate = found.map_or(CallFate::Unknown, |found| found.fate);
        let call = NamedCall {
            linkedid: file_call.linkedid.clone(),
            started_at: file_call.started.floor_seconds().get(),
            phone: file_call.phone.clone(),
        };
        if let Some(lost) = journal.missing.get(&at) {
            let cause = cause::loss_cause(lost.since, zone);
            report.unexplained.push(Unexplained { call, cause });
            continue;
        }
        let differs = found.map_or_else(Vec::new, |found| value_differences(file_call, found));
        if !differs.is_empty() {
            let call = call.clone();
            report.different.push(DifferentCall { call, differs });
        }
        if let Some(differs) = journal.changed.get(&at) {
            let differs = differs.clone();
            let call = call.clone();
            report.changed.push(ChangedCall { call, differs });
        }
        match place(file_call, fate) {
            Some(place) => *place(&mut report) += 1,
            None => {
                let cause = cause::likeliest_cause(file_call, fate, listening);
                report.unexplained.push(Unexplained { call, cause });
            }
        }
    }
    report
}

/// Returns the values of a call that differ between the file and the state. Returns none for an
/// open call, because its values are not final.
fn value_differences(file_call: &FileCall, found: &AuditedFate) -> Vec<ValueDifference> {
    match &found.values {
        Some(stored) if !file_call.is_open => {
            values::differences(stored, &file_call.values, file_call.has_late_end)
        }
        _ => Vec::new(),
    }
}

/// A file of the PBX, or a record in it, that cannot be read. It is not known which call it
/// describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadCall {
    pub file: String,
    /// Time at which the file was written.
    pub written: EventTime,
    /// Why the record cannot be read.
    pub reason: String,
    /// The state has a dead letter `unreadable` for the record.
    pub is_dead_letter: bool,
    pub records: u64,
}

/// A file that was changed more recently than this can still be incomplete, so its records count as
/// under way.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// Adds an unreadable record to the report, under the name of its file. The record counts as dead
/// if there is a dead letter, as under way if the file can still be incomplete, and otherwise as
/// unexplained.
pub fn add_unread(report: &mut Report, unread: &UnreadCall, now: EventTime) {
    report.file += unread.records;
    if unread.is_dead_letter {
        report.dead += unread.records;
    } else if now.since(unread.written) < WRITTEN_WITHIN {
        report.under_way += unread.records;
    } else {
        let UnreadCall { file, reason, .. } = unread;
        let cause = format!(
            "{reason}, and callbridge has no dead letter of it: it was discarded, or callbridge \
             never read {file}"
        );
        let call = NamedCall {
            linkedid: file.clone(),
            started_at: unread.written.floor_seconds().get(),
            phone: None,
        };
        report.unexplained.push(Unexplained { call, cause });
    }
}

/// Returns the figure of the report that counts the call. Returns `None` if nothing explains the
/// call.
fn place(call: &FileCall, fate: CallFate) -> Option<fn(&mut Report) -> &mut u64> {
    match fate {
        CallFate::Stands(state) => Some(match state {
            State::Ready | State::Sending | State::Submitted => |counts| &mut counts.under_way,
            State::Journaled => |counts| &mut counts.journaled,
            State::Dead => |counts| &mut counts.dead,
            State::Waiting => |counts| &mut counts.waiting,
            State::Discarded => |counts| &mut counts.discarded,
            State::Forwarded => |counts| &mut counts.forwarded,
        }),
        CallFate::Open => Some(|counts| &mut counts.under_way),
        CallFate::RowGone => None,
        CallFate::Counted | CallFate::Unknown if call.is_open => {
            Some(|counts| &mut counts.under_way)
        }
        // Of internal and skipped calls, the state has only counts. The file shows which of the two
        // the call was.
        CallFate::Counted | CallFate::Unknown => match call.outcome {
            Outcome::Internal if call.unmatched.is_empty() => Some(|counts| &mut counts.internal),
            Outcome::Skipped => Some(|counts| &mut counts.skipped),
            Outcome::Internal | Outcome::Journal | Outcome::DeadLetter => None,
        },
    }
}

#[cfg(test)]
mod tests;
