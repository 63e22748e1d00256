//! The outbox, which holds notifications that the RabbitMQ broker hasn't confirmed yet. They report
//! new dead letters and waiting calls, and what became of them.

use super::{calls, letters};
use crate::{Db, Error, Left, Letter, Notice, RowId, Store, count};
use callbridge_call::EventTime;

/// Reports a new dead letter or waiting call to readers such as `dead watch`, and queues its
/// notification in the same transaction.
pub(crate) fn queue_notice(store: &mut Store, id: RowId) -> Result<(), Error> {
    if !store.settings.notices {
        store.tally.letters.push(id);
        return Ok(());
    }
    let letter = letters::letter(store, id)?
        .ok_or_else(|| store.damaged(format!("{id} is not a dead letter")))?;
    if queue_notice_of(store, letter)? {
        store.run("UPDATE calls SET reported = 1 WHERE id = ?1", [id.0])?;
    }
    Ok(())
}

/// Does the same as [`queue_notice`] for a dead letter that has already been read. Returns `true`
/// if a notification was queued, in which case the caller must set the `reported` column.
pub(super) fn queue_notice_of(store: &mut Store, mut letter: Letter) -> Result<bool, Error> {
    store.tally.letters.push(letter.id);
    let settings = &store.settings;
    if !settings.notices || (letter.waiting && !settings.waiting_notices) {
        return Ok(false);
    }
    if let Some(unread) = &mut letter.bytes {
        unread.bytes.truncate(crate::LISTED_BYTES_MAX);
    }
    let call = (letter.id, letter.times_dead);
    add_notice(store, call, letter.to_json(), None, letter.since)?;
    Ok(true)
}

/// Reads a dead letter or waiting call before a step that may end it, or returns `None` if no
/// notification was queued for it.
pub(crate) fn before_it_leaves(store: &Store, id: RowId) -> Result<Option<Letter>, Error> {
    if store.settings.notices && is_reported(store, id)? {
        letters::letter(store, id)
    } else {
        Ok(None)
    }
}

/// Returns `true` if a notification was queued for this call. For an unreadable message, this is
/// always `true`.
fn is_reported(db: &Db, id: RowId) -> Result<bool, Error> {
    let reported = db.query_first("SELECT reported FROM calls WHERE id = ?1", [id.0])?;
    Ok(reported.unwrap_or(true))
}

/// Queues the notification that a dead letter or waiting call is gone, where `left` says what
/// became of it. `letter` is its last state, but the notification contains the call's current
/// record.
pub(crate) fn queue_leave(
    db: &Db,
    letter: &Letter,
    left: Left,
    at: EventTime,
) -> Result<(), Error> {
    let mut body = letter.to_json();
    body["fix"] = serde_json::Value::Null;
    if let Some(row) = calls::row(db, letter.id)? {
        body["call"] = serde_json::json!(row.record);
    }
    add_notice(db, (letter.id, letter.times_dead), body, Some(left), at)
}

/// Queues the notification that a call, which was once a dead letter or waiting, is now in the
/// journal. Does nothing if no earlier notification was queued for it.
pub(crate) fn queue_journaled(
    store: &Store,
    id: RowId,
    times_dead: u32,
    at: EventTime,
) -> Result<(), Error> {
    if !store.settings.notices || !is_reported(store, id)? {
        return Ok(());
    }
    let Some(row) = calls::row(store, id)? else {
        return Ok(());
    };
    let body = serde_json::json!({
        "id": id, "uuid": row.uuid, "linkedid": row.record.linkedid, "reason": null,
        "message": "", "errors": null, "attempts": [], "actions": [], "call": row.record,
        "fix": null,
    });
    add_notice(store, (id, times_dead), body, Some(Left::Journaled), at)
}

/// Queues a notification. Its headers, such as reason, state, and trunk, are taken from the body.
/// `left` says what became of the dead letter or waiting call, or is `None` if it's new.
fn add_notice(
    db: &Db,
    (id, times_dead): (RowId, u32),
    mut body: serde_json::Value,
    left: Option<Left>,
    at: EventTime,
) -> Result<(), Error> {
    let mut message_id = format!("{id}:{times_dead}");
    if let Some(left) = left {
        message_id = format!("{message_id}:{}", left.word());
        body["state"] = left.word().into();
        body["since"] = at.floor_seconds().get().into();
    }
    let uuid = body["uuid"]
        .as_str()
        .and_then(|uuid| uuid::Uuid::parse_str(uuid).ok());
    let insert = "INSERT INTO notices (message_id, body, reason, uuid, linkedid, trunk, state, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let values = (
        message_id,
        body.to_string(),
        body["reason"].as_str().unwrap_or_default(),
        uuid.map(uuid::Uuid::into_bytes),
        body["linkedid"].as_str(),
        body["call"]["trunk"].as_str(),
        body["state"].as_str(),
        at.micros(),
    );
    db.run(insert, values)
}

/// Reads up to `limit` notifications to send, oldest first.
pub fn notices(db: &Db, limit: usize) -> Result<Vec<Notice>, Error> {
    let text = "SELECT id AS notice, message_id, body, nullif(reason, '') AS reason, state,
                CASE WHEN at > 0 THEN at END AS at, uuid, linkedid, trunk
         FROM notices ORDER BY id LIMIT ?1";
    db.query_all(text, [count(limit)])
}

/// Counts the notifications that are still to be sent.
pub fn notices_waiting(db: &Db) -> Result<u64, Error> {
    db.query_one("SELECT count(*) FROM notices", ())
}

pub(crate) fn drop_notice(db: &Db, notice: i64) -> Result<(), Error> {
    db.run("DELETE FROM notices WHERE id = ?1", [notice])
}
