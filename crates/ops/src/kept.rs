//! Reads the part of the status that is stored in the spool, with or without a daemon.

use crate::Release;
use callbridge_intake::{gap_log, gap_log::GapLog, identity, unmatched, unmatched::UnmatchedLog};
use callbridge_model::Reason;
use callbridge_model::status::{Employees, Status, UnknownEmployee};
use callbridge_spool::{Error, Store, tables};
use std::collections::BTreeMap;

/// Reads the stored part of the status. `at` is the current epoch second, and `state` names the
/// state folder.
///
/// # Errors
/// If the spool cannot be read.
pub fn stored_status(
    store: &Store,
    at: i64,
    state: &str,
    release: Release,
) -> Result<Status, Error> {
    // An unreadable value counts as no gaps. The daemon logs and resets it when it starts.
    let gaps =
        GapLog::restore(tables::meta::meta(store, gap_log::KEY)?.as_deref()).unwrap_or_default();
    let unmatched = UnmatchedLog::restore(tables::meta::meta(store, unmatched::KEY)?.as_deref());
    let unmatched = unmatched.unwrap_or_default().into_channels().into_iter();
    let (unknown_channels, unmatched) = unmatched.partition(|channels| channels.may_be_phones);
    let unknown = unknown_employees(store)?;
    let employees = (!unknown.is_empty()).then(|| Employees {
        unknown,
        ..Employees::default()
    });
    let mut status = Status {
        employees,
        books: store.books(),
        version: release.to_string(),
        at,
        state: state.to_owned(),
        pbx_id: tables::meta::meta(store, identity::META_KEY)?,
        last_call_at: tables::listed::newest_start(store, at)?,
        dead_letters: counts_by_word(tables::letters::dead_by_reason(store)?),
        waiting: counts_by_word(tables::letters::waiting_by_reason(store)?),
        gaps: gaps.into_gaps(),
        unmatched,
        unknown_channels,
        journal_fields: tables::echoes::fields(store)?,
        foreign_calls: tables::echoes::foreign_calls(store, at)?,
        ..Status::default()
    };
    status.note_losses(&store.counters());
    Ok(status)
}

fn counts_by_word(counts: BTreeMap<Reason, u64>) -> BTreeMap<String, u64> {
    let counts = counts.into_iter();
    counts
        .map(|(reason, count)| (reason.word().to_owned(), count))
        .collect()
}

/// Reads the stored employees whom the CRM does not know.
///
/// # Errors
/// If the spool cannot be read.
pub fn unknown_employees(store: &Store) -> Result<Vec<UnknownEmployee>, Error> {
    let mut unknown = Vec::new();
    for (employee_id, stranger) in tables::unknown_employees::unknown_employees(store)? {
        unknown.push(UnknownEmployee {
            employee_id,
            extension: stranger.extension,
            calls: stranger.calls,
            since: stranger.since,
        });
    }
    Ok(unknown)
}
