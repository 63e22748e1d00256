//! The progress of the backfill, which reads all of the CRM's leads into the directory page by
//! page.

use super::directory::{self, LEARNED};
use super::{look_ups, meta};
use crate::db::Asked;
use crate::{Db, Error, QueueQuery, Store};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{ApiResult, LeadsPage};
use callbridge_leads::directory::backfill::{Backfill, Next};
use callbridge_leads::lead_request::due::{DueRequests, LeadRequest, Urgency};
use callbridge_model::status::Directory;

pub(crate) const KEY: &str = "directory.backfill";

/// Reads the backfill's progress, or returns `None` before its first page.
pub fn backfill(db: &Db) -> Result<Option<Backfill>, Error> {
    meta::recall(db, KEY)
}

/// Returns the directory's statistics for the status, or `None` without `--lead-directory`, unless
/// the directory has learned something anyway, for example from webhooks.
pub fn directory_status(store: &Store) -> Result<Option<Directory>, Error> {
    let size = directory::directory_size(store)?;
    let reads = store.settings.lead_directory.is_some();
    let learned = store.counters().get(LEARNED).copied().unwrap_or(0);
    if !reads && learned == 0 {
        return Ok(None);
    }
    let stored = backfill(store)?.unwrap_or_default();
    let backfill = if reads { Some(stored) } else { None };
    let known = backfill.as_ref();
    Ok(Some(Directory {
        phones: size.phones,
        leads: size.leads,
        learned,
        read_to: known.and_then(Backfill::read_to).map(EpochSeconds::get),
        reason: known.and_then(|backfill| backfill.left.clone()),
        backfill: backfill.map(|backfill| backfill.state().to_owned()),
    }))
}

/// Returns `true` if every lead of the CRM has been read.
pub fn has_read_all_leads(store: &Store) -> Result<bool, Error> {
    let reads = store.settings.lead_directory.is_some();
    Ok(reads && backfill(store)?.is_some_and(|backfill| backfill.has_read_all()))
}

/// Sends the query for the progress, or returns `None` without `--lead-directory`.
pub(super) fn ask_backfill(store: &Store) -> Result<Option<Asked<String>>, Error> {
    if store.settings.lead_directory.is_none() {
        return Ok(None);
    }
    meta::ask_meta(store, KEY).map(Some)
}

/// Adds the next page of leads to the due requests, or the time at which it's due.
pub(super) fn add_page(
    store: &Store,
    backfill: Asked<String>,
    ask: &QueueQuery,
    due: &mut DueRequests,
) -> Result<(), Error> {
    let backfill: Backfill = meta::read_asked(store, backfill)?.unwrap_or_default();
    match backfill.next(ask.now, store.backfill_begun.get()) {
        Next::Read(page) => due.push(Urgency::Spare, LeadRequest::Backfill(page)),
        Next::At(at) => due.add_due(at),
        Next::Never => {}
    }
    Ok(())
}

/// Resumes a backfill that stopped because the token wasn't allowed to read leads.
pub(crate) fn backfill_granted(db: &Db) -> Result<(), Error> {
    let Some(mut backfill) = backfill(db)?.filter(|backfill| backfill.no_grant) else {
        return Ok(());
    };
    backfill.note_grant();
    meta::remember(db, KEY, &backfill)
}

pub(crate) fn apply_page(
    store: &mut Store,
    page: &LeadsPage,
    answer: &ApiResult,
    at: EventTime,
) -> Result<(), Error> {
    let Some(how) = store.settings.lead_directory else {
        return Ok(());
    };
    let known = backfill(store)?.unwrap_or_default();
    let mut backfill = known.clone();
    for news in backfill.process_answer(page, answer, at, how) {
        look_ups::learn(store, &news)?;
    }
    match (&backfill.left, backfill.no_grant) {
        (Some(why), _) if known.left.is_none() => {
            tracing::warn!(reason = %why, "cannot read lead/filter for the directory of leads");
        }
        (None, true) if !known.no_grant => tracing::warn!(
            "the token has no right to read leads: give it PERMISSION_OPEN_API_LEAD:READ; tried \
             again in an hour"
        ),
        _ => {}
    }
    store.backfill_begun.set(true);
    meta::remember(store, KEY, &backfill)
}
