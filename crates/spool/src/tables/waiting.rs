//! Waiting calls, by the phone number whose lead they're waiting for.

use crate::{Db, Error, Json, RowId, WaitingPhone, count};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_model::{CallRecord, Phone};

/// Query for a number's waiting calls and `ambiguous_lead` dead letters, oldest first.
pub(super) const WAITING_BY_PHONE: &str =
    "SELECT id FROM calls WHERE state = 'waiting' AND phone = ?1
     UNION ALL SELECT id FROM calls
     WHERE state = 'dead' AND reason = 'ambiguous_lead' AND phone = ?1 ORDER BY id";

/// Returns up to `limit` phone numbers after `after`, in order, that have no lead and whose calls
/// are waiting for one.
pub fn waiting_phones(
    db: &Db,
    after: Option<&Phone>,
    limit: usize,
) -> Result<Vec<WaitingPhone>, Error> {
    let after = after.map_or("", Phone::as_str);
    let text = "SELECT p.phone, p.calls, f.started, c.record, c.id
         FROM (SELECT phone, count(*) AS calls, min(id) AS first, max(id) AS last FROM calls
               WHERE state = 'waiting' AND phone > ?1 AND reason = 'no_lead'
               GROUP BY phone ORDER BY phone LIMIT ?2) AS p
         JOIN calls AS c ON c.id = p.last JOIN calls AS f ON f.id = p.first";
    let mut rows: Vec<(String, u64, EpochSeconds, Json<CallRecord>)> =
        db.query_all(text, (after, count(limit)))?;
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    let phones = rows.into_iter().map(|(phone, calls, first, Json(last))| {
        let phone = Phone::from_e164(&phone)
            .ok_or_else(|| db.damaged(format!("{phone} is not a number")))?;
        Ok(WaitingPhone {
            phone,
            calls,
            first,
            last: last.started_at,
            trunk: last.trunk,
            pbx: last.pbx,
        })
    });
    phones.collect()
}

/// Returns a number's waiting calls and `ambiguous_lead` dead letters, oldest first.
pub fn waiting_by_phone(db: &Db, phone: &Phone) -> Result<Vec<RowId>, Error> {
    db.query_all(WAITING_BY_PHONE, [phone.as_str()])
}

/// Returns up to `limit` `ambiguous_lead` dead letters with a known number after `last`, ordered by
/// number and ID.
pub fn ambiguous_after(
    db: &Db,
    last: Option<&(Phone, RowId)>,
    limit: usize,
) -> Result<Vec<(Phone, RowId)>, Error> {
    let (phone, id) = last.map_or(("", 0), |(phone, id)| (phone.as_str(), id.0));
    let text = "SELECT phone, id FROM calls
         WHERE state = 'dead' AND reason = 'ambiguous_lead' AND (phone, id) > (?1, ?2)
         ORDER BY phone, id LIMIT ?3";
    let values = (phone, id, count(limit));
    db.query_known(text, values, |(phone, id): (String, RowId)| {
        Some((Phone::from_e164(&phone)?, id))
    })
}

/// Returns up to `limit` waiting calls after `last`, longest wait first, along with when they
/// started waiting.
pub fn waiting_after(
    db: &Db,
    last: Option<(EventTime, RowId)>,
    limit: usize,
) -> Result<Vec<(EventTime, RowId)>, Error> {
    let (since, id) = last.map_or((i64::MIN, 0), |(since, id)| (since.micros(), id.0));
    let text = "SELECT since, id FROM calls WHERE state = 'waiting' AND (since, id) > (?1, ?2)
         ORDER BY since, id LIMIT ?3";
    db.query_all(text, (since, id, count(limit)))
}

/// Returns up to `limit` calls that started waiting before `before`, longest wait first.
pub fn waiting_before(db: &Db, before: EventTime, limit: usize) -> Result<Vec<RowId>, Error> {
    let text =
        "SELECT id FROM calls WHERE state = 'waiting' AND since < ?1 ORDER BY since LIMIT ?2";
    db.query_all(text, (before.micros(), count(limit)))
}
