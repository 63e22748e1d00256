//! The outbox: letters that the broker has yet to be told of, and those that left.

use super::{calls, letters};
use crate::db::Columns as _;
use crate::db::count;
use crate::{Db, Error, Left, Letter, Notice, RowId, Store};
use callbridge_call::EventTime;

/// Reports a letter to those who watch, and queues its notice in the transaction that made it.
pub(crate) fn queue_notice(store: &mut Store, id: RowId) -> Result<(), Error> {
    store.tally.letter(id);
    if !store.settings.notices {
        return Ok(());
    }
    let mut letter = letters::letter(store, id)?
        .ok_or_else(|| store.damaged(format!("{id} is not a letter")))?;
    if let Some(unread) = &mut letter.bytes {
        unread.bytes.truncate(crate::LISTED_BYTES_MAX);
    }
    let message_id = format!("{}:{}", letter.id, letter.deaths);
    add_notice(store, &message_id, &letter.to_json(), letter.since)
}

/// Reads the letter as it is before a step that may end it; `None` where no notices are sent.
pub(crate) fn before_it_leaves(store: &Store, id: RowId) -> Result<Option<Letter>, Error> {
    match store.settings.notices {
        true => letters::letter(store, id),
        false => Ok(None),
    }
}

/// Queues the notice of a letter that left: as it was, with how the call stands now.
pub(crate) fn queue_leave(
    db: &Db,
    letter: &Letter,
    left: Left,
    at: EventTime,
) -> Result<(), Error> {
    let mut body = letter.to_json();
    body["hint"] = serde_json::Value::Null;
    if let Some(row) = calls::row(db, letter.id)? {
        body["call"] = serde_json::json!(row.record);
    }
    queue_left(db, letter.id, letter.deaths, body, left, at)
}

/// Queues the notice of a call that left some time ago, and has now reached the journal.
pub(crate) fn queue_journaled(
    store: &Store,
    id: RowId,
    deaths: u32,
    at: EventTime,
) -> Result<(), Error> {
    let Some(row) = calls::row(store, id)?.filter(|_| store.settings.notices) else {
        return Ok(());
    };
    let body = serde_json::json!({
        "id": id, "uuid": row.uuid, "linkedid": row.record.linkedid, "reason": null,
        "message": "", "errors": null, "attempts": [], "acts": [], "call": row.record, "hint": null,
    });
    queue_left(store, id, deaths, body, Left::Journaled, at)
}

fn queue_left(
    db: &Db,
    id: RowId,
    deaths: u32,
    mut body: serde_json::Value,
    left: Left,
    at: EventTime,
) -> Result<(), Error> {
    body["state"] = left.word().into();
    body["since"] = at.floor_seconds().get().into();
    let message_id = format!("{id}:{deaths}:{}", left.word());
    add_notice(db, &message_id, &body, at)
}

/// Queues a notice; its headers (reason, state, trunk) are taken from the body.
fn add_notice(
    db: &Db,
    message_id: &str,
    body: &serde_json::Value,
    at: EventTime,
) -> Result<(), Error> {
    let text = |name: &str| body[name].as_str();
    let uuid = text("uuid").and_then(|text| uuid::Uuid::parse_str(text).ok());
    db.run(
        "INSERT INTO notices (message_id, body, reason, uuid, linkedid, trunk, state, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        (
            message_id,
            body.to_string(),
            text("reason").unwrap_or_default(),
            uuid.map(uuid::Uuid::into_bytes),
            text("linkedid"),
            body["call"]["trunk"].as_str(),
            text("state"),
            at.micros(),
        ),
    )
}

/// Reads the notices that are to be sent, oldest first.
pub fn notices(db: &Db, limit: usize) -> Result<Vec<Notice>, Error> {
    db.query_all(
        "SELECT id, message_id, body, nullif(reason, ''), uuid, linkedid, trunk, state, at
         FROM notices ORDER BY id LIMIT ?1",
        [count(limit)],
        |row| {
            Ok(Notice {
                notice: row.get(0)?,
                message_id: row.get(1)?,
                body: row.get(2)?,
                reason: row.maybe_reason(3)?,
                state: row.get(7)?,
                at: Some(row.moment(8)?).filter(|at| at.micros() > 0),
                uuid: row.maybe_uuid(4)?,
                linkedid: row.get(5)?,
                trunk: row.get(6)?,
            })
        },
    )
}

pub(crate) fn drop_notice(db: &Db, notice: i64) -> Result<(), Error> {
    db.run("DELETE FROM notices WHERE id = ?1", [notice])
}
