//! Parked calls leave by themselves when the missing lead or employee becomes known, and end as
//! dead letters after 30 days.

use crate::journal::{self, LeadId, Outcome, Phone, Rules};
use crate::people::People;
use crate::spool::{Error, Handle, Op, RowId, Step};
use callbridge_call::EventTime;
use std::time::Duration;

/// How long a call waits for its lead.
pub const PARKED_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Rows of one read and one transaction at most.
const PAGE: usize = 100;

/// Looks at the parked calls of these numbers (all parked calls with `None`) and sends off those
/// that lack nothing any more. Returns how many left.
///
/// # Errors
/// When the spool cannot be read or written.
pub async fn release(
    spool: &Handle,
    phones: Option<&[Phone]>,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Result<u64, Error> {
    let mut left = 0;
    if let Some(phones) = phones {
        for phone in phones {
            let phone = phone.clone();
            let rows = spool
                .read(move |store| store.parked_by_phone(&phone))
                .await?;
            for page in rows.chunks(PAGE) {
                left += release_rows(spool, page, rules, people, now).await?;
            }
        }
        return Ok(left);
    }
    let mut last = None;
    loop {
        let after = last;
        let page = spool
            .read(move |store| store.parked_after(after, PAGE))
            .await?;
        last = page.last().copied();
        if last.is_none() {
            return Ok(left);
        }
        let rows: Vec<RowId> = page.into_iter().map(|(_, row)| row).collect();
        left += release_rows(spool, &rows, rules, people, now).await?;
    }
}

async fn release_rows(
    spool: &Handle,
    rows: &[RowId],
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Result<u64, Error> {
    let ids = rows.to_vec();
    let read = spool.read(move |store| {
        let rows = ids.into_iter().filter_map(|id| store.row(id).transpose());
        rows.collect::<Result<Vec<_>, _>>()
    });
    let mut ops = Vec::new();
    for row in read.await? {
        let judged = journal::remap(&row.record, &row.call, None, rules, people, now);
        if judged.outcome == Outcome::Journal {
            tracing::info!(
                call = %row.uuid,
                id = %row.id,
                lead = judged.record.lead_id.map(LeadId::get),
                "a parked call has its lead and leaves"
            );
            let step = Step::Release {
                record: judged.record,
            };
            ops.push(Op::Step {
                row: row.id,
                step,
                at: now,
            });
        }
    }
    let left = ops.len() as u64;
    if !ops.is_empty() {
        spool.write(ops).await?;
    }
    Ok(left)
}

/// Ends the wait of calls that have waited for [`PARKED_MAX`], a page of them. Returns how many:
/// none when no more are left.
///
/// # Errors
/// When the spool cannot be read or written.
pub async fn expire(spool: &Handle, now: EventTime) -> Result<u64, Error> {
    let before = now.minus(PARKED_MAX);
    let rows = spool
        .read(move |store| store.parked_before(before, PAGE))
        .await?;
    let ops: Vec<Op> = rows
        .iter()
        .map(|row| Op::Step {
            row: *row,
            step: Step::Expire,
            at: now,
        })
        .collect();
    let ended = ops.len() as u64;
    if !ops.is_empty() {
        spool.write(ops).await?;
    }
    Ok(ended)
}
