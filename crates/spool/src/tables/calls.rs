//! Reads a stored call, and finds it by an ID or the start of its uuid.

use super::seen_calls;
use crate::value::Values;
use crate::{Db, Error, Progress, Row, RowId, count};
use callbridge_model::{CallRecord, CallUuid};

/// Minimum number of hexadecimal digits in a uuid prefix.
const DIGITS_MIN: usize = 4;
/// Maximum number of calls listed if an ID is ambiguous.
const NAMED_MAX: u8 = 20;
/// Columns of `calls` that make a [`Progress`].
const PROGRESS: &str = "state, since, started, live, not_before, settled_externally, \
     retried, request_id, token, submitted_at, first_sent, next_poll, polls, absent, absent_at, \
     resubmits, failures, if_absent, reroute_history, sent_again, reason, message, errors, \
     finding, attempts, times_dead, id";

/// Builds a query that reads [`Row`]s. `rest` is the part of the SQL after `FROM calls`.
fn calls(rest: &str) -> String {
    format!(
        "SELECT coalesce(uuid, conflicting_uuid) AS uuid, turn, record, call, true AS progress,
                {PROGRESS}
         FROM calls {rest}"
    )
}

/// Reads the columns of a call that steps change, or returns `None` for an unknown ID.
pub(super) fn progress(db: &Db, id: RowId) -> Result<Option<Progress>, Error> {
    let text = format!("SELECT {PROGRESS} FROM calls WHERE id = ?1");
    db.query_first(&text, [id.0])
}

/// Reads the record of an existing call.
pub(super) fn record(db: &Db, id: RowId) -> Result<CallRecord, Error> {
    let text: String = db.query_one("SELECT record FROM calls WHERE id = ?1", [id.0])?;
    db.read_json(id, &text)
}

/// Returns a single call, or `None` for an unknown ID or a dead letter with unreadable bytes.
pub fn row(db: &Db, row: RowId) -> Result<Option<Row>, Error> {
    first(db, "id = ?1", [row.0])
}

/// Returns the first call that matches `rule`, an SQL condition.
fn first(db: &Db, rule: &str, values: impl Values) -> Result<Option<Row>, Error> {
    db.query_first(&calls(&format!("WHERE {rule}")), values)
}

/// Returns the ID of the call with this uuid, ignoring `uuid_conflict` dead letters.
pub fn row_of(db: &Db, uuid: CallUuid) -> Result<Option<RowId>, Error> {
    let uuid = uuid.0.into_bytes();
    db.query_first("SELECT id FROM calls WHERE uuid = ?1", [uuid])
}

#[derive(Debug)]
pub enum Search {
    None,
    /// Exactly one stored call has this ID, or a uuid with this prefix.
    One(Box<Row>),
    /// Several uuids have this prefix. Up to twenty of them are listed.
    Several(Vec<CallUuid>),
}

/// Finds the stored call for `id`, which may be a linkedid, a channel's unique ID, a uuid, or the
/// start of a uuid.
pub fn search_call(db: &Db, id: &str) -> Result<Search, Error> {
    if let Some(row) = find_call(db, id)? {
        return Ok(Search::One(Box::new(row)));
    }
    // Dead letters and waiting calls outlive the `seen_calls` rows for their IDs.
    let of_letter = "state IN ('dead', 'waiting') AND linkedid = ?1 LIMIT 1";
    if let Some(row) = first(db, of_letter, [id])? {
        return Ok(Search::One(Box::new(row)));
    }
    let Some((low, high)) = bounds(id) else {
        return Ok(Search::None);
    };
    let text = "SELECT uuid FROM calls WHERE uuid BETWEEN ?1 AND ?2 ORDER BY uuid LIMIT ?3";
    let uuids = db.query_all(text, (low, high, NAMED_MAX))?;
    if uuids.len() > 1 {
        return Ok(Search::Several(uuids));
    }
    let only = first(db, "uuid BETWEEN ?1 AND ?2", [low, high])?;
    Ok(only.map_or(Search::None, |row| Search::One(Box::new(row))))
}

/// Returns the lowest and highest uuids that start with `id`, or `None` if `id` isn't the start of
/// a uuid or has fewer than four digits.
fn bounds(id: &str) -> Option<([u8; 16], [u8; 16])> {
    let digits: Option<Vec<u8>> = id
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits.filter(|digits| (DIGITS_MIN..=32).contains(&digits.len()))?;
    Some((uuid_bytes(&digits, 0), uuid_bytes(&digits, 15)))
}

/// Packs up to 32 hexadecimal digits into the bytes of a uuid, filling missing digits with `rest`.
fn uuid_bytes(digits: &[u8], rest: u8) -> [u8; 16] {
    let mut all = [rest; 32];
    all[..digits.len()].copy_from_slice(digits);
    std::array::from_fn(|i| all[2 * i] << 4 | all[2 * i + 1])
}

/// Finds the stored call for `id`, which is a uuid, or a linkedid or unique ID on any PBX.
pub fn find_call(db: &Db, id: &str) -> Result<Option<Row>, Error> {
    let by_uuid = match uuid::Uuid::try_parse(id) {
        Ok(uuid) => row_of(db, CallUuid(uuid))?,
        Err(_) => None,
    };
    // A PBX's IDs may also be UUIDs, as with FreeSWITCH.
    let found = match (by_uuid, seen_calls::uuid_by_any_id(db, id)?) {
        (None, Some(uuid)) => row_of(db, uuid)?,
        (found, _) => found,
    };
    found.map_or(Ok(None), |id| row(db, id))
}

/// Returns up to `limit` of the calls stored first, oldest first.
pub fn oldest(db: &Db, limit: usize) -> Result<Vec<Row>, Error> {
    db.query_all(&calls("ORDER BY id LIMIT ?1"), [count(limit)])
}

/// Returns up to `limit` of the calls waiting to be sent, oldest first.
pub fn ready(db: &Db, limit: usize) -> Result<Vec<Row>, Error> {
    // The index of calls that were never held back begins with `live`.
    let text = calls(
        "WHERE id IN (
             SELECT id FROM (SELECT id FROM calls
                 WHERE state = 'ready' AND not_before = 0 AND live = 1 ORDER BY id LIMIT ?1) AS live
             UNION ALL SELECT id FROM (SELECT id FROM calls
                 WHERE state = 'ready' AND not_before = 0 AND live = 0 ORDER BY id LIMIT ?1) AS late
             UNION ALL SELECT id FROM (SELECT id FROM calls
                 WHERE state = 'ready' AND not_before > 0 ORDER BY id LIMIT ?1) AS held)
         ORDER BY id LIMIT ?1",
    );
    db.query_all(&text, [count(limit)])
}

/// Returns up to `limit` calls that can be sent, newest first. These are live calls if `live` is
/// set, and otherwise all others.
pub(super) fn newest_ready(db: &Db, live: bool, limit: usize) -> Result<Vec<Row>, Error> {
    // With `live = …`, PostgreSQL would scan all calls backward.
    let text = calls(
        "WHERE state = 'ready' AND not_before = 0 AND live >= ?1 AND live <= ?1
         ORDER BY live DESC, id DESC LIMIT ?2",
    );
    db.query_all(&text, (live, count(limit)))
}

/// Returns the calls whose request was in flight when the process ended, oldest first.
pub fn sending(db: &Db) -> Result<Vec<Row>, Error> {
    db.query_all(&calls("WHERE state = 'sending' ORDER BY id"), ())
}
