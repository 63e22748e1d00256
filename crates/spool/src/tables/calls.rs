//! A stored call, read back.

use super::seen_calls;
use crate::Db;
use crate::{Attempt, Error, Row, RowId};
use callbridge_call::EventTime;
use callbridge_model::CallUuid;
use callbridge_model::TokenFingerprint;

const COLUMNS: &str = "id, ifnull(uuid, twin), state, record, call, request_id, token, attempts, \
     submitted_at, polls, next_poll, resubmits, not_before, live, reason, message, errors, since, \
     failures";

/// The columns of a row as SQLite has them.
struct CallColumns {
    id: i64,
    uuid: [u8; 16],
    state: String,
    record: String,
    call: String,
    request_id: Option<String>,
    token: Option<String>,
    attempts: String,
    submitted_at: Option<i64>,
    polls: u32,
    next_poll: Option<i64>,
    resubmits: u32,
    not_before: i64,
    live: bool,
    reason: Option<String>,
    message: String,
    errors: Option<String>,
    since: i64,
    failures: u32,
}

fn raw(row: &rusqlite::Row<'_>) -> rusqlite::Result<CallColumns> {
    Ok(CallColumns {
        id: row.get(0)?,
        uuid: row.get(1)?,
        state: row.get(2)?,
        record: row.get(3)?,
        call: row.get(4)?,
        request_id: row.get(5)?,
        token: row.get(6)?,
        attempts: row.get(7)?,
        submitted_at: row.get(8)?,
        polls: row.get(9)?,
        next_poll: row.get(10)?,
        resubmits: row.get(11)?,
        not_before: row.get(12)?,
        live: row.get(13)?,
        reason: row.get(14)?,
        message: row.get(15)?,
        errors: row.get(16)?,
        since: row.get(17)?,
        failures: row.get(18)?,
    })
}

/// One call; `None` for an id that is none, or a letter's of unreadable bytes.
pub fn row(db: &Db, row: RowId) -> Result<Option<Row>, Error> {
    let raw = db.query_first(
        &format!("SELECT {COLUMNS} FROM calls WHERE id = ?1"),
        [row.0],
        raw,
    )?;
    raw.map(|raw| complete(db, raw)).transpose()
}

/// The call with this uuid; of several the one that is no `uuid_conflict`.
pub fn row_of(db: &Db, uuid: CallUuid) -> Result<Option<RowId>, Error> {
    let uuid = uuid.0.into_bytes();
    db.first_value("SELECT id FROM calls WHERE uuid = ?1", [uuid])
}

/// The stored call of this uuid, or of this linkedid or unique id on any PBX.
pub fn find_call(db: &Db, id: &str) -> Result<Option<Row>, Error> {
    let by_uuid = match uuid::Uuid::try_parse(id) {
        Ok(uuid) => row_of(db, CallUuid(uuid))?,
        Err(_) => None,
    };
    // A PBX's own ids may be UUIDs, too: FreeSWITCH's are.
    let found = match (by_uuid, seen_calls::uuid_by_any_id(db, id)?) {
        (None, Some(uuid)) => row_of(db, uuid)?,
        (found, _) => found,
    };
    found.map_or(Ok(None), |id| row(db, id))
}

/// The first stored calls, oldest first, at most `limit`.
pub fn oldest(db: &Db, limit: usize) -> Result<Vec<Row>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows: Vec<CallColumns> = db.query_all(
        &format!("SELECT {COLUMNS} FROM calls ORDER BY id LIMIT ?1"),
        [limit],
        raw,
    )?;
    rows.into_iter().map(|raw| complete(db, raw)).collect()
}

/// Calls that wait to be sent, oldest first, at most `limit`.
pub fn ready(db: &Db, limit: usize) -> Result<Vec<Row>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    // The index of fresh calls is by liveness: a forwarder's calls are all fresh.
    let rows: Vec<CallColumns> = db.query_all(
        &format!(
            "SELECT {COLUMNS} FROM calls WHERE id IN (
                 SELECT id FROM (SELECT id FROM calls
                     WHERE state = 'ready' AND not_before = 0 AND live = 1 ORDER BY id LIMIT ?1)
                 UNION ALL SELECT id FROM (SELECT id FROM calls
                     WHERE state = 'ready' AND not_before = 0 AND live = 0 ORDER BY id LIMIT ?1)
                 UNION ALL SELECT id FROM (SELECT id FROM calls
                     WHERE state = 'ready' AND not_before > 0 ORDER BY id LIMIT ?1))
             ORDER BY id LIMIT ?1"
        ),
        [limit],
        raw,
    )?;
    rows.into_iter().map(|raw| complete(db, raw)).collect()
}

/// Calls that were forwarded until then, the one that was forwarded first at the front, behind the
/// last one that is known, at most `limit`; each with the moment.
pub fn forwarded(
    db: &Db,
    after: (EventTime, RowId),
    until: EventTime,
    limit: usize,
) -> Result<Vec<(EventTime, Row)>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (since, id) = (after.0.micros(), after.1.0);
    let found: Vec<(i64, i64)> = db.query_all(
        "SELECT since, id FROM calls WHERE state = 'forwarded' AND since >= ?1 AND since <= ?3
             AND (since > ?1 OR id > ?2) ORDER BY since, id LIMIT ?4",
        (since, id, until.micros(), limit),
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let mut all = Vec::with_capacity(found.len());
    for (since, id) in found {
        let row = row(db, RowId(id))?;
        all.extend(row.map(|row| (EventTime::from_micros(since), row)));
    }
    Ok(all)
}

/// Calls whose request was under way when the process ended, oldest first.
pub fn sending(db: &Db) -> Result<Vec<Row>, Error> {
    let rows: Vec<CallColumns> = db.query_all(
        &format!("SELECT {COLUMNS} FROM calls WHERE state = 'sending' ORDER BY id"),
        [],
        raw,
    )?;
    rows.into_iter().map(|raw| complete(db, raw)).collect()
}

fn complete(db: &Db, raw: CallColumns) -> Result<Row, Error> {
    let id = RowId(raw.id);
    Ok(Row {
        id,
        uuid: CallUuid(uuid::Uuid::from_bytes(raw.uuid)),
        state: db.read_state(id, &raw.state)?,
        record: db.read_json(id, &raw.record)?,
        call: db.read_json(id, &raw.call)?,
        request_id: raw.request_id,
        token: raw.token.map(TokenFingerprint::stored),
        attempts: db.read_json::<Vec<Attempt>>(id, &raw.attempts)?,
        submitted_at: raw.submitted_at.map(EventTime::from_micros),
        polls: raw.polls,
        next_poll: raw.next_poll.map(EventTime::from_micros),
        resubmits: raw.resubmits,
        failures: raw.failures,
        not_before: (raw.not_before > 0).then(|| EventTime::from_micros(raw.not_before)),
        live: raw.live,
        reason: raw
            .reason
            .map(|word| db.read_reason(id, &word))
            .transpose()?,
        message: raw.message,
        errors: db.read_errors(id, raw.errors.as_deref())?,
        since: EventTime::from_micros(raw.since),
    })
}
