//! Releases calls waiting for a lead or an employee once it becomes known, and turns calls that
//! have waited for 30 days into dead letters.
//!
//! | reason | released when |
//! |---|---|
//! | `no_lead`, `no_employee` (waiting) | the rules find one |
//! | `ambiguous_lead` (dead, so you can choose) | only one lead with the number is left |
//!
//! No request was made for any of these calls. If a call is now waiting for something else, its
//! reason changes. For example, a call without a lead becomes `ambiguous_lead` if its number gets
//! two leads.

use callbridge_call::EventTime;
use callbridge_mapping::{People, Rules, journal};
use callbridge_model::{Judged, LeadId, Outcome, Phone, Reason};
use callbridge_spool::{Action, Error, Handle, Op, Row, RowId, State, Step, Store, tables};
use futures_util::future::join_all;
use std::time::Duration;

/// How long a call waits for its lead or employee at most.
pub const WAITING_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum number of rows per read and per transaction.
const PAGE: usize = 100;

/// Checks the waiting calls for these customers' numbers (or all waiting calls if `None`), releases
/// those that can be sent now, and returns how many were released.
///
/// # Errors
///
/// Returns an error if the spool can't be read or written.
pub async fn release(
    spool: &Handle,
    phones: Option<&[Phone]>,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Result<u64, Error> {
    let by = (rules, people, None, now);
    if let Some(phones) = phones {
        return release_some(spool, phones, by).await;
    }
    let waiting = release_pages(
        spool,
        |store, last| tables::waiting::waiting_after(store, last.copied(), PAGE),
        by,
    )
    .await?;
    let ambiguous = release_pages(
        spool,
        |store, last| tables::waiting::ambiguous_after(store, last, PAGE),
        by,
    )
    .await?;
    Ok(waiting + ambiguous)
}

/// Checks the waiting calls for a number that a user has just assigned a lead to, and releases
/// those that can be sent now. The user's `action` is stored with each released call.
///
/// # Errors
///
/// Returns an error if the spool can't be read or written.
pub async fn release_given(
    spool: &Handle,
    phone: &Phone,
    rules: &Rules,
    people: &People,
    action: &Action,
) -> Result<u64, Error> {
    let phones = std::slice::from_ref(phone);
    release_some(spool, phones, (rules, people, Some(action), action.at)).await
}

/// The input for a new verdict, the action of the user who assigned the lead (or `None` for an
/// automatic release), and the current time.
type By<'a> = (&'a Rules, &'a People, Option<&'a Action>, EventTime);

async fn release_some(spool: &Handle, phones: &[Phone], by: By<'_>) -> Result<u64, Error> {
    let mut left = 0;
    for some in phones.chunks(PAGE) {
        let some = some.to_vec();
        let rows = spool.read(move |store| {
            let mut rows = Vec::new();
            for phone in &some {
                rows.extend(tables::waiting::waiting_by_phone(store, phone)?);
            }
            Ok(rows)
        });
        let rows = rows.await?;
        for page in rows.chunks(PAGE) {
            left += release_rows(spool, page, by).await?;
        }
    }
    Ok(left)
}

/// Reads one page of rows, starting after the given row.
type PageRead<K> = fn(&Store, Option<&(K, RowId)>) -> Result<Vec<(K, RowId)>, Error>;

/// Releases every waiting call returned by `read`, page by page.
async fn release_pages<K: Clone + Send + 'static>(
    spool: &Handle,
    read: PageRead<K>,
    by: By<'_>,
) -> Result<u64, Error> {
    let mut left = 0;
    let mut last = None;
    loop {
        let page = spool.read(move |store| read(store, last.as_ref())).await?;
        last = page.last().cloned();
        if last.is_none() {
            return Ok(left);
        }
        let rows: Vec<RowId> = page.into_iter().map(|(_, row)| row).collect();
        left += release_rows(spool, &rows, by).await?;
    }
}

async fn release_rows(spool: &Handle, rows: &[RowId], by: By<'_>) -> Result<u64, Error> {
    let (rules, people, action, now) = by;
    let ids = rows.to_vec();
    let read = spool.read(move |store| {
        let mut rows = Vec::new();
        for id in ids {
            rows.extend(tables::calls::row(store, id)?);
        }
        Ok(rows)
    });
    let steps = read.await?.into_iter().filter_map(|row| {
        let judged = journal::remap(&row.record, &row.call, None, rules, people, now);
        Some((step(&row, judged, now)?, row))
    });
    let writes = steps.map(async |(step, row)| {
        let leaves = !matches!(step, Step::Rejudged { .. });
        let lead = match &step {
            Step::Retry { record, .. } => record.lead_id.map(LeadId::get),
            _ => None,
        };
        let op = Op::step(row.id, step, now);
        let mut ops = Vec::new();
        if let Some(action) = action
            && leaves
        {
            let action = action.clone();
            ops.push(Op::Action {
                row: row.id,
                action,
            });
        }
        ops.push(op);
        match spool.write(ops).await {
            Ok(_) if leaves => {
                tracing::info!(call = %row.uuid, id = %row.id, lead, "a waiting call is sent");
                Ok(1)
            }
            // The call is still waiting for something else, or a user changed it first.
            Ok(_) | Err(Error::Refused { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    });
    join_all(writes).await.into_iter().sum()
}

/// Returns the step for a call with this verdict, or `None` if nothing changes.
fn step(row: &Row, judged: Judged, now: EventTime) -> Option<Step> {
    let waits = match row.state {
        State::Waiting => true,
        State::Dead => {
            row.reason == Some(Reason::AmbiguousLead) && now.since(row.since) < WAITING_MAX
        }
        State::Ready | State::Sending | State::Submitted => false,
        State::Journaled | State::Discarded | State::Forwarded => false,
    };
    if !waits {
        return None;
    }
    let record = judged.record;
    match (judged.outcome, judged.reason) {
        (Outcome::Journal, _) => {
            let by_itself = row.state == State::Waiting;
            Some(Step::Retry { record, by_itself })
        }
        (Outcome::DeadLetter, Some(reason)) => {
            let message = judged.message;
            if row.reason == Some(reason) && row.message == message {
                return None;
            }
            Some(Step::Rejudged { reason, message })
        }
        (Outcome::DeadLetter, None) | (Outcome::Internal | Outcome::Skipped, _) => None,
    }
}

/// Turns up to 100 calls that have waited for [`WAITING_MAX`] into dead letters, and returns how
/// many there were, which is 0 if there are no more.
///
/// # Errors
///
/// Returns an error if the spool can't be read or written.
pub async fn expire(spool: &Handle, now: EventTime) -> Result<u64, Error> {
    let before = now.minus(WAITING_MAX);
    let rows = spool
        .read(move |store| tables::waiting::waiting_before(store, before, PAGE))
        .await?;
    let ops: Vec<Op> = rows
        .into_iter()
        .map(|row| Op::step(row, Step::Expire, now))
        .collect();
    let ended = ops.len() as u64;
    if !ops.is_empty() {
        spool.write(ops).await?;
    }
    Ok(ended)
}

#[cfg(test)]
mod tests;
