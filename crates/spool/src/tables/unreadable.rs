//! Bytes of a source that nobody could read.

use super::{meta, outbox};
use crate::state::{Refused, State, Step};
use crate::tally::Book;
use crate::{Db, Done, Error, Left, RowId, Store, UnreadableBytes};
use crate::{UNREADABLE_BYTES_ALL, UNREADABLE_BYTES_MAX, UNREADABLE_LETTERS_MAX};
use callbridge_call::EventTime;
use std::collections::BTreeMap;

/// Counter: messages that were counted alone, because as many are kept as may be.
const NOT_KEPT: &str = "unreadable_not_kept";

/// Keeps bytes of a source, with the reason why they cannot be read; `by` is `None` of a line of
/// the PBX itself.
pub(crate) fn keep_unreadable(store: &mut Store, unread: &UnreadableBytes) -> Result<Done, Error> {
    let UnreadableBytes { bytes, by, .. } = unread;
    let first = &bytes[..bytes.len().min(UNREADABLE_BYTES_MAX)];
    let length = unread.cut_from.unwrap_or(bytes.len() as u64);
    if let Some(file) = &unread.file {
        if let Some(id) = kept_as_is(store, unread, first, length)? {
            return Ok(Done::Unreadable(Some(id)));
        }
        settle_file(store, &unread.source, file, unread.at)?;
    }
    store.tally.add(Book::Unreadable, 1);
    let login = by.as_ref().map(|by| by.user.as_deref().unwrap_or_default());
    if !finds_room(store, first.len(), login)? {
        store.tally.count(NOT_KEPT, 1);
        let text = "UPDATE unreadable_logins SET not_kept = not_kept + 1 WHERE login = ?1";
        store.execute(text, [login])?;
        return Ok(Done::Unreadable(None));
    }
    let id = store.new_id();
    let by = by.clone().unwrap_or_default();
    let text =
        "INSERT INTO unreadable (id, source, pbx, why, at, length, bytes, user, content_type, file)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let values = (
        id.0,
        &unread.source,
        &unread.pbx,
        &unread.why,
        unread.at.micros(),
        length,
        first,
        by.user,
        by.content_type,
        &unread.file,
    );
    store.execute(text, values)?;
    store.tally.add(Book::UnreadableKept, 1);
    outbox::queue_notice(store, id)?;
    Ok(Done::Unreadable(Some(id)))
}

/// Finds the dead letter of the same file with the same content. A restart reads files again.
fn kept_as_is(
    store: &Store,
    unread: &UnreadableBytes,
    first: &[u8],
    length: u64,
) -> Result<Option<RowId>, Error> {
    let text = "SELECT id FROM unreadable
         WHERE source = ?1 AND file = ?2 AND why = ?3 AND length = ?4 AND bytes = ?5";
    let values = (&unread.source, &unread.file, &unread.why, length, first);
    let id: Option<i64> = store.query_first(text, values)?;
    Ok(id.map(RowId))
}

/// Forgets the dead letters of a file, because it was read again.
pub(crate) fn settle_file(
    store: &mut Store,
    source: &str,
    file: &str,
    at: EventTime,
) -> Result<(), Error> {
    let text = "SELECT id FROM unreadable WHERE source = ?1 AND file = ?2";
    let letters: Vec<i64> = store.query_all(text, (source, file))?;
    for id in letters {
        leave(store, RowId(id), Left::Retried, at)?;
    }
    Ok(())
}

/// A login may fill as much as it leaves to all others: half of the room where it is alone, and
/// however many of them flood, whoever comes next finds some.
fn finds_room(store: &Store, more: usize, login: Option<&str>) -> Result<bool, Error> {
    let bytes: i64 = store.query_one("SELECT bytes FROM unreadable_size WHERE one = 1", [])?;
    // No login is called NULL: a line of the PBX has filled nothing.
    let text = "SELECT letters, bytes FROM unreadable_logins WHERE login = ?1";
    let of_login: Option<(u64, i64)> = store.query_first(text, [login])?;
    let (own_letters, own_bytes) = of_login.unwrap_or_default();
    let more = i64::try_from(more).unwrap_or(i64::MAX);
    let room = UNREADABLE_LETTERS_MAX.saturating_sub(store.tally.get(Book::UnreadableKept));
    Ok(own_letters < room && own_bytes.saturating_add(more) <= UNREADABLE_BYTES_ALL - bytes)
}

/// Logins of which messages were not kept, and how many, until their letters are settled.
///
/// # Errors
/// When the store cannot be read.
pub fn floods(db: &Db) -> Result<BTreeMap<String, u64>, Error> {
    let text = "SELECT login, not_kept FROM unreadable_logins WHERE not_kept > 0 LIMIT 100";
    Ok(db.query_all(text, [])?.into_iter().collect())
}

/// `Discard` exists for such a letter, and `Retry`, when it was read as a call that is stored with
/// it: it is forgotten.
pub(crate) fn step_unreadable(
    store: &mut Store,
    row: RowId,
    step: &Step,
    at: EventTime,
) -> Result<Done, Error> {
    let (left, to) = match step {
        Step::Discard { .. } => (Left::Discarded, State::Discarded),
        Step::Retry { .. } => (Left::Retried, State::Ready),
        _ if store.exists("SELECT 1 FROM unreadable WHERE id = ?1", [row.0])? => {
            let (state, step) = (State::Dead, step.name());
            return Err(Error::Refused(row, Refused { state, step }));
        }
        _ => return Err(Error::NoRow(row)),
    };
    leave(store, row, left, at)?;
    Ok(Done::Stepped(to))
}

/// Forgets a dead letter, and queues the notice of that.
fn leave(store: &mut Store, row: RowId, left: Left, at: EventTime) -> Result<(), Error> {
    let letter = outbox::before_it_leaves(store, row)?;
    if store.execute("DELETE FROM unreadable WHERE id = ?1", [row.0])? == 0 {
        return Err(Error::NoRow(row));
    }
    meta::remember_highest_id(store)?;
    store.tally.add(Book::UnreadableKept, -1);
    if let Some(letter) = letter {
        outbox::queue_leave(store, &letter, left, at)?;
    }
    Ok(())
}
