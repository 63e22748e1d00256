//! A file of the PBX against what became of its calls.
//!
//! In come the calls that the file tells of ([`FileCall`]), what the state says of each
//! ([`CallFate`]), when nobody listened ([`Listening`]), and what the CRM's journal has of those
//! that are journaled ([`JournalFindings`]); out goes a [`Report`] in which each
//! call stands once: `file = journaled + forwarded + dead + parked + discarded + underWay +
//! internal + skipped + unexplained`. Pure, but for [`records`]: no file, no clock.
//!
//! | module | what lives there |
//! |---|---|
//! | [`cause`] | why a call may be unexplained |
//! | [`journal`] | which pages of the CRM's journal are read, and what they say |
//! | [`records`] | the file, or a folder with a file a record, as one stream |
//! | [`report`] | the sum, as JSON and for people |

pub mod cause;
pub mod journal;
pub mod records;
pub mod report;

pub use cause::Listening;
pub use journal::{JournalAnswer, JournalFindings, JournalSearch};
pub use report::{ChangedCall, NamedCall, Report, Unexplained};

use callbridge_call::{EventTime, FinishedCall};
use callbridge_mapping::journal::figures;
use callbridge_model::{Judged, Outcome, Zone};
use callbridge_spool::{AuditedCall, CallFate, State};
use std::time::Duration;

/// A call that the file tells of, as today's flags judge it.
#[derive(Clone, Debug, PartialEq)]
pub struct FileCall {
    /// The ids and the PBX by which the state is asked for its fate.
    pub asked: AuditedCall,
    /// The linkedid that the file gives the call.
    pub linkedid: String,
    /// The time at which its first channel began.
    pub started: EventTime,
    /// The customer's number: E.164, or as the PBX wrote it.
    pub phone: Option<String>,
    /// The outcome that today's flags give the call.
    pub outcome: Outcome,
    /// Prefixes of channels that carried an outside number and belong to no trunk: `PJSIP/citty`.
    pub unmatched: Vec<String>,
    /// The file does not tell its end, and it may go on.
    pub is_open: bool,
}

impl FileCall {
    /// The call as it was read and judged; `is_known` says of a prefix that a flag or a list
    /// names it.
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
        }
    }
}

/// Each call of the file explained, or named with the likeliest cause. `fates` are in the order of
/// `calls`; a call without one is not known. `journal` is what the CRM's journal has of those that
/// are journaled here; times are told in `zone`.
pub fn account(
    calls: &[FileCall],
    fates: &[CallFate],
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
        let fate = fates.get(at).copied().unwrap_or(CallFate::Unknown);
        let call = NamedCall {
            linkedid: file_call.linkedid.clone(),
            started_at: file_call.started.floor_seconds().get(),
            phone: file_call.phone.clone(),
        };
        if let Some(lost) = journal.missing.get(&at) {
            let cause = cause::lost_there(lost.since, zone);
            report.unexplained.push(Unexplained { call, cause });
            continue;
        }
        if let Some(differs) = journal.changed.get(&at) {
            let (call, differs) = (call.clone(), differs.clone());
            report.changed.push(ChangedCall { call, differs });
        }
        match place(file_call, fate) {
            Some(place) => *place(&mut report) += 1,
            None => {
                let cause = cause::likeliest(file_call, fate, listening);
                report.unexplained.push(Unexplained { call, cause });
            }
        }
    }
    report
}

/// A record of the file that cannot be read, and so may be any call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadCall {
    /// The file that holds the record.
    pub file: String,
    /// Time at which the file was written.
    pub written: EventTime,
    /// Why the record cannot be read.
    pub why: String,
    /// The state keeps a dead letter `unreadable` of it.
    pub is_dead_letter: bool,
    /// Number of such records.
    pub records: u64,
}

/// A file that changed this recently may still be written, and is waited for.
const WRITTEN_WITHIN: Duration = Duration::from_secs(60);

/// Adds a record that cannot be read to the report, as a call with the name of its file. It is
/// explained only by a dead letter, or while the file may still be written.
pub fn add_unread(report: &mut Report, unread: &UnreadCall, now: EventTime) {
    report.file += unread.records;
    if unread.is_dead_letter {
        report.dead += unread.records;
    } else if now.since(unread.written) < WRITTEN_WITHIN {
        report.under_way += unread.records;
    } else {
        let (why, file) = (&unread.why, &unread.file);
        let cause = format!(
            "{why}, and no dead letter is kept of it: it was discarded, or callbridge never read \
             {file}"
        );
        let call = NamedCall {
            linkedid: file.clone(),
            started_at: unread.written.floor_seconds().get(),
            phone: None,
        };
        report.unexplained.push(Unexplained { call, cause });
    }
}

/// The figure of the report that it belongs to; `None` when nothing explains it.
fn place(call: &FileCall, fate: CallFate) -> Option<fn(&mut Report) -> &mut u64> {
    match fate {
        CallFate::Stands(state) => Some(match state {
            State::Ready | State::Sending | State::Submitted => |it| &mut it.under_way,
            State::Journaled => |it| &mut it.journaled,
            State::Forwarded => |it| &mut it.forwarded,
            State::Dead => |it| &mut it.dead,
            State::Parked => |it| &mut it.parked,
            State::Discarded => |it| &mut it.discarded,
        }),
        CallFate::Open => Some(|it| &mut it.under_way),
        CallFate::RowGone => None,
        CallFate::Counted | CallFate::Unknown if call.is_open => Some(|it| &mut it.under_way),
        // What is counted only leaves nothing to look at: the file says which of the two it was.
        CallFate::Counted | CallFate::Unknown => match call.outcome {
            Outcome::Internal if call.unmatched.is_empty() => Some(|it| &mut it.internal),
            Outcome::Skipped => Some(|it| &mut it.skipped),
            Outcome::Internal | Outcome::Journal | Outcome::DeadLetter => None,
        },
    }
}

#[cfg(test)]
mod tests;
